//! The machine through io_uring: disk, sockets and tasks of a shard on one ring of its own.
//!
//! The only place that names tokio-uring. A buffer lent to the kernel belongs to its operation.

mod disk;
mod operation;
mod outgoing;
mod registration;
mod runtime;
mod transport;

#[cfg(test)]
pub(super) use disk::Caching;
pub use disk::{RingDisk, RingFile};
pub(super) use operation::RingTurn;
pub use runtime::RingRuntime;
pub use transport::{RingConnection, RingListener, RingTransport};
