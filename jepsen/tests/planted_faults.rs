//! The harness itself is on trial: each planted fault must be found, and a sound broker must pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faulty;

use faulty::{Broker, Fault};
use raftmq_jepsen::checker::Verdict;
use raftmq_jepsen::checker::delivery::{Report, check};
use raftmq_jepsen::workload::delivery::{Options, run};
use std::time::Duration;

fn options(endpoint: String) -> Options {
    Options {
        endpoints: vec![endpoint],
        topic: "orders".to_owned(),
        group: "jepsen".to_owned(),
        groups_count: 1,
        run: "1".to_owned(),
        produce: Duration::from_millis(300),
        stop: tokio::sync::watch::channel(false).1,
        drain_max: Duration::from_secs(5),
        producers: 2,
        consumers: 2,
        interval: Duration::from_millis(5),
        body_bytes_max: 1_024,
        direct: true,
        quiet_complete: Duration::from_millis(100),
        quiet_missing: Duration::from_millis(300),
        untidy: false,
        connector: None,
    }
}

async fn report(options: Options) -> Report {
    let report = check(&run(options).await.unwrap(), None);
    assert!(report.sent_ok + report.sent_fail + report.sent_unknown > 20, "{report}");
    report
}

async fn report_with(fault: Fault) -> Report {
    report(options(Broker::start(fault).await)).await
}

#[tokio::test]
async fn a_sound_broker_passes() {
    let report = report_with(Fault::None).await;
    assert_eq!((report.verdict(), report.sent_unknown), (Verdict::Valid, 0), "{report}");
}

#[tokio::test]
async fn broken_calls_are_no_fault() {
    let report = report_with(Fault::BreakCalls).await;
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
}

#[tokio::test]
async fn a_lost_message_is_found() {
    let report = report_with(Fault::Lose).await;
    assert!(report.verdict() == Verdict::Invalid && !report.lost.is_empty(), "{report}");
}

#[tokio::test]
async fn a_message_stored_twice_is_found() {
    let report = report_with(Fault::StoreTwice).await;
    assert!(report.verdict() == Verdict::Invalid && !report.stored_twice.is_empty(), "{report}");
}

#[tokio::test]
async fn a_changed_body_is_found() {
    let report = report_with(Fault::Corrupt).await;
    assert!(report.verdict() == Verdict::Invalid && !report.corrupt.is_empty(), "{report}");
}

#[tokio::test]
async fn a_forgotten_ack_is_found() {
    // A second consumer could be waiting at the broker when the ack is answered, and then nothing is certain.
    let one_consumer = Options { consumers: 1, ..options(Broker::start(Fault::ForgetAck).await) };
    let report = report(one_consumer).await;
    assert!(report.verdict() == Verdict::Invalid && !report.returned.is_empty(), "{report}");
}

#[tokio::test]
async fn a_lie_about_a_failure_is_found() {
    let report = report_with(Fault::Lie).await;
    assert!(report.verdict() == Verdict::Invalid && !report.ghost.is_empty(), "{report}");
}

#[tokio::test]
async fn a_cluster_that_is_not_there_decides_nothing() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = listener.local_addr().unwrap().to_string();
    drop(listener);
    let short = Duration::from_millis(100);
    let options = Options { produce: short, drain_max: short * 2, ..options(nobody) };
    let report = check(&run(options).await.unwrap(), None);
    assert_eq!((report.verdict(), report.drained), (Verdict::Undecided, false), "{report}");
}
