//! A batch as a caller fills it: records and their checksum, not yet at any offset.
//!
//! Everything that costs time per byte happens here, on the caller's thread; the shard copies once.

use bytes::Bytes;

use super::batch::{BATCH_BYTES_MAX, BATCH_HEADER_BYTES, BatchHeader, BatchKind, BatchStamp};

/// The most records in one batch.
pub const RECORDS_PER_BATCH_MAX: u32 = 1 << 20;

/// The bytes in front of each record: its length.
pub const RECORD_PREFIX_BYTES: usize = 4;

/// Records to append, in order, as one unit: all of them become readable or none.
#[derive(Clone, Debug, Default)]
pub struct RecordBatch {
    payload: Bytes,
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

    /// Takes a payload that was encoded elsewhere, a client's for example, without copying it: for each
    /// record a little-endian `u32` length and its bytes.
    ///
    /// # Errors
    ///
    /// [`BatchError`]: it is over a limit, does not hold exactly `records`, or changed on its way.
    pub fn from_payload(
        payload: Bytes,
        records: u32,
        payload_crc: u32,
    ) -> Result<RecordBatch, BatchError> {
        check_payload(&payload, records, payload_crc)?;
        Ok(RecordBatch { payload, records, payload_crc })
    }

    /// How many records it holds. An empty batch is refused by an append.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// The records as they are stored, for [`Partition::reserve`](crate::engine::Partition::reserve).
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The checksum (CRC-32) of the payload.
    #[must_use]
    pub fn payload_crc(&self) -> u32 {
        self.payload_crc
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
        write_batch(target, &self.payload, self.records, self.payload_crc, stamp)
    }
}

/// Checks a payload that was encoded elsewhere.
pub(crate) fn check_payload(
    payload: &[u8],
    records: u32,
    payload_crc: u32,
) -> Result<(), BatchError> {
    let bytes = BATCH_HEADER_BYTES.saturating_add(payload.len());
    if bytes > BATCH_BYTES_MAX {
        return Err(BatchError::BatchTooLarge { bytes, bytes_max: BATCH_BYTES_MAX });
    }
    if records > RECORDS_PER_BATCH_MAX {
        return Err(BatchError::TooManyRecords { records_max: RECORDS_PER_BATCH_MAX });
    }
    if count_records(payload) != Some(records) {
        return Err(BatchError::Malformed { payload_bytes: payload.len(), records });
    }
    let found = crc32fast::hash(payload);
    if found != payload_crc {
        return Err(BatchError::Checksum { expected: payload_crc, found });
    }
    Ok(())
}

/// Copies a payload behind its header, to the head of `target`. Returns how many bytes that took.
pub(crate) fn write_batch(
    target: &mut [u8],
    payload: &[u8],
    records: u32,
    payload_crc: u32,
    stamp: &BatchStamp,
) -> usize {
    assert!(records > 0, "an empty batch reached the log");
    let batch = &mut target[..BATCH_HEADER_BYTES + payload.len()];
    batch[BATCH_HEADER_BYTES..].copy_from_slice(payload);
    BatchHeader::write(batch, BatchKind::Records, records, payload_crc, stamp);
    batch.len()
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
        RecordBatch { payload: self.payload.into(), records: self.records, payload_crc }
    }
}

fn prefix_of(record: &[u8]) -> [u8; RECORD_PREFIX_BYTES] {
    u32::try_from(record.len()).expect("below BATCH_BYTES_MAX").to_le_bytes()
}

/// Counts the records of a payload; `None` if it breaks off inside one.
fn count_records(mut payload: &[u8]) -> Option<u32> {
    let mut records = 0u32;
    while !payload.is_empty() {
        let (prefix, rest) = payload.split_first_chunk::<RECORD_PREFIX_BYTES>()?;
        (_, payload) = rest.split_at_checked(u32::from_le_bytes(*prefix) as usize)?;
        records = records.checked_add(1)?;
    }
    Some(records)
}

/// Why records do not make a batch.
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
    /// The payload does not hold the records it should.
    #[error("{payload_bytes} bytes do not hold exactly {records} records")]
    Malformed {
        /// The payload's length.
        payload_bytes: usize,
        /// How many records it should hold.
        records: u32,
    },
    /// The payload changed between its maker and here.
    #[error("the payload's checksum is {found:08x}, not {expected:08x}")]
    Checksum {
        /// What its maker computed.
        expected: u32,
        /// What it is.
        found: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_payload_is_taken_as_it_is_or_refused() {
        let mut builder = RecordBatch::builder();
        builder.push(b"abc").unwrap();
        builder.push(b"").unwrap();
        let made = builder.finish();
        let take = |payload: &[u8], records, crc| {
            RecordBatch::from_payload(Bytes::copy_from_slice(payload), records, crc)
        };

        assert_eq!(take(&made.payload, 2, made.payload_crc).unwrap().bytes(), made.bytes());

        let cut = &made.payload[..made.payload.len() - 1];
        assert!(matches!(take(cut, 2, 0), Err(BatchError::Malformed { .. })));
        assert!(matches!(take(&made.payload, 3, 0), Err(BatchError::Malformed { .. })));
        assert!(matches!(take(&made.payload, 2, 0), Err(BatchError::Checksum { .. })));
        let large = vec![0; BATCH_BYTES_MAX];
        assert!(matches!(take(&large, 1, 0), Err(BatchError::BatchTooLarge { .. })));
    }
}
