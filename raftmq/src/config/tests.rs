//! Configuration files: what is documented, what is refused and how it is said.

use super::*;
use std::collections::BTreeSet;

fn flat(table: &toml::Table) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(section) => keys.extend(section.keys().map(|inner| format!("{key}.{inner}"))),
            _ => {
                keys.insert(key.clone());
            }
        }
    }
    keys
}

#[test]
fn the_default_file_says_the_defaults() {
    let config: NodeConfig = toml::from_str(DEFAULT_FILE).expect("default file");
    assert_eq!(config, NodeConfig::default());
}

#[test]
fn every_key_is_in_the_default_file_with_a_comment_above_it() {
    let of_struct = flat(&toml::Table::try_from(NodeConfig::default()).expect("table"));
    let of_file = flat(&DEFAULT_FILE.parse().expect("table"));
    assert_eq!(of_struct, of_file);
    let lines: Vec<&str> = DEFAULT_FILE.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        if line.contains(" = ") && !line.starts_with('#') {
            assert!(lines[index - 1].starts_with('#'), "no comment above {line}");
        }
    }
}

#[test]
fn every_key_is_in_the_docs() {
    let docs = include_str!("../../../docs/config.md");
    for key in flat(&DEFAULT_FILE.parse().expect("table")) {
        assert!(docs.contains(&format!("`{key}`")), "docs/config.md does not mention {key}");
    }
}

#[test]
fn an_unknown_key_names_the_nearest() {
    let sentence = |text: &str| NodeConfig::parse(text).expect_err("must be refused");
    assert_eq!(
        sentence("segment_byte_max = 5"),
        "unknown key \"segment_byte_max\"; the nearest key is \"segment_bytes_max\""
    );
    assert_eq!(
        sentence("[limits]\nisolation = 5"),
        "unknown key \"limits.isolation\"; the nearest key is \"limits.isolation_ms\""
    );
    assert_eq!(sentence("drain_ms = 5"), "unknown key \"drain_ms\"; the nearest key is \"limits.drain_ms\"");
    assert_eq!(
        sentence("peers = [{ id = 1, per = \"a:1\", roles = [\"broker\"] }]"),
        "unknown key \"peers.per\"; the nearest key is \"peers.peer\""
    );
}

#[test]
fn mistakes_are_one_sentence_that_names_the_key() {
    let cases = [
        ("node_id = \"x\"", "line 1:"),
        ("node_id = 2\npeers = [{ id = 1, peer = \"a:1\", roles = [\"namesrv\", \"broker\"] }]", "node_id is 2"),
        ("client_listen = \"localhost\"", "client_listen is"),
        ("client_listen = \"0.0.0.0:8081\"", "advertised_client_address must be set"),
        ("segment_bytes_max = 5", "segment_bytes_max is 5"),
        ("topic_queue_count = 0", "topic_queue_count is 0"),
        ("durability = \"maybe\"", "line 1:"),
        ("[limits]\ndisk_used_percent_max = 0", "limits.disk_used_percent_max is 0, it must be 1 to 100"),
        ("[limits]\ndisk_check_ms = 1", "limits.disk_check_ms is 1"),
        ("[tls]\nkey_path = \"k.pem\"", "tls.certificate_path and tls.key_path"),
        ("peer_listen = \"127.0.0.1:8081\"", "another port"),
        ("node_id = ", "line 1:"),
        (
            "peers = [{ id = 1, peer = \"a:1\", roles = [\"namesrv\"] }, { id = 1, peer = \"b:1\", roles = [\"broker\"] }]",
            "two nodes with id 1",
        ),
        (
            "peers = [{ id = 1, peer = \"a:1\", roles = [\"namesrv\"] }, { id = 2, peer = \"b:1\", roles = [\"namesrv\"] }]",
            "there must be 1, 3 or 5",
        ),
    ];
    for (text, start) in cases {
        let sentence = NodeConfig::parse(text).expect_err(text);
        assert!(sentence.contains(start), "{text}: {sentence}");
        assert!(!sentence.contains('\n'), "{sentence}");
    }
}

#[test]
fn one_node_alone_has_both_roles_and_advertises_its_listen_address() {
    let config = NodeConfig::parse("client_listen = \"127.0.0.1:9000\"").expect("valid");
    assert_eq!(config.peers.len(), 1);
    assert!(config.has_role(Role::Namesrv) && config.has_role(Role::Broker));
    assert_eq!(config.advertised_client_address, "127.0.0.1:9000");
}

#[test]
fn a_wildcard_admin_port_is_reached_at_the_peer_host() {
    let text =
        "admin_listen = \"0.0.0.0:8181\"\npeers = [{ id = 1, peer = \"n1:8281\", roles = [\"namesrv\", \"broker\"] }]";
    assert_eq!(NodeConfig::parse(text).expect("valid").reachable_admin_address(), "n1:8181");
}
