//! A small client of the public API, for `demo` and `bench`: sends that are retried under one message id, receives, acks.
//!
//! It does what an SDK does and no more, so that a measured number is the server's.

pub(crate) mod endpoints;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod summary;
