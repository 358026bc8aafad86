//! What a run with faults came to: verdicts, recovery after each fault, and one page that shows load and faults over time.

mod page;
mod quiet;

pub use page::page;
pub use quiet::quiet_failures;

use crate::checker::{Verdict, delivery, order, register, routes};
use crate::history::{Call, Event, Phase};
use crate::nemesis::Fault;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One fault, from the moment when it was being brought about to that when it was being taken away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Which.
    pub fault: Fault,
    /// The nodes that it was about.
    pub nodes: Vec<u32>,
    /// Microseconds since the start of the load.
    pub from_us: u64,
    /// The same.
    pub to_us: u64,
    /// Milliseconds from then until the whole cluster was well.
    pub well_ms: u64,
    /// The longest time between two acknowledged sends that touches the window or the time right after it.
    pub gap_ms: u64,
    /// Where the fault leaves a majority: `gap_ms`, since single sends may well be answered while others wait. Else the
    /// milliseconds from its end to the first acknowledgement of a send that began after that. `None`: nothing was
    /// acknowledged any more.
    pub recovery_ms: Option<u64>,
}

impl Window {
    /// Reads `gap_ms` and `recovery_ms` out of a history.
    pub fn measure(&mut self, events: &[Event]) {
        const AFTER_US: u64 = 5_000_000;
        let sends = acked_sends(events);
        let mut before = None;
        for (_, acked_us) in &sends {
            let gap_from = before.replace(*acked_us).unwrap_or(*acked_us);
            if *acked_us >= self.from_us && gap_from <= self.to_us + AFTER_US {
                self.gap_ms = self.gap_ms.max((acked_us - gap_from) / 1000);
            }
        }
        let first = sends.iter().find(|(began_us, _)| *began_us >= self.to_us);
        let after_ms = first.map(|(_, acked_us)| (acked_us - self.to_us) / 1000);
        self.recovery_ms = if self.fault.leaves_majority() { after_ms.map(|_| self.gap_ms) } else { after_ms };
    }
}

/// When each acknowledged send began and was acknowledged, by the latter.
fn acked_sends(events: &[Event]) -> Vec<(u64, u64)> {
    let mut began: BTreeMap<u64, u64> = BTreeMap::new();
    let mut sends = Vec::new();
    for event in events {
        match &event.phase {
            Phase::Invoke { call: Call::Send { .. } } => {
                began.insert(event.op, event.at_us);
            }
            Phase::Ok { .. } => sends.extend(began.remove(&event.op).map(|began_us| (began_us, event.at_us))),
            _ => {}
        }
    }
    sends
}

/// What the checkers say of one topic.
#[derive(Clone, Debug)]
pub struct Load {
    /// Its name.
    pub topic: String,
    /// What was delivered.
    pub delivery: delivery::Report,
    /// Where.
    pub order: order::Report,
}

/// What a run must have seen to prove something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Followers that cut entries off their logs, since another leader had others there.
    pub truncations: u64,
    /// Segments that the logs of a node rolled through, at most.
    pub segments_rolled: u64,
    /// Power cuts, one for each node.
    pub power_cuts: u64,
    /// Those that lost bytes that had been written and not synced.
    pub power_cuts_with_loss: u64,
}

/// A run that is so long must have rolled segments and cut logs.
const LONG_US: u64 = 30 * 60 * 1_000_000;

/// The whole judgement.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The seed of the run.
    pub seed: u64,
    /// What the checkers say of each topic.
    pub loads: Vec<Load>,
    /// What the checker says of the metadata registers.
    pub registers: register::Report,
    /// What it says of routes.
    pub routes: routes::Report,
    /// The faults.
    pub windows: Vec<Window>,
    /// Kinds that were planned.
    pub planned: Vec<Fault>,
    /// Kinds that this machine cannot bring about, and why; not among those that were planned.
    pub skipped: Vec<(Fault, String)>,
    /// What else the run covered.
    pub coverage: Coverage,
    /// Sends that did not succeed though no fault was in force.
    pub quiet_failures: Vec<String>,
    /// What nodes did by themselves that they must not do.
    pub crimes: Vec<String>,
    /// Why the run did not come to its end.
    pub broken: Option<String>,
}

/// Examples that a report shows.
const EXAMPLES_COUNT_MAX: usize = 5;

/// Recovery times with a majority in place, in milliseconds: the most that half of them took, and the most.
pub const RECOVERY_MS_TARGET: (u64, u64) = (2_000, 10_000);

impl Judgement {
    /// Kinds that were planned and never came.
    #[must_use]
    pub fn missed(&self) -> Vec<Fault> {
        let came: BTreeSet<Fault> = self.windows.iter().map(|window| window.fault).collect();
        self.planned.iter().filter(|fault| !came.contains(fault)).copied().collect()
    }

    /// What a run like this should have seen and did not.
    #[must_use]
    pub fn uncovered(&self) -> Vec<String> {
        let mut uncovered: Vec<String> = self.missed().iter().map(|fault| format!("{fault} never came")).collect();
        let Coverage { truncations, segments_rolled, power_cuts, power_cuts_with_loss } = self.coverage;
        if power_cuts > 0 && power_cuts_with_loss == 0 {
            uncovered.push("no power cut lost a byte".to_owned());
        }
        let long = self.windows.last().is_some_and(|last| last.to_us >= LONG_US);
        if long && segments_rolled == 0 {
            uncovered.push("no log rolled to a new segment".to_owned());
        }
        if long && truncations == 0 {
            uncovered.push("no follower cut its log".to_owned());
        }
        uncovered
    }

    /// Median and worst recovery, in milliseconds, of the faults that leave a majority; `None` without such a fault. A fault
    /// after which nothing was acknowledged counts as the longest.
    #[must_use]
    pub fn recovery_ms(&self) -> Option<(u64, u64)> {
        let owed = self.windows.iter().filter(|window| window.fault.leaves_majority());
        let mut times: Vec<u64> = owed.map(|window| window.recovery_ms.unwrap_or(u64::MAX)).collect();
        times.sort_unstable();
        Some((*times.get(times.len() / 2)?, *times.last()?))
    }

    fn recovers(&self) -> bool {
        self.recovery_ms().is_none_or(|(median, worst)| median <= RECOVERY_MS_TARGET.0 && worst <= RECOVERY_MS_TARGET.1)
    }

    /// Invalid: a promise was broken. Undecided: the run proves nothing, or not everything that was planned came.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let verdicts = self.loads.iter().flat_map(|load| [load.delivery.verdict(), load.order.verdict()]);
        let verdicts: BTreeSet<Verdict> = verdicts.chain([self.registers.verdict(), self.routes.verdict()]).collect();
        if verdicts.contains(&Verdict::Invalid)
            || !self.crimes.is_empty()
            || !self.quiet_failures.is_empty()
            || !self.recovers()
        {
            return Verdict::Invalid;
        }
        let whole = self.broken.is_none() && self.uncovered().is_empty() && !verdicts.contains(&Verdict::Undecided);
        if whole { Verdict::Valid } else { Verdict::Undecided }
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Load { topic, delivery, order } in &self.loads {
            write!(f, "topic {topic}\n{delivery}{order}")?;
        }
        write!(f, "{}{}", self.registers, self.routes)?;
        let name = |good: bool| if good { "valid" } else { "invalid" };
        writeln!(f, "crash honesty: {}", name(self.crimes.is_empty()))?;
        self.crimes.iter().try_for_each(|crime| writeln!(f, "  {crime}"))?;
        writeln!(f, "availability: {}", name(self.quiet_failures.is_empty()))?;
        writeln!(f, "  {} sends did not succeed though no fault was in force", self.quiet_failures.len())?;
        self.quiet_failures.iter().take(EXAMPLES_COUNT_MAX).try_for_each(|what| writeln!(f, "  {what}"))?;
        writeln!(f, "recovery: {}", name(self.recovers()))?;
        if let Some((median, worst)) = self.recovery_ms() {
            writeln!(f, "  with a majority in place: median {median} ms, worst {worst} ms")?;
        }
        writeln!(f, "  {:<20} {:>5} {:>12} {:>12} {:>12}", "fault", "times", "recovery ms", "gap ms", "all well ms")?;
        let mut kinds: BTreeMap<Fault, Vec<&Window>> = BTreeMap::new();
        self.windows.iter().for_each(|window| kinds.entry(window.fault).or_default().push(window));
        for (fault, windows) in &kinds {
            let most = |of: fn(&Window) -> u64| windows.iter().map(|window| of(window)).max().unwrap_or_default();
            let recovery = most(|window| window.recovery_ms.unwrap_or(u64::MAX));
            let (gap, well) = (most(|window| window.gap_ms), most(|window| window.well_ms));
            let name = fault.to_string();
            writeln!(f, "  {name:<20} {:>5} {recovery:>12} {gap:>12} {well:>12}", windows.len())?;
        }
        let uncovered = self.uncovered();
        writeln!(f, "coverage: {}", if uncovered.is_empty() { "complete" } else { "undecided" })?;
        let Coverage { truncations, segments_rolled, power_cuts, power_cuts_with_loss } = self.coverage;
        writeln!(
            f,
            "  power cuts {power_cuts}, of which {power_cuts_with_loss} lost bytes; logs cut {truncations} times, rolled {segments_rolled} times"
        )?;
        uncovered.iter().try_for_each(|what| writeln!(f, "  {what}"))?;
        self.skipped.iter().try_for_each(|(fault, why)| writeln!(f, "  {fault} skipped: {why}"))?;
        if let Some(broken) = &self.broken {
            writeln!(f, "the run did not come to its end: {broken}")?;
        }
        writeln!(f, "all: {} (seed {})", self.verdict(), self.seed)
    }
}

#[cfg(test)]
mod tests;
