//! The bytes of a shard's journal: a header block, then frames that each hold small groups of many partitions.
//!
//! A frame is one durable write. It starts on a block boundary of a circular file and never wraps; a frame that
//! does not fit behind the last one goes to the first block after the header. The batches are the same bytes as
//! in a segment, each with its own checksums; the table behind them says whose they are.
//!
//! Header block, magic `PJNL`, a wrapped header of 24 bytes and then:
//!
//! | bytes | field |
//! |---|---|
//! | 8 | journal id |
//! | 8 | file bytes |
//! | 8 | time it was made |
//!
//! Frame header:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 12 | envelope, magic `PJFR`, version 1, header bytes 64 |
//! | 12 | 4 | entries |
//! | 16 | 8 | journal id |
//! | 24 | 8 | sequence of the frame, from 1 |
//! | 32 | 8 | position of this header in the file |
//! | 40 | 8 | durable: frames below this sequence were durable when this one was submitted |
//! | 48 | 8 | tail: frames below this sequence were not needed any more then |
//! | 56 | 4 | table position in the frame; the table is its end |
//! | 60 | 4 | table crc |
//! | 64 | | batches, back to back, in the order of the table |
//!
//! Table entry, 32 bytes: stream id 16, partition index 4, bytes of its batches 4, base offset 8.

use super::envelope::{ENVELOPE_BYTES, Envelope};
use super::error::{FormatError, Structure};
use super::fields::{FieldReader, FieldVec, FieldWriter};
use crate::id::{BLOCK_BYTES, JournalId, Offset, PartitionId, PartitionIndex, Position, StreamId};
use crate::io::clock::WallTime;

/// The bytes of a frame's header: what its buffer leaves free at its head.
pub const FRAME_HEADER_BYTES: usize = 64;

/// The bytes of one entry of a frame's table.
pub const FRAME_ENTRY_BYTES: usize = 32;

/// The longest frame, padding included.
pub const FRAME_BYTES_MAX: usize = 256 << 10;

/// Where the first frame of a journal goes.
pub const FIRST_FRAME_POSITION: Position = Position(BLOCK_BYTES as u64);

const HEADER: Envelope = Envelope::of_payload(Structure::JournalHeader, *b"PJNL", 1);

const FRAME: Envelope =
    Envelope { what: Structure::JournalFrame, magic: *b"PJFR", version: 1, header_bytes: 64 };

const _: () = assert!(FRAME.header_bytes as usize == FRAME_HEADER_BYTES);

/// The number of a frame in its journal, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameSequence(pub u64);

/// From which frame on a journal may hold what a partition needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalMark {
    /// The journal of the run.
    pub journal: JournalId,
    /// Frames below hold nothing that counts: it is in segments, or was cut off.
    pub from: FrameSequence,
}

/// Which journal a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHeader {
    /// Its name.
    pub journal: JournalId,
    /// How long the file was made.
    pub file_bytes: u64,
    /// When.
    pub created: WallTime,
}

impl JournalHeader {
    /// Writes the header and zeros over the whole of `block`.
    ///
    /// # Panics
    ///
    /// If `block` is not one block.
    pub fn write(&self, block: &mut [u8]) {
        assert!(block.len() == BLOCK_BYTES);
        let mut fields = FieldVec::default();
        fields.u64(self.journal.0);
        fields.u64(self.file_bytes);
        fields.u64(self.created.0);
        HEADER.wrap_into(&fields.bytes, block);
    }

    /// Decodes the header at the head of `bytes`.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: the file is not a journal we know.
    pub fn decode(bytes: &[u8]) -> Result<JournalHeader, FormatError> {
        let mut fields = HEADER.unwrap(bytes)?;
        let header = JournalHeader {
            journal: JournalId(fields.u64()?),
            file_bytes: fields.u64()?,
            created: WallTime(fields.u64()?),
        };
        fields.end()?;
        Ok(header)
    }
}

/// Whose batches lie in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameEntry {
    /// The partition.
    pub partition: PartitionId,
    /// The bytes of its batches.
    pub batches_bytes: u32,
    /// The offset of the first record.
    pub base_offset: Offset,
}

/// The decoded header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// How many entries the table has.
    pub entries: u32,
    /// The journal it was written for.
    pub journal: JournalId,
    /// Its number.
    pub sequence: FrameSequence,
    /// Where it starts.
    pub position: Position,
    /// Frames below were durable when it was submitted.
    pub durable: FrameSequence,
    /// Frames below were not needed any more then.
    pub tail: FrameSequence,
    /// Where the table starts, from the head of the frame.
    pub table_at: u32,
}

impl FrameHeader {
    /// Writes the header to the head of `frame` and `entries` where it says the table is.
    ///
    /// # Panics
    ///
    /// If `frame` is too short, or `entries` are not as many as the header says.
    pub fn write(&self, frame: &mut [u8], entries: impl Iterator<Item = FrameEntry>) {
        let table_at = self.table_at as usize;
        let mut table = FieldWriter::at(frame, table_at);
        let mut count = 0;
        for entry in entries {
            table.raw(&entry.partition.stream.0.to_le_bytes());
            table.u32(entry.partition.index.0);
            table.u32(entry.batches_bytes);
            table.u64(entry.base_offset.0);
            count += 1;
        }
        assert!(count == self.entries, "the table is as long as the header says");
        let table_crc = crc32fast::hash(&frame[table_at..self.length_bytes()]);
        let header = &mut frame[..FRAME_HEADER_BYTES];
        let mut fields = FieldWriter::at(header, ENVELOPE_BYTES);
        fields.u32(self.entries);
        fields.u64(self.journal.0);
        fields.u64(self.sequence.0);
        fields.u64(self.position.0);
        fields.u64(self.durable.0);
        fields.u64(self.tail.0);
        fields.u32(self.table_at);
        fields.u32(table_crc);
        debug_assert!(fields.position() == FRAME_HEADER_BYTES);
        FRAME.seal(header);
    }

    /// Decodes the header at the head of `bytes` alone.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: no frame starts here.
    pub fn decode(bytes: &[u8]) -> Result<FrameHeader, FormatError> {
        Ok(FrameHeader::decode_with_crc(bytes)?.0)
    }

    /// Decodes the table of a whole frame.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: the table is damaged, or does not cover the batches.
    pub fn decode_table(frame: &[u8]) -> Result<(FrameHeader, Vec<FrameEntry>), FormatError> {
        let (header, stored) = FrameHeader::decode_with_crc(frame)?;
        let needed = header.length_bytes();
        let what = Structure::JournalFrame;
        let Some(table) = frame.get(header.table_at as usize..needed) else {
            return Err(FormatError::Truncated { what, bytes: frame.len(), needed });
        };
        let computed = crc32fast::hash(table);
        if stored != computed {
            return Err(FormatError::PayloadCrc { what, stored, computed });
        }
        let mut fields = FieldReader::at(table, 0, what);
        let mut entries = Vec::with_capacity(header.entries as usize);
        let mut covered = FRAME_HEADER_BYTES;
        for _ in 0..header.entries {
            let stream = StreamId(fields.u128()?);
            let index = PartitionIndex(fields.u32()?);
            let batches_bytes = fields.u32()?;
            let base_offset = Offset(fields.u64()?);
            covered = covered.saturating_add(batches_bytes as usize);
            let partition = PartitionId { stream, index };
            entries.push(FrameEntry { partition, batches_bytes, base_offset });
        }
        if covered != header.table_at as usize {
            return Err(FRAME.field("bytes of batches", covered as u64));
        }
        Ok((header, entries))
    }

    /// Header, batches and table, without the padding.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.table_at as usize + self.entries as usize * FRAME_ENTRY_BYTES
    }

    /// The length with the padding.
    #[must_use]
    pub fn padded_bytes(&self) -> usize {
        self.length_bytes().next_multiple_of(BLOCK_BYTES)
    }

    fn decode_with_crc(bytes: &[u8]) -> Result<(FrameHeader, u32), FormatError> {
        let (mut fields, _) = FRAME.open(bytes)?;
        let header = FrameHeader {
            entries: fields.u32()?,
            journal: JournalId(fields.u64()?),
            sequence: FrameSequence(fields.u64()?),
            position: Position(fields.u64()?),
            durable: FrameSequence(fields.u64()?),
            tail: FrameSequence(fields.u64()?),
            table_at: fields.u32()?,
        };
        let table_crc = fields.u32()?;
        header.check_limits()?;
        Ok((header, table_crc))
    }

    fn check_limits(&self) -> Result<(), FormatError> {
        let table_at = self.table_at as usize;
        if !(FRAME_HEADER_BYTES..FRAME_BYTES_MAX).contains(&table_at) {
            return Err(FRAME.field("table position", table_at as u64));
        }
        if self.entries == 0 || self.entries as usize > FRAME_BYTES_MAX / FRAME_ENTRY_BYTES {
            return Err(FRAME.field("entries", u64::from(self.entries)));
        }
        if self.padded_bytes() > FRAME_BYTES_MAX {
            return Err(FRAME.field("length", self.length_bytes() as u64));
        }
        if self.sequence.0 == 0 || self.durable > self.sequence || self.tail > self.durable {
            return Err(FRAME.field("sequence", self.sequence.0));
        }
        if !self.position.is_block_aligned() {
            return Err(FRAME.field("position", self.position.0));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<FrameEntry> {
        (0..3)
            .map(|index| FrameEntry {
                partition: PartitionId { stream: StreamId(7), index: PartitionIndex(index) },
                batches_bytes: 10 + index,
                base_offset: Offset(u64::from(index) << 33),
            })
            .collect()
    }

    fn header() -> FrameHeader {
        FrameHeader {
            entries: 3,
            journal: JournalId(0x1122_3344_5566_7788),
            sequence: FrameSequence(9),
            position: Position(8192),
            durable: FrameSequence(8),
            tail: FrameSequence(3),
            table_at: 64 + 33,
        }
    }

    fn frame() -> Vec<u8> {
        let mut frame = vec![0xab; BLOCK_BYTES];
        header().write(&mut frame, entries().into_iter());
        frame
    }

    #[test]
    fn frame_is_read_back() {
        assert_eq!(FrameHeader::decode_table(&frame()), Ok((header(), entries())));
    }

    #[test]
    fn every_flipped_bit_of_header_and_table_is_seen() {
        let header = header();
        let table = header.table_at as usize..header.length_bytes();
        for at in (0..FRAME_HEADER_BYTES).chain(table) {
            for bit in 0..8 {
                let mut damaged = frame();
                damaged[at] ^= 1 << bit;
                assert!(FrameHeader::decode_table(&damaged).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn cut_frame_is_refused() {
        let whole = frame();
        for bytes in 0..header().length_bytes() {
            assert!(FrameHeader::decode_table(&whole[..bytes]).is_err(), "{bytes} bytes");
        }
    }

    #[test]
    fn table_must_cover_the_batches() {
        let mut frame = vec![0; BLOCK_BYTES];
        FrameHeader { table_at: header().table_at + 1, ..header() }
            .write(&mut frame, entries().into_iter());
        assert!(matches!(FrameHeader::decode_table(&frame), Err(FormatError::Field { .. })));
    }

    #[test]
    fn journal_header_is_read_back() {
        let header =
            JournalHeader { journal: JournalId(5), file_bytes: 1 << 20, created: WallTime(77) };
        let mut block = vec![1; BLOCK_BYTES];
        header.write(&mut block);
        assert_eq!(JournalHeader::decode(&block), Ok(header));
    }
}
