//! Lends memory to callers who fill it themselves, from a socket for example, and takes it back as a batch.
//!
//! A large batch then stays where it lies: its memory becomes the group the device reads from. A small one is copied
//! into the group that gathers, like any other, so that many of them share a write.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::admission::LIMIT_RETRY_AFTER;
use super::answers::Reply;
use super::append::AppendError;
use super::gather::Gather;
use super::log::{PartitionLog, Phase};
use super::way::DIRECT_BYTES_MIN;
use crate::format::{
    BATCH_HEADER_BYTES, BatchError, BatchHeader, BatchKind, BatchStamp, GROUP_HEADER_BYTES,
    RecordBatch, check_payload, write_batch,
};
use crate::io::arena::Extent;
use crate::io::disk::Disk;

/// Where the payload lies in a reservation: behind room for the headers of its group and of its batch.
const PAYLOAD_AT: usize = GROUP_HEADER_BYTES + BATCH_HEADER_BYTES;

/// The bytes from which a batch stays where it lies: it would be a group of its own anyway.
pub(super) const IN_PLACE_BYTES_MIN: usize = DIRECT_BYTES_MIN;

/// The bytes of a shard's memory that are reserved.
#[derive(Clone, Debug, Default)]
pub(super) struct ReservedBytes(Arc<AtomicUsize>);

impl ReservedBytes {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts `bytes` until the claim drops, on whatever thread.
    fn claim(&self, bytes: usize) -> Claim {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Claim { reserved: self.clone(), bytes }
    }
}

#[derive(Debug)]
struct Claim {
    reserved: ReservedBytes,
    bytes: usize,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.reserved.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Where a reservation goes.
pub(crate) type ReserveReply = Reply<Result<Reserved, AppendError>>;

/// Memory lent for one batch. Dropped, it goes back.
#[derive(Debug)]
pub(crate) struct Reserved {
    extent: Extent,
    payload_bytes: usize,
    _claim: Claim,
}

impl Reserved {
    pub(crate) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.extent.as_slice()[PAYLOAD_AT..][..self.payload_bytes]
    }

    pub(crate) fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.extent.as_mut_slice()[PAYLOAD_AT..][..self.payload_bytes]
    }

    /// Keeps the first `payload_bytes`. More than there are changes nothing.
    pub(crate) fn truncate(&mut self, payload_bytes: usize) {
        self.payload_bytes = self.payload_bytes.min(payload_bytes);
    }

    /// Checks what was filled in.
    pub(crate) fn into_batch(
        self,
        records: u32,
        payload_crc: u32,
    ) -> Result<ReservedBatch, BatchError> {
        check_payload(self.payload(), records, payload_crc)?;
        Ok(ReservedBatch { reserved: self, records, payload_crc })
    }
}

/// A reservation whose records have been checked.
#[derive(Debug)]
pub(crate) struct ReservedBatch {
    reserved: Reserved,
    records: u32,
    payload_crc: u32,
}

/// A batch to append, wherever it lies.
#[derive(Debug)]
pub(crate) enum AppendBatch {
    /// In the caller's memory.
    Callers(RecordBatch),
    /// In the shard's.
    Reserved(ReservedBatch),
}

impl AppendBatch {
    pub(crate) fn records(&self) -> u32 {
        match self {
            AppendBatch::Callers(batch) => batch.records(),
            AppendBatch::Reserved(batch) => batch.records,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records() == 0
    }

    /// How many bytes it takes in the log, header included.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            AppendBatch::Callers(batch) => batch.bytes(),
            AppendBatch::Reserved(batch) => BATCH_HEADER_BYTES + batch.reserved.payload_bytes,
        }
    }

    /// Tells whether it becomes a group where it lies.
    pub(super) fn is_in_place(&self) -> bool {
        match self {
            AppendBatch::Callers(_) => false,
            AppendBatch::Reserved(_) => self.bytes() >= IN_PLACE_BYTES_MIN,
        }
    }

    /// Writes the whole batch to the head of `target`, and returns how many bytes it took.
    pub(super) fn write_into(&self, target: &mut [u8], stamp: &BatchStamp) -> usize {
        match self {
            AppendBatch::Callers(batch) => batch.write_into(target, stamp),
            AppendBatch::Reserved(batch) => {
                let payload = batch.reserved.payload();
                write_batch(target, payload, batch.records, batch.payload_crc, stamp)
            }
        }
    }
}

impl ReservedBatch {
    pub(super) fn records(&self) -> u32 {
        self.records
    }

    /// The memory, with the batch's header written in front of its payload and room for a group's header before that,
    /// and how much of it is filled.
    pub(super) fn into_group(self, stamp: &BatchStamp) -> (Extent, usize) {
        let ReservedBatch { reserved, records, payload_crc } = self;
        let Reserved { mut extent, payload_bytes, _claim } = reserved;
        let filled_bytes = PAYLOAD_AT + payload_bytes;
        let batch = &mut extent.as_mut_slice()[GROUP_HEADER_BYTES..filled_bytes];
        BatchHeader::write(batch, BatchKind::Records, records, payload_crc, stamp);
        (extent, filled_bytes)
    }
}

impl<D: Disk> PartitionLog<D> {
    /// Lends memory for a batch with `payload_bytes`.
    pub(crate) fn reserve(self: &Rc<Self>, payload_bytes: usize, reply: ReserveReply) {
        let reserved = self.try_reserve(payload_bytes);
        if let Err(AppendError::Busy { .. }) = &reserved {
            self.context.counters.busy.add(1);
        }
        reply.send(reserved);
    }

    fn try_reserve(&self, payload_bytes: usize) -> Result<Reserved, AppendError> {
        let state = self.state.borrow();
        if let Some(error) = &state.stopped {
            return Err(AppendError::Stopped { error: error.clone() });
        }
        if state.phase == Phase::Closed {
            return Err(AppendError::Closed);
        }
        drop(state);
        let bytes = BATCH_HEADER_BYTES.saturating_add(payload_bytes);
        let bytes_max = self.batch_bytes_max();
        if bytes > bytes_max {
            return Err(AppendError::BatchTooLarge { bytes, bytes_max });
        }
        let room = Gather::room_least(bytes);
        let context = &self.context;
        let arena_bytes = context.disk.arena().capacity_bytes();
        let reserved_max = arena_bytes / 100 * context.limits.reserved_percent_max;
        let busy = AppendError::Busy { retry_after: LIMIT_RETRY_AFTER };
        if context.reserved.get() + room > reserved_max {
            return Err(busy);
        }
        let extent = context.allocate_for_append(room).ok_or(busy)?;
        Ok(Reserved { extent, payload_bytes, _claim: context.reserved.claim(room) })
    }
}
