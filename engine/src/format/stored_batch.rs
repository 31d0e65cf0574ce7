//! A batch as it comes back from the log: checked bytes, shared without a copy.

use bytes::Bytes;

use super::batch::{BATCH_HEADER_BYTES, BatchHeader, BatchKind, Producer};
use super::descriptor::Descriptor;
use super::error::FormatError;
use super::record_batch::RECORD_PREFIX_BYTES;
use crate::id::{Epoch, Offset};
use crate::io::clock::WallTime;

/// One batch of the log. `Clone` counts a reference, it does not copy.
#[derive(Clone, Debug)]
pub struct StoredBatch {
    bytes: Bytes,
    header: BatchHeader,
}

impl StoredBatch {
    /// Checks the batch at the head of `bytes` in full, payload included, and keeps just it.
    ///
    /// # Errors
    ///
    /// [`FormatError`] names what is wrong; nothing of the bytes can be used.
    pub fn decode(bytes: &Bytes) -> Result<StoredBatch, FormatError> {
        let header = BatchHeader::decode(bytes)?;
        header.check_payload(bytes)?;
        Ok(StoredBatch { bytes: bytes.slice(..header.total_bytes()), header })
    }

    /// Takes the batch at the head of `bytes` after checking its header only: for bytes that this process
    /// has just written and still holds in memory.
    ///
    /// # Errors
    ///
    /// [`FormatError`] names what is wrong with the header, or says that the payload is not all there.
    pub fn decode_trusted(bytes: &Bytes) -> Result<StoredBatch, FormatError> {
        let header = BatchHeader::decode(bytes)?;
        let needed = header.total_bytes();
        if bytes.len() < needed {
            let what = super::error::Structure::Batch;
            return Err(FormatError::Truncated { what, bytes: bytes.len(), needed });
        }
        Ok(StoredBatch { bytes: bytes.slice(..needed), header })
    }

    /// Takes bytes that are exactly one batch, already checked against `header`.
    pub(crate) fn from_checked(bytes: Bytes, header: BatchHeader) -> StoredBatch {
        assert!(bytes.len() == header.total_bytes());
        StoredBatch { bytes, header }
    }

    /// Compares the payload with its checksum: for a batch that was read without that.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: the payload is damaged.
    pub fn check_payload(&self) -> Result<(), FormatError> {
        self.header.check_payload(&self.bytes)
    }

    /// The whole batch, header included: what is sent to a replica.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The same batch in memory of its own: for who keeps it long, and must not hold the log's memory.
    #[must_use]
    pub fn copied(&self) -> StoredBatch {
        StoredBatch { bytes: Bytes::copy_from_slice(&self.bytes), header: self.header }
    }

    /// The decoded header.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Tells whether this is the marker of an epoch, without records.
    #[must_use]
    pub fn is_marker(&self) -> bool {
        self.header.kind == BatchKind::Marker
    }

    /// The payload: length-prefixed records, or a marker's descriptor.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        self.bytes.slice(BATCH_HEADER_BYTES..)
    }

    /// The descriptor a marker carries; `None` for records.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: the marker is whole, its descriptor is none; nothing can be said in its epoch.
    pub fn descriptor(&self) -> Result<Option<Descriptor>, FormatError> {
        self.is_marker().then(|| Descriptor::decode(&self.payload())).transpose()
    }

    /// The offset of the first record.
    #[must_use]
    pub fn base_offset(&self) -> Offset {
        self.header.stamp.base_offset
    }

    /// The offset behind the last record.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.header.next_offset()
    }

    /// How many records it holds; 0 in a marker.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.header.records
    }

    /// The epoch of the owner that took it.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.header.stamp.epoch
    }

    /// The server's time of the append.
    #[must_use]
    pub fn append_time(&self) -> WallTime {
        self.header.stamp.append_time
    }

    /// The client's time, [`WallTime::UNKNOWN`] if it gave none.
    #[must_use]
    pub fn client_time(&self) -> WallTime {
        self.header.stamp.client_time
    }

    /// Who sent it.
    #[must_use]
    pub fn producer(&self) -> Producer {
        self.header.stamp.producer
    }

    /// Walks the records with their offsets.
    #[must_use]
    pub fn iter(&self) -> Records<'_> {
        Records {
            payload: &self.bytes[BATCH_HEADER_BYTES..],
            next_offset: self.base_offset(),
            left: self.records(),
        }
    }

    /// The record at `offset`, sharing the batch's memory; `None` outside the batch.
    #[must_use]
    pub fn record_bytes(&self, offset: Offset) -> Option<Bytes> {
        let (_, record) = self.iter().find(|(at, _)| *at == offset)?;
        Some(self.bytes.slice_ref(record))
    }
}

impl<'a> IntoIterator for &'a StoredBatch {
    type Item = (Offset, &'a [u8]);
    type IntoIter = Records<'a>;

    fn into_iter(self) -> Records<'a> {
        self.iter()
    }
}

/// The records of a batch with their offsets. Ends early only on a payload nobody has checked.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    payload: &'a [u8],
    next_offset: Offset,
    left: u32,
}

impl<'a> Iterator for Records<'a> {
    type Item = (Offset, &'a [u8]);

    fn next(&mut self) -> Option<(Offset, &'a [u8])> {
        if self.left == 0 {
            return None;
        }
        let (prefix, rest) = self.payload.split_first_chunk::<RECORD_PREFIX_BYTES>()?;
        let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*prefix) as usize)?;
        let offset = self.next_offset;
        self.payload = rest;
        self.next_offset = Offset(offset.0 + 1);
        self.left -= 1;
        Some((offset, record))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left as usize))
    }
}
