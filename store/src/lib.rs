//! raftmq store.
