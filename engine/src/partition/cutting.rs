//! Cuts a log to an offset: one checkpoint that ends the log there, then the stale files go.
//!
//! The segment that holds the cut is closed at it, so what lies behind can never be read again, whatever
//! happens to the bytes; the next append begins a new segment. Source: `PROTOCOL.md` 16.

use std::rc::Rc;

use super::change::ChangeError;
use super::checkpointing::Intent;
use super::log::{PartitionLog, Phase};
use super::read::{Read, ReadError};
use crate::format::{ClosedSegment, GroupHeader, QuarantinedRange, SegmentState};
use crate::id::{BLOCK_BYTES, Offset};
use crate::io::disk::{Disk, DiskFile, OpenMode};
use crate::segment::{PayloadCheck, SegmentCursor, load_index, segment_path};

impl<D: Disk> PartitionLog<D> {
    /// Drops the records from `to` on, durably. Returns the new log end.
    pub(crate) async fn truncate(self: &Rc<Self>, to: Offset) -> Result<Offset, ChangeError> {
        let _changing = self.changing.lock().await;
        self.check_cut(to)?;
        let _paused = self.pause();
        self.drain().await?;
        self.check_cut(to)?;
        if to == self.state.borrow().watermarks.log_end {
            // Nothing to take away but epochs that wrote nothing (SCENARIOS L12).
            self.state.borrow_mut().epochs.truncate(to);
            self.checkpoint_change(Intent::default()).await?;
            return Ok(to);
        }
        self.check_batch_boundary(to).await?;
        // From here on all of the log lies in closed segments.
        self.roll_locked().await?;
        self.state.borrow_mut().is_paused = true;
        let kept_until = self.find_cut(to).await?;
        let removed = self.apply_cut(to, kept_until);
        self.checkpoint_change(Intent::default()).await?;
        self.remove_segments(&removed).await;
        Ok(to)
    }

    fn check_cut(&self, to: Offset) -> Result<(), ChangeError> {
        let state = self.state.borrow();
        self.check_change(&state)?;
        // No cut goes below `committed`, but for the one who has no replicas and no coordinator.
        let start = match self.context.is_standalone() {
            true => state.watermarks.log_start,
            false => state.watermarks.committed,
        };
        let end = state.watermarks.log_end;
        if to < start || to > end {
            return Err(ChangeError::OutOfRange { offset: to, start, end });
        }
        Ok(())
    }

    /// A batch is the unit of the log: a cut through one is refused with the places that are possible.
    async fn check_batch_boundary(self: &Rc<Self>, to: Offset) -> Result<(), ChangeError> {
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.read(Read { bytes_max: 1, ..Read::from(to) }, PayloadCheck::Now, reply);
        match answer.await.unwrap_or(Err(ReadError::Closed)) {
            Ok(read) => match read.answer.batches.first() {
                Some(batch) if batch.base_offset() < to => Err(ChangeError::OutOfRange {
                    offset: to,
                    start: batch.base_offset(),
                    end: batch.next_offset(),
                }),
                _ => Ok(()),
            },
            Err(ReadError::Corrupt { .. }) => Ok(()),
            Err(ReadError::Disk(error)) => Err(ChangeError::Stopped { error }),
            Err(_) => Err(ChangeError::Busy { retry_after: super::admission::LIMIT_RETRY_AFTER }),
        }
    }

    /// Finds what is kept of the closed segment that holds the last record before `to`; `None` when the cut
    /// falls between two segments.
    async fn find_cut(&self, to: Offset) -> Result<Option<ClosedSegment>, ChangeError> {
        let holder = {
            let state = self.state.borrow();
            let place = state.closed.partition_point(|closed| closed.end_offset < to);
            let holder = state.closed.get(place).copied();
            holder.filter(|closed| closed.base_offset < to && closed.end_offset > to)
        };
        let Some(closed) = holder else { return Ok(None) };
        let path = segment_path(&self.directory, closed.segment);
        let disk = &self.context.disk;
        let open = async || disk.open(&path, OpenMode::Read).await;
        let file = match self.context.with_descriptor(open).await {
            Ok(file) => file,
            Err(error) => return Err(self.failed(error).await),
        };
        let index = load_index(disk, &file, &closed).await;
        let entry = index.ok().and_then(|index| index.locate(Offset(to.0 - 1)));
        let first = SegmentCursor::first(closed.base_offset);
        let mut position = entry.map_or(first, SegmentCursor::from).position;
        let mut kept = ClosedSegment { end_offset: to, ..closed };
        // Hops from header to header; the next header carries the chain behind the last group kept.
        let mut is_behind = false;
        while position < closed.end_position {
            let block = self.context.allocate_waiting(BLOCK_BYTES).await;
            let block = match file.read(block, position).await {
                Ok(block) => block,
                Err(error) => return Err(self.failed(error).await),
            };
            let header = GroupHeader::decode(block.as_slice()).ok();
            let header = header.filter(|(header, _)| header.segment == closed.segment);
            let Some((header, _)) = header else {
                // Damage around the cut: keep the bytes, end the log by the offset alone.
                return Ok(Some(ClosedSegment { state: SegmentState::Quarantined, ..kept }));
            };
            if is_behind {
                kept.last_chain = header.chain;
                return Ok(Some(kept));
            }
            if header.next_offset >= to {
                kept.end_position = header.end_position();
                is_behind = true;
            }
            position = header.end_position();
        }
        Ok(Some(kept))
    }

    /// Ends the log at `to` in memory. Returns the segments that hold nothing of it any more.
    fn apply_cut(&self, to: Offset, kept: Option<ClosedSegment>) -> Vec<ClosedSegment> {
        let mut state = self.state.borrow_mut();
        let keeps = |closed: &ClosedSegment| {
            closed.end_offset <= to
                && (closed.base_offset < closed.end_offset || closed.end_offset < to)
        };
        let first_cut = state.closed.partition_point(keeps);
        let mut removed = Vec::new();
        for closed in state.closed.split_off(first_cut) {
            match kept {
                Some(kept) if kept.segment == closed.segment => state.closed.push(kept),
                _ => removed.push(closed),
            }
        }
        if let Some(kept) = kept {
            self.read_segments.forget(kept.segment);
        }
        state.quarantined.retain_mut(|range: &mut QuarantinedRange| {
            range.offsets.end = range.offsets.end.min(to);
            let is_removed = removed.iter().any(|closed| closed.segment == range.segment);
            range.offsets.start < to && !is_removed
        });
        state.producers.truncate(to);
        state.epochs.truncate(to);
        state.watermarks.truncate(to);
        state.stored = to;
        state.tail.clear();
        state.cuts += 1;
        state.phase = Phase::Idle;
        self.publish(&state);
        removed
    }
}
