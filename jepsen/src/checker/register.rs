//! The settings of a consumer group as a register with versions: every change and every look is linearizable, and versions
//! grow.

use super::Verdict;
use super::linearizable::{Specification, Timed, TooLarge, is_linearizable};
use crate::history::{Answer, Call, Change, Event, Phase};
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Registers that were judged.
    pub registers: usize,
    /// Operations that were answered for certain.
    pub answered: usize,
    /// Operations that were not.
    pub unknown: usize,
    /// Changes that were refused since the version was another one.
    pub conflicts: usize,
    /// Registers whose search grew too large: they prove nothing.
    pub undecided: usize,
    /// Registers whose history is not linearizable; with that history.
    pub broken: Vec<String>,
}

impl Report {
    /// Valid when something was answered, at least one register was decided, and none was broken.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self {
            Report { broken, .. } if !broken.is_empty() => Verdict::Invalid,
            Report { answered: 0, .. } => Verdict::Undecided,
            Report { registers, undecided, .. } if registers == undecided => Verdict::Undecided,
            _ => Verdict::Valid,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { registers, answered, unknown, conflicts, undecided, broken } = self;
        writeln!(f, "metadata registers: {}", self.verdict())?;
        writeln!(
            f,
            "  {registers} of them, {answered} answers, {conflicts} conflicts, {unknown} unknown; {undecided} not decided"
        )?;
        broken.iter().try_for_each(|name| writeln!(f, "  not linearizable: {name}"))
    }
}

/// What a register holds. The version is not known after a change that was not answered, until somebody sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    version: Option<u64>,
    value: u32,
}

/// A change and its answer.
#[derive(Clone, Copy, Debug)]
struct Operation {
    change: Change,
    answer: Option<Seen>,
}

#[derive(Clone, Copy, Debug)]
enum Seen {
    Holds(u64, u32),
    Conflict,
}

struct Register;

impl Specification for Register {
    type State = State;
    type Operation = Operation;

    fn step(state: &State, operation: &Operation) -> Option<State> {
        let Operation { change: Change { value, if_version }, answer } = *operation;
        // What is as asked already is fine with any premise and changes nothing.
        let as_asked = value.is_none_or(|value| value == state.value);
        // A version that is not known may be the one: who was refused may have been told it.
        let fits = if_version.is_none_or(|version| state.version.is_none_or(|known| known == version));
        let refuses = if_version.is_some_and(|version| state.version != Some(version));
        let changed = |version| value.map(|value| State { version, value });
        match answer {
            Some(Seen::Conflict) => (!as_asked && refuses).then_some(*state),
            Some(Seen::Holds(version, seen)) if as_asked => {
                let known = state.version.is_none_or(|known| known == version);
                (known && seen == state.value).then_some(State { version: Some(version), value: seen })
            }
            Some(Seen::Holds(version, seen)) => {
                let grows = state.version.is_none_or(|known| known < version);
                changed(Some(version)).filter(|next| fits && grows && next.value == seen)
            }
            None if as_asked || !fits => Some(*state),
            None => changed(None),
        }
    }
}

/// Judges a history. The first answer about each register, to who made it, says what it held.
#[must_use]
pub fn check(events: &[Event]) -> Report {
    let mut report = Report::default();
    let mut registers: BTreeMap<&str, (Option<State>, Vec<Timed<Operation>>)> = BTreeMap::new();
    let mut under_way: BTreeMap<u64, (&str, usize)> = BTreeMap::new();
    for event in events {
        match &event.phase {
            Phase::Invoke { call: Call::MadeRegister { name, version, value } } => {
                registers.entry(name).or_default().0 = Some(State { version: Some(*version), value: *value });
            }
            Phase::Invoke { call: Call::Register { name, change } } => {
                let (_, operations) = registers.entry(name).or_default();
                under_way.insert(event.op, (name, operations.len()));
                let operation = Operation { change: *change, answer: None };
                operations.push(Timed { operation, called_at: event.at_us, answered_at: None });
            }
            phase => {
                let Some((name, place)) = under_way.remove(&event.op) else { continue };
                let answer = match phase {
                    Phase::Ok { answer: Answer::Holds { version, value } } => Some(Seen::Holds(*version, *value)),
                    Phase::Ok { answer: Answer::Conflict } => Some(Seen::Conflict),
                    _ => None,
                };
                let surely_not = matches!(phase, Phase::Fail { .. });
                if let Some((_, operations)) = registers.get_mut(name) {
                    let timed = &mut operations[place];
                    timed.operation.answer = answer;
                    timed.answered_at = answer.map(|_| event.at_us);
                    if surely_not {
                        // As if it had never been asked: a look without an answer.
                        timed.operation.change = Change { value: None, if_version: None };
                    }
                }
            }
        }
    }
    for (name, (first, operations)) in registers {
        let Some(first) = first else { continue };
        report.registers += 1;
        for timed in &operations {
            match timed.operation.answer {
                Some(seen) => {
                    report.answered += 1;
                    report.conflicts += usize::from(matches!(seen, Seen::Conflict));
                }
                None => report.unknown += 1,
            }
        }
        match is_linearizable::<Register>(first, &operations) {
            Ok(true) => {}
            Ok(false) => report.broken.push(told(name, first, &operations)),
            Err(TooLarge) => report.undecided += 1,
        }
    }
    report
}

/// A whole history, for people to read.
fn told(name: &str, first: State, operations: &[Timed<Operation>]) -> String {
    let mut text = format!("{name}, which held {first:?}");
    for Timed { operation: Operation { change, answer }, called_at, answered_at } in operations {
        let _ = write!(text, "\n    {called_at} us: {change:?}, {answered_at:?}: {answer:?}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When it was called, how, when it was answered and what.
    type Asked = (u64, Change, Option<(u64, Answer)>);

    fn report(operations: &[Asked]) -> Report {
        let made = Call::MadeRegister { name: "r".to_owned(), version: 5, value: 16 };
        let mut events = vec![Event { at_us: 0, process: 0, op: 0, phase: Phase::Invoke { call: made } }];
        for (op, (at_us, change, answered)) in (1..).zip(operations) {
            let call = Call::Register { name: "r".to_owned(), change: *change };
            events.push(Event { at_us: *at_us, process: 0, op, phase: Phase::Invoke { call } });
            let phase = |answer: &Answer| Phase::Ok { answer: answer.clone() };
            events.extend(answered.iter().map(|(at_us, answer)| Event {
                at_us: *at_us,
                process: 0,
                op,
                phase: phase(answer),
            }));
        }
        events.sort_by_key(|event| event.at_us);
        check(&events)
    }

    const LOOK: Change = Change { value: None, if_version: None };

    fn set(value: u32, if_version: Option<u64>) -> Change {
        Change { value: Some(value), if_version }
    }

    fn holds(version: u64, value: u32) -> Answer {
        Answer::Holds { version, value }
    }

    #[test]
    fn changes_follow_each_other() {
        let good = report(&[
            (1, LOOK, Some((2, holds(5, 16)))),
            (3, set(7, Some(5)), Some((9, holds(8, 7)))),
            (4, set(9, Some(5)), Some((10, Answer::Conflict))),
            (11, set(7, Some(5)), Some((12, holds(8, 7)))),
        ]);
        assert_eq!((good.verdict(), good.answered, good.conflicts), (Verdict::Valid, 4, 1));
    }

    #[test]
    fn a_lost_update_a_stale_look_and_a_version_that_falls_are_found() {
        let both = [(1, set(7, Some(5)), Some((9, holds(8, 7)))), (2, set(9, Some(5)), Some((9, holds(10, 9))))];
        assert_eq!(report(&both).verdict(), Verdict::Invalid);
        let stale = [(1, set(7, None), Some((2, holds(8, 7)))), (3, LOOK, Some((4, holds(5, 16))))];
        assert_eq!(report(&stale).verdict(), Verdict::Invalid);
        let falls = [(1, set(7, None), Some((2, holds(8, 7)))), (3, set(9, None), Some((4, holds(6, 9))))];
        assert_eq!(report(&falls).verdict(), Verdict::Invalid);
        let refused = [(1, set(7, Some(5)), Some((2, Answer::Conflict)))];
        assert_eq!(report(&refused).verdict(), Verdict::Invalid, "without a reason");
    }

    #[test]
    fn an_unanswered_change_may_have_happened() {
        let unknown = (1, set(7, Some(5)), None);
        assert_eq!(report(&[unknown.clone(), (3, LOOK, Some((4, holds(5, 16))))]).verdict(), Verdict::Valid);
        let seen = [unknown.clone(), (3, LOOK, Some((4, holds(8, 7)))), (5, LOOK, Some((6, holds(8, 7))))];
        assert_eq!(report(&seen).verdict(), Verdict::Valid);
        let told_by_a_conflict = [
            unknown.clone(),
            (3, set(9, Some(5)), Some((4, Answer::Conflict))),
            (5, set(11, Some(8)), Some((6, holds(10, 11)))),
        ];
        assert_eq!(report(&told_by_a_conflict).verdict(), Verdict::Valid);
        let two_versions = [unknown, (3, LOOK, Some((4, holds(8, 7)))), (5, LOOK, Some((6, holds(9, 7))))];
        assert_eq!(report(&two_versions).verdict(), Verdict::Invalid);
    }
}
