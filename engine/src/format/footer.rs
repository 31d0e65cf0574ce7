//! The last blocks of a closed segment file: a sparse index of its groups. A cache: when missing or in doubt
//! it is rebuilt from the groups, and it is never believed past the validated end.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 24 | wrapped header, magic `PFTR`, version 1 |
//! | 24 | 8 | segment id |
//! | 32 | 8 | base offset |
//! | 40 | 8 | end offset |
//! | 48 | 8 | end position, where this footer starts |
//! | 56 | 8 | last chain |
//! | 64 | 8 | first append time |
//! | 72 | 8 | last append time |
//! | 80 | 4 | index entries, each 24 bytes: offset, position of the group, append time of its first batch |

use super::envelope::{Envelope, WRAPPED_HEADER_BYTES};
use super::error::{FormatError, Structure};
use super::fields::FieldVec;
use super::group::Chain;
use crate::id::{BLOCK_BYTES, Offset, Position, SegmentId};
use crate::io::clock::WallTime;

/// The most index entries of a segment, a bound on the footer of 3 MiB.
pub const INDEX_ENTRIES_MAX: usize = 1 << 17;

const ENVELOPE: Envelope = Envelope::of_payload(Structure::Footer, *b"PFTR", 1);

const ENTRY_BYTES: usize = 24;

/// Where a group of a segment starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The group's base offset.
    pub offset: Offset,
    /// The position of its header.
    pub position: Position,
    /// The append time of its first batch.
    pub time: WallTime,
}

/// What a closed segment holds, and an index into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The segment.
    pub segment: SegmentId,
    /// The offset of its first record.
    pub base_offset: Offset,
    /// The offset behind its last record.
    pub end_offset: Offset,
    /// Where its last group ends, and this footer starts.
    pub end_position: Position,
    /// The chain behind its last group.
    pub last_chain: Chain,
    /// The append time of its first batch.
    pub first_time: WallTime,
    /// The append time of its last batch.
    pub last_time: WallTime,
    /// Some of its groups, in order, the first one included; none in a segment without groups.
    pub entries: Vec<IndexEntry>,
}

impl Footer {
    /// Encodes the footer, padded with zeros to whole blocks.
    ///
    /// # Panics
    ///
    /// With more than [`INDEX_ENTRIES_MAX`] entries: the index thins itself out before.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.entries.len() <= INDEX_ENTRIES_MAX);
        let mut fields = FieldVec::default();
        fields.u64(self.segment.0);
        fields.u64(self.base_offset.0);
        fields.u64(self.end_offset.0);
        fields.u64(self.end_position.0);
        fields.u64(self.last_chain.0);
        fields.u64(self.first_time.0);
        fields.u64(self.last_time.0);
        fields.count(self.entries.len());
        for entry in &self.entries {
            fields.u64(entry.offset.0);
            fields.u64(entry.position.0);
            fields.u64(entry.time.0);
        }
        let mut bytes = ENVELOPE.wrap(&fields.bytes);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        bytes
    }

    /// Decodes the footer at the head of `bytes`.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: rebuild it from the segment's groups.
    pub fn decode(bytes: &[u8]) -> Result<Footer, FormatError> {
        let mut fields = ENVELOPE.unwrap(bytes)?;
        let footer = Footer {
            segment: SegmentId(fields.u64()?),
            base_offset: Offset(fields.u64()?),
            end_offset: Offset(fields.u64()?),
            end_position: Position(fields.u64()?),
            last_chain: Chain(fields.u64()?),
            first_time: WallTime(fields.u64()?),
            last_time: WallTime(fields.u64()?),
            entries: fields.list(ENTRY_BYTES, |fields| {
                Ok(IndexEntry {
                    offset: Offset(fields.u64()?),
                    position: Position(fields.u64()?),
                    time: WallTime(fields.u64()?),
                })
            })?,
        };
        fields.end()?;
        footer.check_order()?;
        Ok(footer)
    }

    /// Reads from the first block of a footer how many bytes it takes, padding included.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: no footer starts here.
    pub fn padded_bytes(head: &[u8]) -> Result<usize, FormatError> {
        let bytes = ENVELOPE.wrapped_bytes(head)?;
        Ok(bytes.next_multiple_of(BLOCK_BYTES))
    }

    /// Reads from the first block of a footer whose it is; `None` if none starts here.
    pub(crate) fn segment_of(head: &[u8]) -> Option<SegmentId> {
        ENVELOPE.wrapped_bytes(head).ok()?;
        let id = head.get(WRAPPED_HEADER_BYTES..)?.first_chunk()?;
        Some(SegmentId(u64::from_le_bytes(*id)))
    }

    fn check_order(&self) -> Result<(), FormatError> {
        if self.entries.len() > INDEX_ENTRIES_MAX {
            return Err(ENVELOPE.field("index entries", self.entries.len() as u64));
        }
        if self.end_offset < self.base_offset {
            return Err(ENVELOPE.field("end offset", self.end_offset.0));
        }
        let in_order = |pair: &[IndexEntry]| {
            pair[0].offset <= pair[1].offset && pair[0].position < pair[1].position
        };
        let aligned = |entry: &IndexEntry| entry.position.is_block_aligned();
        if !self.entries.windows(2).all(in_order) || !self.entries.iter().all(aligned) {
            return Err(ENVELOPE.field("index order", self.entries.len() as u64));
        }
        let first_is_base =
            self.entries.first().is_none_or(|first| first.offset >= self.base_offset);
        let last_is_inside = self
            .entries
            .last()
            .is_none_or(|last| last.offset <= self.end_offset && last.position < self.end_position);
        if !first_is_base || !last_is_inside {
            return Err(ENVELOPE.field("index range", self.entries.len() as u64));
        }
        Ok(())
    }
}
