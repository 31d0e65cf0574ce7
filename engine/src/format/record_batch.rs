//! A batch as a caller fills it: records and their checksum, not yet at any offset.
//!
//! Everything that costs time per byte happens here, on the caller's thread; the shard copies once.

use super::batch::{BATCH_BYTES_MAX, BATCH_HEADER_BYTES, BatchHeader, BatchKind, BatchStamp};

/// The most records in one batch.
pub const RECORDS_PER_BATCH_MAX: u32 = 1 << 20;

/// The bytes in front of each record: its length.
pub const RECORD_PREFIX_BYTES: usize = 4;

/// Records to append, in order, as one unit: all of them become readable or none.
#[derive(Clone, Debug, Default)]
pub struct RecordBatch {
    payload: Vec<u8>,
    records: u32,
    payload_crc: u32,
}

impl RecordBatch {
    /// Starts an empty batch.
    #[must_use]
    pub fn builder() -> RecordBatchBuilder {
        RecordBatchBuilder::default()
    }

    /// Makes a batch of one record.
    ///
    /// # Errors
    ///
    /// [`BatchError::BatchTooLarge`]: one record is the smallest batch; it cannot be stored.
    pub fn single(record: &[u8]) -> Result<RecordBatch, BatchError> {
        let mut builder = RecordBatchBuilder::with_capacity(RECORD_PREFIX_BYTES + record.len());
        builder.push(record)?;
        Ok(builder.finish())
    }

    /// How many records it holds. An empty batch is refused by an append.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Tells whether it holds no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// How many bytes it takes in the log, header included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        BATCH_HEADER_BYTES + self.payload.len()
    }

    /// Writes the whole batch, as it will be on every replica, to the head of `target`: the one copy on
    /// the append path. Returns how many bytes it took, [`bytes`](Self::bytes).
    ///
    /// # Panics
    ///
    /// If `target` is too short or the batch is empty: both are checked at admission.
    pub fn write_into(&self, target: &mut [u8], stamp: &BatchStamp) -> usize {
        assert!(self.records > 0, "an empty batch reached the log");
        let batch = &mut target[..self.bytes()];
        batch[BATCH_HEADER_BYTES..].copy_from_slice(&self.payload);
        BatchHeader::write(batch, BatchKind::Records, self.records, self.payload_crc, stamp);
        batch.len()
    }
}

/// Collects records for a [`RecordBatch`].
#[derive(Clone, Debug, Default)]
pub struct RecordBatchBuilder {
    payload: Vec<u8>,
    records: u32,
}

impl RecordBatchBuilder {
    /// Starts with room for `payload_bytes`, of which each record takes [`RECORD_PREFIX_BYTES`] more than
    /// its length.
    #[must_use]
    pub fn with_capacity(payload_bytes: usize) -> RecordBatchBuilder {
        let payload = Vec::with_capacity(payload_bytes.min(BATCH_BYTES_MAX));
        RecordBatchBuilder { payload, records: 0 }
    }

    /// Adds one record; one of no bytes is allowed.
    ///
    /// # Errors
    ///
    /// [`BatchError`]: the record was not added and the batch is as before; finish it and start another.
    pub fn push(&mut self, record: &[u8]) -> Result<(), BatchError> {
        let bytes = self.bytes().saturating_add(RECORD_PREFIX_BYTES).saturating_add(record.len());
        if bytes > BATCH_BYTES_MAX {
            return Err(BatchError::BatchTooLarge { bytes, bytes_max: BATCH_BYTES_MAX });
        }
        if self.records == RECORDS_PER_BATCH_MAX {
            return Err(BatchError::TooManyRecords { records_max: RECORDS_PER_BATCH_MAX });
        }
        self.payload.extend_from_slice(&prefix_of(record));
        self.payload.extend_from_slice(record);
        self.records += 1;
        Ok(())
    }

    /// How many records have been added.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// How many bytes the batch would take in the log, header included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        BATCH_HEADER_BYTES + self.payload.len()
    }

    /// Computes the payload's checksum and ends the batch.
    #[must_use]
    pub fn finish(self) -> RecordBatch {
        let payload_crc = crc32fast::hash(&self.payload);
        RecordBatch { payload: self.payload, records: self.records, payload_crc }
    }
}

fn prefix_of(record: &[u8]) -> [u8; RECORD_PREFIX_BYTES] {
    u32::try_from(record.len()).expect("below BATCH_BYTES_MAX").to_le_bytes()
}

/// Why a record does not fit into a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The batch would be longer than one may be.
    #[error("the batch would have {bytes} bytes; at most {bytes_max} are allowed")]
    BatchTooLarge {
        /// How long it would be.
        bytes: usize,
        /// How long it may be.
        bytes_max: usize,
    },
    /// The batch holds as many records as it may.
    #[error("a batch holds at most {records_max} records")]
    TooManyRecords {
        /// How many it may hold.
        records_max: u32,
    },
}
