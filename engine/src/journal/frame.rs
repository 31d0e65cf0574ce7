//! A frame while it is being filled, in the buffer the device will read from.

use std::ops::Range;

use crate::format::{FRAME_ENTRY_BYTES, FRAME_HEADER_BYTES, FrameEntry, FrameHeader};
use crate::id::{BLOCK_BYTES, Offset, PartitionId};
use crate::io::arena::Extent;

/// A piece of the frame: whose it is, where its batches lie, and what `O` wants to remember of it.
#[derive(Debug)]
pub(crate) struct FramePiece<O> {
    entry: FrameEntry,
    pub(crate) range: Range<usize>,
    pub(crate) owner: O,
}

/// Takes the groups of many partitions, one behind the other.
#[derive(Debug)]
pub(crate) struct FrameBuilder<O> {
    extent: Extent,
    filled_bytes: usize,
    pieces: Vec<FramePiece<O>>,
}

impl<O> FrameBuilder<O> {
    /// Begins a frame in `extent`, which is whole blocks long. `pieces` is empty: the list of an earlier frame.
    pub(crate) fn new(extent: Extent, pieces: Vec<FramePiece<O>>) -> FrameBuilder<O> {
        assert!(extent.len().is_multiple_of(BLOCK_BYTES) && !extent.is_empty());
        assert!(pieces.is_empty(), "a frame begins without pieces");
        FrameBuilder { extent, filled_bytes: FRAME_HEADER_BYTES, pieces }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Tells whether batches of that length, and their entry, still fit.
    pub(crate) fn fits(&self, batches_bytes: usize) -> bool {
        let table_bytes = (self.pieces.len() + 1) * FRAME_ENTRY_BYTES;
        self.filled_bytes + batches_bytes + table_bytes <= self.extent.len()
    }

    /// Copies whole batches to the end. They must fit.
    pub(crate) fn push(
        &mut self,
        partition: PartitionId,
        base_offset: Offset,
        batches: &[u8],
        owner: O,
    ) {
        assert!(self.fits(batches.len()));
        let range = self.filled_bytes..self.filled_bytes + batches.len();
        self.extent.as_mut_slice()[range.clone()].copy_from_slice(batches);
        self.filled_bytes = range.end;
        let batches_bytes = u32::try_from(batches.len()).expect("shorter than a frame");
        let entry = FrameEntry { partition, batches_bytes, base_offset };
        self.pieces.push(FramePiece { entry, range, owner });
    }

    /// Header, batches and table, padded: what the frame takes in the file.
    pub(super) fn padded_bytes(&self) -> usize {
        (self.filled_bytes + self.pieces.len() * FRAME_ENTRY_BYTES).next_multiple_of(BLOCK_BYTES)
    }

    /// Completes `header` with what was gathered and writes it, the table and the padding.
    pub(super) fn finish(mut self, header: FrameHeader) -> (Extent, Vec<FramePiece<O>>) {
        let header = FrameHeader {
            entries: u32::try_from(self.pieces.len()).expect("fewer than blocks in a frame"),
            table_at: u32::try_from(self.filled_bytes).expect("shorter than a frame"),
            ..header
        };
        let padded_bytes = self.padded_bytes();
        let frame = self.extent.as_mut_slice();
        header.write(frame, self.pieces.iter().map(|piece| piece.entry));
        frame[header.length_bytes()..padded_bytes].fill(0);
        self.extent.truncate(padded_bytes);
        (self.extent, self.pieces)
    }
}
