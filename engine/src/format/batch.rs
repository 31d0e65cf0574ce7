//! The header of a batch, the entry of the log: the same bytes on every replica.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 12 | envelope, magic `PBAT`, version 1, header bytes 80 |
//! | 12 | 4 | total bytes, header and payload |
//! | 16 | 8 | base offset; a marker's is the log end it stands at |
//! | 24 | 8 | epoch, packed |
//! | 32 | 8 | append time, microseconds since 1970 by the server, never falling in a partition |
//! | 40 | 8 | client time, microseconds since 1970, 0 unknown; nothing depends on it |
//! | 48 | 8 | producer id, 0 none |
//! | 56 | 8 | sequence of the producer |
//! | 64 | 4 | producer epoch |
//! | 68 | 4 | records; 0 in a marker |
//! | 72 | 4 | payload crc |
//! | 76 | 1 | kind: 1 records, 2 marker |
//! | 77 | 1 | flags, 0 |
//! | 78 | 2 | 0 |
//! | 80 | | payload: per record a `u32` length and that many bytes; a marker's is the term's descriptor |

use super::envelope::{ENVELOPE_BYTES, Envelope};
use super::error::{FormatError, Structure};
use super::fields::{FieldReader, FieldWriter};
use super::record_batch::{RECORD_PREFIX_BYTES, RECORDS_PER_BATCH_MAX};
use crate::id::{BLOCK_BYTES, Epoch, Offset};
use crate::io::clock::WallTime;

/// The longest batch, header included.
pub const BATCH_BYTES_MAX: usize = 4 << 20;

/// The bytes of a batch's header.
pub const BATCH_HEADER_BYTES: usize = 80;

const _: () = assert!(BATCH_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(ENVELOPE.header_bytes as usize == BATCH_HEADER_BYTES);

pub(super) const ENVELOPE: Envelope =
    Envelope { what: Structure::Batch, magic: *b"PBAT", version: 1, header_bytes: 80 };

/// What a batch carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// Records of a caller.
    Records,
    /// The start of an epoch: no records, takes no offset, carries the term's descriptor.
    Marker,
}

/// Who sent a batch, for telling a repeated one. The default is "nobody said".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Producer {
    /// The producer's id, 0 for none.
    pub id: u64,
    /// Its run: a higher one fences a lower one.
    pub epoch: u32,
    /// The batch's number in that run.
    pub sequence: u64,
}

/// What the owner adds to a batch when it takes its place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchStamp {
    /// The offset of the first record, or the log end a marker stands at.
    pub base_offset: Offset,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// The server's time, never falling in a partition.
    pub append_time: WallTime,
    /// The client's time, for information only.
    pub client_time: WallTime,
    /// Who sent it.
    pub producer: Producer,
}

/// The decoded header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// What the batch carries.
    pub kind: BatchKind,
    /// Header and payload.
    pub total_bytes: u32,
    /// How many records; 0 in a marker.
    pub records: u32,
    /// The checksum of the payload.
    pub payload_crc: u32,
    /// What the owner added.
    pub stamp: BatchStamp,
    /// The checksum of this header; it covers the payload's, and enters the group's chain.
    pub header_crc: u32,
}

impl BatchHeader {
    /// Writes the header of a batch over the head of `batch`, whose payload is already in place.
    /// Returns the header's crc.
    ///
    /// # Panics
    ///
    /// If `batch` is not a header and a payload within [`BATCH_BYTES_MAX`]: the caller has checked that.
    pub fn write(
        batch: &mut [u8],
        kind: BatchKind,
        records: u32,
        payload_crc: u32,
        stamp: &BatchStamp,
    ) -> u32 {
        assert!(batch.len() >= BATCH_HEADER_BYTES);
        assert!(batch.len() <= BATCH_BYTES_MAX);
        let total_bytes = u32::try_from(batch.len()).expect("below BATCH_BYTES_MAX");
        let header = &mut batch[..BATCH_HEADER_BYTES];
        let mut fields = FieldWriter::at(header, ENVELOPE_BYTES);
        fields.u32(total_bytes);
        fields.u64(stamp.base_offset.0);
        fields.u64(stamp.epoch.packed());
        fields.u64(stamp.append_time.0);
        fields.u64(stamp.client_time.0);
        fields.u64(stamp.producer.id);
        fields.u64(stamp.producer.sequence);
        fields.u32(stamp.producer.epoch);
        fields.u32(records);
        fields.u32(payload_crc);
        fields.u8(match kind {
            BatchKind::Records => 1,
            BatchKind::Marker => 2,
        });
        fields.u8(0);
        fields.u16(0);
        debug_assert!(fields.position() == BATCH_HEADER_BYTES);
        ENVELOPE.seal(header)
    }

    /// Writes a whole marker, the start of the stamp's epoch, to the head of `target`; `descriptor` is the
    /// encoded descriptor of its term. Returns how many bytes it took: header and descriptor.
    ///
    /// # Panics
    ///
    /// If `target` is too short for it.
    pub fn write_marker(target: &mut [u8], descriptor: &[u8], stamp: &BatchStamp) -> usize {
        let batch = &mut target[..BATCH_HEADER_BYTES + descriptor.len()];
        batch[BATCH_HEADER_BYTES..].copy_from_slice(descriptor);
        let payload_crc = crc32fast::hash(descriptor);
        BatchHeader::write(batch, BatchKind::Marker, 0, payload_crc, stamp);
        batch.len()
    }

    /// Decodes the header at the head of `bytes` and checks everything but the payload.
    ///
    /// `bytes` may hold less or more than the whole batch.
    ///
    /// # Errors
    ///
    /// [`FormatError`] names what is wrong; none of the bytes can be used as a batch.
    pub fn decode(bytes: &[u8]) -> Result<BatchHeader, FormatError> {
        let (mut fields, header_crc) = ENVELOPE.open(bytes)?;
        let total_bytes = fields.u32()?;
        let base_offset = Offset(fields.u64()?);
        let epoch = Epoch::from_packed(fields.u64()?);
        let append_time = WallTime(fields.u64()?);
        let client_time = WallTime(fields.u64()?);
        let (id, sequence, producer_epoch) = (fields.u64()?, fields.u64()?, fields.u32()?);
        let producer = Producer { id, epoch: producer_epoch, sequence };
        let records = fields.u32()?;
        let payload_crc = fields.u32()?;
        let kind = decode_kind(&mut fields)?;
        let stamp = BatchStamp { base_offset, epoch, append_time, client_time, producer };
        let header = BatchHeader { kind, total_bytes, records, payload_crc, stamp, header_crc };
        header.check_limits()?;
        Ok(header)
    }

    /// The offset behind the last record; a marker's is its base offset.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        // Decoding has checked that the sum fits.
        Offset(self.stamp.base_offset.0 + u64::from(self.records))
    }

    /// The length of the whole batch.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.total_bytes as usize
    }

    /// Checks that `batch`, as long as the header says, holds the payload the header describes.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: truncated, damaged, or records that do not add up.
    pub fn check_payload(&self, batch: &[u8]) -> Result<(), FormatError> {
        let needed = self.total_bytes();
        let Some(payload) = batch.get(BATCH_HEADER_BYTES..needed) else {
            return Err(FormatError::Truncated { what: ENVELOPE.what, bytes: batch.len(), needed });
        };
        let computed = crc32fast::hash(payload);
        if computed != self.payload_crc {
            return Err(FormatError::PayloadCrc {
                what: ENVELOPE.what,
                stored: self.payload_crc,
                computed,
            });
        }
        match self.kind {
            BatchKind::Records => check_records(payload, self.records),
            BatchKind::Marker => Ok(()),
        }
    }

    fn check_limits(&self) -> Result<(), FormatError> {
        let total_bytes = self.total_bytes();
        let records_fit = match self.kind {
            BatchKind::Records => (1..=RECORDS_PER_BATCH_MAX).contains(&self.records),
            BatchKind::Marker => self.records == 0,
        };
        if !records_fit {
            return Err(ENVELOPE.field("records", u64::from(self.records)));
        }
        let least_bytes = BATCH_HEADER_BYTES + self.records as usize * RECORD_PREFIX_BYTES;
        if !(least_bytes..=BATCH_BYTES_MAX).contains(&total_bytes) {
            return Err(ENVELOPE.field("total bytes", u64::from(self.total_bytes)));
        }
        if self.stamp.base_offset.checked_add(u64::from(self.records)).is_none() {
            return Err(ENVELOPE.field("base offset", self.stamp.base_offset.0));
        }
        Ok(())
    }
}

fn decode_kind(fields: &mut FieldReader<'_>) -> Result<BatchKind, FormatError> {
    let kind = match fields.u8()? {
        1 => BatchKind::Records,
        2 => BatchKind::Marker,
        other => return Err(ENVELOPE.field("kind", u64::from(other))),
    };
    match (fields.u8()?, fields.u16()?) {
        (0, 0) => Ok(kind),
        (0, reserved) => Err(ENVELOPE.field("reserved", u64::from(reserved))),
        (flags, _) => Err(ENVELOPE.field("flags", u64::from(flags))),
    }
}

fn check_records(payload: &[u8], records: u32) -> Result<(), FormatError> {
    let mut fields = FieldReader::at(payload, 0, ENVELOPE.what);
    let mut used = 0;
    for _ in 0..records {
        let bytes = fields.u32()? as usize;
        fields.raw(bytes)?;
        used += RECORD_PREFIX_BYTES + bytes;
    }
    if used != payload.len() {
        return Err(ENVELOPE.field("bytes behind the last record", (payload.len() - used) as u64));
    }
    Ok(())
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
