//! The machine without io_uring: system calls that block, made on a few helper threads, and tokio's sockets.

mod disk;
mod runtime;
mod transport;

pub use disk::{BlockingDisk, BlockingFile};
pub use runtime::BlockingRuntime;
pub use transport::{TokioConnection, TokioListener, TokioTransport};
