//! Messages of the peer port to and from the Raft library's types.

use crate::codec::{damaged, join_entry, split_entry};
use crate::types::{LeaderId, LogId, Payload, RaftEntry, TypeConfig, Vote, log_id, term_index};
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderRequest, VoteRequest, VoteResponse,
};
use raftmq_proto::raft as pb;
use raftmq_proto::raft::append_reply::Answer;
use raftmq_store::commit_log::EntryKind;
use std::io;

pub(crate) fn from_log_id(id: &LogId) -> pb::LogId {
    let (term, index) = term_index(id);
    pb::LogId { term, index }
}

pub(crate) fn to_log_id(id: pb::LogId) -> LogId {
    log_id((id.term, id.index))
}

pub(crate) fn from_vote(vote: &Vote) -> pb::Vote {
    pb::Vote { term: vote.leader_id.term, replica: vote.leader_id.voted_for, committed: vote.committed }
}

pub(crate) fn to_vote(vote: Option<pb::Vote>) -> io::Result<Vote> {
    let vote = vote.ok_or_else(|| damaged("a peer message has no vote"))?;
    Ok(Vote { leader_id: LeaderId { term: vote.term, voted_for: vote.replica }, committed: vote.committed })
}

fn from_entry(entry: &RaftEntry) -> io::Result<pb::Entry> {
    let (kind, payload) = split_entry(entry)?;
    Ok(pb::Entry { id: Some(from_log_id(&entry.log_id)), kind: kind as u32, payload })
}

fn to_entry(entry: pb::Entry) -> io::Result<RaftEntry> {
    let id = entry.id.ok_or_else(|| damaged("an entry from a peer has no id"))?;
    let kind = match entry.kind {
        0 => EntryKind::Blank,
        1 => EntryKind::Batch,
        2 => EntryKind::Membership,
        other => return Err(damaged(&format!("an entry from a peer is of kind {other}"))),
    };
    join_entry((id.term, id.index), kind, Payload::unplaced(entry.payload))
}

pub(crate) fn from_append(
    request: &AppendEntriesRequest<TypeConfig>,
    group_id: u32,
    to_replica: u64,
) -> io::Result<pb::AppendRequest> {
    Ok(pb::AppendRequest {
        group_id,
        vote: Some(from_vote(&request.vote)),
        previous: request.prev_log_id.as_ref().map(from_log_id),
        committed: request.leader_commit.as_ref().map(from_log_id),
        entries: request.entries.iter().map(from_entry).collect::<io::Result<_>>()?,
        to_replica,
    })
}

pub(crate) fn to_append(request: pb::AppendRequest) -> io::Result<AppendEntriesRequest<TypeConfig>> {
    Ok(AppendEntriesRequest {
        vote: to_vote(request.vote)?,
        prev_log_id: request.previous.map(to_log_id),
        leader_commit: request.committed.map(to_log_id),
        entries: request.entries.into_iter().map(to_entry).collect::<io::Result<_>>()?,
    })
}

pub(crate) fn from_append_result(result: &StreamAppendResult<TypeConfig>) -> pb::AppendReply {
    let answer = match result {
        Ok(matched) => Answer::Matched(pb::Matched { id: matched.as_ref().map(from_log_id) }),
        Err(StreamAppendError::Conflict(id)) => Answer::Conflict(from_log_id(id)),
        Err(StreamAppendError::HigherVote(vote)) => Answer::HigherVote(from_vote(vote)),
    };
    pb::AppendReply { answer: Some(answer) }
}

pub(crate) fn to_append_result(reply: pb::AppendReply) -> io::Result<StreamAppendResult<TypeConfig>> {
    Ok(match reply.answer.ok_or_else(|| damaged("an append reply is empty"))? {
        Answer::Matched(matched) => Ok(matched.id.map(to_log_id)),
        Answer::Conflict(id) => Err(StreamAppendError::Conflict(to_log_id(id))),
        Answer::HigherVote(vote) => Err(StreamAppendError::HigherVote(to_vote(Some(vote))?)),
    })
}

pub(crate) fn from_vote_request(request: &VoteRequest<TypeConfig>, group_id: u32, to_replica: u64) -> pb::VoteRequest {
    pb::VoteRequest {
        group_id,
        vote: Some(from_vote(&request.vote)),
        last: request.last_log_id.as_ref().map(from_log_id),
        to_replica,
        leadership_transfer: request.leadership_transfer,
    }
}

pub(crate) fn to_vote_request(request: pb::VoteRequest) -> io::Result<VoteRequest<TypeConfig>> {
    let mut vote_request = VoteRequest::new(to_vote(request.vote)?, request.last.map(to_log_id));
    vote_request.leadership_transfer = request.leadership_transfer;
    Ok(vote_request)
}

pub(crate) fn from_vote_response(response: &VoteResponse<TypeConfig>) -> pb::VoteReply {
    pb::VoteReply {
        vote: Some(from_vote(&response.vote)),
        granted: response.vote_granted,
        last: response.last_log_id.as_ref().map(from_log_id),
    }
}

pub(crate) fn to_vote_response(reply: pb::VoteReply) -> io::Result<VoteResponse<TypeConfig>> {
    Ok(VoteResponse::new(to_vote(reply.vote)?, reply.last.map(to_log_id), reply.granted))
}

pub(crate) fn from_transfer(
    request: &TransferLeaderRequest<TypeConfig>,
    group_id: u32,
    to_replica: u64,
) -> pb::TransferLeaderRequest {
    pb::TransferLeaderRequest {
        group_id,
        from: Some(from_vote(request.from_leader())),
        new_leader: *request.to_node_id(),
        last: request.last_log_id().map(from_log_id),
        to_replica,
    }
}

pub(crate) fn to_transfer(request: pb::TransferLeaderRequest) -> io::Result<TransferLeaderRequest<TypeConfig>> {
    Ok(TransferLeaderRequest::new(to_vote(request.from)?, request.new_leader, request.last.map(to_log_id)))
}
