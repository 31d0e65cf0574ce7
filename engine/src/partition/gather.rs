//! The batches admitted and not yet handed to the device, in the buffers the device will read from.
//!
//! A batch is copied here once, from the caller's bytes. Groups are only cut between batches.

use std::collections::VecDeque;

use super::reserving::{AppendBatch, ReservedBatch};
use crate::format::{BATCH_HEADER_BYTES, BatchHeader, BatchKind, BatchStamp, GROUP_HEADER_BYTES};
use crate::id::{BLOCK_BYTES, Offset};
use crate::io::arena::Extent;

/// The least room lent for a group.
const GATHER_BYTES_MIN: usize = 16 << 10;

/// The most room lent for a group of small batches: four times the size from which it goes to the device.
pub(super) const GATHER_BYTES_MAX: usize = 256 << 10;

const _: () = assert!(GATHER_BYTES_MIN.is_multiple_of(BLOCK_BYTES));

/// A group being filled, or full and waiting for its turn.
#[derive(Debug)]
pub(super) struct GatheredGroup {
    pub(super) extent: Extent,
    /// Header and batches.
    pub(super) filled_bytes: usize,
    pub(super) next_offset: Offset,
    /// Whether the marker of an epoch is in it.
    pub(super) has_marker: bool,
}

/// The groups of one partition that wait, oldest first; only the last one takes more.
#[derive(Debug, Default)]
pub(super) struct Gather {
    groups: VecDeque<GatheredGroup>,
    bytes: usize,
    /// How large the last group became: the next one gets twice that, so idle partitions hold little.
    last_bytes: usize,
}

impl Gather {
    /// The bytes waiting, headers included.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The room that must be lent before a batch of that length can be added; `None` if it fits as it is.
    pub(super) fn room_needed(&self, batch_bytes: usize) -> Option<usize> {
        let fits = self
            .groups
            .back()
            .is_some_and(|group| group.extent.len() - group.filled_bytes >= batch_bytes);
        if fits {
            return None;
        }
        let needed = Gather::room_least(batch_bytes);
        let usual = (2 * self.last_bytes).next_power_of_two();
        Some(needed.max(usual.clamp(GATHER_BYTES_MIN, GATHER_BYTES_MAX)))
    }

    /// The least room a group with that batch takes.
    pub(super) fn room_least(batch_bytes: usize) -> usize {
        (GROUP_HEADER_BYTES + batch_bytes).next_multiple_of(BLOCK_BYTES)
    }

    /// The most that everything here and one more batch can take in a segment, padding included.
    pub(super) fn padded_bytes_with(&self, batch_bytes: usize) -> usize {
        let groups = self.groups.len() + 1;
        self.bytes + batch_bytes + groups * (BLOCK_BYTES + GROUP_HEADER_BYTES)
    }

    /// Opens a new group in `extent`.
    pub(super) fn open(&mut self, extent: Extent) {
        let filled_bytes = GROUP_HEADER_BYTES;
        self.bytes += filled_bytes;
        self.groups.push_back(GatheredGroup {
            extent,
            filled_bytes,
            next_offset: Offset::ZERO,
            has_marker: false,
        });
    }

    /// Copies a batch to the end. There must be room; see [`room_needed`](Self::room_needed).
    pub(super) fn push(&mut self, batch: &AppendBatch, stamp: &BatchStamp) {
        let group = self.groups.back_mut().expect("room was made");
        let target = &mut group.extent.as_mut_slice()[group.filled_bytes..];
        let bytes = batch.write_into(target, stamp);
        group.filled_bytes += bytes;
        group.next_offset =
            stamp.base_offset.checked_add(u64::from(batch.records())).expect("admitted");
        self.bytes += bytes;
    }

    /// Takes a batch in where it lies: as a new group, in which more may find room.
    pub(super) fn take_in(&mut self, batch: ReservedBatch, stamp: &BatchStamp) {
        let records = u64::from(batch.records());
        let (extent, filled_bytes) = batch.into_group(stamp);
        self.bytes += filled_bytes;
        self.groups.push_back(GatheredGroup {
            extent,
            filled_bytes,
            next_offset: stamp.base_offset.checked_add(records).expect("admitted"),
            has_marker: false,
        });
    }

    /// Writes a marker to the end. There must be room for it.
    pub(super) fn push_marker(&mut self, descriptor: &[u8], stamp: &BatchStamp) {
        let group = self.groups.back_mut().expect("room was made");
        let bytes = BATCH_HEADER_BYTES + descriptor.len();
        let target = &mut group.extent.as_mut_slice()[group.filled_bytes..][..bytes];
        target[BATCH_HEADER_BYTES..].copy_from_slice(descriptor);
        BatchHeader::write(target, BatchKind::Marker, 0, crc32fast::hash(descriptor), stamp);
        group.filled_bytes += bytes;
        group.next_offset = stamp.base_offset;
        group.has_marker = true;
        self.bytes += bytes;
    }

    /// The bytes of the oldest group.
    pub(super) fn oldest_bytes(&self) -> Option<usize> {
        self.groups.front().map(|group| group.filled_bytes)
    }

    /// Tells whether the marker of an epoch waits here.
    pub(super) fn has_marker(&self) -> bool {
        self.groups.iter().any(|group| group.has_marker)
    }

    /// Takes the oldest group.
    pub(super) fn take_oldest(&mut self) -> Option<GatheredGroup> {
        let group = self.groups.pop_front()?;
        self.bytes -= group.filled_bytes;
        self.last_bytes = group.filled_bytes;
        Some(group)
    }

    /// Gives up everything.
    pub(super) fn clear(&mut self) {
        self.groups.clear();
        self.bytes = 0;
    }
}
