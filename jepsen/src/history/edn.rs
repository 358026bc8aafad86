//! A history as EDN, for Jepsen's own checkers: one operation map a line, as `jepsen.history` reads them.
//!
//! ```text
//! {:index 0, :time 1000, :process 0, :type :invoke, :f :enqueue, :value "01AB…"}
//! ```
//! Sends are `:enqueue`, each message of a receive is a `:dequeue` of its own, acks are `:ack` and acks by an old handle
//! `:stale-ack`; so `jepsen.checker/total-queue` judges a drained history. Times are nanoseconds. What is `unknown` here is
//! `:info` there, and since a process does nothing after `:info`, it goes on under a new number.

use super::{Answer, Call, Event, Phase};
use std::collections::BTreeMap;
use std::io::{Result, Write};

/// A process that had an unknown outcome goes on under a number that is higher by this.
const NEXT_LIFE: u32 = 10_000;

/// Writes `events` as EDN.
///
/// # Errors
/// When `to` cannot be written.
pub fn write(events: &[Event], to: impl Write) -> Result<()> {
    let mut writer = Writer { to, index: 0, lives: BTreeMap::new() };
    let mut asked: BTreeMap<u64, &Call> = BTreeMap::new();
    for event in events {
        match &event.phase {
            Phase::Invoke { call } => {
                asked.insert(event.op, call);
                if let Some((f, value)) = operation(call) {
                    writer.op(event, "invoke", f, value)?;
                }
            }
            phase => {
                let Some(call) = asked.remove(&event.op) else { continue };
                writer.complete(event, call, phase)?;
            }
        }
    }
    writer.to.flush()
}

/// What has an invocation of its own. A receive has one for each message that it got, once that is known.
fn operation(call: &Call) -> Option<(&'static str, &str)> {
    match call {
        Call::Send { message_id, .. } => Some(("enqueue", message_id)),
        Call::Ack { message_id, .. } => Some(("ack", message_id)),
        Call::StaleAck { message_id, .. } => Some(("stale-ack", message_id)),
        _ => None,
    }
}

struct Writer<W> {
    to: W,
    index: u64,
    lives: BTreeMap<u32, u32>,
}

impl<W: Write> Writer<W> {
    fn complete(&mut self, event: &Event, call: &Call, phase: &Phase) -> Result<()> {
        if let (Call::Receive { .. }, Phase::Ok { answer: Answer::Received { messages } }) = (call, phase) {
            for message in messages {
                self.op(event, "invoke", "dequeue", &message.message_id)?;
                self.op(event, "ok", "dequeue", &message.message_id)?;
            }
            return Ok(());
        }
        let Some((f, value)) = operation(call) else { return Ok(()) };
        match phase {
            Phase::Ok { .. } => self.op(event, "ok", f, value),
            Phase::Fail { .. } => self.op(event, "fail", f, value),
            Phase::Invoke { .. } | Phase::Unknown { .. } => {
                self.op(event, "info", f, value)?;
                *self.lives.entry(event.process).or_default() += NEXT_LIFE;
                Ok(())
            }
        }
    }

    fn op(&mut self, event: &Event, kind: &str, f: &str, value: &str) -> Result<()> {
        let process = event.process + self.lives.get(&event.process).copied().unwrap_or(0);
        let (index, time) = (self.index, event.at_us * 1_000);
        self.index += 1;
        // Message ids are plain text; what is not is escaped as EDN escapes it, which for these is how Rust does.
        writeln!(
            self.to,
            "{{:index {index}, :time {time}, :process {process}, :type :{kind}, :f :{f}, :value {value:?}}}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Delivery;

    #[test]
    fn a_history_as_jepsen_reads_it() {
        let delivery = Delivery { message_id: "a".into(), body: "x".into(), queue: 0, offset: 0, attempt: 1 };
        let phases = [
            (0, 0, Phase::Invoke { call: Call::Send { message_id: "a".into(), body: "x".into() } }),
            (0, 0, Phase::Ok { answer: Answer::Sent { offset: 0 } }),
            (0, 1, Phase::Invoke { call: Call::Send { message_id: "b".into(), body: "y".into() } }),
            (0, 1, Phase::Unknown { error: "timeout".into() }),
            (0, 2, Phase::Invoke { call: Call::Send { message_id: "c".into(), body: "z".into() } }),
            (0, 2, Phase::Fail { error: "refused".into() }),
            (1, 3, Phase::Invoke { call: Call::Receive { drain: true, group: 0 } }),
            (1, 3, Phase::Ok { answer: Answer::Received { messages: vec![delivery] } }),
        ];
        let events: Vec<Event> = phases
            .into_iter()
            .zip(0..)
            .map(|((process, op, phase), at_us)| Event { at_us, process, op, phase })
            .collect();
        let mut text = Vec::new();
        write(&events, &mut text).unwrap();
        let expected = r#"{:index 0, :time 0, :process 0, :type :invoke, :f :enqueue, :value "a"}
{:index 1, :time 1000, :process 0, :type :ok, :f :enqueue, :value "a"}
{:index 2, :time 2000, :process 0, :type :invoke, :f :enqueue, :value "b"}
{:index 3, :time 3000, :process 0, :type :info, :f :enqueue, :value "b"}
{:index 4, :time 4000, :process 10000, :type :invoke, :f :enqueue, :value "c"}
{:index 5, :time 5000, :process 10000, :type :fail, :f :enqueue, :value "c"}
{:index 6, :time 7000, :process 1, :type :invoke, :f :dequeue, :value "a"}
{:index 7, :time 7000, :process 1, :type :ok, :f :dequeue, :value "a"}
"#;
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
