//! Decides what a read takes from a piece of a segment in memory. Pure.

use std::ops::Range;

use super::group_walk::{FoundGroup, GroupBatches, find_group};
use super::reader::{PayloadCheck, SegmentCursor, SegmentRead};
use crate::format::{BatchHeader, BatchKind, FormatError};
use crate::id::{Offset, Position, SegmentId};

/// Where a piece of a segment starts in its file, and what is read from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadPlanner<'a> {
    pub(super) segment: SegmentId,
    pub(super) read: &'a SegmentRead,
    pub(super) piece: &'a [u8],
    pub(super) piece_start: Position,
}

/// What was decided.
#[derive(Debug)]
pub(super) struct ReadPlan {
    /// The batches to hand out, with their bytes in the piece.
    pub(super) batches: Vec<(BatchHeader, Range<usize>)>,
    /// The bytes of them.
    pub(super) bytes: usize,
    /// The offset behind the last batch taken, or where the read stands.
    pub(super) next_offset: Offset,
    /// The group in which the next read starts.
    pub(super) cursor: SegmentCursor,
    /// Why it ends there.
    pub(super) stop: PlanStop,
}

/// Why a plan ends where it ends.
#[derive(Debug)]
pub(super) enum PlanStop {
    /// Everything that was asked for, or that there is.
    Done,
    /// The group at the cursor is not all in the piece; it takes this many bytes.
    NeedsBytes(usize),
    /// No group starts at the cursor.
    NoGroup,
    /// These bytes of a group are damaged; the group's header tells which records they are.
    Damaged { positions: Range<Position>, offsets: Range<Offset> },
    /// A newer release has written at the cursor.
    Newer(FormatError),
}

impl ReadPlanner<'_> {
    /// Walks the piece from `cursor`, which lies in it, for records from `next_offset` on.
    pub(super) fn plan(&self, cursor: SegmentCursor, next_offset: Offset) -> ReadPlan {
        let stop = PlanStop::Done;
        let mut plan = ReadPlan { batches: Vec::new(), bytes: 0, next_offset, cursor, stop };
        loop {
            let cursor = plan.cursor;
            if cursor.position >= self.read.end.position || cursor.offset >= self.read.end.offset {
                return plan;
            }
            if plan.bytes >= self.read.bytes_max {
                return plan;
            }
            let group = self.from(cursor.position);
            if group.is_empty() {
                return plan.stop_with(PlanStop::NeedsBytes(crate::id::BLOCK_BYTES));
            }
            let found = match find_group(group, self.segment, cursor.position) {
                Ok(found) if found.header.base_offset == cursor.offset => found,
                Err(error @ FormatError::NewerVersion { .. }) => {
                    return plan.stop_with(PlanStop::Newer(error));
                }
                _ => return plan.stop_with(PlanStop::NoGroup),
            };
            if found.header.end_position() > self.read.end.position {
                return plan;
            }
            // A marker at the very offset is part of what is asked for.
            let is_below = found.header.next_offset < plan.next_offset
                || (found.header.next_offset == plan.next_offset && !self.read.markers);
            if !is_below && group.len() < found.header.length_bytes as usize {
                return plan.stop_with(PlanStop::NeedsBytes(found.header.padded_bytes()));
            }
            if !is_below && !self.take_group(&mut plan, &found, group) {
                return plan;
            }
            plan.cursor = SegmentCursor {
                position: found.header.end_position(),
                offset: found.header.next_offset,
            };
        }
    }

    /// Takes batches of a group that is all in the piece. Returns whether to go on behind it.
    fn take_group(&self, plan: &mut ReadPlan, found: &FoundGroup, group: &[u8]) -> bool {
        let start = found.header.position;
        let group_end = start.plus(u64::from(found.header.length_bytes));
        let in_piece = self.skipped(start);
        let mut batches = GroupBatches::new(group, &found.header);
        loop {
            let (at, offset) = (batches.next_at(), batches.next_offset());
            let damaged = |end: Position, next_offset: Offset| PlanStop::Damaged {
                positions: start.plus(at as u64)..end,
                offsets: offset..next_offset,
            };
            let (batch, range) = match batches.next() {
                None => return true,
                Some(Ok(batch)) => batch,
                Some(Err(error @ FormatError::NewerVersion { .. })) => {
                    plan.stop = PlanStop::Newer(error);
                    return false;
                }
                Some(Err(_)) => {
                    plan.stop = damaged(group_end, found.header.next_offset);
                    return false;
                }
            };
            if !self.wants(plan, &batch) {
                continue;
            }
            let exceeds = plan.bytes + batch.total_bytes() > self.read.bytes_max;
            if batch.next_offset() > self.read.end.offset || (exceeds && !plan.batches.is_empty()) {
                return false;
            }
            let is_checked_now = self.read.payloads == PayloadCheck::Now;
            if is_checked_now && batch.check_payload(&group[range.clone()]).is_err() {
                plan.stop = damaged(start.plus(range.end as u64), batch.next_offset());
                return false;
            }
            plan.bytes += batch.total_bytes();
            plan.next_offset = batch.next_offset();
            plan.batches.push((batch, in_piece + range.start..in_piece + range.end));
        }
    }

    fn wants(&self, plan: &ReadPlan, batch: &BatchHeader) -> bool {
        match batch.kind {
            BatchKind::Records => batch.next_offset() > plan.next_offset,
            BatchKind::Marker => self.read.markers && batch.stamp.base_offset >= plan.next_offset,
        }
    }

    fn from(&self, position: Position) -> &[u8] {
        self.piece.get(self.skipped(position)..).unwrap_or_default()
    }

    fn skipped(&self, position: Position) -> usize {
        usize::try_from(position.0 - self.piece_start.0).unwrap_or(usize::MAX)
    }
}

impl ReadPlan {
    fn stop_with(mut self, stop: PlanStop) -> ReadPlan {
        self.stop = stop;
        self
    }
}
