//! Asks every node for the route of one topic, all the time, as each SDK would: a client that cannot get a route can do nothing.

use super::Recorder;
use crate::history::{Answer, Call, Event, Phase};
use anyhow::{Context, Result, anyhow};
use raftmq_proto::v2;
use raftmq_proto::v2::messaging_service_client::MessagingServiceClient;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};

/// The languages of the SDKs as they name them.
pub const LANGUAGES: [&str; 7] = ["JAVA", "GOLANG", "PYTHON", "NODE_JS", "RUST", "CPP", "DOT_NET"];
const EVENTS_COUNT_MAX: usize = 4_000_000;
/// Each node is asked so often.
const PAUSE: Duration = Duration::from_millis(50);
const REQUEST_MAX: Duration = Duration::from_secs(2);
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nodes, `host:port` each.
    pub endpoints: Vec<String>,
    /// A topic that exists all the time.
    pub topic: String,
    /// Ends the workload.
    pub stop: watch::Receiver<bool>,
}

/// Runs until it is stopped and answers the history; the process is the number of the node that was asked.
///
/// # Errors
/// For faults of the harness only.
pub async fn run(options: Options) -> Result<Vec<Event>> {
    let recorder = Arc::new(Recorder::new(EVENTS_COUNT_MAX));
    let mut clients = JoinSet::new();
    for (process, address) in (0..).zip(&options.endpoints) {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).context("a bad address")?;
        let channel = endpoint.connect_timeout(CONNECT_MAX).timeout(REQUEST_MAX).connect_lazy();
        clients.spawn(ask(process, MessagingServiceClient::new(channel), options.clone(), Arc::clone(&recorder)));
    }
    while let Some(joined) = clients.join_next().await {
        joined.context("a client task died")?;
    }
    let recorder = Arc::into_inner(recorder).context("a task outlived the run")?;
    recorder.into_events().map_err(|_| anyhow!("the run made more than {EVENTS_COUNT_MAX} events"))
}

async fn ask(process: u32, mut node: MessagingServiceClient<Channel>, options: Options, recorder: Arc<Recorder>) {
    let resource = v2::Resource { resource_namespace: String::new(), name: options.topic.clone() };
    for language in LANGUAGES.into_iter().cycle() {
        if *options.stop.borrow() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
        let query = v2::QueryRouteRequest { topic: Some(resource.clone()), endpoints: None };
        let mut request = Request::new(query);
        for (key, value) in [("x-mq-client-id", "jepsen-routes"), ("x-mq-language", language)] {
            request.metadata_mut().insert(key, MetadataValue::from_static(value));
        }
        let op = recorder.invoke(process, Call::Route { language: language.to_owned() });
        let phase = match node.query_route(request).await.map(tonic::Response::into_inner) {
            Ok(answer) => judged(answer),
            Err(status) => Phase::Unknown { error: status.to_string() },
        };
        recorder.complete(process, op, phase);
    }
}

fn judged(answer: v2::QueryRouteResponse) -> Phase {
    let status = answer.status.unwrap_or_default();
    if status.code != v2::Code::Ok as i32 {
        return Phase::Fail { error: format!("{} {}", status.code, status.message) };
    }
    let mut lanes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for queue in answer.message_queues {
        let broker = queue.broker.unwrap_or_default();
        let addresses = broker.endpoints.unwrap_or_default().addresses;
        lanes
            .entry(broker.name)
            .or_default()
            .extend(addresses.into_iter().map(|at| format!("{}:{}", at.host, at.port)));
    }
    Phase::Ok { answer: Answer::Route { lanes } }
}
