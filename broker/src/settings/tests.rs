//! What each SDK must find in the reply.

use super::*;
use v2::ClientType;
use v2::retry_policy::Strategy;
use v2::settings::PubSub;

const POLL_MS: u64 = 10_000;

fn resource(name: &str) -> v2::Resource {
    v2::Resource { resource_namespace: String::new(), name: name.to_owned() }
}

fn sent(client_type: ClientType, pub_sub: PubSub) -> v2::Settings {
    v2::Settings {
        client_type: Some(client_type as i32),
        access_point: Some(v2::Endpoints::default()),
        request_timeout: Some(seconds(3)),
        user_agent: Some(v2::Ua { hostname: "h".to_owned(), ..v2::Ua::default() }),
        pub_sub: Some(pub_sub),
        ..v2::Settings::default()
    }
}

fn producer() -> v2::Settings {
    let publishing = v2::Publishing { topics: vec![resource("t")], max_body_size: 0, validate_message_type: false };
    sent(ClientType::Producer, PubSub::Publishing(publishing))
}

fn consumer(client_type: ClientType) -> v2::Settings {
    let subscription = v2::Subscription {
        group: Some(resource("g")),
        subscriptions: vec![v2::SubscriptionEntry { topic: Some(resource("t")), expression: None }],
        long_polling_timeout: Some(seconds(15)),
        ..v2::Subscription::default()
    };
    sent(client_type, PubSub::Subscription(subscription))
}

fn answered(sdk: Sdk, settings: v2::Settings) -> v2::Settings {
    reply(sdk, settings, POLL_MS, |group| {
        assert_eq!(group.name, "g");
        GroupTraits { fifo: true, attempts_max: 5 }
    })
}

fn subscription(settings: &v2::Settings) -> &v2::Subscription {
    match &settings.pub_sub {
        Some(PubSub::Subscription(subscription)) => subscription,
        other => panic!("not a subscription: {other:?}"),
    }
}

#[test]
fn every_producer_gets_exponential_backoff_and_a_body_size() {
    for sdk in Sdk::ALL {
        let reply = answered(sdk, producer());
        let backoff = reply.backoff_policy.unwrap();
        assert_eq!(backoff.max_attempts, 3);
        let Some(Strategy::ExponentialBackoff(exponential)) = backoff.strategy else { panic!("{sdk:?}") };
        assert_eq!(exponential.initial, Some(Duration { seconds: 0, nanos: 10_000_000 }));
        assert_eq!(exponential.max, Some(seconds(1)));
        assert_eq!(exponential.multiplier, 2.0);
        let Some(PubSub::Publishing(publishing)) = reply.pub_sub else { panic!("{sdk:?}") };
        assert_eq!(publishing.max_body_size, 4_194_304);
        assert!(publishing.validate_message_type);
        assert_eq!(publishing.topics, [resource("t")]);
    }
}

#[test]
fn the_rest_is_echoed_and_metrics_are_off() {
    let reply = answered(Sdk::Java, producer());
    let sent = producer();
    assert_eq!(reply.client_type, sent.client_type);
    assert_eq!(reply.access_point, sent.access_point);
    assert_eq!(reply.request_timeout, sent.request_timeout);
    assert_eq!(reply.user_agent, sent.user_agent);
    assert_eq!(reply.metric, Some(v2::Metric { on: false, endpoints: None }));
}

#[test]
fn push_consumers_get_the_backoff_that_their_sdk_reads() {
    for sdk in Sdk::ALL {
        let reply = answered(sdk, consumer(ClientType::PushConsumer));
        let subscription = subscription(&reply);
        assert_eq!(subscription.fifo, Some(true));
        assert_eq!(subscription.receive_batch_size, Some(32));
        assert_eq!(subscription.long_polling_timeout, Some(seconds(10)), "whole seconds for Python");
        assert_eq!(subscription.subscriptions.len(), 1);
        let backoff = reply.backoff_policy.clone().unwrap();
        assert_eq!(backoff.max_attempts, 5);
        match (sdk, backoff.strategy.unwrap()) {
            (Sdk::Node, Strategy::ExponentialBackoff(exponential)) => {
                assert_eq!((exponential.initial, exponential.max), (Some(seconds(5)), Some(seconds(7_200))));
            }
            (Sdk::Node, other) => panic!("{other:?}"),
            (_, Strategy::CustomizedBackoff(customized)) => {
                assert_eq!(customized.next.len(), 18);
                assert_eq!((customized.next[0], customized.next[17]), (seconds(1), seconds(7_200)));
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn simple_consumers_keep_their_polling_time() {
    let reply = answered(Sdk::Java, consumer(ClientType::SimpleConsumer));
    assert_eq!(subscription(&reply).long_polling_timeout, Some(seconds(15)));
}

#[test]
fn a_group_that_is_not_named_has_default_traits() {
    let settings = sent(ClientType::PushConsumer, PubSub::Subscription(v2::Subscription::default()));
    let reply = reply(Sdk::Go, settings, POLL_MS, |_| panic!("no group was named"));
    assert_eq!(subscription(&reply).fifo, Some(false));
    assert_eq!(reply.backoff_policy.unwrap().max_attempts, 17);
}

#[test]
fn settings_without_a_kind_get_one_from_the_client_type() {
    let none = |client_type: ClientType| {
        let settings = v2::Settings { client_type: Some(client_type as i32), ..v2::Settings::default() };
        reply(Sdk::Java, settings, POLL_MS, |_| GroupTraits::default()).pub_sub
    };
    assert!(matches!(none(ClientType::Producer), Some(PubSub::Publishing(_))));
    assert!(matches!(none(ClientType::LitePushConsumer), Some(PubSub::Subscription(_))));
    assert!(none(ClientType::Unspecified).is_none());
}

#[test]
fn what_a_client_declares() {
    let name = |resource: &v2::Resource| resource.name.clone();
    assert_eq!(
        declared(&producer(), name),
        Declared { client_type: ClientType::Producer as i32, group: None, topics: vec!["t".to_owned()] }
    );
    assert_eq!(
        declared(&consumer(ClientType::PushConsumer), name),
        Declared {
            client_type: ClientType::PushConsumer as i32,
            group: Some("g".to_owned()),
            topics: vec!["t".to_owned()]
        }
    );
}

#[test]
fn client_properties_are_bounded() {
    let with = |count: usize| v2::Settings {
        client_properties: (0..count).map(|index| (index.to_string(), "v".to_owned())).collect(),
        ..v2::Settings::default()
    };
    assert_eq!(check_client_properties(&with(32)), Ok(()));
    assert!(check_client_properties(&with(33)).is_err());
}
