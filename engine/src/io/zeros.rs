//! Writes a new file full of zeros, so that later writes change neither its length nor its extents.

use futures_util::TryStreamExt;
use futures_util::stream::iter;

use super::arena::{Arena, SharedExtent};
use super::disk::{DiskError, DiskFile, WriteMode};
use crate::id::{BLOCK_BYTES, Position};

/// The bytes of one write of zeros, when the arena has them.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// Such writes of one file in flight. A shard whose turns take long, because others sync, would make a file of many
/// pieces one by one for seconds.
const PIECES_IN_FLIGHT: usize = 4;

/// One extent of zeros that serves every write: a piece, or what the arena can spare; `None` if that is no block.
pub(crate) fn zeros(arena: &Arena) -> Option<SharedExtent> {
    let mut piece_bytes = PIECE_BYTES;
    loop {
        if let Some(mut extent) = arena.allocate(piece_bytes) {
            extent.as_mut_slice().fill(0);
            return Some(extent.freeze());
        }
        if piece_bytes == BLOCK_BYTES {
            return None;
        }
        piece_bytes /= 4;
    }
}

/// Writes zeros from `start` to `end_position`, both whole blocks. They are not synced.
///
/// # Errors
///
/// The first [`DiskError`]: what was written is unknown.
pub(crate) async fn write_zeros<F: DiskFile>(
    file: &F,
    zeros: &SharedExtent,
    start: Position,
    end_position: Position,
) -> Result<(), DiskError> {
    let pieces = (start.0..end_position.0).step_by(zeros.len());
    iter(pieces.map(Ok))
        .try_for_each_concurrent(PIECES_IN_FLIGHT, |position| {
            let left = end_position.0 - position;
            let piece_bytes = usize::try_from(left).unwrap_or(usize::MAX).min(zeros.len());
            file.write(zeros.slice(0..piece_bytes), Position(position), WriteMode::Written)
        })
        .await
}

const _: () = assert!(PIECE_BYTES == BLOCK_BYTES * 4 * 4 * 4);
