//! What a caller says with an append, and every answer it can get.

use std::sync::Arc;
use std::time::Duration;

use crate::format::Producer;
use crate::id::{Epoch, Offset};
use crate::io::clock::WallTime;
use crate::io::disk::DiskError;

/// How much must be true before an append is acknowledged. No acknowledgement says more than is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It has its place in the log, in memory: a crash of the process loses it, a power cut some megabytes of it. The
    /// answer waits while the device is behind, so keep a bounded number of appends in flight.
    Accepted,
    /// It is synced on this machine.
    Local,
    /// It is synced on the ack quorum and this node still has the right to say so.
    #[default]
    Committed,
}

/// How a batch is appended. The default waits for [`Durability::Committed`] and sets no condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppendOptions {
    /// What the acknowledgement promises.
    pub durability: Durability,
    /// Append only if the batch gets exactly this offset.
    pub expected_offset: Option<Offset>,
    /// The client's own time, stored for information only.
    pub client_time: WallTime,
    /// Who sends it, for telling a repeated batch; stored with it. A run counts its batches from sequence 0 and has
    /// at most [`BATCHES_KEPT`](super::producers::BATCHES_KEPT) of them unanswered; a new run has a higher epoch.
    pub producer: Producer,
}

/// Where an acknowledged batch lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The offset of its first record.
    pub base_offset: Offset,
    /// How many records it has.
    pub records: u32,
    /// The epoch it was appended in.
    pub epoch: Epoch,
    /// The server's time it was given.
    pub append_time: WallTime,
}

/// Why an append was not acknowledged.
///
/// Every variant but [`Unknown`](AppendError::Unknown) and [`AlreadyAppended`](AppendError::AlreadyAppended) means:
/// no byte of it is or will be readable.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// A limit is reached; the same append will work once earlier ones are done.
    #[error("the partition or its shard is at a limit; try again in {retry_after:?}")]
    Busy {
        /// How long to wait before the next attempt.
        retry_after: Duration,
    },
    /// The node's lease has run out and the policy is `fail-closed`.
    #[error("the lease of this node for epoch {epoch} has run out")]
    LeaseExpired {
        /// The epoch the node would serve.
        epoch: Epoch,
    },
    /// This node owns no epoch of the partition (yet, or any more).
    #[error("this node is not the partition's owner")]
    NotOwner,
    /// A higher epoch has been promised: somebody else is, or is about to be, the owner.
    #[error("fenced: epoch {promised} has been promised")]
    Fenced {
        /// The promise.
        promised: Epoch,
    },
    /// The batch is longer than one may be here; split it.
    #[error("the batch has {bytes} bytes; at most {bytes_max} are allowed")]
    BatchTooLarge {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        bytes_max: usize,
    },
    /// The batch holds no record.
    #[error("the batch holds no record")]
    EmptyBatch,
    /// The condition does not hold: something else was appended, or not yet.
    #[error("expected to append at offset {expected}, but the log ends at {log_end}")]
    OffsetMismatch {
        /// What the caller asked for.
        expected: Offset,
        /// What it would have got.
        log_end: Offset,
    },
    /// Batches of the producer before this one are missing: send them first. Where 0 is due, the producer is not
    /// known, or not any more, or its run is new: send what was acknowledged to nobody in a new run, from 0 on.
    #[error("the producer's sequence {expected} is due, not {got}")]
    OutOfOrder {
        /// The sequence that is due.
        expected: u64,
        /// What was sent.
        got: u64,
    },
    /// A later run of the producer has appended: this one must stop.
    #[error("run {epoch} of the producer has begun")]
    ProducerFenced {
        /// The later run.
        epoch: u32,
    },
    /// The batch was appended before, too long ago to know at which offset.
    #[error("sequence {got} was appended before; the oldest one remembered is {oldest}")]
    AlreadyAppended {
        /// The oldest sequence that is remembered.
        oldest: u64,
        /// What was sent.
        got: u64,
    },
    /// The partition has no offsets left for the batch: 2^64 have been used.
    #[error("no offsets are left behind {log_end}")]
    OffsetsExhausted {
        /// Where the log ends.
        log_end: Offset,
    },
    /// The file system has no room for the next segment; appends resume by themselves once it has.
    #[error("the disk is full: {available_bytes} bytes available, {needed_bytes} needed")]
    DiskFull {
        /// What is left.
        available_bytes: u64,
        /// What the next segment takes.
        needed_bytes: u64,
    },
    /// The device failed; the partition takes no appends until it is closed and opened again.
    #[error("the partition has stopped: {error}")]
    Stopped {
        /// The first error.
        error: Arc<DiskError>,
    },
    /// The partition or the engine is closed.
    #[error("the partition is closed")]
    Closed,
    /// It was on its way when its fate was sealed otherwise: it may be in the log or not. Read to find out.
    #[error("unknown whether the batch was appended: {reason}")]
    Unknown {
        /// The offset it had been given, if it got that far.
        base_offset: Option<Offset>,
        /// What came between.
        reason: UnknownReason,
    },
}

/// What came between an append and its acknowledgement.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownReason {
    /// The lease had run out when the write completed.
    #[error("the lease ran out before the write completed")]
    LeaseExpired,
    /// The epoch ended before the write completed.
    #[error("the epoch ended before the write completed; {promised} has been promised")]
    EpochEnded {
        /// The promise at that moment.
        promised: Epoch,
    },
    /// A write or sync failed.
    #[error("the device failed: {0}")]
    Device(Arc<DiskError>),
    /// The shard's thread is gone.
    #[error("the shard has ended")]
    ShardEnded,
}
