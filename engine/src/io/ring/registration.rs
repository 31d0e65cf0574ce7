//! The arena's memory as buffers the ring knows: the kernel then maps its pages once, not for each operation.

use std::io;
use std::sync::Arc;

use tokio_uring::buf::fixed::FixedBufRegistry;
use tokio_uring::buf::{IoBuf, IoBufMut};

use crate::io::arena::{Arena, EXTENT_BYTES_MAX, Region};

/// The longest buffer a ring takes. Source: io_uring_register(2), IORING_REGISTER_BUFFERS.
const PIECE_BYTES: usize = 1 << 30;
/// The most buffers a ring takes here: `UIO_MAXIOV`.
const PIECES_MAX: usize = 1024;

/// No extent lies in two pieces, as buddies do not straddle multiples of their size.
const _: () = assert!(PIECE_BYTES.is_multiple_of(EXTENT_BYTES_MAX));

/// Registers the whole arena with the ring of this thread. The ring keeps the memory mapped from then on.
///
/// # Errors
///
/// `ENOMEM`: over the memlock limit of the user; nothing is registered.
pub(super) fn register(arena: &Arena) -> io::Result<()> {
    let pieces = arena.capacity_bytes().div_ceil(PIECE_BYTES);
    if pieces > PIECES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let pieces = (0..pieces).map(|piece| Piece { region: Arc::clone(arena.region()), piece });
    FixedBufRegistry::new(pieces).register()
}

/// The index of the registered buffer that holds `address`, if `region` is the registered arena's.
pub(super) fn buffer_index(arena: &Arena, region: &Arc<Region>, address: *const u8) -> Option<u16> {
    if !Arc::ptr_eq(arena.region(), region) {
        return None;
    }
    let position = address.addr() - region.start().addr().get();
    u16::try_from(position / PIECE_BYTES).ok()
}

/// One buffer to register. Never checked out of the registry: extents lend its bytes instead.
struct Piece {
    region: Arc<Region>,
    piece: usize,
}

// SAFETY: the region never moves and stays mapped while `self.region` holds it; the range is inside it, and
// its bytes are initialised (the map came zeroed).
unsafe impl IoBuf for Piece {
    fn stable_ptr(&self) -> *const u8 {
        self.region.start().as_ptr().wrapping_add(self.piece * PIECE_BYTES)
    }

    fn bytes_init(&self) -> usize {
        self.bytes_total()
    }

    fn bytes_total(&self) -> usize {
        PIECE_BYTES.min(self.region.length_bytes() - self.piece * PIECE_BYTES)
    }
}

// SAFETY: the address is the one `stable_ptr` gives. The registry writes nothing through it.
unsafe impl IoBufMut for Piece {
    fn stable_mut_ptr(&mut self) -> *mut u8 {
        self.region.start().as_ptr().wrapping_add(self.piece * PIECE_BYTES)
    }

    unsafe fn set_init(&mut self, _position: usize) {}
}
