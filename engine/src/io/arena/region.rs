//! The arena's memory: one anonymous map, a count of holders for each run of blocks, and the queue by which
//! runs come home from any thread.
//!
//! The only `unsafe` of the arena. A run's bytes are written by its one holder or read by many, never both.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crossbeam::queue::ArrayQueue;
use memmap2::{Advice, MmapMut};

use crate::id::BLOCK_BYTES;

/// Set beside the count of a run's holders once a reader was given part of it; gone with the last holder.
const LENT: u32 = 1 << 31;

/// More holders than this of one run is a leak; it leaves room so that no race can reach [`LENT`].
const HOLDERS_MAX: u32 = LENT / 2;

/// A run of blocks, by first block and count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) blocks: u32,
}

/// The memory and its counts. It stays mapped until the arena and every holder are gone.
pub(crate) struct Region {
    start: NonNull<u8>,
    length_bytes: usize,
    /// By first block of a lent run: how many hold it.
    holders: Box<[AtomicU32]>,
    /// The blocks of runs marked [`LENT`].
    lent_blocks: AtomicU32,
    /// Runs to be given back. Every run in it has a block of its own, so one slot a block is always enough.
    returned: ArrayQueue<Run>,
    /// Owns the map; only `start` is used to reach into it.
    _map: MmapMut,
}

// SAFETY: the map is not bound to a thread, and `Region` gives out no reference to its bytes: that is done by
// `Hold`, under the rules stated there. Every other field is `Send + Sync` by itself.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `blocks` blocks of zeros.
    pub(super) fn map(blocks: u32) -> std::io::Result<Region> {
        let length_bytes = blocks as usize * BLOCK_BYTES;
        let mut map = MmapMut::map_anon(length_bytes)?;
        // In pages of 4 KiB scattered over the machine an operation of 1 MiB is hundreds of pieces to the device
        // and takes twice as long (ADR-0011). Where there are no huge pages it is slower, not wrong.
        if let Err(error) = map.advise(Advice::HugePage) {
            tracing::debug!(%error, "the arena has no huge pages");
        }
        let start = NonNull::new(map.as_mut_ptr()).expect("a map is never at address zero");
        assert!(start.addr().get().is_multiple_of(BLOCK_BYTES), "maps start on a page");
        Ok(Region {
            start,
            length_bytes,
            holders: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
            lent_blocks: AtomicU32::new(0),
            returned: ArrayQueue::new(blocks as usize),
            _map: map,
        })
    }

    /// The address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The size of the map.
    pub(crate) fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    /// The bytes of runs that readers were given and that are still held.
    pub(super) fn lent_bytes(&self) -> usize {
        self.lent_blocks.load(Ordering::Relaxed) as usize * BLOCK_BYTES
    }

    /// Takes one run that came home.
    pub(super) fn take_returned(&self) -> Option<Run> {
        self.returned.pop()
    }

    fn give_back(&self, run: Run) {
        self.returned.push(run).expect("the queue has a slot for each block");
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("length_bytes", &self.length_bytes).finish_non_exhaustive()
    }
}

/// A counted claim on a run of blocks. While it lives nobody else is lent any of them.
#[derive(Debug)]
pub(super) struct Hold {
    region: Arc<Region>,
    run: Run,
}

impl Hold {
    /// The first claim on a run that the free list just gave out.
    pub(super) fn first(region: &Arc<Region>, run: Run) -> Hold {
        let before = region.holders[run.first as usize].swap(1, Ordering::Relaxed);
        assert!(before == 0, "block {} is lent twice", run.first);
        Hold { region: Arc::clone(region), run }
    }

    pub(super) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The room of the run.
    pub(super) fn capacity_bytes(&self) -> usize {
        self.run.blocks as usize * BLOCK_BYTES
    }

    /// The address of the run's first byte, for the kernel.
    pub(super) fn start(&self) -> *mut u8 {
        let position = self.run.first as usize * BLOCK_BYTES;
        self.region.start.as_ptr().wrapping_add(position)
    }

    /// The bytes in `range`, to read.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        let pointer = self.pointer_to(&range);
        // SAFETY: `pointer` is valid for `range.len()` bytes (checked by `pointer_to`) for as long as the
        // region lives, which `self.region` ensures; they are initialised, the map came zeroed. Nobody writes
        // them meanwhile: `bytes_mut` needs `&mut` of the only claim, and an operation of the kernel that
        // writes owns the only claim (`Extent`).
        unsafe { std::slice::from_raw_parts(pointer, range.len()) }
    }

    /// The bytes in `range`, to write.
    pub(super) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.assert_only();
        let pointer = self.pointer_to(&range);
        // SAFETY: valid and initialised as in `bytes`. This is the only claim (asserted) and it is borrowed
        // mutably, so no other reference to the run exists.
        unsafe { std::slice::from_raw_parts_mut(pointer, range.len()) }
    }

    /// Keeps the first `blocks` blocks and gives the others back.
    pub(super) fn shrink(&mut self, blocks: u32) {
        self.assert_only();
        assert!(blocks > 0, "a run has blocks");
        if blocks >= self.run.blocks {
            return;
        }
        let rest = Run { first: self.run.first + blocks, blocks: self.run.blocks - blocks };
        self.run.blocks = blocks;
        self.region.give_back(rest);
    }

    /// Notes that a reader is given part of the run: it counts as lent until the last claim drops.
    pub(super) fn mark_lent(&self) {
        if self.is_lent() {
            return;
        }
        if self.holders().fetch_or(LENT, Ordering::Relaxed) & LENT == 0 {
            self.region.lent_blocks.fetch_add(self.run.blocks, Ordering::Relaxed);
        }
    }

    pub(super) fn is_lent(&self) -> bool {
        self.holders().load(Ordering::Relaxed) & LENT != 0
    }

    fn pointer_to(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end, "a range runs forward");
        assert!(range.end <= self.capacity_bytes(), "a range ends inside its run");
        self.start().wrapping_add(range.start)
    }

    fn holders(&self) -> &AtomicU32 {
        &self.region.holders[self.run.first as usize]
    }

    fn assert_only(&self) {
        assert!(self.holders().load(Ordering::Acquire) == 1, "a shared run is never changed");
    }
}

impl Clone for Hold {
    fn clone(&self) -> Hold {
        let before = self.holders().fetch_add(1, Ordering::Relaxed) & !LENT;
        assert!(before < HOLDERS_MAX, "an extent is held {before} times");
        Hold { region: Arc::clone(&self.region), run: self.run }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Release, and Acquire for the last one: what any holder did with the bytes comes before the next
        // owner's writes. The queue carries that order on to the arena's thread.
        let before = self.holders().fetch_sub(1, Ordering::Release);
        if before & !LENT == 1 {
            fence(Ordering::Acquire);
            if before & LENT != 0 {
                // Nobody else reaches the count of a run without a claim on it.
                self.holders().store(0, Ordering::Relaxed);
                self.region.lent_blocks.fetch_sub(self.run.blocks, Ordering::Relaxed);
            }
            self.region.give_back(self.run);
        }
    }
}
