//! Routes, as clients of each SDK are told them: never "there is no such topic" for one that exists, never an address that is
//! none of the cluster's, and never another list of addresses while the nodes of the cluster are the same. A lane of one
//! address may go away and come back with its node; its name stays that node's.

use super::Verdict;
use crate::history::{Answer, Call, Event, Phase};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Each of its lanes has one address.
const LANES_OF_ONE: &str = "NODE_JS";
/// What the API says of a topic that does not exist.
const NOT_FOUND: &str = "404";
const EXAMPLES_COUNT_MAX: usize = 5;

/// Addresses by the name of their lane.
type Lanes = BTreeMap<String, Vec<String>>;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Routes that were told.
    pub answered: usize,
    /// Calls that a node refused: it could not tell.
    pub refused: usize,
    /// Calls without an answer.
    pub unknown: usize,
    /// See the module.
    pub wrong: Vec<String>,
}

impl Report {
    /// Valid when routes were told and none was wrong.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self {
            Report { wrong, .. } if !wrong.is_empty() => Verdict::Invalid,
            Report { answered: 0, .. } => Verdict::Undecided,
            _ => Verdict::Valid,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { answered, refused, unknown, wrong } = self;
        writeln!(f, "routes: {}", self.verdict())?;
        writeln!(f, "  {answered} answers, {refused} refused, {unknown} unknown, {} wrong", wrong.len())?;
        wrong.iter().take(EXAMPLES_COUNT_MAX).try_for_each(|what| writeln!(f, "  {what}"))
    }
}

/// Judges the routes of one topic, which existed all the time, in a cluster of the nodes `addresses`.
#[must_use]
pub fn check(events: &[Event], addresses: &BTreeSet<String>) -> Report {
    let mut report = Report::default();
    let mut asked: BTreeMap<u64, &str> = BTreeMap::new();
    let mut known: BTreeMap<&str, Lanes> = BTreeMap::new();
    for event in events {
        match &event.phase {
            Phase::Invoke { call: Call::Route { language } } => {
                asked.insert(event.op, language);
            }
            Phase::Ok { answer: Answer::Route { lanes } } => {
                report.answered += 1;
                let Some(language) = asked.remove(&event.op) else { continue };
                report.wrong.extend(objection(language, lanes, addresses));
                report.wrong.extend(change(language, lanes, known.get(language)));
                known.entry(language).or_default().extend(lanes.clone());
            }
            Phase::Fail { error } => {
                report.refused += 1;
                if error.starts_with(NOT_FOUND) {
                    report.wrong.push(format!("node {}: {error}", event.process));
                }
            }
            Phase::Unknown { .. } => report.unknown += 1,
            Phase::Ok { .. } | Phase::Invoke { .. } => {}
        }
    }
    report
}

/// What differs from the lanes that were `known` before.
fn change(language: &str, lanes: &Lanes, known: Option<&Lanes>) -> Option<String> {
    let known = known?;
    let gone = known.iter().find(|(name, addresses)| addresses.len() > 1 && !lanes.contains_key(*name));
    let other = lanes.iter().find(|(name, addresses)| match known.get(*name) {
        Some(before) => before != *addresses,
        None => addresses.len() > 1,
    });
    gone.or(other).map(|(name, _)| format!("{language}: lane {name} of {known:?} is another one in {lanes:?}"))
}

fn objection(language: &str, lanes: &Lanes, addresses: &BTreeSet<String>) -> Option<String> {
    let told: Vec<&String> = lanes.values().flatten().collect();
    if told.is_empty() {
        return Some(format!("{language}: a route without an address"));
    }
    if let Some(foreign) = told.iter().find(|address| !addresses.contains(**address)) {
        return Some(format!("{language}: {foreign} is none of the cluster's"));
    }
    let one_each = lanes.values().all(|lane| lane.len() == 1);
    (language == LANES_OF_ONE && !one_each).then(|| format!("{language}: {lanes:?} has lanes of several addresses"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(op: u64, language: &str, lanes: &[(&str, &[&str])]) -> [Event; 2] {
        let lane = |(name, addresses): &(&str, &[&str])| {
            ((*name).to_owned(), addresses.iter().map(|address| (*address).to_owned()).collect())
        };
        let answer = Answer::Route { lanes: lanes.iter().map(lane).collect() };
        let call = Call::Route { language: language.to_owned() };
        [Phase::Invoke { call }, Phase::Ok { answer }].map(|phase| Event { at_us: op, process: 0, op, phase })
    }

    fn judge(events: impl IntoIterator<Item = [Event; 2]>) -> Report {
        let addresses = ["a:1", "b:1"].map(str::to_owned).into();
        check(&events.into_iter().flatten().collect::<Vec<_>>(), &addresses)
    }

    #[test]
    fn lanes_stay_but_for_those_of_one_address() {
        let both: &[(&str, &[&str])] = &[("l1", &["a:1", "b:1"]), ("l2", &["b:1", "a:1"])];
        assert_eq!(judge([route(1, "JAVA", both), route(2, "JAVA", both)]).verdict(), Verdict::Valid);
        let fewer = judge([route(1, "JAVA", both), route(2, "JAVA", &both[..1])]);
        assert_eq!(fewer.verdict(), Verdict::Invalid, "{fewer}");
        let more = judge([route(1, "JAVA", &both[..1]), route(2, "JAVA", both)]);
        assert_eq!(more.verdict(), Verdict::Invalid, "{more}");
        let suffixes: &[(&str, &[&str])] = &[("l1", &["a:1", "b:1"]), ("l2", &["b:1"])];
        let comes_and_goes = [(1, 2), (2, 1), (3, 2)].map(|(op, count)| route(op, "PYTHON", &suffixes[..count]));
        assert_eq!(judge(comes_and_goes).verdict(), Verdict::Valid);
        let moved: &[(&str, &[&str])] = &[("l1", &["a:1", "b:1"]), ("l2", &["a:1"])];
        assert_eq!(judge([route(1, "PYTHON", suffixes), route(2, "PYTHON", moved)]).verdict(), Verdict::Invalid);
        let one: &[(&str, &[&str])] = &[("l1", &["a:1"]), ("l2", &["b:1"])];
        assert_eq!(judge([route(1, LANES_OF_ONE, one), route(2, LANES_OF_ONE, &one[1..])]).verdict(), Verdict::Valid);
        assert_eq!(judge([route(1, LANES_OF_ONE, both)]).verdict(), Verdict::Invalid);
    }

    #[test]
    fn foreign_addresses_empty_routes_and_lost_topics_are_found() {
        assert_eq!(judge([route(1, "JAVA", &[("l1", &["c:1"])])]).verdict(), Verdict::Invalid);
        assert_eq!(judge([route(1, "JAVA", &[])]).verdict(), Verdict::Invalid);
        let [invoke, mut answer] = route(1, "JAVA", &[]);
        answer.phase = Phase::Fail { error: "40402 no such topic".to_owned() };
        let lost = judge([[invoke.clone(), answer.clone()]]);
        assert_eq!((lost.verdict(), lost.refused), (Verdict::Invalid, 1));
        answer.phase = Phase::Fail { error: "50001 no leader".to_owned() };
        assert_eq!(judge([[invoke, answer]]).verdict(), Verdict::Undecided);
    }
}
