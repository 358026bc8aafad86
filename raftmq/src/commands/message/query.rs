//! `raftmq message query`: find messages by key, id or time.

use crate::cli::{Global, Output};
use crate::commands::admin;
use crate::exit::Failure;
use crate::output::{self, Table};
use clap::{ArgGroup, Args};
use raftmq_proto::admin::{FoundMessage, QueryMessagesReply, QueryMessagesRequest, query_messages_request::By};
use serde::Serialize;
use std::collections::BTreeMap;

/// Which messages.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["key", "id", "from", "to"]))]
pub(crate) struct QueryArgs {
    /// The topic; of dead letters %DLQ%GROUP.
    #[arg(long)]
    topic: String,
    /// Messages with this key, newest first.
    #[arg(long, conflicts_with = "id")]
    key: Option<String>,
    /// The message with this id, as the producer's SDK gave it.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Stored at this time or later: 2026-05-01T08:30:00Z, or milliseconds since 1970. Without --key or --id: all messages of the
    /// topic, oldest first.
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<i64>,
    /// Stored at this time or before.
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<i64>,
    /// How many messages at most, 1 to 1000. Without it: 32.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    max: Option<u32>,
    /// Show the bodies, too, up to 64 KiB of each.
    #[arg(long)]
    body: bool,
}

/// Milliseconds since the Unix epoch.
fn time(text: &str) -> Result<i64, String> {
    if let Ok(ms) = text.parse() {
        return Ok(ms);
    }
    let parsed: Result<prost_types::Timestamp, _> = text.parse();
    let at =
        parsed.map_err(|_| "it is neither a time like 2026-05-01T08:30:00Z nor a number of milliseconds since 1970")?;
    Ok(at.seconds.saturating_mul(1000).saturating_add(i64::from(at.nanos) / 1_000_000))
}

#[derive(Serialize)]
struct Report {
    topic: String,
    /// There may be more.
    truncated: bool,
    /// Why not all was looked at.
    incomplete: Vec<String>,
    messages: Vec<Found>,
}

#[derive(Serialize)]
struct Found {
    message_id: String,
    tag: Option<String>,
    keys: Vec<String>,
    broker_group: String,
    queue: u32,
    offset: u64,
    physical_offset: u64,
    stored_at: String,
    stored_at_ms: i64,
    born_at_ms: i64,
    born_host: String,
    store_host: String,
    reconsume_times: i32,
    properties: BTreeMap<String, String>,
    body_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// A body that is no text, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_hex: Option<String>,
}

impl Found {
    fn new(message: FoundMessage, with_body: bool) -> Found {
        let body = with_body.then_some(&message.body);
        // The end may have been cut off in the middle of a character.
        let text = body.and_then(|body| text_of(body, body.len() as u64 == message.body_bytes));
        let hex = body.filter(|_| text.is_none()).map(|body| body.iter().map(|byte| format!("{byte:02x}")).collect());
        Found {
            message_id: message.message_id,
            tag: Some(message.tag).filter(|tag| !tag.is_empty()),
            keys: message.keys,
            broker_group: message.broker_group,
            queue: message.queue,
            offset: message.offset,
            physical_offset: message.physical_offset,
            stored_at: stamp(message.stored_at_ms),
            stored_at_ms: message.stored_at_ms,
            born_at_ms: message.born_at_ms,
            born_host: message.born_host,
            store_host: message.store_host,
            reconsume_times: message.reconsume_times,
            properties: message.properties.into_iter().map(|property| (property.name, property.value)).collect(),
            body_bytes: message.body_bytes,
            body: text,
            body_hex: hex,
        }
    }
}

fn text_of(body: &[u8], whole: bool) -> Option<String> {
    match std::str::from_utf8(body) {
        Ok(text) => Some(text.to_owned()),
        Err(error) if !whole && error.error_len().is_none() => {
            Some(String::from_utf8_lossy(&body[..error.valid_up_to()]).into_owned())
        }
        Err(_) => None,
    }
}

fn stamp(ms: i64) -> String {
    let nanos = i32::try_from(ms.rem_euclid(1000) * 1_000_000).unwrap_or(0);
    prost_types::Timestamp { seconds: ms.div_euclid(1000), nanos }.to_string()
}

/// Runs the command. No message is no failure.
pub(super) async fn run(global: &Global, args: QueryArgs) -> Result<(), Failure> {
    let by = args.key.map(By::Key).or(args.id.map(By::MessageId));
    // 0 stands for a span without an end.
    let (from_ms, to_ms) = (args.from.unwrap_or(0), args.to.map_or(0, |to| to.max(1)));
    let (topic, count_max) = (args.topic, args.max.unwrap_or(0));
    let request = QueryMessagesRequest { topic: topic.clone(), by, from_ms, to_ms, count_max };
    let reply = admin(global).await?.query_messages(request).await?.into_inner();
    let report = report(topic, reply, args.body);
    for sentence in &report.incomplete {
        output::tell(&format!("raftmq: not all was looked at: {sentence}"));
    }
    match global.output {
        Output::Json => output::print_json(&report),
        Output::Table => output::print(&text(&report)),
    }
}

fn report(topic: String, reply: QueryMessagesReply, with_body: bool) -> Report {
    let QueryMessagesReply { messages, truncated, incomplete } = reply;
    let messages = messages.into_iter().map(|message| Found::new(message, with_body)).collect();
    Report { topic, truncated, incomplete, messages }
}

fn text(report: &Report) -> String {
    let mut table =
        Table::new(&["STORED", "MESSAGE ID", "TAG", "KEYS", "BROKER GROUP", "QUEUE", "OFFSET", "BODY BYTES"]);
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    for message in &report.messages {
        table.row([
            message.stored_at.clone(),
            or_dash(&message.message_id),
            or_dash(message.tag.as_deref().unwrap_or_default()),
            or_dash(&message.keys.join(" ")),
            message.broker_group.clone(),
            message.queue.to_string(),
            message.offset.to_string(),
            message.body_bytes.to_string(),
        ]);
    }
    let mut text = table.render();
    for message in &report.messages {
        let shown = message.body.as_ref().map(|body| format!("\"{}\"", body.escape_debug()));
        if let Some(body) = shown.or_else(|| message.body_hex.as_ref().map(|hex| format!("0x{hex}"))) {
            text.push_str(&format!("{} {body}\n", or_dash(&message.message_id)));
        }
    }
    let more =
        if report.truncated { "; there may be more: give a narrower span of time, or a greater --max" } else { "" };
    text.push_str(&format!("{}: {} found{more}\n", report.topic, report.messages.len()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &[u8], body_bytes: u64) -> FoundMessage {
        FoundMessage {
            message_id: "01AB".into(),
            keys: vec!["a".into(), "b".into()],
            broker_group: "broker-1".into(),
            queue: 3,
            offset: 7,
            stored_at_ms: 1_767_225_600_123,
            body: body.to_vec().into(),
            body_bytes,
            ..FoundMessage::default()
        }
    }

    #[test]
    fn times_are_read_and_shown() {
        assert_eq!(time("1767225600123"), Ok(1_767_225_600_123));
        assert_eq!(time("2026-01-01T00:00:00.123Z"), Ok(1_767_225_600_123));
        assert_eq!(time("2026-01-01T01:00:00+01:00"), Ok(1_767_225_600_000));
        assert!(time("yesterday").is_err());
        assert_eq!(stamp(1_767_225_600_123), "2026-01-01T00:00:00.123Z");
    }

    #[test]
    fn json_has_the_documented_shape_and_the_table_a_line_for_each_message() {
        let reply = QueryMessagesReply { messages: vec![found(b"hello", 5)], truncated: true, incomplete: Vec::new() };
        let report = report("orders".into(), reply, true);
        let json = serde_json::to_value(&report).expect("json");
        let message = &json["messages"][0];
        assert_eq!((message["message_id"].as_str(), message["body"].as_str()), (Some("01AB"), Some("hello")));
        assert_eq!((message["tag"].is_null(), message["keys"][1].as_str()), (true, Some("b")));
        assert_eq!(message["stored_at"], "2026-01-01T00:00:00.123Z");
        let text = text(&report);
        assert!(text.contains("01AB          -  a b   broker-1"), "{text}");
        assert!(text.contains("01AB \"hello\"\n") && text.contains("orders: 1 found; there may be more"), "{text}");
    }

    #[test]
    fn a_body_that_is_no_text_is_hexadecimal_and_one_that_was_cut_may_still_be_text() {
        let body = |bytes: &[u8], len| {
            let found = Found::new(found(bytes, len), true);
            (found.body, found.body_hex)
        };
        assert_eq!(body(&[0xff, 0x00], 2), (None, Some("ff00".into())));
        assert_eq!(body("a\u{20ac}".as_bytes(), 4), (Some("a\u{20ac}".into()), None));
        assert_eq!(body(&"a\u{20ac}".as_bytes()[..2], 9), (Some("a".into()), None));
        assert_eq!(Found::new(found(b"x", 1), false).body, None);
    }
}
