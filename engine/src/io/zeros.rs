//! Writes a new file full of zeros, so that later writes change neither its length nor its extents.

use super::arena::{Arena, SharedExtent};
use super::disk::{DiskError, DiskFile, WriteMode};
use crate::id::{BLOCK_BYTES, Position};

/// The bytes of one write of zeros, when the arena has them. One at a time: several in flight wait for each other in the
/// file system. Source: ADR-0013.
const PIECE_BYTES: usize = 1 << 20;

/// The share of the arena that one maker's zeros take at most: one in this many. Appends need the rest.
const ARENA_SHARE: usize = 32;

/// One extent of zeros that serves every write: a piece, or what the arena can spare; `None` if that is no block.
pub(crate) fn zeros(arena: &Arena) -> Option<SharedExtent> {
    let bytes_max = arena.capacity_bytes() / ARENA_SHARE;
    let mut piece_bytes = PIECE_BYTES;
    while piece_bytes > bytes_max && piece_bytes > BLOCK_BYTES {
        piece_bytes /= 4;
    }
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
    for position in (start.0..end_position.0).step_by(zeros.len()) {
        let left = end_position.0 - position;
        let piece_bytes = usize::try_from(left).unwrap_or(usize::MAX).min(zeros.len());
        let piece = zeros.slice(0..piece_bytes);
        file.write(piece, Position(position), WriteMode::Written).await?;
    }
    Ok(())
}

const _: () = assert!(PIECE_BYTES == BLOCK_BYTES * 4 * 4 * 4 * 4);
