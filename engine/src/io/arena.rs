//! The arena: one region of aligned memory per shard, lent out in extents and shared without copies.
//!
//! Its size is the shard's memory bound. Only the owning thread allocates; any thread may free.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

/// A shard's memory. Cheap to clone on its thread; not `Send`.
#[derive(Clone, Debug)]
pub struct Arena {
    capacity_bytes: usize,
    _thread: std::marker::PhantomData<std::rc::Rc<()>>,
}

impl Arena {
    /// Makes an arena of `capacity_bytes`, rounded up to whole blocks.
    #[must_use]
    pub fn new(capacity_bytes: usize) -> Arena {
        Arena { capacity_bytes, _thread: std::marker::PhantomData }
    }

    /// Lends an extent of at least `bytes`, block-aligned, or `None` when the arena has no such room now.
    #[must_use]
    pub fn allocate(&self, bytes: usize) -> Option<Extent> {
        (bytes <= self.capacity_bytes).then(|| Extent { bytes: vec![0; bytes] })
    }

    /// The arena's size.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }
}

/// A part of the arena with one owner, who may write it.
#[derive(Debug)]
pub struct Extent {
    bytes: Vec<u8>,
}

impl Extent {
    /// The bytes, to read.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, to write. They start with unspecified (initialised) content.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The length in bytes: what was asked of the arena, or less after [`truncate`](Extent::truncate).
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Tells whether the length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Cuts the length to `bytes` and gives blocks beyond it back to the arena.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes.truncate(bytes);
    }

    /// Ends writing: from here on the bytes never change and may be shared.
    #[must_use]
    pub fn freeze(self) -> SharedExtent {
        let range = 0..self.bytes.len();
        SharedExtent { bytes: Arc::new(self.bytes), range }
    }
}

/// A frozen part of the arena; `Clone` counts, it does not copy. The room returns when the last one drops.
#[derive(Clone, Debug)]
pub struct SharedExtent {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl SharedExtent {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
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
        SharedExtent { bytes: self.bytes.clone(), range: start..start + range.len() }
    }

    /// The same memory as [`Bytes`], without a copy; it keeps the extent lent out.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for SharedExtent {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}
