//! The books: what was acked, what was delivered, and when sends worked again.

use super::Report;
use crate::exit::Failure;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// The killed leader.
#[derive(Clone, Debug)]
pub(super) struct Killed {
    pub(super) node: u32,
    /// Just before the signal.
    pub(super) at: Instant,
    /// When the process was surely gone.
    pub(super) gone: Instant,
}

/// Shared by all workers.
#[derive(Default)]
pub(super) struct Books {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    acked: HashSet<String>,
    /// Deliveries by message id, also of messages whose send was not acked.
    delivered: HashMap<String, u32>,
    undelivered: HashSet<String>,
    killed: Option<Killed>,
    /// The earliest acknowledgement of an attempt that began after the process was gone.
    worked_again: Option<Instant>,
    /// (began, acknowledged) of sends since the start, judged when the kill is entered.
    recent: Vec<(Instant, Instant)>,
}

/// Acknowledgements that are kept until the kill is entered.
const RECENT_COUNT_MAX: usize = 100_000;

impl Books {
    /// A send was acknowledged now, by an attempt that began at `began`.
    pub(super) fn acked(&self, id: String, began: Instant) {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        if !inner.delivered.contains_key(&id) {
            inner.undelivered.insert(id.clone());
        }
        inner.acked.insert(id);
        match &inner.killed {
            Some(killed) if began >= killed.gone && inner.worked_again.is_none_or(|at| now < at) => {
                inner.worked_again = Some(now);
            }
            Some(_) => {}
            None => {
                if inner.recent.len() == RECENT_COUNT_MAX {
                    inner.recent.clear();
                }
                inner.recent.push((began, now));
            }
        }
    }

    /// A message was delivered.
    pub(super) fn delivered(&self, id: &str) {
        let mut inner = self.inner.lock();
        *inner.delivered.entry(id.to_string()).or_default() += 1;
        inner.undelivered.remove(id);
    }

    /// The leader was killed. Acknowledgements that came in between are judged now.
    pub(super) fn killed(&self, killed: Killed) {
        let mut inner = self.inner.lock();
        let recent = std::mem::take(&mut inner.recent);
        inner.worked_again = recent.into_iter().filter(|(began, _)| *began >= killed.gone).map(|(_, at)| at).min();
        inner.killed = Some(killed);
    }

    /// Messages acked so far.
    pub(super) fn acked_count(&self) -> usize {
        self.inner.lock().acked.len()
    }

    /// Messages acked and not delivered so far.
    pub(super) fn undelivered_count(&self) -> usize {
        self.inner.lock().undelivered.len()
    }

    /// The end. Error: no send worked after the kill, so there is no fail-over to report.
    pub(super) fn report(&self, killed: &Killed, sent_for: Duration) -> Result<Report, Failure> {
        let inner = self.inner.lock();
        let worked_again = inner
            .worked_again
            .ok_or_else(|| Failure::failed("no send was acknowledged after the leader was killed"))?;
        let acked = inner.acked.len() as u64;
        let lost = inner.undelivered.len() as u64;
        Ok(Report {
            acked,
            delivered: acked - lost,
            delivered_twice: inner.delivered.values().filter(|count| **count > 1).count() as u64,
            lost,
            failover_ms: worked_again.saturating_duration_since(killed.at).as_secs_f64() * 1000.0,
            sends_per_s: acked as f64 / sent_for.as_secs_f64().max(f64::EPSILON),
            killed_node: killed.node,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_acked_and_not_delivered_is_lost() {
        let books = Books::default();
        let at = Instant::now();
        books.acked("a".into(), at);
        books.acked("b".into(), at);
        books.delivered("a");
        books.delivered("a");
        books.delivered("sent but not acked");
        let killed = Killed { node: 1, at: Instant::now(), gone: Instant::now() };
        books.killed(killed.clone());
        books.acked("c".into(), Instant::now());
        books.delivered("c");
        let report = books.report(&killed, Duration::from_secs(1)).expect("report");
        assert_eq!((report.acked, report.delivered, report.delivered_twice, report.lost), (3, 2, 1, 1));
    }

    #[test]
    fn an_acknowledgement_of_an_attempt_from_before_the_kill_does_not_count_as_recovery() {
        let books = Books::default();
        let before = Instant::now();
        let killed = Killed { node: 1, at: before, gone: before + Duration::from_millis(1) };
        books.killed(killed.clone());
        books.acked("late".into(), before);
        assert!(books.report(&killed, Duration::from_secs(1)).is_err());
    }

    #[test]
    fn a_delivery_before_the_acknowledgement_is_no_loss() {
        let books = Books::default();
        books.delivered("a");
        books.acked("a".into(), Instant::now());
        assert_eq!(books.undelivered_count(), 0);
    }
}
