//! What a run with faults came to: verdicts, recovery after each fault, and one page that shows load and faults over time.

mod page;

pub use page::page;

use crate::checker::{Verdict, delivery};
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

/// The whole judgement.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The seed of the run.
    pub seed: u64,
    /// What was delivered.
    pub delivery: delivery::Report,
    /// The faults.
    pub windows: Vec<Window>,
    /// Kinds that were planned.
    pub planned: Vec<Fault>,
    /// What nodes did by themselves that they must not do.
    pub crimes: Vec<String>,
    /// Why the run did not come to its end.
    pub broken: Option<String>,
}

/// Recovery times with a majority in place, in milliseconds: the most that half of them took, and the most.
pub const RECOVERY_MS_TARGET: (u64, u64) = (2_000, 10_000);

impl Judgement {
    /// Kinds that were planned and never came.
    #[must_use]
    pub fn missed(&self) -> Vec<Fault> {
        let came: BTreeSet<Fault> = self.windows.iter().map(|window| window.fault).collect();
        self.planned.iter().filter(|fault| !came.contains(fault)).copied().collect()
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
        let delivery = self.delivery.verdict();
        if matches!(delivery, Verdict::Invalid) || !self.crimes.is_empty() || !self.recovers() {
            return Verdict::Invalid;
        }
        if self.broken.is_some() || !self.missed().is_empty() { Verdict::Undecided } else { delivery }
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.delivery)?;
        let name = |good: bool| if good { "valid" } else { "invalid" };
        writeln!(f, "crash honesty: {}", name(self.crimes.is_empty()))?;
        self.crimes.iter().try_for_each(|crime| writeln!(f, "  {crime}"))?;
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
        let missed: Vec<String> = self.missed().iter().map(Fault::to_string).collect();
        if !missed.is_empty() {
            writeln!(f, "coverage: undecided, never came: {}", missed.join(", "))?;
        }
        if let Some(broken) = &self.broken {
            writeln!(f, "the run did not come to its end: {broken}")?;
        }
        writeln!(f, "all: {} (seed {})", self.verdict(), self.seed)
    }
}

#[cfg(test)]
mod tests;
