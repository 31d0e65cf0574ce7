//! The groups of a partition that are still in memory: what tail readers are served from, without a copy.
//!
//! Holds one contiguous run of groups that ends at the log end. A group leaves only when it is durable, so
//! every offset is in here or on disk at every instant (SCENARIOS L11).

use std::collections::VecDeque;

use bytes::Bytes;

use crate::format::{GROUP_HEADER_BYTES, StoredBatch};
use crate::id::Offset;
use crate::io::arena::SharedExtent;
use crate::segment::Sharing;

/// One framed group.
#[derive(Clone, Debug)]
struct CachedGroup {
    base_offset: Offset,
    next_offset: Offset,
    /// Header and batches, without the padding.
    bytes: Bytes,
    /// The memory of `bytes`, to note that readers have it.
    extent: SharedExtent,
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
    /// Adds a group that was just framed.
    ///
    /// # Panics
    ///
    /// If it does not go on from the last one.
    pub(super) fn push(
        &mut self,
        base_offset: Offset,
        next_offset: Offset,
        extent: SharedExtent,
        filled: usize,
    ) {
        if let Some(last) = self.groups.back() {
            assert!(last.next_offset == base_offset, "groups in memory follow each other");
        }
        let bytes = extent.clone().into_bytes().slice(..filled);
        self.groups.push_back(CachedGroup { base_offset, next_offset, bytes, extent });
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
        sharing: Sharing,
    ) -> CachedRead {
        let mut read = CachedRead::default();
        let first = self.groups.partition_point(|group| group.next_offset <= from);
        for group in self.groups.range(first..) {
            if group.base_offset >= end {
                break;
            }
            let mut at = GROUP_HEADER_BYTES;
            while at < group.bytes.len() {
                let rest = group.bytes.slice(at..);
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
                    group.extent.mark_lent();
                }
            }
        }
        read
    }
}
