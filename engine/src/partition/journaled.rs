//! The groups of one partition that are in the journal and not yet durable in its segments.

use std::collections::VecDeque;

use super::journaling::STORE_BYTES;
use crate::format::FrameSequence;
use crate::id::{BLOCK_BYTES, Epoch, Offset};
use crate::io::arena::SharedExtent;
use crate::journal::FrameHold;

/// One group in a frame.
#[derive(Debug)]
pub(super) struct JournaledGroup {
    pub(super) base_offset: Offset,
    pub(super) next_offset: Offset,
    pub(super) epoch: Epoch,
    /// Whole batches, in the frame's buffer.
    pub(super) batches: SharedExtent,
    pub(super) frame: FrameHold,
}

/// The groups in the journal, oldest first: some on their way to a segment, then some that are not.
#[derive(Debug, Default)]
pub(super) struct Journaled {
    groups: VecDeque<JournaledGroup>,
    /// How many of the oldest are on their way to a segment.
    storing: usize,
    /// How many of the oldest lie below the durable end.
    covered: usize,
    /// The bytes of those that are not on their way.
    unstored_bytes: usize,
}

impl Journaled {
    pub(super) fn push(&mut self, group: JournaledGroup) {
        self.unstored_bytes += group.batches.len();
        self.groups.push_back(group);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The bytes that have no place in a segment yet.
    pub(super) fn unstored_bytes(&self) -> usize {
        self.unstored_bytes
    }

    /// The most that they can take in a segment, padding included.
    pub(super) fn padded_bytes(&self) -> usize {
        match self.unstored_bytes {
            0 => 0,
            bytes => bytes + (bytes / STORE_BYTES + 2) * 2 * BLOCK_BYTES,
        }
    }

    pub(super) fn has_unstored(&self) -> bool {
        self.storing < self.groups.len()
    }

    /// The frame of the oldest group that has no place in a segment yet.
    pub(super) fn first_unstored(&self) -> Option<FrameSequence> {
        self.groups.get(self.storing).map(|group| group.frame.sequence())
    }

    /// The frame of the oldest group.
    pub(super) fn first(&self) -> Option<FrameSequence> {
        self.groups.front().map(|group| group.frame.sequence())
    }

    /// The groups that have no place in a segment yet and together take at most `bytes_max`, at least one.
    pub(super) fn next_to_store(&self, bytes_max: usize) -> impl Iterator<Item = &JournaledGroup> {
        let mut bytes = 0;
        self.groups.range(self.storing..).enumerate().map_while(move |(place, group)| {
            bytes += group.batches.len();
            (place == 0 || bytes <= bytes_max).then_some(group)
        })
    }

    /// Notes that the first `count` of them are on their way.
    pub(super) fn begin_storing(&mut self, count: usize) {
        let begun = self.groups.range(self.storing..).take(count);
        self.unstored_bytes -= begun.map(|group| group.batches.len()).sum::<usize>();
        self.storing += count;
    }

    /// Lets go of what is durable in segments up to `end`.
    pub(super) fn release(&mut self, end: Offset) {
        while self.storing > 0 && self.groups.front().is_some_and(|group| group.next_offset <= end)
        {
            self.groups.pop_front();
            self.storing -= 1;
            self.covered = self.covered.saturating_sub(1);
        }
    }

    /// How far the log is durable by the journal beyond `durable`, and the epoch there.
    pub(super) fn durable_from(&mut self, mut durable: Offset) -> Option<(Offset, Epoch)> {
        let mut reached = None;
        while let Some(group) = self.groups.get(self.covered) {
            if group.next_offset > durable {
                if group.base_offset > durable || !group.frame.is_durable() {
                    break;
                }
                durable = group.next_offset;
                reached = Some((durable, group.epoch));
            }
            self.covered += 1;
        }
        reached
    }
}
