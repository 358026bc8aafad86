//! raftmq namesrv.
