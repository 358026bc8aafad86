//! Every documented command line parses.

use super::*;
use clap::CommandFactory;

fn parse(line: &str) -> Cli {
    Cli::try_parse_from(line.split(' ')).expect(line)
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_documented_line_parses() {
    for line in [
        "raftmq serve --config node.toml",
        "raftmq config default",
        "raftmq cluster init --endpoints 127.0.0.1:8181",
        "raftmq cluster init --broker-groups 3",
        "raftmq cluster status -o json",
        "raftmq topic create orders --queues 8 --type fifo --permission read-write",
        "raftmq topic list",
        "raftmq topic describe orders",
        "raftmq topic alter orders --queues 16 --permission read",
        "raftmq topic delete orders",
        "raftmq group create billing --fifo --attempts-max 16",
        "raftmq group alter billing --fifo false --attempts-max 3 --consume-enabled false",
        "raftmq group list",
        "raftmq group describe billing",
        "raftmq group lag billing",
        "raftmq group delete billing",
        "raftmq message query --topic orders --key order-17 --from 2026-05-01T08:30:00Z --max 5 --body",
        "raftmq message query --topic orders --id 01AB -o json",
        "raftmq message query --topic orders --from 1767225600000 --to 1767225660000",
        "raftmq raft transfer broker-1 --to 2",
        "raftmq store verify node-1/data -o json",
        "raftmq store dump node-1/data --group broker-1 --from 5 --to 9 --limit 2 --body",
        "raftmq store cut node-1/data --group broker-1 --others-are-in-sync",
        "raftmq store stats node-1/data --group namesrv --from 0 --at 9",
        "raftmq playground --nodes 3 --data d --port 9081 --groups 3 --detach",
        "raftmq playground",
        "raftmq playground kill 2 --data d",
        "raftmq playground pause 2",
        "raftmq playground resume 2",
        "raftmq playground start 2",
        "raftmq playground stop",
        "raftmq demo -o json",
        "raftmq bench send --endpoints 127.0.0.1:8081 --size 1024 --in-flight 64 --batch 1 --seconds 5 --topic t",
        "raftmq bench receive --seconds 5 --topic t --group g --pids 1,2",
    ] {
        parse(line);
    }
}

#[test]
fn endpoints_are_separated_by_commas() {
    assert_eq!(parse("raftmq cluster status --endpoints a:1,b:2").global.endpoints, ["a:1", "b:2"]);
}

#[test]
fn an_unknown_command_is_refused() {
    assert!(Cli::try_parse_from(["raftmq", "explode"]).is_err());
    assert!(Cli::try_parse_from(["raftmq", "topic", "create"]).is_err());
    let query = |line: &str| Cli::try_parse_from(format!("raftmq message query --topic t {line}").split_whitespace());
    assert!(query("").is_err() && query("--key k --id i").is_err() && query("--from noon").is_err());
}
