//! `ReportClients`: which clients live at another node, and which said good-bye there.

use crate::leader::Holders;
use raftmq_proto::forward::{ReportClientsReply, ReportClientsRequest};
use tokio::time::Instant;

pub(super) fn answer(holders: &Holders, request: &ReportClientsRequest) -> ReportClientsReply {
    holders.report(&request.live, &request.gone, Instant::now());
    ReportClientsReply {}
}
