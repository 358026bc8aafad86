//! Histories: what clients asked, what they saw, and when. Written and read as JSON lines.

pub mod edn;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Microseconds since the start of the run.
    pub at_us: u64,
    /// The client that asked; it has one operation at a time, but for the messages and acks of
    /// one batch, and for producers that do not wait for answers.
    pub process: u32,
    /// Names the operation; an invocation and its completion have the same number.
    pub op: u64,
    /// What happened.
    #[serde(flatten)]
    pub phase: Phase,
}

/// Where an operation stands. See `CONTRACT.md`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Phase {
    /// The client asks.
    Invoke {
        /// For what.
        call: Call,
    },
    /// The system answered.
    Ok {
        /// What.
        answer: Answer,
    },
    /// It is certain that nothing happened.
    Fail {
        /// Why.
        error: String,
    },
    /// It may have happened.
    Unknown {
        /// Why that is not known.
        error: String,
    },
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// Store one message.
    Send {
        /// Its id, the same in all attempts.
        message_id: String,
        /// Its body.
        body: String,
    },
    /// Take messages.
    Receive {
        /// Whether this belongs to the final drain: faults are healed, sends have ended.
        drain: bool,
        /// The consumer group, by number.
        #[serde(default)]
        group: u32,
    },
    /// Finish one message.
    Ack {
        /// Its id.
        message_id: String,
        /// The consumer group, by number.
        #[serde(default)]
        group: u32,
    },
    /// Finish one message by a handle that is no longer its newest: must be refused.
    StaleAck {
        /// Its id.
        message_id: String,
        /// The consumer group, by number.
        #[serde(default)]
        group: u32,
    },
    /// The topic is empty: the drain saw nothing for long enough.
    Drained,
    /// A register was made; nobody else knew it yet.
    MadeRegister {
        /// Its name.
        name: String,
        /// What it held at first.
        version: u64,
        /// The same.
        value: u32,
    },
    /// Ask the node of the process's number for the route of a topic.
    Route {
        /// As clients of this language.
        language: String,
    },
    /// Look at a register, or change it.
    Register {
        /// Its name.
        name: String,
        /// How.
        change: Change,
    },
}

/// What is asked of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What it is to hold; none: as it is.
    pub value: Option<u32>,
    /// Only if it has this version.
    pub if_version: Option<u64>,
}

/// What the system answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// To a send: where in its queue.
    Sent {
        /// Offset in the queue.
        offset: i64,
    },
    /// To a receive.
    Received {
        /// The messages.
        messages: Vec<Delivery>,
    },
    /// What a register holds, after the change.
    Holds {
        /// Grows with each change.
        version: u64,
        /// What it was set to.
        value: u32,
    },
    /// A register had another version; it was not changed.
    Conflict,
    /// The addresses of each lane, by its name.
    Route {
        /// In order of preference.
        lanes: BTreeMap<String, Vec<String>>,
    },
    /// To all else.
    Done,
}

/// One message that was received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Its id.
    pub message_id: String,
    /// Its body.
    pub body: String,
    /// Its queue.
    pub queue: i32,
    /// Its offset there.
    pub offset: i64,
    /// The delivery attempt as the system counts, from 1.
    pub attempt: i32,
}

/// Writes a history, one line for each event.
///
/// # Errors
/// When `to` cannot be written.
pub fn write(events: &[Event], mut to: impl Write) -> std::io::Result<()> {
    for event in events {
        serde_json::to_writer(&mut to, event)?;
        to.write_all(b"\n")?;
    }
    to.flush()
}

/// Reads a history back.
///
/// # Errors
/// When `from` cannot be read or a line is no event; the error names the line.
pub fn read(from: impl BufRead) -> std::io::Result<Vec<Event>> {
    let mut events = Vec::new();
    for (number, line) in (1..).zip(from.lines()) {
        let event = serde_json::from_str(&line?)
            .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, format!("line {number}: {error}")))?;
        events.push(event);
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back() {
        let call = Call::Send { message_id: "m".to_owned(), body: "b\n".to_owned() };
        let delivery = Delivery { message_id: "m".to_owned(), body: "b".to_owned(), queue: 1, offset: 2, attempt: 3 };
        let phases = [
            Phase::Invoke { call },
            Phase::Invoke { call: Call::Drained },
            Phase::Ok { answer: Answer::Received { messages: vec![delivery] } },
            Phase::Ok { answer: Answer::Done },
            Phase::Fail { error: "no".to_owned() },
            Phase::Unknown { error: "who knows".to_owned() },
        ];
        let events: Vec<Event> =
            (0..).zip(phases).map(|(op, phase)| Event { at_us: op * 10, process: 1, op, phase }).collect();
        let mut lines = Vec::new();
        write(&events, &mut lines).unwrap();
        assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), events.len());
        assert_eq!(read(&lines[..]).unwrap(), events);
        assert!(read(&b"{}\n"[..]).unwrap_err().to_string().starts_with("line 1"));
    }
}
