//! Looks at a data directory while no engine runs on it: what it holds, whether it is whole, and its records.
//!
//! Changes nothing. What recovery would do to a directory, only opening it does.

mod contents;
mod fault;
mod read;
mod session;
mod verify;
mod walk;

pub use contents::{DirectoryContents, PartitionContents};
pub use fault::{Fault, FaultKind};
pub use read::{ReadOutcome, read};
pub use session::OfflineError;
pub use verify::{PartitionReport, VerifyReport, verify};

use std::path::Path;

/// Reads the identity of a data directory and the checkpoints of its partitions, and no log data.
///
/// # Errors
///
/// [`OfflineError`]: not a data directory, in use, or not readable.
pub fn inspect(directory: &Path) -> Result<DirectoryContents, OfflineError> {
    session::run(directory, contents::Inspect)
}
