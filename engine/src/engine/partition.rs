//! The handle of a partition: what callers on any thread hold.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::EngineShared;
use super::append_future::Append;
use super::mapped::{MappedSegment, map_failed};
use super::reader::Reader;
use super::reservation::Reservation;
use super::shards::{ShardHandle, ShardIndex};
use crate::format::RecordBatch;
use crate::id::{Epoch, Offset, PartitionId, PartitionName};
use crate::io::clock::WallTime;
use crate::io::disk::DiskError;
use crate::partition::{
    AppendBatch, AppendError, AppendOptions, ChangeError, MapSource, Read, ReadAnswer, ReadError,
    UncheckedAnswer, Verification, Wait, Watermarks,
};
use crate::segment::PayloadCheck;
use crate::shard::{Change, PartitionRecord, Request, Sent};

/// How long a caller that met a full mailbox should wait: a few turns of a busy shard.
pub(super) const MAILBOX_RETRY_AFTER: Duration = Duration::from_millis(1);

/// One partition of an open engine. `Clone` counts a reference; every clone may be used from any thread.
///
/// A handle keeps the engine open.
#[derive(Clone)]
pub struct Partition {
    pub(super) record: Arc<PartitionRecord>,
    pub(super) shard: ShardHandle,
    pub(super) engine: Arc<EngineShared>,
}

impl Partition {
    /// The partition's id.
    #[must_use]
    pub fn id(&self) -> PartitionId {
        self.record.id
    }

    /// The partition's name.
    #[must_use]
    pub fn name(&self) -> &PartitionName {
        &self.record.name
    }

    /// The shard it belongs to.
    #[must_use]
    pub fn shard(&self) -> ShardIndex {
        self.shard.index
    }

    /// The four watermarks, without asking the shard.
    #[must_use]
    pub fn watermarks(&self) -> Watermarks {
        self.record.status.watermarks.load()
    }

    /// The epoch this run owns, if any.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.record.status.owned()
    }

    /// The device error that stopped the partition, if one did.
    #[must_use]
    pub fn stopped(&self) -> Option<Arc<DiskError>> {
        self.record.status.stopped().cloned()
    }

    /// Appends one batch. The batch is submitted by this call, before the returned future is first polled:
    /// the order of calls is the order of offsets. Dropping the future does not take the batch back.
    ///
    /// The future resolves once the batch is as durable as `options` ask.
    ///
    /// # Errors
    ///
    /// Through the future. [`AppendError::Busy`]: try again; [`AppendError::Unknown`]: read to find out;
    /// every other variant: the batch is not in the log.
    pub fn append(&self, batch: RecordBatch, options: AppendOptions) -> Append {
        self.append_batch(AppendBatch::Callers(batch), options)
    }

    /// Lends `payload_bytes` of the shard's memory for one batch, to be filled by the caller, from a socket for example,
    /// and then committed. A batch of 32 KiB or more is not copied again: the device reads it from there, and readers
    /// at the tail are handed the same bytes.
    ///
    /// # Errors
    ///
    /// [`AppendError::Busy`]: reservations hold their share of the memory
    /// ([`reserved_percent_max`](crate::partition::ShardLimits::reserved_percent_max)), or there is none; try again.
    /// [`AppendError::BatchTooLarge`], [`AppendError::Stopped`] and [`AppendError::Closed`] as of an append.
    pub async fn reserve(&self, payload_bytes: usize) -> Result<Reservation, AppendError> {
        let (reply, answer) = self.shard.reservations.pair();
        let slot = self.record.slot;
        match self.shard.send(Request::Reserve { slot, payload_bytes, reply }) {
            Sent::Taken => {
                let reserved = answer.await.unwrap_or(Err(AppendError::Closed))?;
                Ok(Reservation::new(self.clone(), reserved))
            }
            Sent::Full => Err(AppendError::Busy { retry_after: MAILBOX_RETRY_AFTER }),
        }
    }

    /// Submits a batch, wherever it lies.
    pub(super) fn append_batch(&self, batch: AppendBatch, options: AppendOptions) -> Append {
        if batch.is_empty() {
            return Append::refused(AppendError::EmptyBatch);
        }
        let (reply, answer) = self.shard.appends.pair();
        let slot = self.record.slot;
        match self.shard.send(Request::Append { slot, batch, options, reply }) {
            Sent::Taken => Append::waiting(answer),
            Sent::Full => Append::refused(AppendError::Busy { retry_after: MAILBOX_RETRY_AFTER }),
        }
    }

    /// Reads whole committed batches from an offset on.
    ///
    /// # Errors
    ///
    /// [`ReadError`]; after [`ReadError::BelowLogStart`] and [`ReadError::Corrupt`] go on at the offset named.
    pub async fn read(&self, read: Read) -> Result<ReadAnswer, ReadError> {
        self.finish_read(&mut self.start_read(read)).await
    }

    /// Sends a read; it is under way before anybody waits for it.
    pub(super) fn start_read(&self, read: Read) -> Asked {
        Asked { read, answer: self.ask_to_read(read, PayloadCheck::Later) }
    }

    /// Waits for a read. May be called again after it was dropped in between.
    pub(super) async fn finish_read(&self, asked: &mut Asked) -> Result<ReadAnswer, ReadError> {
        let read = asked.read;
        // Payloads are compared here, on the caller's thread, rather than on the shard, where appends would wait.
        let unchecked = received(&mut asked.answer).await?;
        if !read.verification.checks_payloads(self.engine.config.verify_payloads) {
            return Ok(unchecked.answer);
        }
        if let Some(answer) = unchecked.check() {
            return Ok(answer);
        }
        // The very first batch is damaged. The shard reads it from the disk once more, and says where.
        let again = Read { wait: Wait::No, ..read };
        let checked = received(&mut self.ask_to_read(again, PayloadCheck::Now)).await?;
        Ok(checked.answer)
    }

    fn ask_to_read(&self, read: Read, payloads: PayloadCheck) -> Option<ReadReceiver> {
        let (reply, answer) = oneshot::channel();
        let slot = self.record.slot;
        match self.shard.send(Request::Read { slot, read, payloads, reply }) {
            Sent::Taken => Some(answer),
            Sent::Full => None,
        }
    }

    /// Maps the closed segment that holds `offset` on the calling thread; `None` when that record lies in the
    /// segment that is being written, or in one that is damaged in part. See [`MappedSegment`] for what a map costs
    /// and risks.
    ///
    /// # Errors
    ///
    /// [`ReadError`], as of a read from `offset`.
    pub async fn map_closed(
        &self,
        offset: Offset,
        verification: Verification,
    ) -> Result<Option<MappedSegment>, ReadError> {
        let checks_payloads = verification.checks_payloads(self.engine.config.verify_payloads);
        let mut is_last_try = false;
        loop {
            let Some(source) = self.find_closed(offset).await? else { return Ok(None) };
            match MappedSegment::open(source, checks_payloads) {
                Ok(mapped) => return Ok(Some(mapped)),
                // Trimmed before it was open: the shard will say so.
                Err(error) if error.is_missing() && !is_last_try => is_last_try = true,
                Err(error) => return Err(map_failed(error)),
            }
        }
    }

    async fn find_closed(&self, offset: Offset) -> Result<Option<MapSource>, ReadError> {
        let (reply, answer) = oneshot::channel();
        let slot = self.record.slot;
        match self.shard.send(Request::Map { slot, offset, reply }) {
            Sent::Taken => answer.await.unwrap_or(Err(ReadError::Closed)),
            Sent::Full => Err(ReadError::Busy { retry_after: MAILBOX_RETRY_AFTER }),
        }
    }

    /// Returns the offset of the first record appended at or after `time`; the committed end if there is none.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub async fn offset_at(&self, time: WallTime) -> Result<Offset, ReadError> {
        let (reply, answer) = oneshot::channel();
        let slot = self.record.slot;
        match self.shard.send(Request::OffsetAt { slot, time, reply }) {
            Sent::Taken => answer.await.unwrap_or(Err(ReadError::Closed)),
            Sent::Full => Err(ReadError::Busy { retry_after: MAILBOX_RETRY_AFTER }),
        }
    }

    /// Starts reading batch by batch at `from`.
    #[must_use]
    pub fn reader(&self, from: Offset) -> Reader {
        Reader::new(self.clone(), from)
    }

    /// Drops the records below `to`. Returns the new log start.
    ///
    /// # Errors
    ///
    /// [`ChangeError::OutOfRange`]: `to` is above `committed`.
    pub async fn trim(&self, to: Offset) -> Result<Offset, ChangeError> {
        self.change(Change::Trim(to)).await
    }

    /// Drops the records from `to` on, durably. Returns the new log end.
    ///
    /// # Errors
    ///
    /// [`ChangeError::OutOfRange`]: `to` is outside log start (under a coordinator: `committed`) to log end,
    /// or in the middle of a batch.
    pub async fn truncate(&self, to: Offset) -> Result<Offset, ChangeError> {
        self.change(Change::Truncate(to)).await
    }

    /// Closes the active segment; the next append begins a new one. Returns the log end.
    ///
    /// # Errors
    ///
    /// [`ChangeError`].
    pub async fn roll(&self) -> Result<Offset, ChangeError> {
        self.change(Change::Roll).await
    }

    /// Lets expired segments go now. Returns the log start.
    ///
    /// # Errors
    ///
    /// [`ChangeError`].
    pub async fn apply_retention(&self) -> Result<Offset, ChangeError> {
        self.change(Change::ApplyRetention).await
    }

    /// Drains the partition and marks it clean on disk; it takes nothing more until the engine is opened
    /// again. Returns the log end.
    ///
    /// # Errors
    ///
    /// [`ChangeError::Stopped`]: the device failed; the next open walks the log.
    pub async fn close_partition(&self) -> Result<Offset, ChangeError> {
        self.change(Change::Close).await
    }

    async fn change(&self, change: Change) -> Result<Offset, ChangeError> {
        let (reply, answer) = oneshot::channel();
        let slot = self.record.slot;
        match self.shard.send(Request::Change { slot, change, reply }) {
            Sent::Taken => answer.await.unwrap_or(Err(ChangeError::Closed)),
            Sent::Full => Err(ChangeError::Busy { retry_after: MAILBOX_RETRY_AFTER }),
        }
    }
}

/// A read that was sent.
#[derive(Debug)]
pub(super) struct Asked {
    read: Read,
    answer: Option<ReadReceiver>,
}

type ReadReceiver = oneshot::Receiver<Result<UncheckedAnswer, ReadError>>;

/// Waits for an answer; there is none to wait for when the mailbox was full.
async fn received(answer: &mut Option<ReadReceiver>) -> Result<UncheckedAnswer, ReadError> {
    match answer {
        Some(receiver) => {
            let received = receiver.await;
            // Nobody may wait for it a second time.
            *answer = None;
            received.unwrap_or(Err(ReadError::Closed))
        }
        None => Err(ReadError::Busy { retry_after: MAILBOX_RETRY_AFTER }),
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Partition")
            .field("id", &self.record.id)
            .field("name", &self.record.name)
            .field("shard", &self.shard.index)
            .field("directory", &self.engine.config.data_directory)
            .finish_non_exhaustive()
    }
}
