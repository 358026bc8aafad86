//! The state machine of a broker group, from the outside: golden scripts, and random logs against an oracle.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;
mod oracle;
mod random;
mod rules;
mod scripts;
