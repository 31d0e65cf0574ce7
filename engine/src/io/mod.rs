//! The seams to the machine: disk, clock, transport and runtime, each with a real and a simulated side.
//!
//! The only module with `unsafe` code. No tokio-uring type appears in a public signature.

pub mod arena;
pub mod blocking;
pub mod clock;
#[doc(hidden)]
pub mod conformance;
pub mod disk;
mod disk_calls;
pub mod environment;
mod frame;
mod in_flight;
#[expect(unsafe_code, reason = "a map of a file that nobody changes")]
mod map;
pub mod probe;
#[expect(unsafe_code, reason = "operations whose buffers the kernel uses until they complete")]
pub mod ring;
pub mod runtime;
#[cfg(test)]
mod runtime_tests;
pub mod simulated;
mod sockets;
mod system_clock;
mod tasks;
pub mod transport;
pub(crate) mod zeros;

pub use environment::{Environment, ShardMain, StartError, ThreadOptions};
pub(crate) use map::FileMap;
pub use system_clock::SystemClock;
