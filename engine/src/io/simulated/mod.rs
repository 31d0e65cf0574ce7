//! The simulated side of every seam: one thread, virtual time, and faults chosen by a seed.
//!
//! Nothing here reads a real clock, starts a thread or touches a file. The same seed gives the same run, as long
//! as the code under it iterates over nothing whose order the standard library randomises.

pub mod clock;
pub mod disk;
mod disk_state;
pub mod faults;
mod file_content;
mod latency;
pub mod machine;
mod names;
pub mod network;
mod request;
pub mod runtime;
pub mod storage;
pub mod transport;

pub use clock::{SimulatedClock, SimulatedClockKind};
pub use disk::{SimulatedDisk, SimulatedFile};
pub use faults::{Fault, FaultKind};
pub use file_content::PowerLoss;
pub use machine::{SimulatedMachine, environment};
pub use network::SimulatedNetwork;
pub use runtime::{SimulatedRuntime, TaskGroup};
pub use storage::SimulatedStorage;
pub use transport::{SimulatedConnection, SimulatedListener, SimulatedTransport};
