//! Which fault comes when.

use super::Fault;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// Of so many periods one is quiet: a cluster that is never well proves little.
const ONE_QUIET_OF: usize = 4;
const FAULT_MS: std::ops::Range<u64> = 3_000..9_000;
const CALM_MS: std::ops::Range<u64> = 5_000..12_000;

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All chance comes from it.
    pub seed: u64,
    /// The kinds that take turns; none: the run is quiet.
    pub faults: Vec<Fault>,
    /// Faults stop coming after this.
    pub length: Duration,
    /// As many faults as this instead, whatever the length.
    pub times: Option<usize>,
}

/// A stretch of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// What is in force first; `None`: nothing, the period is quiet.
    pub fault: Option<Fault>,
    /// For how long.
    pub fault_ms: u64,
    /// For how long the cluster is left alone after that.
    pub calm_ms: u64,
}

/// The periods of a run, each kind as often as the others give or take one.
#[must_use]
pub fn schedule(plan: &Plan) -> Vec<Period> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let (mut periods, mut total_ms, mut faults_count) = (Vec::new(), 0, 0);
    let mut bag: Vec<Fault> = Vec::new();
    loop {
        let quiet =
            plan.faults.is_empty() || (plan.times.is_none() && periods.len() % ONE_QUIET_OF == ONE_QUIET_OF - 1);
        let (fault_ms, calm_ms) = (rng.random_range(FAULT_MS), rng.random_range(CALM_MS));
        let over = match plan.times {
            Some(times) => faults_count >= times || plan.faults.is_empty(),
            None => total_ms + fault_ms + calm_ms > plan.length.as_millis() as u64,
        };
        if over {
            return periods;
        }
        if bag.is_empty() {
            bag.clone_from(&plan.faults);
            bag.shuffle(&mut rng);
        }
        let fault = if quiet { None } else { bag.pop() };
        faults_count += usize::from(fault.is_some());
        total_ms += fault_ms + calm_ms;
        periods.push(Period { fault, fault_ms, calm_ms });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn plan(seed: u64, minutes: u64) -> Plan {
        Plan { seed, faults: Fault::ALL.to_vec(), length: Duration::from_secs(60 * minutes), times: None }
    }

    #[test]
    fn a_seed_is_a_schedule() {
        assert_eq!(schedule(&plan(1, 10)), schedule(&plan(1, 10)));
        assert_ne!(schedule(&plan(1, 10)), schedule(&plan(2, 10)));
    }

    #[test]
    fn each_kind_has_its_turn_and_a_quarter_is_quiet() {
        for seed in 0..20 {
            let periods = schedule(&plan(seed, 60));
            let mut counts: BTreeMap<Fault, usize> = BTreeMap::new();
            periods.iter().filter_map(|period| period.fault).for_each(|fault| *counts.entry(fault).or_default() += 1);
            assert_eq!(counts.len(), Fault::ALL.len(), "seed {seed}");
            let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
            assert!(most - least <= 1, "seed {seed}: {counts:?}");
            let quiet = periods.iter().filter(|period| period.fault.is_none()).count();
            assert_eq!(quiet, periods.len() / ONE_QUIET_OF, "seed {seed}");
            let total_ms: u64 = periods.iter().map(|period| period.fault_ms + period.calm_ms).sum();
            assert!(total_ms <= 60 * 60_000);
        }
    }

    #[test]
    fn a_count_of_faults_is_kept() {
        let plan = Plan { times: Some(20), faults: vec![Fault::PowerCutAll], ..plan(3, 0) };
        assert_eq!(schedule(&plan).iter().filter(|period| period.fault == Some(Fault::PowerCutAll)).count(), 20);
        assert!(schedule(&Plan { faults: Vec::new(), ..plan }).is_empty());
    }
}
