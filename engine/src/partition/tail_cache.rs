//! The groups of a partition that are still in memory: what tail readers are served from, without a copy.
//!
//! Holds one contiguous run of groups that ends at the log end. A group leaves only when it is durable, so
//! every offset is in here or on disk at every instant (SCENARIOS L11).

use std::cell::OnceCell;
use std::collections::VecDeque;

use bytes::Bytes;

use crate::format::StoredBatch;
use crate::id::Offset;
use crate::io::arena::SharedExtent;
use crate::segment::Sharing;

/// The batches of one group, of a segment or of the journal.
#[derive(Clone, Debug)]
struct CachedGroup {
    base_offset: Offset,
    next_offset: Offset,
    /// Whole batches, back to back.
    batches: SharedExtent,
    /// The same, once somebody has read them: that costs an allocation, an append none.
    bytes: OnceCell<Bytes>,
}

impl CachedGroup {
    fn new(base_offset: Offset, next_offset: Offset, batches: SharedExtent) -> CachedGroup {
        CachedGroup { base_offset, next_offset, batches, bytes: OnceCell::new() }
    }
}

/// The run of groups in memory.
#[derive(Debug, Default)]
pub(super) struct TailCache {
    groups: VecDeque<CachedGroup>,
}

/// What a look into the cache found.
#[derive(Debug, Default)]
pub(super) struct CachedRead {
    pub(super) batches: Vec<StoredBatch>,
    pub(super) bytes: usize,
}

impl TailCache {
    /// Adds the batches of a group that was just framed.
    ///
    /// # Panics
    ///
    /// If it does not go on from the last one.
    pub(super) fn push(&mut self, base_offset: Offset, next_offset: Offset, batches: SharedExtent) {
        if let Some(last) = self.groups.back() {
            assert!(last.next_offset == base_offset, "groups in memory follow each other");
        }
        self.groups.push_back(CachedGroup::new(base_offset, next_offset, batches));
    }

    /// Puts one group in the place of those that hold the same batches from `base_offset` to `next_offset`.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub(super) fn replace(
        &mut self,
        base_offset: Offset,
        next_offset: Offset,
        batches: SharedExtent,
    ) {
        let first = self.groups.partition_point(|group| group.next_offset <= base_offset);
        let end = self.groups.partition_point(|group| group.next_offset <= next_offset);
        assert!(first < end, "groups to replace are in memory");
        self.groups.drain(first + 1..end);
        self.groups[first] = CachedGroup::new(base_offset, next_offset, batches);
    }

    /// Takes away what lies at or above `end`, where a group starts or the last one ends.
    pub(super) fn truncate(&mut self, end: Offset) {
        let kept = self.groups.partition_point(|group| group.next_offset <= end);
        self.groups.truncate(kept);
    }

    /// Lets go of the oldest group.
    pub(super) fn pop_oldest(&mut self) {
        self.groups.pop_front();
    }

    /// Lets go of everything.
    pub(super) fn clear(&mut self) {
        self.groups.clear();
    }

    /// The first offset in memory; `None` when nothing is.
    pub(super) fn start(&self) -> Option<Offset> {
        self.groups.front().map(|group| group.base_offset)
    }

    /// Collects batches of records from the one that holds `from` up to `end`, at most `bytes_max` but at
    /// least one. `from` must be at or above [`start`](Self::start).
    pub(super) fn read(
        &self,
        from: Offset,
        end: Offset,
        bytes_max: usize,
        sharing: impl Fn(usize) -> Sharing,
    ) -> CachedRead {
        let mut read = CachedRead::default();
        let first = self.groups.partition_point(|group| group.next_offset <= from);
        for group in self.groups.range(first..) {
            if group.base_offset >= end {
                break;
            }
            let sharing = match group.batches.is_lent() {
                true => Sharing::Lend,
                false => sharing(group.batches.held_bytes()),
            };
            let bytes = group.bytes.get_or_init(|| group.batches.clone().into_bytes());
            let mut at = 0;
            while at < bytes.len() {
                let rest = bytes.slice(at..);
                let batch = StoredBatch::decode_trusted(&rest).expect("we wrote this group");
                at += batch.bytes().len();
                if batch.is_marker() || batch.next_offset() <= from {
                    continue;
                }
                let is_full =
                    !read.batches.is_empty() && read.bytes + batch.bytes().len() > bytes_max;
                if is_full || batch.next_offset() > end {
                    return read;
                }
                read.bytes += batch.bytes().len();
                read.batches.push(match sharing {
                    Sharing::Lend => batch,
                    Sharing::Copy => batch.copied(),
                });
                if sharing == Sharing::Lend {
                    group.batches.mark_lent();
                }
            }
        }
        read
    }
}
