//! The harness that scenario, simulation and end-to-end tests share.
//!
//! A [`World`] is a machine with one data directory: simulated, or real files on the ring. A scenario written
//! against it runs on both.
#![expect(clippy::missing_panics_doc, reason = "a harness fails its test by panicking")]

pub mod child;
pub mod layout;
pub mod log;
pub mod real;
pub mod simulated;
pub mod workload;
pub mod world;

pub use child::Child;
pub use layout::{GroupSpan, SegmentFile, segment_files};
pub use log::{Damage, ReadLog, read_log};
pub use real::RealWorld;
pub use simulated::{Crash, RunName, SimulatedWorld, crash_everywhere, crash_in};
pub use workload::{Workload, batch};
pub use world::World;
