//! The first block of a segment file, written when the file is made.
//!
//! It names no offsets: a file is made before it is known where its predecessor ends.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 24 | wrapped header, magic `PSEG`, version 1 |
//! | 24 | 16 | stream id |
//! | 40 | 4 | partition index |
//! | 44 | 8 | segment id, random |
//! | 52 | 8 | file bytes planned and written with zeros |
//! | 60 | 8 | created, microseconds since 1970 |
//! | 68 | | zeros to the end of the block |

use super::envelope::Envelope;
use super::error::{FormatError, Structure};
use super::fields::FieldVec;
use crate::id::{BLOCK_BYTES, PartitionId, PartitionIndex, Position, SegmentId, StreamId};
use crate::io::clock::WallTime;

/// Where the first group of a segment goes.
pub const FIRST_GROUP_POSITION: Position = Position(BLOCK_BYTES as u64);

const ENVELOPE: Envelope = Envelope::of_payload(Structure::SegmentHeader, *b"PSEG", 1);

/// Whose segment a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The partition it belongs to.
    pub partition: PartitionId,
    /// Its name.
    pub segment: SegmentId,
    /// How long the file was made.
    pub file_bytes: u64,
    /// When.
    pub created: WallTime,
}

impl SegmentHeader {
    /// Writes the header and zeros over the whole of `block`.
    ///
    /// # Panics
    ///
    /// If `block` is not one block.
    pub fn write(&self, block: &mut [u8]) {
        assert!(block.len() == BLOCK_BYTES);
        let mut fields = FieldVec::default();
        fields.u128(self.partition.stream.0);
        fields.u32(self.partition.index.0);
        fields.u64(self.segment.0);
        fields.u64(self.file_bytes);
        fields.u64(self.created.0);
        ENVELOPE.wrap_into(&fields.bytes, block);
    }

    /// Decodes the header at the head of `bytes`.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: the file is nobody's we know; it is set aside, never removed.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, FormatError> {
        let mut fields = ENVELOPE.unwrap(bytes)?;
        let stream = StreamId(fields.u128()?);
        let index = PartitionIndex(fields.u32()?);
        let header = SegmentHeader {
            partition: PartitionId { stream, index },
            segment: SegmentId(fields.u64()?),
            file_bytes: fields.u64()?,
            created: WallTime(fields.u64()?),
        };
        fields.end()?;
        Ok(header)
    }
}
