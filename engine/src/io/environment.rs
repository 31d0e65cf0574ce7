//! What a thread of the engine stands on: its disk, its transport, its runtime and the clock.
//!
//! Code above `io` is written against these four and started in either mode; it never names an implementation.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use super::clock::Clock;
use super::disk::Disk;
use super::runtime::Runtime;
use super::transport::Transport;

/// One thread's seams. Cheap to clone; not `Send`.
#[derive(Clone, Debug)]
pub struct Environment<D: Disk, T: Transport> {
    /// The files, and with [`Disk::arena`] the memory.
    pub disk: D,
    /// The connections.
    pub transport: T,
    /// The tasks and their waiting.
    pub runtime: Rc<dyn Runtime>,
    /// The machine's clocks, the same ones on every thread.
    pub clock: Arc<dyn Clock>,
}

/// What a thread runs once its environment stands, whichever implementations it got.
pub trait ShardMain {
    /// Runs to the end. When it resolves, the thread waits for the disk's operations in flight and leaves;
    /// tasks that still run are dropped then.
    fn run<D: Disk, T: Transport>(self, environment: Environment<D, T>)
    -> impl Future<Output = ()>;
}

/// What a thread is given to make its environment from.
#[derive(Clone, Debug)]
pub struct ThreadOptions {
    /// The size of its arena: the bound of its memory.
    pub arena_bytes: usize,
    /// The clock it reads.
    pub clock: Arc<dyn Clock>,
}

/// Why a thread could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The system has no memory of that size.
    #[error("no memory for an arena of {bytes} bytes: {source}")]
    Arena {
        /// What was asked for.
        bytes: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// The kernel gives no ring; [`probe`](super::probe::probe) says why and what to do.
    #[error("no io_uring: {source}")]
    Ring {
        /// What the system said.
        source: std::io::Error,
    },
    /// The system gives no threads, timers or events.
    #[error("no runtime: {source}")]
    Runtime {
        /// What the system said.
        source: std::io::Error,
    },
}
