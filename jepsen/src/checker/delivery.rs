//! What was acknowledged is delivered, unchanged, and stored once. The findings are those of `CONTRACT.md`.

use super::Verdict;
use crate::history::{Answer, Call, Delivery, Event, Phase};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Examples of each finding that a report shows.
const EXAMPLES_COUNT_MAX: usize = 5;

/// How a send ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Ok,
    Fail,
    Unknown,
}

/// What was found. Lists hold message ids, but for `overwritten`, which holds places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Sends that were answered OK.
    pub sent_ok: usize,
    /// Sends that surely stored nothing.
    pub sent_fail: usize,
    /// Sends without a certain answer.
    pub sent_unknown: usize,
    /// Sends without a certain answer whose message was received.
    pub unknown_stored: usize,
    /// Distinct messages received.
    pub received: usize,
    /// Deliveries beyond the first of a message; allowed.
    pub duplicates: usize,
    /// Whether the history ends with a drained topic.
    pub drained: bool,
    /// OK, and never received.
    pub lost: Vec<String>,
    /// Received, and never sent.
    pub phantom: Vec<String>,
    /// Received, though the send surely failed.
    pub ghost: Vec<String>,
    /// Received at more than one place.
    pub stored_twice: Vec<String>,
    /// Places with more than one message id.
    pub overwritten: Vec<String>,
    /// Received with another body.
    pub corrupt: Vec<String>,
    /// Received again by a call that was invoked after the ack was OK.
    pub returned: Vec<String>,
    /// Received by two calls as the same attempt.
    pub same_attempt: Vec<String>,
    /// Delivered again before its invisible time was over.
    pub early: Vec<String>,
    /// Acks by a handle that was no longer the newest, and what became of them: refused as they should be.
    pub stale_refused: usize,
    /// Such an ack was answered OK while nobody had finished the message.
    pub stale_accepted: Vec<String>,
}

impl Report {
    /// Invalid findings count at all times; a clean history counts when it was drained and something was sent.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.faults().any(|(_, found)| !found.is_empty()) {
            return Verdict::Invalid;
        }
        if self.drained && self.sent_ok > 0 { Verdict::Valid } else { Verdict::Undecided }
    }

    fn faults(&self) -> impl Iterator<Item = (&'static str, &Vec<String>)> {
        [
            ("lost", &self.lost),
            ("phantom", &self.phantom),
            ("ghost", &self.ghost),
            ("stored twice", &self.stored_twice),
            ("overwritten", &self.overwritten),
            ("corrupt", &self.corrupt),
            ("returned", &self.returned),
            ("same attempt", &self.same_attempt),
            ("early", &self.early),
            ("stale accepted", &self.stale_accepted),
        ]
        .into_iter()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "delivery: {}", self.verdict())?;
        writeln!(f, "  sends      {} ok, {} fail, {} unknown", self.sent_ok, self.sent_fail, self.sent_unknown)?;
        writeln!(f, "             {} of the unknown are stored", self.unknown_stored)?;
        writeln!(f, "  received   {} messages, {} duplicate deliveries", self.received, self.duplicates)?;
        writeln!(f, "  old handles {} refused", self.stale_refused)?;
        writeln!(f, "  drained    {}", if self.drained { "yes" } else { "no" })?;
        for (name, found) in self.faults() {
            let examples: Vec<&str> = found.iter().take(EXAMPLES_COUNT_MAX).map(String::as_str).collect();
            let dots = if found.len() > EXAMPLES_COUNT_MAX { " ..." } else { "" };
            writeln!(f, "  {name:<12} {} {}{dots}", found.len(), examples.join(" "))?;
        }
        Ok(())
    }
}

/// Everything known about the sends of a history, and about the receives and acks of one consumer group.
#[derive(Default)]
struct Facts<'a> {
    /// Body and fate of each sent message; unknown until a completion says more.
    sends: BTreeMap<&'a str, (&'a str, Fate)>,
    /// Each delivery with the times when its receive was invoked and answered.
    deliveries: Vec<Delivered<'a>>,
    /// When an ack was first answered OK.
    acked_at: BTreeMap<&'a str, u64>,
    /// When an ack was first invoked.
    ack_asked_at: BTreeMap<&'a str, u64>,
    /// Each ack by an old handle, and when and how it was answered.
    stale_acks: Vec<(&'a str, u64, Fate)>,
    drained: bool,
}

/// One message that one receive was answered with.
struct Delivered<'a> {
    invoked_at: u64,
    answered_at: u64,
    delivery: &'a Delivery,
}

/// Judges a history of one topic; each consumer group on its own, the findings of all together. `invisible`: messages are
/// received with this invisible time at least, and no clock jumped; then none may come again earlier.
#[must_use]
pub fn check(events: &[Event], invisible: Option<Duration>) -> Report {
    let groups: BTreeSet<u32> = events.iter().filter_map(group_of).collect();
    let mut whole = None;
    for group in groups.into_iter().chain([0]).collect::<BTreeSet<u32>>() {
        let report = check_group(&Facts::of(events, group), invisible);
        whole = Some(match whole {
            None => report,
            Some(before) => merged(before, report),
        });
    }
    whole.unwrap_or_default()
}

fn group_of(event: &Event) -> Option<u32> {
    match event.phase {
        Phase::Invoke {
            call: Call::Receive { group, .. } | Call::Ack { group, .. } | Call::StaleAck { group, .. },
        } => Some(group),
        _ => None,
    }
}

/// Sends are the same for all groups, deliveries add up.
fn merged(mut whole: Report, group: Report) -> Report {
    whole.received += group.received;
    whole.duplicates += group.duplicates;
    whole.stale_refused += group.stale_refused;
    for (all, found) in [
        (&mut whole.lost, group.lost),
        (&mut whole.phantom, group.phantom),
        (&mut whole.ghost, group.ghost),
        (&mut whole.stored_twice, group.stored_twice),
        (&mut whole.overwritten, group.overwritten),
        (&mut whole.corrupt, group.corrupt),
        (&mut whole.returned, group.returned),
        (&mut whole.same_attempt, group.same_attempt),
        (&mut whole.early, group.early),
        (&mut whole.stale_accepted, group.stale_accepted),
    ] {
        all.extend(found);
    }
    whole
}

fn check_group(facts: &Facts<'_>, invisible: Option<Duration>) -> Report {
    let mut report = Report { drained: facts.drained, ..Report::default() };
    let received: BTreeSet<&str> = facts.deliveries.iter().map(|one| one.delivery.message_id.as_str()).collect();
    report.received = received.len();
    report.duplicates = facts.deliveries.len() - received.len();
    judge_sends(facts, &received, &mut report);
    judge_places(facts, &mut report);
    judge_deliveries(facts, &mut report);
    judge_attempts(facts, &mut report);
    if let Some(invisible) = invisible {
        judge_times(facts, invisible, &mut report);
    }
    judge_stale_acks(facts, &mut report);
    report
}

impl<'a> Facts<'a> {
    /// What concerns the sends and one consumer group.
    fn of(events: &'a [Event], group: u32) -> Facts<'a> {
        let mut facts = Facts::default();
        let mut invoked: BTreeMap<u64, (u64, &Call)> = BTreeMap::new();
        for event in events {
            if group_of(event).is_some_and(|other| other != group) {
                continue;
            }
            if let Phase::Invoke { call } = &event.phase {
                invoked.insert(event.op, (event.at_us, call));
                if let Call::Send { message_id, body } = call {
                    facts.sends.insert(message_id, (body, Fate::Unknown));
                }
                if let Call::Ack { message_id, .. } = call {
                    facts.ack_asked_at.entry(message_id).or_insert(event.at_us);
                }
                facts.drained |= matches!(call, Call::Drained);
            } else if let Some((invoked_at, call)) = invoked.remove(&event.op) {
                facts.complete(call, invoked_at, event);
            }
        }
        facts
    }

    fn complete(&mut self, call: &'a Call, invoked_at: u64, event: &'a Event) {
        match (call, &event.phase) {
            (Call::Send { message_id, .. }, phase) => {
                if let Some((_, fate)) = self.sends.get_mut(message_id.as_str()) {
                    *fate = match phase {
                        Phase::Ok { .. } => Fate::Ok,
                        Phase::Fail { .. } => Fate::Fail,
                        Phase::Invoke { .. } | Phase::Unknown { .. } => Fate::Unknown,
                    };
                }
            }
            (Call::Receive { .. }, Phase::Ok { answer: Answer::Received { messages } }) => {
                let answered_at = event.at_us;
                let one = |delivery| Delivered { invoked_at, answered_at, delivery };
                self.deliveries.extend(messages.iter().map(one));
            }
            (Call::Ack { message_id, .. }, Phase::Ok { .. }) => {
                self.acked_at.entry(message_id).or_insert(event.at_us);
            }
            (Call::StaleAck { message_id, .. }, phase) => {
                let fate = match phase {
                    Phase::Ok { .. } => Fate::Ok,
                    Phase::Fail { .. } => Fate::Fail,
                    Phase::Invoke { .. } | Phase::Unknown { .. } => Fate::Unknown,
                };
                self.stale_acks.push((message_id, event.at_us, fate));
            }
            _ => {}
        }
    }
}

fn judge_sends(facts: &Facts<'_>, received: &BTreeSet<&str>, report: &mut Report) {
    for (message_id, (_, fate)) in &facts.sends {
        let seen = received.contains(message_id);
        match fate {
            Fate::Ok => {
                report.sent_ok += 1;
                // Before the topic is drained a message may simply not have come yet.
                if !seen && facts.drained {
                    report.lost.push((*message_id).to_owned());
                }
            }
            Fate::Fail => {
                report.sent_fail += 1;
                if seen {
                    report.ghost.push((*message_id).to_owned());
                }
            }
            Fate::Unknown => {
                report.sent_unknown += 1;
                report.unknown_stored += usize::from(seen);
            }
        }
    }
}

fn judge_places(facts: &Facts<'_>, report: &mut Report) {
    let mut places: BTreeMap<&str, BTreeSet<(i32, i64)>> = BTreeMap::new();
    let mut ids: BTreeMap<(i32, i64), BTreeSet<&str>> = BTreeMap::new();
    for Delivered { delivery, .. } in &facts.deliveries {
        let place = (delivery.queue, delivery.offset);
        places.entry(&delivery.message_id).or_default().insert(place);
        ids.entry(place).or_default().insert(&delivery.message_id);
    }
    let twice = places.into_iter().filter(|(_, places)| places.len() > 1);
    report.stored_twice = twice.map(|(id, _)| id.to_owned()).collect();
    let overwritten = ids.into_iter().filter(|(_, ids)| ids.len() > 1);
    report.overwritten = overwritten.map(|((queue, offset), _)| format!("{queue}/{offset}")).collect();
}

fn judge_deliveries(facts: &Facts<'_>, report: &mut Report) {
    let (mut phantom, mut corrupt, mut returned) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for Delivered { invoked_at, delivery, .. } in &facts.deliveries {
        let id = delivery.message_id.as_str();
        match facts.sends.get(id) {
            None => {
                phantom.insert(id);
            }
            Some((body, _)) if *body != delivery.body => {
                corrupt.insert(id);
            }
            Some(_) => {}
        }
        if facts.acked_at.get(id).is_some_and(|acked_at| acked_at < invoked_at) {
            returned.insert(id);
        }
    }
    let owned = |ids: BTreeSet<&str>| ids.into_iter().map(str::to_owned).collect();
    (report.phantom, report.corrupt, report.returned) = (owned(phantom), owned(corrupt), owned(returned));
}

/// Each receive asks under an attempt id of its own, so what two of them were given are two attempts.
fn judge_attempts(facts: &Facts<'_>, report: &mut Report) {
    let mut seen = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for Delivered { delivery, .. } in &facts.deliveries {
        let id = delivery.message_id.as_str();
        if !seen.insert((id, delivery.queue, delivery.offset, delivery.attempt)) {
            twice.insert(id);
        }
    }
    report.same_attempt = twice.into_iter().map(str::to_owned).collect();
}

/// A message that was handed over is invisible from some moment after its receive was invoked.
fn judge_times(facts: &Facts<'_>, invisible: Duration, report: &mut Report) {
    let invisible_us = invisible.as_micros() as u64;
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    let mut early = BTreeSet::new();
    for Delivered { invoked_at, answered_at, delivery } in &facts.deliveries {
        let id = delivery.message_id.as_str();
        if last.insert(id, *invoked_at).is_some_and(|invoked_before| *answered_at < invoked_before + invisible_us) {
            early.insert(id);
        }
    }
    report.early = early.into_iter().map(str::to_owned).collect();
}

/// An ack of a message that is finished is OK by any handle. Before that, only the newest one is good.
fn judge_stale_acks(facts: &Facts<'_>, report: &mut Report) {
    for (id, answered_at, fate) in &facts.stale_acks {
        let finished = facts.ack_asked_at.get(id).is_some_and(|asked_at| asked_at < answered_at);
        match fate {
            Fate::Ok if !finished => report.stale_accepted.push((*id).to_owned()),
            Fate::Fail => report.stale_refused += 1,
            Fate::Ok | Fate::Unknown => {}
        }
    }
}

#[cfg(test)]
mod tests;
