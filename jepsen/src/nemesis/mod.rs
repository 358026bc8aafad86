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
    /// Leadership is handed over as planned.
    Transfer,
    /// Each node in turn is asked to end and started again.
    RollingRestart,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 17] = [
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
        Fault::Transfer,
        Fault::RollingRestart,
    ];

    /// Whether a majority of the nodes is whole and connected all the time, so that the cluster owes service.
    #[must_use]
    pub fn leaves_majority(self) -> bool {
        !matches!(self, Fault::KillAll | Fault::PowerCutMajority | Fault::PowerCutAll | Fault::PacketLoss)
    }

    /// Whether a node that ends by itself answers the fault as it should: it cannot write.
    #[must_use]
    pub fn may_stop_a_node(self) -> bool {
        matches!(self, Fault::PowerCutLeader | Fault::PowerCutMajority | Fault::PowerCutAll | Fault::DiskErrorLeader)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = clap::ValueEnum::to_possible_value(self);
        f.write_str(name.as_ref().map_or("", |name| name.get_name()))
    }
}
