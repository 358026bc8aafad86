//! Which clients live, as the nodes that hold their connections report, and which said good-bye.
//!
//! Soft state of a node, shared by the replicas that it leads: nodes report to all nodes, so that it is there when the
//! leadership moves. A client that nobody reports any more is only not renewed; only one that said good-bye is released.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Clients remembered at a time; past it further ones are not renewed.
const CLIENTS_COUNT_MAX: usize = 200_000;
/// How long a good-bye is remembered: the leaders look within this time.
const GONE_REMEMBERED: Duration = Duration::from_secs(5);

/// See the module. Clients are named by [`raftmq_model::ids::client_code`].
pub(crate) struct Holders {
    live: Duration,
    table: Mutex<Table>,
    /// Counts good-byes.
    gone: watch::Sender<u64>,
}

#[derive(Default)]
struct Table {
    seen: BTreeMap<u64, Instant>,
    gone: BTreeMap<u64, Instant>,
}

impl Holders {
    /// A client lives for `live` after its last report.
    pub(crate) fn new(live: Duration) -> Holders {
        Holders { live, table: Mutex::default(), gone: watch::Sender::default() }
    }

    /// Takes one report of a node.
    pub(crate) fn report(&self, live: &[u64], gone: &[u64], now: Instant) {
        let mut table = self.table.lock();
        table.seen.retain(|_, seen| now.duration_since(*seen) < self.live);
        table.gone.retain(|_, since| now.duration_since(*since) < GONE_REMEMBERED);
        for client in live {
            if table.seen.len() < CLIENTS_COUNT_MAX || table.seen.contains_key(client) {
                table.seen.insert(*client, now);
            }
        }
        for client in gone.iter().take(CLIENTS_COUNT_MAX - table.gone.len().min(CLIENTS_COUNT_MAX)) {
            table.seen.remove(client);
            table.gone.insert(*client, now);
        }
        drop(table);
        if !gone.is_empty() {
            self.gone.send_modify(|count| *count += 1);
        }
    }

    /// Whether a client was reported lately and did not say good-bye.
    pub(crate) fn lives(&self, client: u64, now: Instant) -> bool {
        let table = self.table.lock();
        let gone = table.gone.get(&client).is_some_and(|since| now.duration_since(*since) < GONE_REMEMBERED);
        !gone && table.seen.get(&client).is_some_and(|seen| now.duration_since(*seen) < self.live)
    }

    /// Who said good-bye lately.
    pub(crate) fn gone(&self, now: Instant) -> BTreeSet<u64> {
        let table = self.table.lock();
        let lately = table.gone.iter().filter(|(_, since)| now.duration_since(**since) < GONE_REMEMBERED);
        lately.map(|(client, _)| *client).collect()
    }

    /// Changes with each good-bye.
    pub(crate) fn watch_gone(&self) -> watch::Receiver<u64> {
        self.gone.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: Duration = Duration::from_secs(15);

    #[test]
    fn a_client_lives_as_long_as_somebody_reports_it() {
        let (holders, start) = (Holders::new(LIVE), Instant::now());
        holders.report(&[1, 2], &[], start);
        assert!(holders.lives(1, start + LIVE / 2));
        holders.report(&[2], &[], start + LIVE / 2);
        assert!(!holders.lives(1, start + LIVE) && holders.lives(2, start + LIVE));
        assert!(holders.gone(start).is_empty(), "silence is no good-bye");
    }

    #[test]
    fn a_good_bye_counts_more_than_a_late_report_for_a_while() {
        let (holders, start) = (Holders::new(LIVE), Instant::now());
        let watch = holders.watch_gone();
        holders.report(&[1], &[1], start);
        assert!(watch.has_changed().unwrap());
        // Another node has not noticed yet.
        holders.report(&[1], &[], start);
        assert!(!holders.lives(1, start));
        assert_eq!(holders.gone(start), BTreeSet::from([1]));
        let later = start + GONE_REMEMBERED;
        assert!(holders.gone(later).is_empty() && holders.lives(1, later));
    }
}
