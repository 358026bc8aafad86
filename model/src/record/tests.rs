//! Tests of the record layout: byte positions, round trips, damage.

use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

/// One record by RocketMQ's layout, with positions: queue offset 7, physical offset 4096.
const VECTOR: &str = "\
000000AADAA320A73610A686000000020000000000000000000000070000000000001000000000000000018BCFE56800\
7F000001000010920000018BCFE5687B0A00000100002A9F0000000000000000000000000000000568656C6C6F09546F\
706963546573740041554E49515F4B455901303135364637453731433336314232314243303234434344424530303030\
3030303002544147530154616741024B455953016B31206B3202";

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn sample() -> Record {
    Record {
        topic: "TopicTest".to_owned(),
        queue_id: 2,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 1_700_000_000_000,
        born_host: SocketAddr::from(([127, 0, 0, 1], 4242)),
        store_timestamp: 1_700_000_000_123,
        store_host: SocketAddr::from(([10, 0, 0, 1], 10_911)),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: Bytes::from_static(b"hello"),
        properties: [(property::UNIQ_KEY, "0156F7E71C361B21BC024CCDBE00000000"), ("TAGS", "TagA"), ("KEYS", "k1 k2")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
    }
}

#[test]
fn the_layout_is_rocketmqs() {
    let mut bytes = sample().encode().unwrap().to_vec();
    assert_eq!(bytes[QUEUE_OFFSET_AT..PHYSICAL_OFFSET_AT + 8], [0; 16], "stored bytes know no position");
    fill_positions(&mut bytes, 7, 4096).unwrap();
    assert_eq!(bytes, hex(VECTOR));
}

#[test]
fn a_record_of_rocketmq_is_read() {
    let bytes = Bytes::from(hex(VECTOR));
    let view = RecordView::parse(&bytes).unwrap();
    assert_eq!((view.queue_offset(), view.physical_offset()), (7, 4096));
    assert_eq!(view.property(property::TAGS), Some("TagA"));
    assert_eq!(view.property("none"), None);
    let record = Record::decode(bytes).unwrap();
    assert_eq!(record, sample());
    assert_eq!(record.property(property::KEYS), Some("k1 k2"));
}

#[test]
fn fields_lie_where_rocketmq_has_them() {
    let mut record = sample();
    record.queue_id = 0x0102_0304;
    record.flag = 0x1112_1314;
    record.sys_flag = 0x2000_0001;
    record.born_timestamp = 0x3132_3334_3536_3738;
    let bytes = record.encode().unwrap();
    let at = |from: usize, len: usize| &bytes[from..from + len];
    assert_eq!(at(0, 4), (bytes.len() as u32).to_be_bytes());
    assert_eq!(at(4, 4), [0xDA, 0xA3, 0x20, 0xA7]);
    assert_eq!(at(8, 4), [0x36, 0x10, 0xA6, 0x86]);
    assert_eq!(at(12, 4), [1, 2, 3, 4]);
    assert_eq!(at(16, 4), [0x11, 0x12, 0x13, 0x14]);
    assert_eq!(at(36, 4), [0x20, 0, 0, 1]);
    assert_eq!(at(40, 8), [0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38]);
    assert_eq!(at(48, 8), [127, 0, 0, 1, 0, 0, 0x10, 0x92]);
    assert_eq!(at(56, 8), 1_700_000_000_123i64.to_be_bytes());
}

#[test]
fn ipv6_hosts_and_long_topics_change_the_layout() {
    let mut record = sample();
    let plain = record.encoded_len().unwrap();
    record.born_host = SocketAddr::from((Ipv6Addr::LOCALHOST, 1));
    assert_eq!(record.encoded_len().unwrap(), plain + 12);
    record.topic = "t".repeat(128);
    let bytes = record.encode().unwrap();
    assert_eq!(bytes.len(), plain + 12 + 1 + 128 - "TopicTest".len());
    assert_eq!(bytes[4..8], RECORD_MAGIC_V2.to_be_bytes());
    assert_eq!(bytes[39] & 0x30, 0x10);
    assert_eq!(Record::decode(bytes).unwrap(), record);
}

#[test]
fn what_cannot_be_written_is_refused() {
    let change = |change: fn(&mut Record)| {
        let mut record = sample();
        change(&mut record);
        record.encode().unwrap_err()
    };
    assert_eq!(change(|r| r.topic.clear()), RecordError::TopicLength(0));
    assert_eq!(change(|r| r.topic = "t".repeat(256)), RecordError::TopicLength(256));
    assert_eq!(change(|r| r.queue_id = u32::MAX), RecordError::Field("queue id"));
    assert!(matches!(change(|r| r.body = vec![0; (4 << 20) + 1].into()), RecordError::BodyTooLarge(_)));
    assert!(matches!(change(|r| r.properties[0].0.clear()), RecordError::Property(_)));
    assert!(matches!(change(|r| r.properties[0].1.push('\u{2}')), RecordError::Property(_)));
    assert!(matches!(change(|r| r.properties[0].1 = "v".repeat(32_767)), RecordError::PropertiesTooLarge(_)));
}

#[test]
fn the_body_is_a_slice_of_the_record() {
    let bytes = sample().encode().unwrap();
    let body = Record::decode(bytes.clone()).unwrap().body;
    assert!(bytes.as_ptr_range().contains(&body.as_ptr()));
}

#[test]
fn properties_without_a_last_separator_are_read() {
    let mut bytes = hex(VECTOR);
    assert_eq!(bytes.pop(), Some(VALUE_END));
    let size = bytes.len() as u32;
    bytes[..4].copy_from_slice(&size.to_be_bytes());
    let properties_len_at = bytes.len() - 0x40 - 2;
    bytes[properties_len_at..properties_len_at + 2].copy_from_slice(&0x40u16.to_be_bytes());
    assert_eq!(Record::decode(bytes.into()).unwrap(), sample());
}

fn host() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        any::<([u8; 4], u16)>().prop_map(|(ip, port)| SocketAddr::from((Ipv4Addr::from(ip), port))),
        any::<([u8; 16], u16)>().prop_map(|(ip, port)| SocketAddr::from((Ipv6Addr::from(ip), port))),
    ]
}

prop_compose! {
    fn record()(
        topic in prop_oneof!["[a-zA-Z0-9%_-]{1,127}", "[a-z]{128,255}"],
        queue_id in 0..=i32::MAX as u32,
        numbers: (i32, i32, i64, i64, i32, i64),
        born_host in host(),
        store_host in host(),
        body: Vec<u8>,
        properties in prop::collection::vec(("[^\u{1}\u{2}]{1,12}", "[^\u{1}\u{2}]{0,20}"), 0..6),
    ) -> Record {
        let (flag, sys_flag, born_timestamp, store_timestamp, reconsume_times, prepared_transaction_offset) = numbers;
        let sys_flag = sys_flag & !(BORN_HOST_V6 | STORE_HOST_V6);
        let body = Bytes::from(body);
        Record {
            topic, queue_id, flag, sys_flag, born_timestamp, born_host, store_timestamp, store_host, reconsume_times,
            prepared_transaction_offset, body, properties,
        }
    }
}

proptest! {
    #[test]
    fn round_trip(record in record()) {
        let bytes = record.encode().unwrap();
        prop_assert_eq!(bytes.len(), record.encoded_len().unwrap());
        prop_assert_eq!(Record::decode(bytes).unwrap(), record);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        prop_assert!(Record::decode(bytes.into()).is_err());
    }

    #[test]
    fn arbitrary_bytes_behind_a_good_start_never_panic(tail: Vec<u8>) {
        let mut bytes = hex(VECTOR)[..48].to_vec();
        bytes.extend_from_slice(&tail);
        let size = bytes.len() as u32;
        bytes[..4].copy_from_slice(&size.to_be_bytes());
        let _ = Record::decode(bytes.into());
    }

    #[test]
    fn a_flipped_byte_never_panics(record in record(), at: prop::sample::Index, flip in 1u8..) {
        let mut bytes = record.encode().unwrap().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(other) = Record::decode(bytes.into()) {
            // Only positions and the two address bits of the flags have no meaning of their own here.
            prop_assert!(other != record || (QUEUE_OFFSET_AT..PHYSICAL_OFFSET_AT + 8).contains(&at));
        }
    }

    #[test]
    fn a_flipped_byte_of_the_body_is_detected(mut record in record(), at: prop::sample::Index, flip in 1u8..) {
        record.body = [&record.body[..], &b"not empty"[..]].concat().into();
        let mut bytes = record.encode().unwrap().to_vec();
        let body_at = bytes.windows(record.body.len()).position(|window| window == record.body).unwrap();
        bytes[body_at + at.index(record.body.len())] ^= flip;
        let detected = matches!(Record::decode(bytes.into()), Err(RecordError::BodyCrc { .. }));
        prop_assert!(detected);
    }

    #[test]
    fn a_shorter_record_is_refused(record in record(), cut: prop::sample::Index) {
        let bytes = record.encode().unwrap();
        let cut = cut.index(bytes.len());
        prop_assert!(Record::decode(bytes.slice(..cut)).is_err());
    }
}
