//! Where no fault is in force every send must succeed.

use super::Window;
use crate::history::{Call, Event, Phase};
use std::collections::BTreeMap;

/// After a fault is gone and the cluster says that it is well, clients get so long to find out.
const AFTER_US: u64 = 2_000_000;

/// Sends that did not succeed though no fault was in force, nor had been just before: when they began, and why.
#[must_use]
pub fn quiet_failures(events: &[Event], windows: &[Window]) -> Vec<String> {
    let mut began: BTreeMap<u64, u64> = BTreeMap::new();
    let mut failures = Vec::new();
    for event in events {
        match &event.phase {
            Phase::Invoke { call: Call::Send { .. } } => {
                began.insert(event.op, event.at_us);
            }
            Phase::Invoke { .. } => {}
            Phase::Ok { .. } => {
                began.remove(&event.op);
            }
            Phase::Fail { error } | Phase::Unknown { error } => {
                let Some(from_us) = began.remove(&event.op) else { continue };
                if !windows.iter().any(|window| touches(window, from_us, event.at_us)) {
                    failures.push(format!("{:.1} s: {error}", from_us as f64 / 1e6));
                }
            }
        }
    }
    failures
}

fn touches(window: &Window, from_us: u64, to_us: u64) -> bool {
    from_us <= window.to_us + window.well_ms * 1_000 + AFTER_US && to_us >= window.from_us
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nemesis::Fault;

    #[test]
    fn only_failures_away_from_faults_count() {
        let window = Window {
            fault: Fault::KillLeader,
            nodes: vec![1],
            from_us: 10_000_000,
            to_us: 12_000_000,
            well_ms: 500,
            gap_ms: 0,
            recovery_ms: None,
        };
        let send = |op: u64, from_us: u64, to_us: u64| {
            let call = Call::Send { message_id: op.to_string(), body: String::new() };
            let failed = Phase::Unknown { error: "no".to_owned() };
            [(from_us, Phase::Invoke { call }), (to_us, failed)].map(|(at_us, phase)| Event {
                at_us,
                process: 0,
                op,
                phase,
            })
        };
        let sends = [send(1, 9_000_000, 10_500_000), send(2, 14_000_000, 15_000_000), send(3, 15_000_000, 16_000_000)];
        assert_eq!(quiet_failures(&sends.concat(), &[window]), ["15.0 s: no"]);
    }
}
