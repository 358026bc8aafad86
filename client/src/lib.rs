//! raftmq client.
