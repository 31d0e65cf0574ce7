//! Lending the arena's memory takes none from the heap, so that an append in steady state takes none either.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use palisade_engine::io::arena::{Arena, SharedExtent};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting what each thread asks of it.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting in a `const` thread local neither
// allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the rules of `alloc`, which are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, that is from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn extents_are_lent_shared_and_freed_without_the_heap() {
    let arena = Arena::new(1 << 20);
    let mut held: [Option<SharedExtent>; 8] = std::array::from_fn(|_| None);
    let before = ALLOCATIONS.get();

    for round in 0..10_000_usize {
        let mut extent = arena.allocate(64 << 10).unwrap();
        extent.as_mut_slice()[0] = 1;
        extent.truncate(1 + round % (64 << 10));
        let shared = extent.freeze();
        let clone = shared.slice(0..1).clone();
        assert_eq!(clone.as_slice(), [1]);
        held[round % held.len()] = Some(shared);
    }
    held.fill(None);

    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!(arena.available_bytes(), arena.capacity_bytes());
}
