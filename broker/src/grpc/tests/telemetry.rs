//! `Telemetry`.

use super::*;
use futures::StreamExt;
use futures::stream;
use raftmq_model::config::ConsumerGroupConfig;
use raftmq_model::meta::MetaRecord;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use v2::telemetry_command::Command;
use v2::{ClientType, Code, TelemetryCommand};

struct Stream {
    outbound: mpsc::Sender<TelemetryCommand>,
    inbound: Streaming<TelemetryCommand>,
}

impl Stream {
    /// Returns as soon as the server's headers are there, before anything was sent.
    async fn open(harness: &Harness, language: &str) -> Stream {
        let (outbound, sent) = mpsc::channel(4);
        let request = call_as(language, "5.1.2", ReceiverStream::new(sent));
        let inbound = harness.client().telemetry(request).await.unwrap().into_inner();
        Stream { outbound, inbound }
    }

    async fn exchange(&mut self, settings: v2::Settings) -> TelemetryCommand {
        let command = TelemetryCommand { status: None, command: Some(Command::Settings(settings)) };
        self.outbound.send(command).await.unwrap();
        self.inbound.message().await.unwrap().expect("an answer")
    }
}

fn push_settings() -> v2::Settings {
    v2::Settings {
        client_type: Some(ClientType::PushConsumer as i32),
        pub_sub: Some(v2::settings::PubSub::Subscription(v2::Subscription {
            group: resource("billing"),
            subscriptions: vec![v2::SubscriptionEntry { topic: resource("orders"), expression: None }],
            ..v2::Subscription::default()
        })),
        ..v2::Settings::default()
    }
}

#[tokio::test]
async fn settings_are_answered_each_time_with_ok() {
    let harness = Harness::new();
    let mut stream = Stream::open(&harness, "PYTHON").await;
    for _ in 0..2 {
        let answer = stream.exchange(push_settings()).await;
        assert_eq!(code(answer.status), Code::Ok);
        assert!(matches!(answer.command, Some(Command::Settings(_))));
    }
    let [client] = harness.edge.clients().list().try_into().unwrap();
    assert_eq!((client.id.as_str(), client.stream_count), (CLIENT, 1));
    assert_eq!(client.declared.group.as_deref(), Some("billing"));
    assert_eq!(client.declared.topics, ["orders"]);
}

#[tokio::test]
async fn traits_are_those_of_the_consumer_group() {
    let harness = Harness::new();
    let group = ConsumerGroupConfig {
        fifo: true,
        attempts_max: 4,
        version: 2,
        ..fake::consumer_group("billing", fake::GROUP_UID)
    };
    harness.fake.change(vec![MetaRecord::ConsumerGroup(group)]);
    let answer = Stream::open(&harness, "JAVA").await.exchange(push_settings()).await;
    let Some(Command::Settings(settings)) = answer.command else { panic!("settings") };
    assert_eq!(settings.backoff_policy.unwrap().max_attempts, 4);
    let Some(v2::settings::PubSub::Subscription(subscription)) = settings.pub_sub else { panic!("subscription") };
    assert_eq!(subscription.fifo, Some(true));
}

#[tokio::test]
async fn other_commands_are_taken_silently() {
    let harness = Harness::new();
    let mut stream = Stream::open(&harness, "HTTP").await;
    let odd = [None, Some(Command::VerifyMessageCommand(v2::VerifyMessageCommand::default()))];
    for command in odd {
        stream.outbound.send(TelemetryCommand { status: None, command }).await.unwrap();
    }
    let answer = stream.exchange(v2::Settings::default()).await;
    assert_eq!(code(answer.status), Code::Ok, "settings without a kind too");
}

#[tokio::test]
async fn client_properties_past_their_bounds_are_refused() {
    let harness = Harness::new();
    let properties = (0..33).map(|index| (index.to_string(), "v".to_owned())).collect();
    let settings = v2::Settings { client_properties: properties, ..push_settings() };
    let answer = Stream::open(&harness, "JAVA").await.exchange(settings.clone()).await;
    assert_eq!(code(answer.status), Code::InvalidClientProperties);
    let answer = Stream::open(&harness, "RUST").await.exchange(settings).await;
    assert_eq!(code(answer.status), Code::BadRequest);
}

#[tokio::test]
async fn without_a_client_id_the_stream_says_so_and_ends() {
    let harness = Harness::new();
    let request = Request::new(stream::pending());
    let frames = harness.client().telemetry(request).await.unwrap().into_inner();
    let frames: Vec<_> = frames.collect().await;
    let [Ok(only)] = frames.as_slice() else { panic!("{frames:?}") };
    assert_eq!(code(only.status.clone()), Code::ClientIdRequired);
}

#[tokio::test]
async fn the_server_can_speak_to_a_client() {
    let harness = Harness::new();
    let mut stream = Stream::open(&harness, "JAVA").await;
    let reconnect = Command::ReconnectEndpointsCommand(v2::ReconnectEndpointsCommand { nonce: "n".to_owned() });
    let command = TelemetryCommand { status: None, command: Some(reconnect) };
    assert!(harness.edge.clients().command(CLIENT, &command));
    assert_eq!(stream.inbound.message().await.unwrap(), Some(command));
}

#[tokio::test]
async fn a_stream_leaves_the_registry_when_the_client_closes_it() {
    let harness = Harness::new();
    let Stream { outbound, mut inbound } = Stream::open(&harness, "GO").await;
    drop(outbound);
    assert!(inbound.message().await.unwrap().is_none());
    drop(inbound);
    assert!(harness.edge.clients().list().is_empty());
}

#[tokio::test]
async fn streams_are_bounded() {
    let harness = Harness::with(Fake::one_group(), |options| options.telemetry_streams_count_max = 1);
    let _held = Stream::open(&harness, "GO").await;
    let refused = harness.client().telemetry(call(stream::pending())).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
}

#[tokio::test]
async fn settings_are_not_kept_in_the_budget() {
    let harness = Harness::new();
    let mut stream = Stream::open(&harness, "GO").await;
    stream.exchange(push_settings()).await;
    assert_eq!(harness.edge.in_flight_bytes(), 0);
}
