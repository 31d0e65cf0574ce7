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

/// Which checksums a read from disk compares.
///
/// Headers of groups and batches are compared always. Without the payloads' checksums a flipped bit in a record is
/// handed out as if it were sound; for readers that have checksums of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// As the engine is configured: payloads too, unless it says otherwise.
    #[default]
    AsConfigured,
    /// Headers and payloads. Payloads are compared on the thread that takes the answer.
    Full,
    /// Headers only.
    HeadersOnly,
}

impl Verification {
    /// Tells whether payloads are to be compared, where `configured` is what the engine says.
    pub(crate) fn checks_payloads(self, configured: bool) -> bool {
        match self {
            Verification::AsConfigured => configured,
            Verification::Full => true,
            Verification::HeadersOnly => false,
        }
    }
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
    /// What is compared of batches that come from the disk.
    pub verification: Verification,
}

impl Read {
    /// Reads from `from` without waiting, about 1 MiB.
    #[must_use]
    pub fn from(from: Offset) -> Read {
        let verification = Verification::AsConfigured;
        Read { from, bytes_max: 1 << 20, wait: Wait::No, verification }
    }
}

/// Committed batches in order, without gaps.
#[derive(Clone, Debug)]
pub struct ReadAnswer {
    /// Whole batches; the first may start below the offset asked for. They share the memory of the log until
    /// readers hold their share of it ([`ShardLimits::lent_percent_max`](super::ShardLimits::lent_percent_max)),
    /// and are copies then.
    pub batches: Vec<StoredBatch>,
    /// Where to go on.
    pub next_offset: Offset,
    /// The watermarks when the answer was made.
    pub watermarks: Watermarks,
}

/// What a shard answers: the payloads of the first `unchecked` batches are still to be compared.
#[derive(Clone, Debug)]
pub(crate) struct UncheckedAnswer {
    pub(crate) answer: ReadAnswer,
    pub(crate) unchecked: usize,
}

impl UncheckedAnswer {
    /// Compares the payloads, and keeps what lies before the first damaged one. `None` when that is nothing.
    pub(crate) fn check(mut self) -> Option<ReadAnswer> {
        let unchecked = &self.answer.batches[..self.unchecked];
        let damaged = unchecked.iter().position(|batch| batch.check_payload().is_err());
        if let Some(damaged) = damaged {
            self.answer.next_offset = self.answer.batches[damaged].base_offset();
            self.answer.batches.truncate(damaged);
            return (damaged > 0).then_some(self.answer);
        }
        Some(self.answer)
    }
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
