//! Opening one replica: its folder, its machine, its Raft group.
//!
//! ```text
//! <data>/groups/<id>/placement      as the replica was placed (`placement_file`)
//! <data>/groups/<id>/log/           CommitLog (store)
//! <data>/groups/<id>/consumequeue/  ConsumeQueues, derived
//! <data>/groups/<id>/keyindex/      IndexFiles, derived
//! <data>/groups/<id>/state/         state store, derived
//! <data>/groups/<id>/snapshots/     states behind entries that the log may be purged up to
//! ```

use super::placement_file::{self, PLACEMENT_BYTES_MAX};
use super::{Broker, HostError};
use crate::leader::{Replica, ReplicaOptions, WaitTable};
use crate::log_clock::LogClock;
use crate::machine::{self, BrokerMachine, CheckpointBounds, MachineOptions, MachineView};
use crate::options::BrokerOptions;
use raftmq_model::clock::Clock;
use raftmq_model::ids::GroupId;
use raftmq_model::meta::BrokerGroupRecord;
use raftmq_model::retention::RetentionPolicy;
use raftmq_raft::{GroupOptions, OpenError};
use raftmq_store::commit_log::{is_damage, start_over};
use raftmq_store::consume_queue::ConsumeQueues;
use raftmq_store::index_file::{KeyIndex, Layout};
use raftmq_store::io::{read_file, replace_file};
use raftmq_store::state::{WriteBatch, is_state_damage};
use raftmq_store::{CommitLog, CommitLogOptions, Snapshots};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

impl Broker {
    /// The placements of the replicas in the data folder. A replica whose file is damaged is opened when the meta group says that it
    /// lives here.
    pub(super) fn placements(&self) -> io::Result<Vec<BrokerGroupRecord>> {
        let dir = self.groups_dir();
        if !self.options.io.exists(&dir)? {
            return Ok(Vec::new());
        }
        let mut records = Vec::new();
        for name in self.options.io.list(&dir)? {
            let file = dir.join(&name).join("placement");
            if let Some(bytes) = read_file(self.options.io.as_ref(), &file, PLACEMENT_BYTES_MAX)? {
                match name.parse().ok().and_then(|group| placement_file::decode(&bytes, group)) {
                    Some(record) => records.push(record),
                    None => tracing::error!("{} is damaged: the replica waits for the meta group", file.display()),
                }
            }
        }
        Ok(records)
    }

    /// Opens the replica and starts its Raft group.
    pub(super) async fn open_replica(&self, record: &BrokerGroupRecord) -> Result<Arc<Replica>, HostError> {
        let group = GroupId(record.id);
        let disk = |source| HostError::Disk { group, source };
        let dir = self.groups_dir().join(record.id.to_string());
        self.keep_placement(&dir, record).map_err(disk)?;
        let waits = Arc::new(WaitTable::default());
        let log = self.log_options(&dir);
        let clock = Arc::new(LogClock::new(Arc::clone(&self.options.clock)));
        // Before the machine reads it.
        self.mend(group, &dir, &log, false).await?;
        let mut opened = self.open_machine(group, &dir, &waits, &clock, log.clone()).await;
        if opened.as_ref().err().is_some_and(is_damage) {
            self.mend(group, &dir, &log, true).await?;
            opened = self.open_machine(group, &dir, &waits, &clock, log.clone()).await;
        }
        let (machine, view) = opened.map_err(disk)?;
        let applied_at_open = view.applied();
        let options =
            GroupOptions { clock: Some(Arc::clone(&clock) as Arc<dyn Clock>), ..GroupOptions::new(group, log) };
        let raft = self.options.raft.open_group(options, Box::new(machine)).await?;
        Ok(Arc::new(Replica::new(ReplicaOptions {
            node: self.options.node,
            group: raft,
            view,
            applied_at_open,
            keys: self.options.key_index.then(|| Arc::new(self.key_index(&dir))),
            waits,
            clock,
            meta: Arc::clone(&self.options.meta),
            limits: self.options.limits.clone(),
            retention: RetentionPolicy {
                retention_ms: self.options.retention_ms,
                retention_bytes_max: self.options.retention_bytes_max,
                purge_when_disk_short: self.options.purge_when_disk_short,
                segment_bytes: self.options.segment_bytes_max,
            },
            threaded: self.options.io.allows_threads(),
            volumes: self.volume.volumes(),
        })))
    }

    /// Blocks on the disk, so it runs on a thread of its own.
    async fn open_machine(
        &self,
        group: GroupId,
        dir: &Path,
        waits: &Arc<WaitTable>,
        clock: &Arc<LogClock>,
        log: CommitLogOptions,
    ) -> io::Result<(BrokerMachine, Arc<MachineView>)> {
        let (options, dir, waits) = (self.options.clone(), dir.to_owned(), Arc::clone(waits));
        let (threaded, clock) = (options.io.allows_threads(), Arc::clone(clock));
        let open = move || {
            machine::finish_rebuild(options.io.as_ref(), &dir)?;
            let open = || open_on(&options, group, &dir, &waits, &clock, &log);
            let opened = match open() {
                Err(damage) if is_state_damage(&damage) => {
                    rebuild_state(&options, group, &dir, &log, &damage)?;
                    open()
                }
                opened => opened,
            };
            opened.map_err(|error| match is_damage(&error) || is_state_damage(&error) {
                true => error,
                false => io::Error::new(error.kind(), format!("{}: {error}", dir.join("state").display())),
            })
        };
        if threaded { tokio::task::spawn_blocking(open).await.map_err(io::Error::other)? } else { open() }
    }

    fn key_index(&self, dir: &Path) -> KeyIndex {
        let layout = Layout::for_segments(self.options.segment_bytes_max);
        KeyIndex::new(dir.join("keyindex"), Arc::clone(&self.options.io), layout)
    }

    /// Has the log repaired, or, when all others have purged what is damaged and nothing hangs on it, starts over.
    async fn mend(&self, group: GroupId, dir: &Path, log: &CommitLogOptions, thorough: bool) -> Result<(), HostError> {
        match self.options.raft.mend_log(group, log.clone(), thorough).await {
            Err(outdated @ OpenError::Outdated { .. }) => {
                tracing::error!("{outdated}");
                let started = self.start_over(group, dir, log.clone()).await;
                started.map_err(|source| HostError::Disk { group, source })
            }
            mended => Ok(mended?),
        }
    }

    /// Makes the replica an empty one that keeps its vote. The state goes first: it must never be ahead of the log.
    async fn start_over(&self, group: GroupId, dir: &Path, log: CommitLogOptions) -> io::Result<()> {
        let (options, dir) = (self.options.clone(), dir.to_owned());
        let threaded = options.io.allows_threads();
        let empty = move || {
            let store = (options.open_state)(group, &dir.join("state"))?;
            store.replace(WriteBatch::new())?;
            store.flush()?;
            for folder in ["consumequeue", "snapshots", "keyindex"] {
                options.io.remove_dir_all(&dir.join(folder))?;
            }
            options.io.sync_dir(&dir)?;
            start_over(&log)
        };
        if threaded { tokio::task::spawn_blocking(empty).await.map_err(io::Error::other)? } else { empty() }
    }

    fn log_options(&self, dir: &Path) -> CommitLogOptions {
        CommitLogOptions {
            segment_bytes_max: self.options.segment_bytes_max,
            write_bytes_max: self.options.limits.write_bytes_max,
            cache_bytes_max: self.options.limits.cache_bytes_max,
            durability: self.options.durability,
            zero_ahead_bytes: self.options.limits.zero_ahead_bytes,
            reserve_bytes: self.options.limits.disk_reserve_bytes,
            io_thread: self.options.io.allows_threads(),
            io: Arc::clone(&self.options.io),
            ..CommitLogOptions::new(dir.join("log"))
        }
    }

    fn keep_placement(&self, dir: &Path, record: &BrokerGroupRecord) -> io::Result<()> {
        self.options.io.create_dir_all(dir)?;
        let file = dir.join("placement");
        let bytes = placement_file::encode(record);
        match read_file(self.options.io.as_ref(), &file, PLACEMENT_BYTES_MAX)? {
            Some(kept) if kept == bytes => Ok(()),
            _ => replace_file(self.options.io.as_ref(), &file, &bytes),
        }
    }

    fn groups_dir(&self) -> PathBuf {
        self.options.data_dir.join("groups")
    }
}

/// Opens what a replica has made of its log.
fn open_on(
    options: &BrokerOptions,
    group: GroupId,
    dir: &Path,
    waits: &Arc<WaitTable>,
    clock: &Arc<LogClock>,
    log: &CommitLogOptions,
) -> io::Result<(BrokerMachine, Arc<MachineView>)> {
    let machine = MachineOptions {
        group,
        rules: options.rules,
        store: (options.open_state)(group, &dir.join("state"))?,
        queues: Arc::new(ConsumeQueues::open(dir.join("consumequeue"), Arc::clone(&options.io))?),
        snapshots: Snapshots::new(dir.join("snapshots"), Arc::clone(&options.io)),
        waits: Arc::clone(waits),
        checkpoints: CheckpointBounds {
            bytes: options.limits.checkpoint_bytes,
            entries: options.limits.checkpoint_entries,
            interval: Duration::from_millis(options.limits.checkpoint_interval_ms),
        },
        clock: Arc::clone(clock),
        threaded: options.io.allows_threads(),
    };
    BrokerMachine::open(machine, || open_log(log))
}

fn rebuild_state(
    options: &BrokerOptions,
    group: GroupId,
    dir: &Path,
    log: &CommitLogOptions,
    damage: &io::Error,
) -> io::Result<()> {
    let snapshots = Snapshots::new(dir.join("snapshots"), Arc::clone(&options.io));
    let log = (&open_log(log)?, &snapshots);
    let open = |dir: &Path| (options.open_state)(group, dir);
    machine::rebuild(options.io.as_ref(), dir, (group, options.rules), log, open, damage)
}

fn open_log(log: &CommitLogOptions) -> io::Result<CommitLog> {
    CommitLog::open(log.clone()).map(|(log, _)| log).map_err(io::Error::other)
}
