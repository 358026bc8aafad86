//! Workloads: they drive a live cluster through the public API and record what they see.

pub mod delivery;
mod messages;
mod recorder;
pub mod register;
pub mod routes;

pub use recorder::{Recorder, RecorderFull};
