//! Opens one replica.

use super::Shared;
use crate::adaptor::Adaptor;
use crate::config::config;
use crate::early_election::Alarms;
use crate::errors::OpenError;
use crate::group::{Core, Group};
use crate::integrity::{self, Repairs};
use crate::leadership::{Follow, Leadership};
use crate::log_store::LogStore;
use crate::machine::Machine;
use crate::network::Network;
use crate::options::GroupOptions;
use crate::proposer::Proposer;
use crate::purge::Purges;
use crate::transfer::Transfer;
use crate::types::Raft;
use parking_lot::Mutex;
use raftmq_model::ids::{GroupId, NodeId};
use raftmq_store::Io;
use raftmq_store::commit_log::{CommitLog, CommitLogOptions};
use std::sync::Arc;
use tokio::sync::watch;

struct Parts {
    log: CommitLog,
    store: LogStore,
    adaptor: Adaptor,
}

pub(super) async fn open(
    shared: Arc<Shared>,
    options: GroupOptions,
    machine: Box<dyn Machine>,
) -> Result<Group, OpenError> {
    let group = options.group;
    if shared.groups.lock().contains_key(&group) {
        return Err(OpenError::AlreadyOpen(group));
    }
    let parts = parts(&shared, group, options.log.clone(), machine).await?;
    let replica = shared.options.replica();
    let config = config(&shared.options, group)?;
    let applied_term = parts.adaptor.applied_term();
    let threaded = options.log.io.allows_threads();
    // Before Raft reads the log: it waits for what is damaged, and a peer may have it damaged too.
    let (leader, first_asked) = watch::channel(None);
    let (repairs, repair_task) = Repairs::start(parts.log.clone(), shared.frames(group), first_asked);
    parts.store.set_repairs(repairs.clone());
    shared.replicas.insert_log(group, parts.log.clone());
    let network = Network::new(group, Arc::clone(&shared.links));
    let raft = Raft::new(replica.to_u64(), config, network, parts.store, parts.adaptor).await;
    let raft = raft.map_err(|error| {
        shared.replicas.remove_log(group);
        OpenError::Raft { group, reason: error.to_string() }
    })?;

    let (sender, leadership) = watch::channel(Leadership::default());
    let follow = Follow {
        group,
        raft: raft.clone(),
        applied_term,
        sender,
        fatal: shared.fatal.clone(),
        closing: Arc::clone(&shared.closing),
    };
    tokio::spawn(follow.run());
    let clock = options.clock.clone().unwrap_or_else(|| Arc::clone(&shared.options.clock));
    let proposer = Proposer::start(&options, replica.node, raft.clone(), clock, leadership.clone());
    let core = Arc::new(Core {
        group,
        replica,
        log: parts.log,
        transfer: Transfer::new(replica.node, raft.clone(), proposer.clone(), leadership.clone()),
        proposer,
        leadership,
        liveness: shared.liveness.clone(),
        alarms: Alarms::default(),
        repairs,
        repair_task,
        scrub: Mutex::default(),
        purges: Purges::default(),
        threaded,
        raft,
    });
    tokio::spawn(integrity::guard(Arc::downgrade(&core), core.repairs.damaged()));
    tokio::spawn(name_leader(core.leadership.clone(), leader));
    shared.groups.lock().insert(group, Arc::clone(&core));
    shared.replicas.insert(group, core.raft.clone());
    Ok(Group::new(core))
}

/// The leader is asked first for what is damaged.
async fn name_leader(mut leadership: watch::Receiver<Leadership>, leader: watch::Sender<Option<NodeId>>) {
    loop {
        leader.send_replace(leadership.borrow_and_update().leader);
        if leadership.changed().await.is_err() {
            return;
        }
    }
}

/// Recovers the log and the state; that is file IO.
async fn parts(
    shared: &Shared,
    group: GroupId,
    log: CommitLogOptions,
    machine: Box<dyn Machine>,
) -> Result<Parts, OpenError> {
    let fatal = shared.fatal.clone();
    let inline = !log.io.allows_threads();
    let io = Arc::clone(&log.io);
    let (log, recovered) = integrity::open_log(&shared.frames(group), &log, &shared.closing).await?;
    if recovered.torn_bytes > 0 {
        tracing::info!(group = group.0, bytes = recovered.torn_bytes, "cut a torn tail off the log");
    }
    let open = move || {
        let state = |source| OpenError::State { group, source };
        let store = LogStore::new(log.clone(), &recovered).map_err(state)?;
        let adaptor = Adaptor::restore(group, machine, store.clone(), fatal).map_err(state)?;
        Ok(Parts { log, store, adaptor })
    };
    if inline {
        let parts = open()?;
        tokio::spawn(drive(parts.log.clone(), io));
        return Ok(parts);
    }
    tokio::task::spawn_blocking(open).await.map_err(|_| OpenError::Stopped)?
}

/// Does the IO of a log that has no thread of its own, on the clock of the runtime.
async fn drive(log: CommitLog, io: Arc<dyn Io>) {
    loop {
        std::future::poll_fn(|context| log.poll_work(context)).await;
        let delay = io.write_delay();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        log.drive();
    }
}
