//! Tests of the delivery checker with hand-made good and bad histories.

use super::*;

/// A history by hand: each operation begins and ends one microsecond after the other.
#[derive(Default)]
struct Story {
    events: Vec<Event>,
    op: u64,
    /// Deliveries of each message so far.
    attempts: BTreeMap<String, i32>,
}

impl Story {
    fn event(&mut self, phase: Phase) {
        let at_us = self.events.len() as u64;
        self.events.push(Event { at_us, process: 0, op: self.op, phase });
    }

    fn op(mut self, call: Call, completion: Option<Phase>) -> Story {
        self.event(Phase::Invoke { call });
        if let Some(completion) = completion {
            self.event(completion);
        }
        self.op += 1;
        self
    }

    fn send(self, id: &str, completion: Option<Phase>) -> Story {
        self.op(Call::Send { message_id: id.to_owned(), body: body(id) }, completion)
    }

    /// The next delivery of a message.
    fn delivery(&mut self, id: &str, queue: i32, offset: i64) -> Delivery {
        let attempt = self.attempts.entry(id.to_owned()).or_default();
        *attempt += 1;
        Delivery { attempt: *attempt, ..delivery(id, queue, offset) }
    }

    fn receive(mut self, messages: &[(&str, i32, i64)]) -> Story {
        let messages = messages.iter().map(|(id, queue, offset)| self.delivery(id, *queue, *offset)).collect();
        let answer = Answer::Received { messages };
        self.op(Call::Receive { drain: false, group: 0 }, Some(Phase::Ok { answer }))
    }

    fn ack(self, id: &str, completion: Option<Phase>) -> Story {
        self.op(Call::Ack { message_id: id.to_owned(), group: 0 }, completion)
    }

    fn stale_ack(self, id: &str, completion: Option<Phase>) -> Story {
        self.op(Call::StaleAck { message_id: id.to_owned(), group: 0 }, completion)
    }

    fn drained(self) -> Report {
        check(&self.op(Call::Drained, Some(done())).events, None)
    }
}

fn body(id: &str) -> String {
    format!("body of {id}")
}

fn delivery(id: &str, queue: i32, offset: i64) -> Delivery {
    Delivery { message_id: id.to_owned(), body: body(id), queue, offset, attempt: 1 }
}

fn sent() -> Option<Phase> {
    Some(Phase::Ok { answer: Answer::Sent { offset: 0 } })
}

fn done() -> Phase {
    Phase::Ok { answer: Answer::Done }
}

fn unknown() -> Option<Phase> {
    Some(Phase::Unknown { error: "timeout".to_owned() })
}

fn fail() -> Option<Phase> {
    Some(Phase::Fail { error: "refused".to_owned() })
}

#[test]
fn a_good_run_is_valid() {
    let story = Story::default().send("a", sent()).send("b", sent()).send("c", fail());
    let report = story.receive(&[("a", 0, 0), ("b", 1, 0)]).ack("a", Some(done())).ack("b", Some(done())).drained();
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    assert_eq!((report.sent_ok, report.sent_fail, report.received, report.duplicates), (2, 1, 2, 0));
}

#[test]
fn duplicates_are_counted_and_allowed() {
    let story = Story::default().send("a", sent()).receive(&[("a", 0, 0)]).ack("a", unknown());
    let report = story.receive(&[("a", 0, 0)]).ack("a", Some(done())).drained();
    assert_eq!((report.verdict(), report.duplicates), (Verdict::Valid, 1), "{report}");
}

#[test]
fn unknown_sends_may_be_stored_or_not() {
    let story = Story::default().send("a", sent()).send("b", unknown()).send("c", unknown()).send("d", None);
    let report = story.receive(&[("a", 0, 0), ("b", 0, 1)]).drained();
    assert_eq!(report.verdict(), Verdict::Valid, "{report}");
    assert_eq!((report.sent_unknown, report.unknown_stored), (3, 1));
}

#[test]
fn an_acknowledged_message_that_never_comes_is_lost() {
    let report = Story::default().send("a", sent()).send("b", sent()).receive(&[("b", 0, 1)]).drained();
    assert_eq!((report.verdict(), report.lost), (Verdict::Invalid, vec!["a".to_owned()]));
}

#[test]
fn a_message_that_nobody_sent_is_a_phantom() {
    let report = Story::default().send("a", sent()).receive(&[("a", 0, 0), ("x", 0, 1)]).drained();
    assert_eq!((report.verdict(), report.phantom), (Verdict::Invalid, vec!["x".to_owned()]));
}

#[test]
fn a_failed_send_that_comes_is_a_ghost() {
    let report = Story::default().send("a", sent()).send("b", fail()).receive(&[("a", 0, 0), ("b", 0, 1)]).drained();
    assert_eq!((report.verdict(), report.ghost), (Verdict::Invalid, vec!["b".to_owned()]));
}

#[test]
fn one_message_at_two_places_is_stored_twice() {
    for second in [(0, 5), (1, 0)] {
        let report = Story::default().send("a", sent()).receive(&[("a", 0, 0), ("a", second.0, second.1)]).drained();
        assert_eq!((report.verdict(), report.stored_twice), (Verdict::Invalid, vec!["a".to_owned()]));
    }
}

#[test]
fn two_messages_at_one_place_are_an_overwrite() {
    let story = Story::default().send("a", sent()).send("b", sent());
    let report = story.receive(&[("a", 2, 9)]).receive(&[("b", 2, 9)]).drained();
    assert_eq!((report.verdict(), report.overwritten), (Verdict::Invalid, vec!["2/9".to_owned()]));
}

#[test]
fn another_body_is_corrupt() {
    let mut bad = delivery("a", 0, 0);
    bad.body.push('!');
    let answer = Answer::Received { messages: vec![bad] };
    let story = Story::default().send("a", sent());
    let report = story.op(Call::Receive { drain: true, group: 0 }, Some(Phase::Ok { answer })).drained();
    assert_eq!((report.verdict(), report.corrupt), (Verdict::Invalid, vec!["a".to_owned()]));
}

#[test]
fn a_message_that_comes_after_its_ack_is_returned() {
    let story = Story::default().send("a", sent()).receive(&[("a", 0, 0)]).ack("a", Some(done()));
    let report = story.receive(&[("a", 0, 0)]).drained();
    assert_eq!((report.verdict(), report.returned), (Verdict::Invalid, vec!["a".to_owned()]));
}

#[test]
fn a_receive_that_began_before_the_ack_returns_nothing() {
    let mut story = Story::default().send("a", sent()).receive(&[("a", 0, 0)]);
    let receive = 100;
    story.events.push(Event {
        at_us: 50,
        process: 1,
        op: receive,
        phase: Phase::Invoke { call: Call::Receive { drain: false, group: 0 } },
    });
    let ack = Call::Ack { message_id: "a".to_owned(), group: 0 };
    story.events.push(Event { at_us: 51, process: 0, op: 101, phase: Phase::Invoke { call: ack } });
    story.events.push(Event { at_us: 52, process: 0, op: 101, phase: done() });
    let answer = Answer::Received { messages: vec![story.delivery("a", 0, 0)] };
    story.events.push(Event { at_us: 60, process: 1, op: receive, phase: Phase::Ok { answer } });
    assert_eq!(story.drained().verdict(), Verdict::Valid);
}

#[test]
fn two_receives_never_get_the_same_attempt() {
    let mut story = Story::default().send("a", sent()).receive(&[("a", 0, 0)]);
    story.attempts.clear();
    let report = story.receive(&[("a", 0, 0)]).drained();
    assert_eq!((report.verdict(), report.same_attempt), (Verdict::Invalid, vec!["a".to_owned()]));
}

#[test]
fn nothing_comes_again_before_its_invisible_time_is_over() {
    let story = Story::default().send("a", sent()).receive(&[("a", 0, 0)]).receive(&[("a", 0, 0)]);
    let events = story.op(Call::Drained, Some(done())).events;
    // Invoked at 2, answered again at 5.
    let report = |us| check(&events, Some(Duration::from_micros(us)));
    assert_eq!(report(3).verdict(), Verdict::Valid);
    assert_eq!((report(4).verdict(), report(4).early), (Verdict::Invalid, vec!["a".to_owned()]));
}

#[test]
fn an_old_handle_must_be_refused_while_the_message_is_not_finished() {
    let story =
        |answer: Option<Phase>| Story::default().send("a", sent()).receive(&[("a", 0, 0)]).stale_ack("a", answer);
    let refused = story(fail()).ack("a", Some(done())).drained();
    assert_eq!((refused.verdict(), refused.stale_refused), (Verdict::Valid, 1));
    let accepted = story(Some(done())).ack("a", Some(done())).drained();
    assert_eq!((accepted.verdict(), accepted.stale_accepted), (Verdict::Invalid, vec!["a".to_owned()]));
    assert_eq!(story(unknown()).drained().verdict(), Verdict::Valid);
    // Finished by another holder: any handle is fine.
    let late = Story::default().send("a", sent()).receive(&[("a", 0, 0)]).ack("a", unknown());
    assert_eq!(late.stale_ack("a", Some(done())).drained().verdict(), Verdict::Valid);
}

#[test]
fn a_history_that_proves_nothing_is_undecided() {
    assert_eq!(check(&[], None).verdict(), Verdict::Undecided);
    assert_eq!(Story::default().drained().verdict(), Verdict::Undecided, "nothing was sent");
    let not_drained = Story::default().send("a", sent());
    let report = check(&not_drained.events, None);
    assert_eq!((report.verdict(), report.lost.len()), (Verdict::Undecided, 0), "not drained");
}

#[test]
fn a_report_is_text_for_people() {
    let text = Story::default().send("a", sent()).drained().to_string();
    assert!(text.starts_with("delivery: INVALID\n") && text.contains("lost         1 a\n"), "{text}");
}
