//! raftmq raft.
