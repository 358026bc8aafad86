//! The public API over loopback: any client call, through any node, while leaders come and go.

use crate::support::{Cluster, LETTERS};
use raftmq_broker::edge::{Edge, EdgeOptions};
use raftmq_model::clock::Clock;
use raftmq_model::ids::{NodeId, Timestamp};
use raftmq_proto::v2::messaging_service_client::MessagingServiceClient;
use raftmq_proto::v2::receive_message_response::Content;
use raftmq_proto::v2::{self, Code};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Status};

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64)
    }
}

/// A cluster whose nodes serve clients.
struct Served {
    cluster: Cluster,
    ports: BTreeMap<NodeId, (String, JoinHandle<()>)>,
}

impl Served {
    async fn start() -> Served {
        let mut served = Served { cluster: Cluster::start().await, ports: BTreeMap::new() };
        for id in served.cluster.ids() {
            served.serve(id).await;
        }
        served
    }

    async fn serve(&mut self, id: NodeId) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let broker = self.cluster.broker(id);
        let edge = Edge::new(
            broker.router().clone(),
            Arc::clone(&broker.options().meta),
            Arc::new(SystemClock),
            EdgeOptions::new(id, address),
        );
        let server = Server::builder().add_service(edge.messaging_service());
        let task = tokio::spawn(async move {
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
        self.ports.insert(id, (format!("http://{address}"), task));
    }

    /// Stops a node and its client port as a crash does.
    async fn kill(&mut self, id: NodeId) {
        self.ports.remove(&id).unwrap().1.abort();
        self.cluster.kill(id).await;
    }

    /// A client of one node with a connection of its own.
    fn client(&self, id: NodeId) -> Client {
        let channel = Endpoint::from_shared(self.ports[&id].0.clone()).unwrap().connect_lazy();
        Client { rpc: MessagingServiceClient::new(channel) }
    }

    /// One client for each node.
    fn clients(&self) -> Vec<Client> {
        self.cluster.ids().into_iter().map(|id| self.client(id)).collect()
    }

    async fn survivors_of_leader(&self) -> (NodeId, Vec<NodeId>) {
        let leader = self.cluster.leader().await;
        (leader, self.cluster.ids().into_iter().filter(|id| *id != leader).collect())
    }
}

#[derive(Clone)]
struct Client {
    rpc: MessagingServiceClient<Channel>,
}

/// One message as a receive brings it.
struct Got {
    id: String,
    handle: String,
    attempt: i32,
    message: v2::Message,
}

fn call<T>(message: T, patience: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-mq-client-id", "edge-test".parse().unwrap());
    request.metadata_mut().insert("x-mq-language", "JAVA".parse().unwrap());
    request.metadata_mut().insert("x-mq-client-version", "5.2.1".parse().unwrap());
    request.set_timeout(patience);
    request
}

const PATIENCE: Duration = Duration::from_secs(3);

fn resource(name: &str) -> Option<v2::Resource> {
    Some(v2::Resource { resource_namespace: String::new(), name: name.to_owned() })
}

fn code(status: Option<v2::Status>) -> Code {
    Code::try_from(status.unwrap().code).unwrap()
}

fn message(id: &str) -> v2::Message {
    v2::Message {
        topic: resource("orders"),
        user_properties: [("color".to_owned(), "red".to_owned())].into(),
        system_properties: Some(v2::SystemProperties {
            message_id: id.to_owned(),
            tag: Some("paid".to_owned()),
            keys: vec!["k".to_owned()],
            body_encoding: v2::Encoding::Identity as i32,
            ..v2::SystemProperties::default()
        }),
        body: format!("body of {id}").into(),
    }
}

impl Client {
    async fn try_send(&mut self, id: &str, patience: Duration) -> Result<Code, Status> {
        let request = v2::SendMessageRequest { messages: vec![message(id)] };
        let answer = self.rpc.send_message(call(request, patience)).await?.into_inner();
        assert!(answer.entries.iter().all(|entry| entry.message_id == id));
        Ok(code(answer.status))
    }

    async fn send(&mut self, id: &str) {
        assert_eq!(self.try_send(id, PATIENCE).await.unwrap(), Code::Ok);
    }

    async fn receive_from(&mut self, topic: &str, group: &str, poll: Duration) -> (Code, Vec<Got>) {
        let request = v2::ReceiveMessageRequest {
            group: resource(group),
            message_queue: Some(v2::MessageQueue { topic: resource(topic), ..v2::MessageQueue::default() }),
            batch_size: 32,
            invisible_duration: Some(prost_types::Duration { seconds: 600, nanos: 0 }),
            long_polling_timeout: Some(prost_types::Duration::try_from(poll).unwrap()),
            ..v2::ReceiveMessageRequest::default()
        };
        let mut frames = self.rpc.receive_message(call(request, poll + PATIENCE)).await.unwrap().into_inner();
        let (mut status, mut got) = (None, Vec::new());
        while let Some(frame) = frames.message().await.unwrap() {
            match frame.content.unwrap() {
                Content::Status(first) => status = Some(first),
                Content::Message(message) => got.push(Got::of(message)),
                Content::DeliveryTimestamp(_) => {}
            }
        }
        (code(status), got)
    }

    async fn receive(&mut self) -> Vec<Got> {
        let (code, got) = self.receive_from("orders", "billing", Duration::from_millis(50)).await;
        assert_eq!(code, if got.is_empty() { Code::MessageNotFound } else { Code::Ok });
        got
    }

    async fn ack(&mut self, handles: &[&str]) -> Code {
        let entry = |handle: &&str| v2::AckMessageEntry {
            message_id: String::new(),
            receipt_handle: (*handle).to_owned(),
            lite_topic: None,
        };
        let request = v2::AckMessageRequest {
            group: resource("billing"),
            topic: resource("orders"),
            entries: handles.iter().map(entry).collect(),
        };
        code(self.rpc.ack_message(call(request, PATIENCE)).await.unwrap().into_inner().status)
    }

    async fn change(&mut self, handle: &str, seconds: i64) -> (Code, String) {
        let request = v2::ChangeInvisibleDurationRequest {
            group: resource("billing"),
            topic: resource("orders"),
            receipt_handle: handle.to_owned(),
            invisible_duration: Some(prost_types::Duration { seconds, nanos: 0 }),
            ..v2::ChangeInvisibleDurationRequest::default()
        };
        let answer = self.rpc.change_invisible_duration(call(request, PATIENCE)).await.unwrap().into_inner();
        (code(answer.status), answer.receipt_handle)
    }

    async fn give_up(&mut self, handle: &str) -> Code {
        let request = v2::ForwardMessageToDeadLetterQueueRequest {
            group: resource("billing"),
            topic: resource("orders"),
            receipt_handle: handle.to_owned(),
            ..v2::ForwardMessageToDeadLetterQueueRequest::default()
        };
        let answer = self.rpc.forward_message_to_dead_letter_queue(call(request, PATIENCE)).await.unwrap();
        code(answer.into_inner().status)
    }
}

impl Got {
    fn of(message: v2::Message) -> Got {
        let system = message.system_properties.clone().unwrap();
        Got {
            id: system.message_id,
            handle: system.receipt_handle.unwrap(),
            attempt: system.delivery_attempt.unwrap(),
            message,
        }
    }
}

/// Receives and acknowledges until nothing is left; the ids in the order of delivery.
async fn drain(client: &mut Client) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let got = client.receive().await;
        if got.is_empty() {
            return ids;
        }
        let handles: Vec<&str> = got.iter().map(|got| got.handle.as_str()).collect();
        assert_eq!(client.ack(&handles).await, Code::Ok);
        ids.extend(got.into_iter().map(|got| got.id));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_lives_through_all_nodes() {
    let served = Served::start().await;
    let [mut first, mut second, mut third] = <[Client; 3]>::try_from(served.clients()).ok().unwrap();
    first.send("m-1").await;
    second.send("m-1").await;
    let got = second.receive().await;
    assert_eq!(got.len(), 1, "a retry is stored once");
    let sent = message("m-1");
    assert_eq!((&got[0].message.body, &got[0].message.user_properties), (&sent.body, &sent.user_properties));
    let system = got[0].message.system_properties.clone().unwrap();
    assert_eq!((system.tag.as_deref(), system.keys.as_slice()), (Some("paid"), ["k".to_owned()].as_slice()));
    assert_eq!(got[0].attempt, 1);

    let (status, renewed) = third.change(&got[0].handle, 0).await;
    assert_eq!(status, Code::Ok);
    assert_ne!(renewed, got[0].handle);
    assert_eq!(first.ack(&[&got[0].handle]).await, Code::InvalidReceiptHandle, "the old handle is not good any more");
    let again = first.receive().await;
    assert_eq!((again.len(), again[0].attempt), (1, 2));
    assert_eq!(third.ack(&[&again[0].handle]).await, Code::Ok);
    assert_eq!(second.ack(&[&again[0].handle]).await, Code::Ok, "an ack may be repeated, anywhere");
    assert!(first.receive().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_given_up_is_a_dead_letter() {
    let served = Served::start().await;
    let [mut first, mut second, mut third] = <[Client; 3]>::try_from(served.clients()).ok().unwrap();
    first.send("m-1").await;
    let got = second.receive().await;
    assert_eq!(third.give_up(&got[0].handle).await, Code::Ok);
    assert_eq!(first.give_up(&got[0].handle).await, Code::Ok, "SDKs repeat it until it is OK");
    assert!(first.receive().await.is_empty());
    let letters = served.cluster.meta.topic(LETTERS.0).unwrap().name;
    let (status, dead) = second.receive_from(&letters, "audit", Duration::from_secs(5)).await;
    assert_eq!((status, dead.len()), (Code::Ok, 1));
    assert_eq!(dead[0].message.body, message("m-1").body);
    let origin = dead[0].message.system_properties.clone().unwrap().dead_letter_queue.unwrap();
    assert_eq!((origin.topic.as_str(), origin.message_id.as_str()), ("orders", "m-1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_at_any_node_ends_with_the_message() {
    let served = Served::start().await;
    for (round, id) in served.cluster.ids().into_iter().enumerate() {
        let mut polling = served.client(id);
        let poll =
            tokio::spawn(async move { polling.receive_from("orders", "billing", Duration::from_secs(15)).await });
        let sent = format!("m-{round}");
        served.client(served.cluster.ids()[(round + 1) % 3]).send(&sent).await;
        let started = Instant::now();
        let (status, got) = poll.await.unwrap();
        assert_eq!((status, got.len()), (Code::Ok, 1));
        assert_eq!(got[0].id, sent);
        assert!(started.elapsed() < Duration::from_secs(5), "woken, not timed out");
    }
}

/// An election is one slow call, not an error: the living nodes hold what comes in meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_death_of_a_leader_is_no_error_at_the_other_nodes() {
    let mut served = Served::start().await;
    let (leader, survivors) = served.survivors_of_leader().await;
    let (count, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut senders = JoinSet::new();
    for (name, id) in survivors.iter().cycle().take(8).enumerate() {
        let (mut client, count, stop) = (served.client(*id), Arc::clone(&count), Arc::clone(&stop));
        senders.spawn(async move {
            let mut sent = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let id = format!("{name}-{}", sent.len());
                client.send(&id).await;
                sent.push(id);
                count.fetch_add(1, Ordering::Relaxed);
            }
            sent
        });
    }
    let more = async |more: usize| {
        let goal = count.load(Ordering::Relaxed) + more;
        while count.load(Ordering::Relaxed) < goal {
            tokio::task::yield_now().await;
        }
    };
    more(200).await;
    served.kill(leader).await;
    more(400).await;
    stop.store(true, Ordering::Relaxed);
    let sent: Vec<String> = senders.join_all().await.into_iter().flatten().collect();
    let received = drain(&mut served.client(survivors[0])).await;
    assert_eq!(received.len(), sent.len(), "nothing lost, nothing twice");
    assert_eq!(received.into_iter().collect::<BTreeSet<_>>(), sent.into_iter().collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_a_send_is_answered_before_its_deadline() {
    let mut served = Served::start().await;
    let (leader, survivors) = served.survivors_of_leader().await;
    served.client(survivors[0]).send("before").await;
    served.kill(leader).await;
    served.kill(survivors[1]).await;
    let mut client = served.client(survivors[0]);
    let patience = Duration::from_millis(1_500);
    // A leader may have been on its way when the majority went.
    for round in 0.. {
        let started = Instant::now();
        let code = client.try_send(&format!("m-{round}"), patience).await.unwrap();
        assert!(started.elapsed() < patience && started.elapsed() > patience / 2, "{:?}", started.elapsed());
        match code {
            Code::HaNotAvailable => break,
            Code::MasterPersistenceTimeout => {}
            other => panic!("{other:?}"),
        }
    }
    // The rest of the API answers all the same.
    let route = v2::QueryRouteRequest { topic: resource("orders"), endpoints: None };
    let answer = client.rpc.query_route(call(route, PATIENCE)).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::Ok);
    let heartbeat = v2::HeartbeatRequest::default();
    let answer = client.rpc.heartbeat(call(heartbeat, PATIENCE)).await.unwrap().into_inner();
    assert_eq!(code(answer.status), Code::Ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_calls_leave_the_connection_as_it_was() {
    let served = Served::start().await;
    let mut client = served.client(served.cluster.follower().await);
    let refused = client.rpc.send_message(Request::new(v2::SendMessageRequest::default())).await.unwrap().into_inner();
    assert_eq!(code(refused.status), Code::ClientIdRequired);
    assert_eq!(client.ack(&["not a handle"]).await, Code::InvalidReceiptHandle);
    let large = v2::Message { body: vec![0u8; 40 << 20].into(), ..message("large") };
    let request = v2::SendMessageRequest { messages: vec![large] };
    let too_large = client.rpc.send_message(call(request, PATIENCE)).await.unwrap_err();
    assert_eq!(too_large.code(), tonic::Code::ResourceExhausted, "{too_large:?}");
    client.send("m-1").await;
    assert_eq!(drain(&mut client).await, ["m-1"]);
}
