//! Who is connected: the SDKs as they name themselves, and the live telemetry streams of this node.
//!
//! Nothing here is a precondition of a data call (a client may never have been seen by this node). The registry exists so
//! that the server can say something to a client: a transaction check, a reconnect, a stack trace.

use parking_lot::Mutex;
use raftmq_proto::v2;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The SDK that a caller says it is, by `x-mq-language`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sdk {
    /// `JAVA`.
    Java,
    /// `CPP`.
    Cpp,
    /// `GO`.
    Go,
    /// `PYTHON`.
    Python,
    /// `HTTP`, which is what the Node SDK says; `NODE_JS` in case that it changes its mind.
    Node,
    /// `RUST`.
    Rust,
    /// Anything else, or nothing.
    Other,
}

impl Sdk {
    /// All of them.
    pub const ALL: [Sdk; 7] = [Sdk::Java, Sdk::Cpp, Sdk::Go, Sdk::Python, Sdk::Node, Sdk::Rust, Sdk::Other];

    /// By the value of the language header; any value is accepted.
    #[must_use]
    pub fn of_language(language: &str) -> Sdk {
        const NAMES: [(&str, Sdk); 8] = [
            ("JAVA", Sdk::Java),
            ("CPP", Sdk::Cpp),
            ("GO", Sdk::Go),
            ("GOLANG", Sdk::Go),
            ("PYTHON", Sdk::Python),
            ("HTTP", Sdk::Node),
            ("NODE_JS", Sdk::Node),
            ("RUST", Sdk::Rust),
        ];
        NAMES.iter().find(|(name, _)| language.eq_ignore_ascii_case(name)).map_or(Sdk::Other, |(_, sdk)| *sdk)
    }
}

/// Commands that wait for one stream; a client that does not read loses further ones.
pub const STREAM_COMMANDS_COUNT_MAX: usize = 64;
/// Topics remembered for one client.
pub const DECLARED_TOPICS_COUNT_MAX: usize = 256;

/// What a client said about itself in its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// Number of [`v2::ClientType`].
    pub client_type: i32,
    /// Its consumer group, for consumers.
    pub group: Option<String>,
    /// Topics that it publishes or subscribes to, at most [`DECLARED_TOPICS_COUNT_MAX`].
    pub topics: Vec<String>,
}

/// A client with at least one live stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveClient {
    /// Its `x-mq-client-id`.
    pub id: String,
    /// Its SDK.
    pub sdk: Sdk,
    /// Its last settings.
    pub declared: Declared,
    /// Streams that it holds here.
    pub stream_count: usize,
}

/// The live telemetry streams of this node, at most `streams_count_max`.
#[derive(Debug)]
pub struct Clients {
    streams_count_max: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    clients: BTreeMap<String, Client>,
    stream_count: usize,
    opened_count: u64,
}

#[derive(Debug)]
struct Client {
    sdk: Sdk,
    declared: Declared,
    /// The newest last.
    streams: Vec<(u64, mpsc::Sender<v2::TelemetryCommand>)>,
}

/// The node has as many telemetry streams as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node holds {0} telemetry streams already, which is its limit; use another node or try later")]
pub struct TooManyStreams(usize);

impl Clients {
    /// An empty registry.
    #[must_use]
    pub fn new(streams_count_max: usize) -> Arc<Clients> {
        Arc::new(Clients { streams_count_max, table: Mutex::default() })
    }

    /// Registers a stream; it leaves the registry when the returned value is dropped.
    ///
    /// # Errors
    ///
    /// [`TooManyStreams`].
    pub fn open(self: &Arc<Self>, id: &str, sdk: Sdk) -> Result<LiveStream, TooManyStreams> {
        let mut table = self.table.lock();
        if table.stream_count >= self.streams_count_max {
            return Err(TooManyStreams(table.stream_count));
        }
        let (sender, commands) = mpsc::channel(STREAM_COMMANDS_COUNT_MAX);
        table.stream_count += 1;
        table.opened_count += 1;
        let number = table.opened_count;
        let client = table.clients.entry(id.to_owned()).or_insert_with(|| Client {
            sdk,
            declared: Declared::default(),
            streams: Vec::new(),
        });
        client.streams.push((number, sender));
        Ok(LiveStream { clients: Arc::clone(self), id: id.to_owned(), number, commands })
    }

    /// Sends a command to a client through its newest stream. `false`: it has no stream here that takes it.
    pub fn command(&self, id: &str, command: &v2::TelemetryCommand) -> bool {
        let table = self.table.lock();
        let Some(client) = table.clients.get(id) else { return false };
        client.streams.iter().rev().any(|(_, stream)| stream.try_send(command.clone()).is_ok())
    }

    /// All clients with a live stream, by id.
    #[must_use]
    pub fn list(&self) -> Vec<LiveClient> {
        let table = self.table.lock();
        let live = |(id, client): (&String, &Client)| LiveClient {
            id: id.clone(),
            sdk: client.sdk,
            declared: client.declared.clone(),
            stream_count: client.streams.len(),
        };
        table.clients.iter().map(live).collect()
    }

    /// Forgets what a client declared; it is going away. Its streams end when it closes them.
    pub fn terminated(&self, id: &str) {
        if let Some(client) = self.table.lock().clients.get_mut(id) {
            client.declared = Declared::default();
        }
    }

    fn declare(&self, id: &str, declared: Declared) {
        if let Some(client) = self.table.lock().clients.get_mut(id) {
            client.declared = declared;
        }
    }

    fn close(&self, id: &str, number: u64) {
        let mut table = self.table.lock();
        let Some(client) = table.clients.get_mut(id) else { return };
        let before = client.streams.len();
        client.streams.retain(|(other, _)| *other != number);
        let closed = before - client.streams.len();
        if client.streams.is_empty() {
            table.clients.remove(id);
        }
        table.stream_count -= closed;
    }
}

/// One registered stream.
#[derive(Debug)]
pub struct LiveStream {
    clients: Arc<Clients>,
    id: String,
    number: u64,
    commands: mpsc::Receiver<v2::TelemetryCommand>,
}

impl LiveStream {
    /// Remembers what the client says about itself.
    pub fn declare(&self, mut declared: Declared) {
        declared.topics.truncate(DECLARED_TOPICS_COUNT_MAX);
        self.clients.declare(&self.id, declared);
    }

    /// The next command for the client. Safe to cancel. Never ends while the stream is registered.
    pub async fn command(&mut self) -> Option<v2::TelemetryCommand> {
        self.commands.recv().await
    }
}

impl Drop for LiveStream {
    fn drop(&mut self) {
        self.clients.close(&self.id, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages() {
        for (text, sdk) in [
            ("JAVA", Sdk::Java),
            ("CPP", Sdk::Cpp),
            ("GO", Sdk::Go),
            ("PYTHON", Sdk::Python),
            ("HTTP", Sdk::Node),
            ("RUST", Sdk::Rust),
            ("DOTNET", Sdk::Other),
            ("PHP", Sdk::Other),
            ("", Sdk::Other),
        ] {
            assert_eq!(Sdk::of_language(text), sdk, "{text}");
        }
    }

    #[tokio::test]
    async fn commands_go_to_the_newest_stream_that_takes_them() {
        let clients = Clients::new(8);
        let mut old = clients.open("a", Sdk::Java).unwrap();
        let mut new = clients.open("a", Sdk::Java).unwrap();
        let command = v2::TelemetryCommand::default();
        assert!(clients.command("a", &command));
        assert!(new.command().await.is_some());
        for _ in 0..STREAM_COMMANDS_COUNT_MAX + 1 {
            assert!(clients.command("a", &command));
        }
        assert!(old.command().await.is_some());
        assert!(!clients.command("b", &command));
    }

    #[test]
    fn streams_are_bounded_and_leave_when_dropped() {
        let clients = Clients::new(2);
        let first = clients.open("a", Sdk::Go).unwrap();
        let _second = clients.open("b", Sdk::Go).unwrap();
        assert!(clients.open("c", Sdk::Go).is_err());
        drop(first);
        let third = clients.open("c", Sdk::Go).unwrap();
        third.declare(Declared { client_type: 1, group: None, topics: vec!["t".to_owned(); 1000] });
        let ids: Vec<(String, usize)> = clients.list().into_iter().map(|c| (c.id, c.declared.topics.len())).collect();
        assert_eq!(ids, [("b".to_owned(), 0), ("c".to_owned(), DECLARED_TOPICS_COUNT_MAX)]);
        clients.terminated("c");
        assert_eq!(clients.list()[1].declared, Declared::default());
    }
}
