//! A frame while it is being filled, in the buffer the device will read from.

use crate::format::{FRAME_ENTRY_BYTES, FRAME_HEADER_BYTES, FrameEntry, FrameHeader};
use crate::id::{BLOCK_BYTES, Offset, PartitionId};
use crate::io::arena::Extent;

/// A piece of the frame: whose it is, and what `O` wants to remember of it.
#[derive(Debug)]
struct Piece<O> {
    entry: FrameEntry,
    owner: O,
}

/// Takes the groups of many partitions, one behind the other.
#[derive(Debug)]
pub(crate) struct FrameBuilder<O> {
    extent: Extent,
    filled_bytes: usize,
    pieces: Vec<Piece<O>>,
}

impl<O> FrameBuilder<O> {
    /// Begins a frame in `extent`, which is whole blocks long.
    pub(crate) fn new(extent: Extent) -> FrameBuilder<O> {
        assert!(extent.len().is_multiple_of(BLOCK_BYTES) && !extent.is_empty());
        FrameBuilder { extent, filled_bytes: FRAME_HEADER_BYTES, pieces: Vec::new() }
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
        let end = self.filled_bytes + batches.len();
        self.extent.as_mut_slice()[self.filled_bytes..end].copy_from_slice(batches);
        self.filled_bytes = end;
        let batches_bytes = u32::try_from(batches.len()).expect("shorter than a frame");
        self.pieces
            .push(Piece { entry: FrameEntry { partition, batches_bytes, base_offset }, owner });
    }

    /// Header, batches and table, padded: what the frame takes in the file.
    pub(super) fn padded_bytes(&self) -> usize {
        (self.filled_bytes + self.pieces.len() * FRAME_ENTRY_BYTES).next_multiple_of(BLOCK_BYTES)
    }

    /// Completes `header` with what was gathered and writes it, the table and the padding.
    pub(super) fn finish(
        mut self,
        header: FrameHeader,
    ) -> (Extent, impl Iterator<Item = (O, std::ops::Range<usize>)>) {
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
        let mut at = FRAME_HEADER_BYTES;
        let pieces = self.pieces.into_iter().map(move |piece| {
            let start = at;
            at += piece.entry.batches_bytes as usize;
            (piece.owner, start..at)
        });
        (self.extent, pieces)
    }
}
