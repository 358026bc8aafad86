//! The parts that need no network.

use super::caught_up::caught_up;
use super::reports::LeaderReports;
use super::*;
use raftmq_model::meta::{BrokerGroupRecord, MetaRecord, MetaRecordBox, ReportLeader};
