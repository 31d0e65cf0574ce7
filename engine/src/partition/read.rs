//! What a caller says with a read, and every answer it can get.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::watermarks::Watermarks;
use crate::format::{FormatError, StoredBatch};
use crate::id::{Offset, Position};
use crate::io::disk::DiskError;

/// What to do at the end of the committed log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Answer at once, with no batches if there are none.
    #[default]
    No,
    /// Wait for the first batch, at most this long.
    UpTo(Duration),
    /// Wait for the first batch.
    Forever,
}

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The first record wanted.
    pub from: Offset,
    /// Stop before the batch that would exceed this; the first batch is always returned whole.
    pub bytes_max: usize,
    /// What to do at the end.
    pub wait: Wait,
}

impl Read {
    /// Reads from `from` without waiting, about 1 MiB.
    #[must_use]
    pub fn from(from: Offset) -> Read {
        Read { from, bytes_max: 1 << 20, wait: Wait::No }
    }
}

/// Committed batches in order, without gaps.
#[derive(Clone, Debug)]
pub struct ReadAnswer {
    /// Whole batches, sharing memory with the log; the first may start below the offset asked for.
    pub batches: Vec<StoredBatch>,
    /// Where to go on.
    pub next_offset: Offset,
    /// The watermarks when the answer was made.
    pub watermarks: Watermarks,
}

/// Why a read has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The offset has been trimmed; go on at `log_start`.
    #[error("offset {from} is below the log start {log_start}")]
    BelowLogStart {
        /// What was asked for.
        from: Offset,
        /// The first offset there is.
        log_start: Offset,
    },
    /// The offset is beyond everything that may be read now.
    #[error("offset {from} is beyond the committed end {committed}")]
    BeyondEnd {
        /// What was asked for.
        from: Offset,
        /// The end of what may be read.
        committed: Offset,
    },
    /// The stored bytes are damaged; they are kept. Reading can go on at the end of `offsets`.
    #[error(
        "{}: bytes {} to {} are damaged; offsets {} to {} are unreadable",
        path.display(), positions.start, positions.end, offsets.start, offsets.end
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The damaged bytes.
        positions: Range<Position>,
        /// The records in them, as far as known.
        offsets: Range<Offset>,
    },
    /// A newer release wrote these bytes.
    #[error("{} at {position}: {source}", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Where in it.
        position: Position,
        /// Found and supported version.
        source: FormatError,
    },
    /// The node's lease has run out and the policy is `fail-closed`.
    #[error("the lease of this node has run out")]
    LeaseExpired,
    /// A limit is reached; the same read will work later.
    #[error("the shard is at a limit; try again in {retry_after:?}")]
    Busy {
        /// How long to wait before the next attempt.
        retry_after: Duration,
    },
    /// The device failed.
    #[error("{0}")]
    Disk(Arc<DiskError>),
    /// The partition or the engine is closed.
    #[error("the partition is closed")]
    Closed,
}
