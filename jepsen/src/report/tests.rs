//! Recovery times, verdicts and the page.

use super::*;
use crate::history::Answer;

/// Sends that begin and are acknowledged at these milliseconds.
fn history(sends: &[(u64, u64)]) -> Vec<Event> {
    let call = || Call::Send { message_id: String::new(), body: String::new() };
    let mut events: Vec<Event> = Vec::new();
    for (op, (began, acked)) in (0..).zip(sends) {
        events.push(Event { at_us: began * 1000, process: 0, op, phase: Phase::Invoke { call: call() } });
        let phase = Phase::Ok { answer: Answer::Sent { offset: 0 } };
        events.push(Event { at_us: acked * 1000, process: 0, op, phase });
    }
    events.sort_by_key(|event| event.at_us);
    events
}

fn window(fault: Fault, from_ms: u64, to_ms: u64) -> Window {
    let (from_us, to_us) = (from_ms * 1000, to_ms * 1000);
    Window { fault, nodes: vec![1], from_us, to_us, well_ms: 0, gap_ms: 0, recovery_ms: None }
}

fn judgement(windows: Vec<Window>) -> Judgement {
    let delivery = delivery::Report { sent_ok: 1, drained: true, ..delivery::Report::default() };
    let order = order::Report { placed: 1, ..order::Report::default() };
    let loads = vec![Load { topic: "busy".to_owned(), delivery, order }];
    let planned = windows.iter().map(|window| window.fault).collect();
    let registers = register::Report { registers: 1, answered: 1, ..register::Report::default() };
    let routes = routes::Report { answered: 1, ..routes::Report::default() };
    let (skipped, coverage) = (Vec::new(), Coverage::default());
    Judgement {
        seed: 1,
        loads,
        registers,
        routes,
        windows,
        planned,
        skipped,
        coverage,
        quiet_failures: Vec::new(),
        crimes: Vec::new(),
        broken: None,
    }
}

#[test]
fn recovery_is_the_longest_gap_or_without_a_majority_counts_from_the_end_of_the_fault() {
    let events = history(&[(0, 10), (95, 340), (120, 350), (400, 410)]);
    let mut kill = window(Fault::KillLeader, 100, 300);
    kill.measure(&events);
    assert_eq!((kill.gap_ms, kill.recovery_ms), (330, Some(330)));
    let mut all = window(Fault::KillAll, 100, 360);
    all.measure(&events);
    assert_eq!(all.recovery_ms, Some(50));
    let mut late = window(Fault::KillLeader, 500, 600);
    late.measure(&events);
    assert_eq!(late.recovery_ms, None);
}

#[test]
fn verdicts() {
    let recovered = |ms| Window { recovery_ms: ms, ..window(Fault::KillLeader, 0, 1) };
    assert_eq!(judgement(vec![recovered(Some(90))]).verdict(), Verdict::Valid);
    assert_eq!(judgement(vec![recovered(None)]).verdict(), Verdict::Invalid);
    assert_eq!(judgement(vec![recovered(Some(2_001))]).verdict(), Verdict::Invalid);
    let missed = Judgement { planned: vec![Fault::Bridge], ..judgement(Vec::new()) };
    assert_eq!((missed.verdict(), missed.missed()), (Verdict::Undecided, vec![Fault::Bridge]));
    let broken = Judgement { broken: Some("no leader".to_owned()), ..judgement(Vec::new()) };
    assert_eq!(broken.verdict(), Verdict::Undecided);
    let dull = Coverage { power_cuts: 2, ..Coverage::default() };
    assert_eq!(Judgement { coverage: dull, ..judgement(Vec::new()) }.verdict(), Verdict::Undecided);
    let long = judgement(vec![window(Fault::Transfer, LONG_US / 1_000, LONG_US / 1_000 + 1)]);
    assert_eq!(long.uncovered().len(), 2, "neither rolled nor cut");
    let crime = Judgement { crimes: vec!["node 1 ended".to_owned()], ..judgement(Vec::new()) };
    assert_eq!(crime.verdict(), Verdict::Invalid);
    let mut lost = judgement(Vec::new());
    lost.loads[0].delivery.lost.push("m".to_owned());
    assert_eq!(lost.verdict(), Verdict::Invalid);
    let failed = Judgement { quiet_failures: vec!["1.0 s: no".to_owned()], ..judgement(Vec::new()) };
    assert_eq!(failed.verdict(), Verdict::Invalid);
    let mut gap = judgement(Vec::new());
    gap.loads[0].order.gaps.push("0/0".to_owned());
    assert_eq!(gap.verdict(), Verdict::Invalid);
}

#[test]
fn the_page_shows_every_fault_and_is_whole() {
    let judgement = judgement(vec![window(Fault::KillLeader, 1_000, 3_000), window(Fault::PowerCutAll, 5_000, 9_000)]);
    let events = history(&(0..100).map(|n| (n * 100, n * 100 + 7)).collect::<Vec<_>>());
    let page = page(&judgement, &events);
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert_eq!(page.matches("<title>kill-leader").count(), 2, "once in each picture");
    assert!(page.contains("power-cut-all") && page.contains("valid"));
}
