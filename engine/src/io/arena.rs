//! The arena: one region of aligned memory per shard, lent out in extents and shared without copies.
//!
//! Its size is the shard's memory bound. Only the owning thread allocates; any thread may free. After
//! [`Arena::new`], lending, freezing, sharing and freeing allocate nothing.

mod buddy;
#[expect(unsafe_code, reason = "references into the arena's map, guarded by its counts")]
mod region;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use self::buddy::{FreeBlocks, ORDER_MAX};
pub(crate) use self::region::Region;
use self::region::{Hold, Run};
use crate::id::BLOCK_BYTES;

/// The longest extent an arena lends: four times the longest batch.
pub const EXTENT_BYTES_MAX: usize = BLOCK_BYTES << ORDER_MAX;

const _: () = assert!(EXTENT_BYTES_MAX >= 8 << 20);

/// A shard's memory. Cheap to clone on its thread; not `Send`.
#[derive(Clone, Debug)]
pub struct Arena {
    region: Arc<Region>,
    free: Rc<RefCell<FreeBlocks>>,
}

impl Arena {
    /// Makes an arena of `capacity_bytes`, rounded up to whole blocks.
    ///
    /// # Panics
    ///
    /// If the system has no such memory; see [`Arena::map`].
    #[must_use]
    pub fn new(capacity_bytes: usize) -> Arena {
        Arena::map(capacity_bytes)
            .unwrap_or_else(|error| panic!("no arena of {capacity_bytes} bytes: {error}"))
    }

    /// Makes an arena of `capacity_bytes`, rounded up to whole blocks.
    ///
    /// # Errors
    ///
    /// The system has no such memory (`ENOMEM`), or it is more than 2^32 blocks.
    pub fn map(capacity_bytes: usize) -> std::io::Result<Arena> {
        let blocks = u32::try_from(capacity_bytes.max(1).div_ceil(BLOCK_BYTES))
            .map_err(|error| std::io::Error::new(std::io::ErrorKind::OutOfMemory, error))?;
        Ok(Arena {
            region: Arc::new(Region::map(blocks)?),
            free: Rc::new(RefCell::new(FreeBlocks::new(blocks))),
        })
    }

    /// Lends an extent of `bytes`, block-aligned, or `None` when the arena has no such run of blocks now
    /// or `bytes` is over [`EXTENT_BYTES_MAX`].
    #[must_use]
    pub fn allocate(&self, bytes: usize) -> Option<Extent> {
        let blocks = blocks_of(bytes)?;
        let first = self.collect_returned().take(blocks)?;
        let hold = Hold::first(&self.region, Run { first, blocks });
        Some(Extent { hold, length: bytes })
    }

    /// The arena's size.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.region.length_bytes()
    }

    /// The bytes not lent out now. They may lie in pieces: an extent of that size need not be there.
    #[must_use]
    pub fn available_bytes(&self) -> usize {
        self.collect_returned().count() as usize * BLOCK_BYTES
    }

    /// The bytes of extents marked by [`SharedExtent::mark_lent`] that somebody still holds.
    #[must_use]
    pub fn lent_bytes(&self) -> usize {
        self.region.lent_bytes()
    }

    /// Tells whether `bytes` lie in this arena.
    #[must_use]
    pub fn contains(&self, bytes: &[u8]) -> bool {
        let start = self.region.start().addr().get();
        let arena = start..start + self.region.length_bytes();
        let bytes = bytes.as_ptr_range();
        arena.contains(&bytes.start.addr()) && bytes.end.addr() <= arena.end
    }

    /// The memory itself, to register it with a ring.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Puts what came home into the free list first. What comes home meanwhile waits for the next time.
    fn collect_returned(&self) -> std::cell::RefMut<'_, FreeBlocks> {
        let mut free = self.free.borrow_mut();
        while let Some(run) = self.region.take_returned() {
            free.give_back(run.first, run.blocks);
        }
        free
    }
}

/// The blocks that `bytes` take; an empty extent has one, so that it has an address.
fn blocks_of(bytes: usize) -> Option<u32> {
    u32::try_from(bytes.max(1).div_ceil(BLOCK_BYTES)).ok()
}

/// A part of the arena with one owner, who may write it.
#[derive(Debug)]
pub struct Extent {
    /// The only claim on its run until [`freeze`](Extent::freeze).
    hold: Hold,
    length: usize,
}

impl Extent {
    /// The bytes, to read.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.hold.bytes(0..self.length)
    }

    /// The bytes, to write. They start with unspecified (initialised) content.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.hold.bytes_mut(0..self.length)
    }

    /// The length in bytes: what was asked of the arena, or less after [`truncate`](Extent::truncate).
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Tells whether the length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Cuts the length to `bytes` and gives blocks beyond it back to the arena. A longer one changes nothing.
    pub fn truncate(&mut self, bytes: usize) {
        if let Some(blocks) = blocks_of(bytes).filter(|_| bytes < self.length) {
            self.length = bytes;
            self.hold.shrink(blocks);
        }
    }

    /// Ends writing: from here on the bytes never change and may be shared.
    #[must_use]
    pub fn freeze(self) -> SharedExtent {
        SharedExtent { hold: self.hold, range: 0..self.length }
    }

    /// The first byte, for the kernel to write into; the extent must outlive the operation.
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.hold.start()
    }

    /// The length in whole blocks: what the kernel may write from [`start`](Extent::start).
    pub(crate) fn block_bytes(&self) -> usize {
        self.hold.capacity_bytes()
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        self.hold.region()
    }
}

/// A frozen part of the arena; `Clone` counts, it does not copy. The room returns when the last one drops.
#[derive(Clone, Debug)]
pub struct SharedExtent {
    hold: Hold,
    range: Range<usize>,
}

impl SharedExtent {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.hold.bytes(self.range.clone())
    }

    /// A part of it, sharing the same memory.
    ///
    /// # Panics
    ///
    /// If the range is outside.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> SharedExtent {
        assert!(range.start <= range.end && range.end <= self.range.len());
        let start = self.range.start + range.start;
        SharedExtent { hold: self.hold.clone(), range: start..start + range.len() }
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Tells whether the length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Notes that a reader, who may keep it for as long as it likes, is given part of the extent. It counts in
    /// [`Arena::lent_bytes`] until nobody holds it.
    pub fn mark_lent(&self) {
        self.hold.mark_lent();
    }

    /// Tells whether a reader was given part of the extent before.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.hold.is_lent()
    }

    /// The bytes of the arena that it keeps lent out, those of other parts of the same extent included.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.hold.capacity_bytes()
    }

    /// The same memory as [`Bytes`], without a copy; it keeps the extent lent out. Allocates the owner that
    /// `Bytes` needs: one small allocation.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        self.hold.region()
    }
}

impl AsRef<[u8]> for SharedExtent {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}
