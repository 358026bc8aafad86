//! The client: connections and routes, shared by the producers and consumers that it hands out.

use crate::error::ClientError;
use crate::message::FilterExpression;
use crate::message_id::MessageIds;
use crate::metadata::Headers;
use crate::node::{Nodes, address_of};
use crate::options::ClientOptions;
use crate::producer::Producer;
use crate::route::Routes;
use crate::session::{Session, Shared};
use crate::simple_consumer::SimpleConsumer;
use crate::telemetry::Role;
use std::sync::Arc;

/// A client of one cluster.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// A client of the cluster that serves `endpoints` (`host:port` each, any of its nodes). Connections are made with the
    /// first calls, so that a node that is down now does no harm.
    ///
    /// # Errors
    /// When there is no endpoint, one is not `host:port`, or the client name or namespace cannot be a header.
    pub async fn connect(endpoints: Vec<String>, options: ClientOptions) -> Result<Client, ClientError> {
        if endpoints.is_empty() {
            return Err(ClientError::Endpoint(String::new()));
        }
        let endpoints = endpoints.iter().map(|text| address_of(text)).collect::<Result<Vec<_>, _>>()?;
        Headers::new(&options.client_name, &options.namespace)?;
        let nodes = Nodes::new(options.clone());
        let routes = Routes::default();
        Ok(Client { shared: Arc::new(Shared { options, endpoints, nodes, routes, ids: MessageIds::default() }) })
    }

    /// A new producer with a client id of its own.
    #[must_use]
    pub fn producer(&self) -> Producer {
        Producer::new(Session::new(self.shared.clone(), Role::Producer))
    }

    /// A new consumer of one topic for a consumer group, with a client id of its own.
    #[must_use]
    pub fn simple_consumer(&self, group: &str, topic: &str, filter: FilterExpression) -> SimpleConsumer {
        let role = Role::SimpleConsumer {
            group: self.shared.resource(group),
            topic: self.shared.resource(topic),
            filter: filter.clone(),
            await_duration: self.shared.options.await_duration,
        };
        SimpleConsumer::new(Session::new(self.shared.clone(), role), group, topic, filter)
    }

    /// A fresh message id, for a caller that must know it before it sends ([`crate::Message::with_message_id`]).
    #[must_use]
    pub fn next_message_id(&self) -> String {
        self.shared.ids.next_id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use std::time::Duration;

    /// Applications spawn calls as tasks.
    #[allow(dead_code)]
    fn calls_can_be_spawned(producer: Producer, consumer: SimpleConsumer) {
        fn spawnable(_: impl Future<Output: Send> + Send + 'static) {}
        spawnable(async move { producer.send(Message::new("t", "b")).await });
        spawnable(async move {
            let mut messages = consumer.receive(1, Duration::ZERO).await?;
            consumer.ack_many(&messages).await?;
            consumer.change_invisible_duration(&mut messages[0], Duration::ZERO).await
        });
    }

    #[tokio::test]
    async fn bad_arguments_are_refused() {
        let connect = |endpoints: &[&str], options| {
            Client::connect(endpoints.iter().map(|text| (*text).to_owned()).collect(), options)
        };
        assert!(connect(&[], ClientOptions::default()).await.is_err());
        assert!(connect(&["nowhere"], ClientOptions::default()).await.is_err());
        let bad_name = ClientOptions { client_name: "\n".to_owned(), ..ClientOptions::default() };
        assert!(connect(&["localhost:1"], bad_name).await.is_err());
    }
}
