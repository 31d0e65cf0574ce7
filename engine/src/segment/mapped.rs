//! Reads batches of a closed segment from its map. Same checks and same answers as from the disk.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::group_walk::find_group;
use super::index::SparseIndex;
use super::read_plan::{PlanStop, ReadPlanner};
use super::reader::{
    PayloadCheck, SegmentCursor, SegmentEnd, SegmentRead, SegmentReadAnswer, SegmentReadError,
    Sharing,
};
use crate::format::{FormatError, StoredBatch};
use crate::id::{BLOCK_BYTES, Offset, Position, SegmentId};

/// A closed segment in memory, from the start of its file to behind its last group.
#[derive(Clone, Debug)]
pub struct SegmentMap {
    bytes: Bytes,
    path: PathBuf,
    segment: SegmentId,
    base_offset: Offset,
    end: SegmentEnd,
    index: Arc<SparseIndex>,
}

impl SegmentMap {
    /// Takes the bytes of `segment`, which starts at `base_offset` and is read up to `end`.
    ///
    /// # Panics
    ///
    /// If the bytes end before `end`.
    #[must_use]
    pub fn new(
        bytes: Bytes,
        path: PathBuf,
        segment: SegmentId,
        base_offset: Offset,
        end: SegmentEnd,
        index: Arc<SparseIndex>,
    ) -> SegmentMap {
        assert!(bytes.len() as u64 >= end.position.0);
        SegmentMap { bytes, path, segment, base_offset, end, index }
    }

    /// The records in it.
    #[must_use]
    pub fn offsets(&self) -> Range<Offset> {
        self.base_offset..self.end.offset
    }

    /// Reads batches with records from `from` on, about `bytes_max`; none at the end.
    ///
    /// # Errors
    ///
    /// [`SegmentReadError::Corrupt`] and [`SegmentReadError::NewerVersion`]: nothing was read.
    pub fn read(
        &self,
        from: Offset,
        bytes_max: usize,
        payloads: PayloadCheck,
    ) -> Result<SegmentReadAnswer, SegmentReadError> {
        let first = SegmentCursor::first(self.base_offset);
        let mut cursor = self.index.locate(from).map_or(first, SegmentCursor::from);
        let (end, sharing) = (self.end, Sharing::Lend);
        let read = SegmentRead { from, cursor, end, bytes_max, markers: false, payloads, sharing };
        loop {
            let piece = &self.bytes[offset_in_map(cursor.position)..offset_in_map(end.position)];
            let piece_start = cursor.position;
            let planner = ReadPlanner { segment: self.segment, read: &read, piece, piece_start };
            let plan = planner.plan(cursor, from);
            if !plan.batches.is_empty() || matches!(plan.stop, PlanStop::Done) {
                let start = offset_in_map(piece_start);
                let batch = |(header, range): (_, Range<usize>)| {
                    let bytes = self.bytes.slice(start + range.start..start + range.end);
                    StoredBatch::from_checked(bytes, header)
                };
                return Ok(SegmentReadAnswer {
                    batches: plan.batches.into_iter().map(batch).collect(),
                    next_offset: plan.next_offset,
                    cursor: plan.cursor,
                });
            }
            cursor = plan.cursor;
            match plan.stop {
                PlanStop::Damaged { positions, offsets } => {
                    return Err(self.corrupt(positions, offsets));
                }
                PlanStop::Newer(source) => {
                    let (path, position) = (self.path.clone(), cursor.position);
                    return Err(SegmentReadError::NewerVersion { path, position, source });
                }
                _ => cursor = self.resume_behind(from, cursor)?,
            }
        }
    }

    /// Finds the next group behind a place where none starts. Above `from` that is an error, which names what
    /// cannot be read.
    fn resume_behind(
        &self,
        from: Offset,
        cursor: SegmentCursor,
    ) -> Result<SegmentCursor, SegmentReadError> {
        let behind = (cursor.position.0..self.end.position.0).step_by(BLOCK_BYTES).skip(1);
        let mut next = SegmentCursor { position: self.end.position, offset: self.end.offset };
        for position in behind.map(Position) {
            match find_group(&self.bytes[offset_in_map(position)..], self.segment, position) {
                Ok(found) if found.header.base_offset >= cursor.offset => {
                    let offset = found.header.base_offset.min(self.end.offset);
                    next = SegmentCursor { position, offset };
                    break;
                }
                Err(source @ FormatError::NewerVersion { .. }) => {
                    let path = self.path.clone();
                    return Err(SegmentReadError::NewerVersion { path, position, source });
                }
                _ => {}
            }
        }
        if next.offset > from {
            return Err(self.corrupt(cursor.position..next.position, cursor.offset..next.offset));
        }
        Ok(next)
    }

    fn corrupt(&self, positions: Range<Position>, offsets: Range<Offset>) -> SegmentReadError {
        SegmentReadError::Corrupt { path: self.path.clone(), positions, offsets }
    }
}

/// Positions of a map fit an address: it was mapped.
fn offset_in_map(position: Position) -> usize {
    usize::try_from(position.0).expect("a position inside a map")
}
