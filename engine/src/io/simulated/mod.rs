//! The simulated side of every seam: one thread, virtual time, and faults chosen by a seed.
//!
//! Nothing here reads a real clock, starts a thread or touches a file. The same seed gives the same run, as long
//! as the code under it iterates over nothing whose order the standard library randomises.

pub mod clock;
pub mod runtime;

pub use clock::{SimulatedClock, SimulatedClockKind};
pub use runtime::{SimulatedRuntime, TaskGroup};
