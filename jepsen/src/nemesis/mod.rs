//! What is done to a cluster, and when: a pure function of a seed. Back ends carry it out.

mod schedule;

pub use schedule::{Period, Plan, schedule};

use serde::{Deserialize, Serialize};
use std::fmt;

/// One kind of fault. "The leader" leads the first broker group when the fault comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// SIGKILL to the leader.
    KillLeader,
    /// SIGKILL to a node that does not lead.
    KillFollower,
    /// SIGKILL to all nodes.
    KillAll,
    /// SIGSTOP to the leader, later SIGCONT.
    PauseLeader,
    /// The leader and the other nodes do not hear each other; clients reach all.
    IsolateLeader,
    /// A node that does not lead and the others do not hear each other.
    IsolateFollower,
    /// The leader hears no other node, but is heard.
    DeafLeader,
    /// No other node hears the leader, but it hears them.
    MuteLeader,
    /// Two nodes do not hear each other; both hear the third.
    Bridge,
    /// Clients do not reach the leader; nodes do.
    ClientsFromLeader,
    /// Each node loses a fifth of the packets of all others.
    PacketLoss,
    /// The leader's power fails: what it did not sync is gone.
    PowerCutLeader,
    /// The power of a majority fails at once.
    PowerCutMajority,
    /// The power of all nodes fails at once.
    PowerCutAll,
    /// The leader's disk answers every access with an error.
    DiskErrorLeader,
    /// The leader's next sync is answered with an error.
    SyncErrorLeader,
    /// The leader's file system notices damage and lets nobody write any more.
    ReadOnlyLeader,
    /// The leader's disk fills up to within its reserve.
    DiskFullLeader,
    /// All disks fill up to within their reserves.
    DiskFullAll,
    /// The leader ends and its disk is lost; later it is replaced by an empty one.
    LostDiskLeader,
    /// Each sync of the leader takes 200 ms longer.
    SlowDiskLeader,
    /// The leader's wall clock jumps a minute ahead.
    ClockAheadLeader,
    /// The leader's wall clock jumps a minute back.
    ClockBehindLeader,
    /// The leader's wall clock jumps to and fro by a minute, five times a second.
    ClockStrobeLeader,
    /// All wall clocks drift: one gains a tenth, one loses a tenth, and so on.
    ClockDrift,
    /// Leadership is handed over as planned.
    Transfer,
    /// Each node in turn is asked to end and started again.
    RollingRestart,
    /// SIGKILL to the leaders of the metadata and of the broker group in the same moment.
    KillBothLeaders,
    /// SIGKILL to the leader, and again twice while it recovers.
    CrashInRecovery,
    /// A schedule: one node is away (paused) while the others store messages; then the power of one of these fails and the
    /// third is paused, so that the node that was away and the one that crashed are the majority.
    PauseAndPowerCut,
    /// The same, with nodes that are cut off the network instead of paused.
    PartitionAndPowerCut,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 31] = [
        Fault::KillLeader,
        Fault::KillFollower,
        Fault::KillAll,
        Fault::PauseLeader,
        Fault::IsolateLeader,
        Fault::IsolateFollower,
        Fault::DeafLeader,
        Fault::MuteLeader,
        Fault::Bridge,
        Fault::ClientsFromLeader,
        Fault::PacketLoss,
        Fault::PowerCutLeader,
        Fault::PowerCutMajority,
        Fault::PowerCutAll,
        Fault::DiskErrorLeader,
        Fault::SyncErrorLeader,
        Fault::ReadOnlyLeader,
        Fault::DiskFullLeader,
        Fault::DiskFullAll,
        Fault::LostDiskLeader,
        Fault::SlowDiskLeader,
        Fault::ClockAheadLeader,
        Fault::ClockBehindLeader,
        Fault::ClockStrobeLeader,
        Fault::ClockDrift,
        Fault::Transfer,
        Fault::RollingRestart,
        Fault::KillBothLeaders,
        Fault::CrashInRecovery,
        Fault::PauseAndPowerCut,
        Fault::PartitionAndPowerCut,
    ];

    /// Whether a majority of the nodes is whole, connected and has room all the time, so that the cluster owes service.
    #[must_use]
    pub fn leaves_majority(self) -> bool {
        !matches!(
            self,
            Fault::KillAll
                | Fault::PowerCutMajority
                | Fault::PowerCutAll
                | Fault::PacketLoss
                | Fault::DiskFullAll
                | Fault::KillBothLeaders
                | Fault::PauseAndPowerCut
                | Fault::PartitionAndPowerCut
        )
    }

    /// Whether it is over when it has been brought about.
    #[must_use]
    pub fn is_a_moment(self) -> bool {
        matches!(
            self,
            Fault::Transfer
                | Fault::RollingRestart
                | Fault::ClockStrobeLeader
                | Fault::CrashInRecovery
                | Fault::PauseAndPowerCut
                | Fault::PartitionAndPowerCut
        )
    }

    /// Whether it cuts power.
    #[must_use]
    pub fn cuts_power(self) -> bool {
        matches!(
            self,
            Fault::PowerCutLeader
                | Fault::PowerCutMajority
                | Fault::PowerCutAll
                | Fault::PauseAndPowerCut
                | Fault::PartitionAndPowerCut
        )
    }

    /// Whether it turns a wall clock; invisible times are measured by the leader's.
    #[must_use]
    pub fn turns_a_clock(self) -> bool {
        matches!(
            self,
            Fault::ClockAheadLeader | Fault::ClockBehindLeader | Fault::ClockStrobeLeader | Fault::ClockDrift
        )
    }

    /// Whether a node that ends by itself answers the fault as it should: it cannot write.
    #[must_use]
    pub fn may_stop_a_node(self) -> bool {
        self.cuts_power() || matches!(self, Fault::DiskErrorLeader | Fault::SyncErrorLeader | Fault::ReadOnlyLeader)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = clap::ValueEnum::to_possible_value(self);
        f.write_str(name.as_ref().map_or("", |name| name.get_name()))
    }
}
