//! Batches of records outside the engine: built by clients, taken from answers.
//!
//! A payload is, for each record, a little-endian `u32` length and its bytes: the same bytes as in the log.

use bytes::{BufMut, Bytes, BytesMut};

use super::WireError;
use super::data::BatchHead;

/// The longest payload of one batch, in bytes: the engine's limit for a batch less room for its header.
pub const PAYLOAD_BYTES_MAX: usize = (4 << 20) - 4096;
/// The records of one batch at most.
pub const RECORDS_PER_BATCH_MAX: u32 = 1 << 20;

const LENGTH_BYTES: usize = 4;

/// Records to append as one batch. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordBatch {
    payload: Bytes,
    records: u32,
    payload_crc: u32,
}

impl RecordBatch {
    /// Starts an empty batch with room for `bytes` of records.
    #[must_use]
    pub fn builder(bytes: usize) -> RecordBatchBuilder {
        RecordBatchBuilder {
            payload: BytesMut::with_capacity(bytes.min(PAYLOAD_BYTES_MAX)),
            records: 0,
        }
    }

    /// Takes a payload as it lies in a frame, and checks its shape and, if one is given, its checksum.
    ///
    /// # Errors
    ///
    /// [`WireError`]: over a limit, of another shape, or changed on the way.
    pub fn from_payload(
        payload: Bytes,
        records: u32,
        payload_crc: Option<u32>,
    ) -> Result<RecordBatch, WireError> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(too_large("a payload", payload.len(), PAYLOAD_BYTES_MAX));
        }
        let counted = RecordLengths { payload: &payload }
            .try_fold(0u32, |count, record| record.map(|_| count + 1));
        if counted != Some(records) {
            return Err(WireError::Payload { bytes: payload.len(), records });
        }
        let found = crc32fast::hash(&payload);
        match payload_crc {
            Some(expected) if expected != found => Err(WireError::Checksum { found, expected }),
            _ => Ok(RecordBatch { payload, records, payload_crc: found }),
        }
    }

    /// The records in the batch.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// CRC-32 of the payload.
    #[must_use]
    pub fn payload_crc(&self) -> u32 {
        self.payload_crc
    }
}

/// Gathers records into a batch.
#[derive(Debug)]
pub struct RecordBatchBuilder {
    payload: BytesMut,
    records: u32,
}

impl RecordBatchBuilder {
    /// Adds one record; it may be empty.
    ///
    /// # Errors
    ///
    /// [`WireError::TooLarge`]: the batch is full and unchanged; finish it and start another.
    pub fn push(&mut self, record: &[u8]) -> Result<(), WireError> {
        let bytes = self.payload.len() + LENGTH_BYTES + record.len();
        let length = u32::try_from(record.len()).ok().filter(|_| bytes <= PAYLOAD_BYTES_MAX);
        let Some(length) = length else {
            return Err(too_large("a payload", bytes, PAYLOAD_BYTES_MAX));
        };
        if self.records == RECORDS_PER_BATCH_MAX {
            let limit = u64::from(RECORDS_PER_BATCH_MAX);
            return Err(WireError::TooLarge { what: "a batch", found: limit + 1, limit });
        }
        self.payload.put_u32_le(length);
        self.payload.put_slice(record);
        self.records += 1;
        Ok(())
    }

    /// The records so far.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// The payload bytes so far.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    /// Ends the batch and computes its checksum on this thread.
    #[must_use]
    pub fn finish(self) -> RecordBatch {
        let payload = self.payload.freeze();
        let payload_crc = crc32fast::hash(&payload);
        RecordBatch { payload, records: self.records, payload_crc }
    }
}

/// A batch that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedBatch {
    head: BatchHead,
    payload: Bytes,
}

impl ReceivedBatch {
    /// Cuts the payload of a read answer into its batches, and checks each.
    ///
    /// # Errors
    ///
    /// [`WireError`]: the bytes do not hold what the heads say, or changed on the way.
    pub fn cut(heads: &[BatchHead], mut payload: Bytes) -> Result<Vec<ReceivedBatch>, WireError> {
        let mut batches = Vec::with_capacity(heads.len());
        for head in heads {
            let bytes = usize::try_from(head.payload_bytes).unwrap_or(usize::MAX);
            if bytes > payload.len() {
                return Err(WireError::Payload { bytes: payload.len(), records: head.records });
            }
            let of_batch = payload.split_to(bytes);
            let crc = Some(head.payload_crc);
            RecordBatch::from_payload(of_batch.clone(), head.records, crc)?;
            batches.push(ReceivedBatch { head: *head, payload: of_batch });
        }
        match payload.len() {
            0 => Ok(batches),
            bytes => Err(WireError::Trailing { bytes }),
        }
    }

    /// What the node says about the batch.
    #[must_use]
    pub fn head(&self) -> &BatchHead {
        &self.head
    }

    /// The offset of its first record.
    #[must_use]
    pub fn base_offset(&self) -> u64 {
        self.head.base_offset
    }

    /// Its records in order, each with its offset, sharing the batch's bytes.
    pub fn records(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let lengths = RecordLengths { payload: &self.payload };
        (self.head.base_offset..).zip(lengths.flatten())
    }
}

/// Walks a payload; yields `None` once and for all where it breaks off.
struct RecordLengths<'a> {
    payload: &'a [u8],
}

impl<'a> Iterator for RecordLengths<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        if self.payload.is_empty() {
            return None;
        }
        let Some((record, rest)) = first_record(self.payload) else {
            self.payload = &[];
            return Some(None);
        };
        self.payload = rest;
        Some(Some(record))
    }
}

fn first_record(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = payload.split_first_chunk::<LENGTH_BYTES>()?;
    let bytes = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    rest.split_at_checked(bytes)
}

fn too_large(what: &'static str, found: usize, limit: usize) -> WireError {
    WireError::TooLarge { what, found: found as u64, limit: limit as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch_of(records: &[&[u8]]) -> RecordBatch {
        let mut builder = RecordBatch::builder(64);
        for record in records {
            builder.push(record).unwrap();
        }
        builder.finish()
    }

    fn head_of(batch: &RecordBatch, base_offset: u64) -> BatchHead {
        BatchHead {
            base_offset,
            records: batch.records(),
            epoch: 1,
            append_time_us: 0,
            payload_bytes: u32::try_from(batch.payload().len()).unwrap(),
            payload_crc: batch.payload_crc(),
        }
    }

    #[test]
    fn records_come_back_with_their_offsets() {
        let (first, second) = (batch_of(&[b"a", b"", b"ccc"]), batch_of(&[b"d"]));
        let payload = Bytes::from([first.payload().clone(), second.payload().clone()].concat());

        let heads = [head_of(&first, 10), head_of(&second, 13)];
        let batches = ReceivedBatch::cut(&heads, payload).unwrap();

        let records: Vec<_> = batches.iter().flat_map(ReceivedBatch::records).collect();
        let expected: [(u64, &[u8]); 4] = [(10, b"a"), (11, b""), (12, b"ccc"), (13, b"d")];
        assert_eq!(records, expected);
    }

    #[test]
    fn a_changed_payload_is_refused() {
        let batch = batch_of(&[b"abc"]);
        let mut bytes = batch.payload().to_vec();
        bytes[5] ^= 1;

        let refused = RecordBatch::from_payload(bytes.into(), 1, Some(batch.payload_crc()));

        assert!(matches!(refused, Err(WireError::Checksum { .. })));
    }

    #[test]
    fn a_payload_of_another_shape_is_refused() {
        let batch = batch_of(&[b"abc", b"d"]);
        let cut = batch.payload().slice(..batch.payload().len() - 1);

        assert!(RecordBatch::from_payload(cut, 2, None).is_err());
        assert!(RecordBatch::from_payload(batch.payload().clone(), 3, None).is_err());
        assert!(RecordBatch::from_payload(batch.payload().clone(), 2, None).is_ok());
    }

    #[test]
    fn a_full_batch_takes_no_more_and_is_unchanged() {
        let mut builder = RecordBatch::builder(0);
        builder.push(&vec![1; PAYLOAD_BYTES_MAX - LENGTH_BYTES]).unwrap();

        assert!(matches!(builder.push(b""), Err(WireError::TooLarge { .. })));

        assert_eq!(builder.finish().records(), 1);
    }
}
