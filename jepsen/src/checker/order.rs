//! Where messages are in their queues: as their receipts say, without gaps, and in the order in which sends followed each other.
//!
//! What it cannot know without a delivery is a message's queue, so a history that is not drained proves less.

use super::Verdict;
use crate::history::{Answer, Call, Event, Phase};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Examples of each finding that a report shows.
const EXAMPLES_COUNT_MAX: usize = 5;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Messages whose place is known.
    pub placed: usize,
    /// Delivered at another offset than their receipt says.
    pub receipt_differs: Vec<String>,
    /// Stored before a message whose send was acknowledged when theirs began.
    pub reordered: Vec<String>,
    /// Places (queue/offset) that no delivered message has, though later ones in the queue do; of drained histories of a
    /// topic that was empty.
    pub gaps: Vec<String>,
}

impl Report {
    /// Invalid with any finding; undecided when there is nothing to judge.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self {
            _ if self.faults().into_iter().any(|(_, found)| !found.is_empty()) => Verdict::Invalid,
            Report { placed: 0, .. } => Verdict::Undecided,
            _ => Verdict::Valid,
        }
    }

    fn faults(&self) -> [(&'static str, &Vec<String>); 3] {
        [("receipt differs", &self.receipt_differs), ("reordered", &self.reordered), ("gaps", &self.gaps)]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "order: {}", self.verdict())?;
        writeln!(f, "  placed     {} messages", self.placed)?;
        for (name, found) in self.faults() {
            let examples: Vec<&str> = found.iter().take(EXAMPLES_COUNT_MAX).map(String::as_str).collect();
            let dots = if found.len() > EXAMPLES_COUNT_MAX { " ..." } else { "" };
            writeln!(f, "  {name:<12} {} {}{dots}", found.len(), examples.join(" "))?;
        }
        Ok(())
    }
}

/// Judges a history of one topic. `whole`: the topic was empty when the history began.
#[must_use]
pub fn check(events: &[Event], whole: bool) -> Report {
    let places = places(events);
    let mut report = Report { placed: places.len(), ..Report::default() };
    let drained = events.iter().any(|event| matches!(event.phase, Phase::Invoke { call: Call::Drained }));
    if whole && drained {
        report.gaps = gaps(&places);
    }
    // For each queue the end of what was acknowledged so far; for each send that is under way, what that was when it began.
    let mut ends: BTreeMap<i32, i64> = BTreeMap::new();
    let mut under_way: BTreeMap<u64, &str> = BTreeMap::new();
    for event in events {
        match &event.phase {
            Phase::Invoke { call: Call::Send { message_id, .. } } => {
                under_way.insert(event.op, message_id);
                let place = places.get(message_id.as_str());
                if place.is_some_and(|(queue, offset)| ends.get(queue).is_some_and(|end| offset < end)) {
                    report.reordered.push(message_id.clone());
                }
            }
            Phase::Ok { answer: Answer::Sent { offset: told } } => {
                let Some(message_id) = under_way.remove(&event.op) else { continue };
                let Some((queue, offset)) = places.get(message_id) else { continue };
                if offset != told {
                    report.receipt_differs.push(message_id.to_owned());
                }
                let end = ends.entry(*queue).or_default();
                *end = (*end).max(offset + 1);
            }
            _ => {}
        }
    }
    report
}

/// Queue and offset of each message that was delivered.
fn places(events: &[Event]) -> BTreeMap<&str, (i32, i64)> {
    let received = events.iter().filter_map(|event| match &event.phase {
        Phase::Ok { answer: Answer::Received { messages } } => Some(messages),
        _ => None,
    });
    received.flatten().map(|delivery| (delivery.message_id.as_str(), (delivery.queue, delivery.offset))).collect()
}

fn gaps(places: &BTreeMap<&str, (i32, i64)>) -> Vec<String> {
    let mut queues: BTreeMap<i32, BTreeSet<i64>> = BTreeMap::new();
    places.values().for_each(|(queue, offset)| {
        queues.entry(*queue).or_default().insert(*offset);
    });
    let missing = |(queue, offsets): (i32, BTreeSet<i64>)| {
        let end = offsets.last().map_or(0, |last| last + 1);
        (0..end).filter(move |offset| !offsets.contains(offset)).map(move |offset| format!("{queue}/{offset}"))
    };
    queues.into_iter().flat_map(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Delivery;

    /// Id, when it was invoked, when it was acknowledged with which offset.
    type Send<'a> = (&'a str, u64, Option<(u64, i64)>);

    /// Sends, then all deliveries as (id, queue, offset).
    fn history(sends: &[Send<'_>], delivered: &[(&str, i32, i64)]) -> Vec<Event> {
        let mut events = Vec::new();
        for (op, (id, invoked, acked)) in (0..).zip(sends) {
            let call = Call::Send { message_id: (*id).to_owned(), body: String::new() };
            events.push(Event { at_us: *invoked, process: 0, op, phase: Phase::Invoke { call } });
            let ok = |offset| Phase::Ok { answer: Answer::Sent { offset } };
            events.extend(acked.map(|(at_us, offset)| Event { at_us, process: 0, op, phase: ok(offset) }));
        }
        let delivery = |(id, queue, offset): &(&str, i32, i64)| Delivery {
            message_id: (*id).to_owned(),
            body: String::new(),
            queue: *queue,
            offset: *offset,
            attempt: 1,
        };
        let answer = Answer::Received { messages: delivered.iter().map(delivery).collect() };
        events.push(Event { at_us: 1_000, process: 1, op: 100, phase: Phase::Ok { answer } });
        events.push(Event { at_us: 1_001, process: 1, op: 101, phase: Phase::Invoke { call: Call::Drained } });
        events.sort_by_key(|event| event.at_us);
        events
    }

    #[test]
    fn sends_that_overlap_may_be_stored_in_any_order() {
        let sends = [("a", 0, Some((10, 1))), ("b", 5, Some((8, 0))), ("c", 9, None)];
        let report = check(&history(&sends, &[("a", 0, 1), ("b", 0, 0), ("c", 0, 2)]), true);
        assert_eq!((report.verdict(), report.placed), (Verdict::Valid, 3));
    }

    #[test]
    fn a_send_that_began_after_an_ack_is_behind_it() {
        let sends = [("a", 0, Some((10, 1))), ("b", 11, Some((20, 0)))];
        let report = check(&history(&sends, &[("a", 0, 1), ("b", 0, 0)]), true);
        assert_eq!(report.reordered, ["b"]);
        let elsewhere = check(&history(&sends, &[("a", 0, 1), ("b", 1, 0), ("c", 0, 0)]), true);
        assert!(elsewhere.reordered.is_empty(), "another queue");
        let unknown = [("a", 0, Some((10, 1))), ("b", 11, None)];
        assert_eq!(
            check(&history(&unknown, &[("a", 0, 1), ("b", 0, 0)]), true).reordered,
            ["b"],
            "without an answer too"
        );
    }

    #[test]
    fn receipts_are_held_to_and_gaps_are_seen() {
        let sends = [("a", 0, Some((10, 3)))];
        let events = history(&sends, &[("a", 0, 2)]);
        let report = check(&events, true);
        assert_eq!(report.receipt_differs, ["a"]);
        assert_eq!(report.gaps, ["0/0", "0/1"]);
        assert!(check(&events, false).gaps.is_empty(), "there may have been other messages");
    }
}
