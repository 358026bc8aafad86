//! raftmq broker.
