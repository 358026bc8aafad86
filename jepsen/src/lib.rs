//! raftmq jepsen.
