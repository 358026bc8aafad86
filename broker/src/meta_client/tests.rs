//! The parts that need no network.

use super::caught_up::caught_up;
use super::reports::LeaderReports;
use super::*;
use raftmq_model::meta::{BrokerGroupRecord, MetaRecord, MetaRecordBox, NodeRecord, ReportLeader};

fn view(revision: u64, records: impl IntoIterator<Item = MetaRecord>) -> MetaView {
    let mut view = MetaView::default();
    view.take(&change(revision, true, records));
    view
}

fn change(revision: u64, reset: bool, records: impl IntoIterator<Item = MetaRecord>) -> MetaChange {
    let records = records.into_iter().map(|record| MetaRecordBox { record: Some(record) }).collect();
    MetaChange { revision, reset, cluster_id: if reset { "c1".to_owned() } else { String::new() }, records }
}

fn topic(uid: u64, version: u64) -> TopicConfig {
    TopicConfig { uid, version, name: format!("topic-{uid}"), ..TopicConfig::default() }
}

fn broker_group(leader_term: u64) -> MetaRecord {
    MetaRecord::BrokerGroup(BrokerGroupRecord { id: 1, leader_node: 1, leader_term, ..Default::default() })
}

#[test]
fn a_view_has_caught_up_with_a_topic_when_it_has_that_version_or_is_past_it() {
    let op = MetaOp::CreateTopic(CreateTopic::default());
    let answer = MetaAnswer::Topic(topic(5, 7));
    let caught_up = |view: MetaView| caught_up(&view, &op, &answer);
    assert!(!caught_up(view(4, [])));
    assert!(!caught_up(view(6, [MetaRecord::Topic(topic(5, 5))])));
    assert!(caught_up(view(7, [MetaRecord::Topic(topic(5, 7))])));
    assert!(caught_up(view(9, [MetaRecord::Topic(topic(5, 9))])));
    assert!(caught_up(view(9, [])), "deleted since");
}

#[test]
fn a_view_has_caught_up_with_the_other_commands() {
    let done = MetaAnswer::Done(true);
    let report = |term| MetaOp::ReportLeader(ReportLeader { group: 1, term, node: 1 });
    assert!(caught_up(&view(3, [broker_group(4)]), &report(4), &done));
    assert!(!caught_up(&view(3, [broker_group(4)]), &report(5), &done));
    assert!(!caught_up(&view(3, [MetaRecord::Topic(topic(2, 2))]), &MetaOp::DeleteTopic(2), &done));
    assert!(caught_up(&view(3, []), &MetaOp::DeleteTopic(2), &done));
    let node = NodeRecord { id: 4, incarnation: 1, alive: true, ..NodeRecord::default() };
    let put = MetaOp::PutNode(NodeRecord { alive: false, ..node.clone() });
    assert!(!caught_up(&view(3, []), &put, &done));
    assert!(caught_up(&view(3, [MetaRecord::Node(node)]), &put, &done));
}

#[test]
fn the_newest_report_of_a_group_waits_until_the_view_knows_the_group() {
    let reports = LeaderReports::default();
    reports.put(GroupId(1), 3, NodeId(1));
    reports.put(GroupId(1), 2, NodeId(2));
    assert_eq!(reports.due(&view(1, [])), []);
    assert_eq!(reports.due(&view(2, [broker_group(0)])), [ReportLeader { group: 1, term: 3, node: 1 }]);
    reports.put(GroupId(1), 4, NodeId(2));
    assert_eq!(reports.due(&view(2, [broker_group(3)])), [ReportLeader { group: 1, term: 4, node: 2 }]);
    assert_eq!(reports.due(&view(2, [broker_group(4)])), [], "the meta group is past it");
    assert_eq!(reports.due(&view(2, [broker_group(0)])), [], "and it is forgotten");
}

#[test]
fn statuses_of_servers_and_of_broken_connections_are_told_apart() {
    use super::propose::{Failure, failure};
    use tonic::Status;
    let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    assert!(matches!(failure(&Status::unavailable("no leader")), Failure::NotProposed));
    assert!(matches!(failure(&Status::resource_exhausted("")), Failure::NotProposed));
    assert!(matches!(failure(&Status::deadline_exceeded("")), Failure::MaybeProposed));
    assert!(matches!(failure(&Status::invalid_argument("")), Failure::Final(MetaError::Refused(_))));
    let from = |error: std::io::Error| {
        let mut status = Status::unavailable("");
        status.set_source(Arc::new(error));
        status
    };
    assert!(matches!(failure(&from(refused)), Failure::NotProposed));
    assert!(matches!(failure(&from(broken)), Failure::MaybeProposed));
}

mod service {
    //! The client against a scripted service.

    use super::*;
    use bytes::Bytes;
    use parking_lot::Mutex;
    use prost::Message;
    use raftmq_model::clock::Clock;
    use raftmq_model::ids::Timestamp;
    use raftmq_model::meta::{MetaCommand, MetaOutcome};
    use raftmq_proto::meta::meta_server::{Meta, MetaServer};
    use raftmq_proto::meta::{
        HeartbeatReply, HeartbeatRequest, ProposeReply, ProposeRequest, ReadRequest, WatchEvent, WatchRequest,
    };
    use raftmq_raft::{PeerAddresses, RaftNodeOptions};
    use std::collections::{BTreeMap, VecDeque};
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::ReceiverStream;
    use tonic::{Request, Response, Status};

    const STEP: Duration = Duration::from_secs(20);

    struct NoClock;

    impl Clock for NoClock {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
    }

    /// What the scripted service does with a proposal: an answer and the change that goes to the watchers, or a status.
    type Step = Result<(MetaAnswer, MetaChange), Status>;

    #[derive(Clone)]
    struct Script(Arc<Mutex<ScriptState>>);

    struct ScriptState {
        steps: VecDeque<Step>,
        proposed: Vec<MetaOp>,
        full: MetaChange,
        watchers: Vec<mpsc::Sender<Result<WatchEvent, Status>>>,
        heartbeats: mpsc::Sender<u32>,
    }

    fn event(change: &MetaChange) -> Result<WatchEvent, Status> {
        Ok(WatchEvent { change: Bytes::from(change.encode_to_vec()) })
    }

    impl ScriptState {
        fn publish(&mut self, change: &MetaChange) {
            self.watchers.retain(|watcher| watcher.try_send(event(change)).is_ok());
        }
    }

    #[tonic::async_trait]
    impl Meta for Script {
        type WatchStream = ReceiverStream<Result<WatchEvent, Status>>;

        async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
            let mut state = self.0.lock();
            let (watcher, events) = mpsc::channel(16);
            watcher.try_send(event(&state.full)).unwrap();
            state.watchers.push(watcher);
            Ok(Response::new(ReceiverStream::new(events)))
        }

        async fn propose(&self, request: Request<ProposeRequest>) -> Result<Response<ProposeReply>, Status> {
            let mut state = self.0.lock();
            let command = MetaCommand::decode(request.into_inner().command).unwrap();
            state.proposed.push(command.op.unwrap());
            let (answer, change) = state.steps.pop_front().unwrap_or_else(|| Err(Status::unavailable("no leader")))?;
            state.publish(&change);
            let outcome = MetaOutcome { answer: Some(answer) };
            Ok(Response::new(ProposeReply { outcome: Bytes::from(outcome.encode_to_vec()) }))
        }

        async fn heartbeat(&self, request: Request<HeartbeatRequest>) -> Result<Response<HeartbeatReply>, Status> {
            let _ = self.0.lock().heartbeats.try_send(request.into_inner().node_id);
            Ok(Response::new(HeartbeatReply {}))
        }

        async fn read(&self, _: Request<ReadRequest>) -> Result<Response<WatchEvent>, Status> {
            Err(Status::unimplemented("not asked here"))
        }
    }

    struct Bench {
        script: Script,
        client: Arc<MetaClient>,
        heartbeats: mpsc::Receiver<u32>,
    }

    fn bench(full: MetaChange, steps: impl IntoIterator<Item = Step>) -> Bench {
        let peers = PeerAddresses::new(BTreeMap::new());
        let raft =
            Arc::new(RaftNode::start(RaftNodeOptions::new(NodeId(1), 1, "c1", Arc::new(NoClock), peers)).unwrap());
        let (heartbeat, heartbeats) = mpsc::channel(16);
        let state = ScriptState {
            steps: steps.into_iter().collect(),
            proposed: Vec::new(),
            full,
            watchers: Vec::new(),
            heartbeats: heartbeat,
        };
        let script = Script(Arc::new(Mutex::new(state)));
        let own_service = Some(Routes::new(MetaServer::new(script.clone())));
        // Node 2 has no address: it is asked in turn and cannot be reached.
        let options = MetaClientOptions::new(NodeId(1), vec![NodeId(1), NodeId(2)], raft);
        let client = MetaClient::start(MetaClientOptions { own_service, ..options });
        Bench { script, client, heartbeats }
    }

    impl Bench {
        async fn seen(&self, enough: impl Fn(&MetaView) -> bool) -> Arc<MetaView> {
            assert!(self.client.shared.wait_for(Instant::now() + STEP, enough).await, "never seen");
            self.client.view()
        }

        fn publish(&self, change: &MetaChange) {
            self.script.0.lock().publish(change);
        }
    }

    fn create(name: &str) -> CreateTopic {
        CreateTopic { name: name.to_owned(), topic_type: 1, permission: 6, queue_count: 1 }
    }

    fn created(uid: u64) -> Step {
        Ok((MetaAnswer::Topic(topic(uid, uid)), change(uid, false, [MetaRecord::Topic(topic(uid, uid))])))
    }

    fn soon(ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(ms)
    }

    #[tokio::test]
    async fn the_view_follows_and_never_runs_backwards() {
        let bench = bench(change(5, true, [MetaRecord::Topic(topic(5, 5))]), []);
        bench.seen(|view| view.revision == 5).await;
        bench.publish(&MetaChange::default());
        bench.publish(&change(6, false, [MetaRecord::Topic(topic(6, 6))]));
        bench.seen(|view| view.revision == 6).await;
        // A stream that starts over at a replica that lags.
        bench.publish(&change(4, true, []));
        bench.publish(&change(5, false, [MetaRecord::Topic(topic(5, 5))]));
        bench.publish(&change(7, false, [MetaRecord::TopicRemoved(5)]));
        let view = bench.seen(|view| view.revision == 7).await;
        assert_eq!(view.topics.keys().collect::<Vec<_>>(), ["topic-6"]);
        assert_eq!(*bench.client.changed().borrow(), 7);
    }

    #[tokio::test]
    async fn a_closed_stream_is_opened_again() {
        let bench = bench(change(5, true, []), []);
        bench.seen(|view| view.revision == 5).await;
        {
            let mut state = bench.script.0.lock();
            state.full = change(9, true, []);
            state.watchers.clear();
        }
        bench.seen(|view| view.revision == 9).await;
    }

    #[tokio::test]
    async fn a_proposal_is_tried_again_and_its_answer_is_in_the_view() {
        let steps = [Err(Status::unavailable("no leader")), Err(Status::deadline_exceeded("")), created(6)];
        let bench = bench(change(5, true, []), steps);
        bench.seen(|view| view.revision == 5).await;
        let topic = bench.client.topic_or_create(create("topic-6"), Instant::now() + STEP).await.unwrap();
        assert_eq!(topic.uid, 6);
        assert!(bench.client.view().topics.contains_key("topic-6"));
        assert_eq!(bench.script.0.lock().proposed.len(), 3);
        bench.client.topic_or_create(create("topic-6"), soon(1)).await.unwrap();
        assert_eq!(bench.script.0.lock().proposed.len(), 3, "known: nobody is asked");
    }

    #[tokio::test]
    async fn the_deadline_tells_what_is_known() {
        let bench = bench(change(5, true, []), []);
        let ask = |ms| bench.client.propose(MetaOp::DeleteTopic(1), soon(ms));
        assert_eq!(ask(100).await, Err(MetaError::Unavailable));
        bench.script.0.lock().steps.push_back(Err(Status::deadline_exceeded("")));
        assert_eq!(ask(100).await, Err(MetaError::Unknown));
        let refused = Ok((MetaAnswer::Refused("no".to_owned()), MetaChange::default()));
        bench.script.0.lock().steps.push_back(refused);
        assert_eq!(ask(20_000).await, Err(MetaError::Refused("no".to_owned())));
        let gone = Ok((MetaAnswer::NotFound("gone".to_owned()), MetaChange::default()));
        bench.script.0.lock().steps.push_back(gone);
        assert_eq!(ask(20_000).await, Err(MetaError::NotFound("gone".to_owned())));
    }

    #[tokio::test]
    async fn what_another_node_created_with_other_settings_stands() {
        let news = change(6, false, [MetaRecord::Topic(topic(6, 6))]);
        let refused = Ok((MetaAnswer::Refused("other settings".to_owned()), news));
        let bench = bench(change(5, true, []), [refused]);
        bench.seen(|view| view.revision == 5).await;
        let topic = bench.client.topic_or_create(create("topic-6"), Instant::now() + STEP).await.unwrap();
        assert_eq!(topic.uid, 6);
    }

    #[tokio::test]
    async fn heartbeats_and_leader_reports_are_delivered() {
        let taken = |term| Ok((MetaAnswer::Done(true), change(5 + term, false, [broker_group(term)])));
        let steps = [Err(Status::unavailable("no leader")), taken(3), taken(4)];
        let mut bench = bench(change(1, true, []), steps);
        assert_eq!(bench.heartbeats.recv().await, Some(1));
        bench.client.report_leader(GroupId(1), 3, NodeId(1));
        bench.publish(&change(2, false, [broker_group(0)]));
        bench.seen(|view| view.broker_groups.get(&1).is_some_and(|group| group.leader_term == 3)).await;
        bench.client.report_leader(GroupId(1), 4, NodeId(1));
        bench.seen(|view| view.broker_groups.get(&1).is_some_and(|group| group.leader_term == 4)).await;
        let expected = [3, 3, 4].map(|term| MetaOp::ReportLeader(ReportLeader { group: 1, term, node: 1 }));
        assert_eq!(bench.script.0.lock().proposed, expected);
    }
}
