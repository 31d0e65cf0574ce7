//! Answers of trims, cuts, rolls, retention and closing.

use std::sync::Arc;
use std::time::Duration;

use crate::id::{Epoch, Offset};
use crate::io::disk::DiskError;

/// Why a partition was not changed. The log is as it was before, unless the variant says otherwise.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The offset is outside what this change may reach.
    #[error("offset {offset} is outside {start} to {end}")]
    OutOfRange {
        /// What was asked for.
        offset: Offset,
        /// The lowest offset allowed.
        start: Offset,
        /// The highest offset allowed.
        end: Offset,
    },
    /// This node owns no epoch of the partition.
    #[error("this node is not the partition's owner")]
    NotOwner,
    /// A higher epoch has been promised.
    #[error("fenced: epoch {promised} has been promised")]
    Fenced {
        /// The promise.
        promised: Epoch,
    },
    /// The node's lease has run out and the policy is `fail-closed`.
    #[error("the lease of this node has run out")]
    LeaseExpired,
    /// A limit is reached, or another change is under way.
    #[error("the partition or its shard is at a limit; try again in {retry_after:?}")]
    Busy {
        /// How long to wait before the next attempt.
        retry_after: Duration,
    },
    /// The file system has no room for what the change must write. A trim or a cut is in effect for this run
    /// already: its files still stand, and the next checkpoint that finds room makes it durable.
    #[error("the disk is full: {available_bytes} bytes available, {needed_bytes} needed")]
    DiskFull {
        /// What is left.
        available_bytes: u64,
        /// What is needed.
        needed_bytes: u64,
    },
    /// The device failed; the partition takes no changes until it is closed and opened again.
    #[error("the partition has stopped: {error}")]
    Stopped {
        /// The first error.
        error: Arc<DiskError>,
    },
    /// The partition or the engine is closed.
    #[error("the partition is closed")]
    Closed,
}
