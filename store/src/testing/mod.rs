//! Stand-ins for tests and simulation. No product code path uses them.

mod disk;
mod faulty_io;
pub mod golden;
mod sized_io;

pub use faulty_io::{Fault, FaultyIo, WriteDelays};
pub use sized_io::SizedIo;
