//! Golden text of the lanes of each SDK.

use super::*;
use std::fmt::Write;

fn node(id: u32, address: &str, alive: bool) -> LaneNode {
    LaneNode { id, address: address.to_owned(), alive }
}

fn three() -> Vec<LaneNode> {
    vec![node(1, "10.0.0.1:8081", true), node(2, "10.0.0.2:8081", true), node(3, "10.0.0.10:8081", true)]
}

fn text(sdk: Sdk, nodes: &[LaneNode]) -> String {
    lanes(sdk, nodes).iter().fold(String::new(), |mut text, lane| {
        let scheme = v2::AddressScheme::try_from(lane.endpoints.scheme).unwrap();
        write!(text, "{} {}", lane.name, scheme.as_str_name()).unwrap();
        for address in &lane.endpoints.addresses {
            write!(text, " {}:{}", address.host, address.port).unwrap();
        }
        text.push('\n');
        text
    })
}

#[test]
fn java_and_cpp_rotate() {
    let expected = "\
lane-1 IPv4 10.0.0.1:8081 10.0.0.2:8081 10.0.0.10:8081
lane-2 IPv4 10.0.0.2:8081 10.0.0.10:8081 10.0.0.1:8081
lane-3 IPv4 10.0.0.10:8081 10.0.0.1:8081 10.0.0.2:8081
";
    assert_eq!(text(Sdk::Java, &three()), expected);
    assert_eq!(text(Sdk::Cpp, &three()), expected);
}

#[test]
fn go_gets_pairs_and_never_a_single_address() {
    assert_eq!(
        text(Sdk::Go, &three()),
        "\
lane-1 IPv4 10.0.0.1:8081 10.0.0.2:8081
lane-2 IPv4 10.0.0.2:8081 10.0.0.10:8081
lane-3 IPv4 10.0.0.10:8081 10.0.0.1:8081
"
    );
    assert_eq!(text(Sdk::Go, &three()[..2]), "lane-1 IPv4 10.0.0.1:8081 10.0.0.2:8081\n");
}

/// `10.0.0.10:8081` sorts before `10.0.0.1:8081`, because `0` is less than `:`.
#[test]
fn python_gets_suffixes_in_string_order() {
    assert_eq!(
        text(Sdk::Python, &three()),
        "\
lane-3 IPv4 10.0.0.10:8081 10.0.0.1:8081 10.0.0.2:8081
lane-1 IPv4 10.0.0.1:8081 10.0.0.2:8081
lane-2 IPv4 10.0.0.2:8081
"
    );
}

#[test]
fn node_gets_single_addresses() {
    assert_eq!(
        text(Sdk::Node, &three()),
        "lane-1 IPv4 10.0.0.1:8081\nlane-2 IPv4 10.0.0.2:8081\nlane-3 IPv4 10.0.0.10:8081\n"
    );
}

#[test]
fn rust_and_unknown_get_one_lane() {
    let expected = "lane-1 IPv4 10.0.0.1:8081 10.0.0.2:8081 10.0.0.10:8081\n";
    assert_eq!(text(Sdk::Rust, &three()), expected);
    assert_eq!(text(Sdk::Other, &three()), expected);
}

#[test]
fn one_node_is_one_lane_for_everybody() {
    for sdk in Sdk::ALL {
        assert_eq!(text(sdk, &three()[..1]), "lane-1 IPv4 10.0.0.1:8081\n", "{sdk:?}");
    }
}

#[test]
fn no_node_no_lane() {
    for sdk in Sdk::ALL {
        assert_eq!(lanes(sdk, &[]), Vec::new());
    }
}

#[test]
fn dead_nodes_leave_single_lanes_only() {
    let mut nodes = three();
    nodes[1].alive = false;
    assert_eq!(text(Sdk::Node, &nodes), "lane-1 IPv4 10.0.0.1:8081\nlane-3 IPv4 10.0.0.10:8081\n");
    // n2 is the single-address suffix of the string order.
    assert_eq!(
        text(Sdk::Python, &nodes),
        "lane-3 IPv4 10.0.0.10:8081 10.0.0.1:8081 10.0.0.2:8081\nlane-1 IPv4 10.0.0.1:8081 10.0.0.2:8081\n"
    );
    for sdk in [Sdk::Java, Sdk::Cpp, Sdk::Go, Sdk::Rust, Sdk::Other] {
        assert_eq!(text(sdk, &nodes), text(sdk, &three()), "{sdk:?}");
    }
}

#[test]
fn lanes_without_a_living_node_come_last() {
    let mut nodes = three();
    nodes[0].alive = false;
    nodes[1].alive = false;
    let alive: Vec<(String, bool)> = lanes(Sdk::Go, &nodes).into_iter().map(|lane| (lane.name, lane.alive)).collect();
    assert_eq!(alive, [("lane-2".to_owned(), true), ("lane-3".to_owned(), true), ("lane-1".to_owned(), false)]);
}

#[test]
fn a_cluster_that_looks_dead_keeps_its_lanes() {
    let mut nodes = three();
    nodes.iter_mut().for_each(|node| node.alive = false);
    for sdk in Sdk::ALL {
        let mut all = lanes(sdk, &three());
        all.iter_mut().for_each(|lane| lane.alive = false);
        assert_eq!(lanes(sdk, &nodes), all, "{sdk:?}");
    }
}

#[test]
fn at_most_five_nodes() {
    let nodes: Vec<LaneNode> = (1..=9).map(|id| node(id, &format!("10.0.0.{id}:8081"), true)).collect();
    let expected = [(Sdk::Java, 5, 25), (Sdk::Go, 5, 10), (Sdk::Python, 5, 15), (Sdk::Node, 5, 5), (Sdk::Rust, 1, 5)];
    for (sdk, lane_count, address_count) in expected {
        let lanes = lanes(sdk, &nodes);
        assert_eq!(lanes.len(), lane_count, "{sdk:?}");
        assert_eq!(lanes.iter().map(|lane| lane.endpoints.addresses.len()).sum::<usize>(), address_count, "{sdk:?}");
    }
}

#[test]
fn ipv6_and_host_names() {
    let v6 = [node(1, "[fd00::1]:8081", true), node(2, "[fd00::2]:8081", true)];
    assert_eq!(text(Sdk::Rust, &v6), "lane-1 IPv6 fd00::1:8081 fd00::2:8081\n");
    // Java throws on several host names in one list.
    let names = [node(1, "a.example:8081", true), node(2, "b.example:8081", true)];
    for sdk in Sdk::ALL {
        assert_eq!(
            text(sdk, &names),
            "lane-1 DOMAIN_NAME a.example:8081\nlane-2 DOMAIN_NAME b.example:8081\n",
            "{sdk:?}"
        );
    }
}

#[test]
fn unreadable_addresses_are_left_out() {
    let nodes = [node(1, "", true), node(2, "host", true), node(3, "h:0", true), node(4, "127.0.0.1:9", true)];
    assert_eq!(text(Sdk::Java, &nodes), "lane-4 IPv4 127.0.0.1:9\n");
}
