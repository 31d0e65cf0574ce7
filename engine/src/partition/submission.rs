//! Hands groups to the device, and turns their completions into watermarks and acknowledgements.

use std::rc::Rc;
use std::sync::Arc;

use super::append::{AppendError, UnknownReason};
use super::authority::Shut;
use super::group_commit::{GatheredBytes, GroupDecision, GroupNumber, GroupsInFlight, decide};
use super::log::{
    GroupEnd, LogState, PartitionLog, PendingAck, Phase, PreparedSegment, WrittenSegment, is_sole,
};
use crate::format::DurableMark;
use crate::id::{Epoch, Position};
use crate::io::arena::SharedExtent;
use crate::io::disk::{Disk, DiskError, DiskFile, WriteMode};
use crate::segment::SegmentWriter;

/// A framed group on its way to the device.
struct GroupWrite<D: Disk> {
    file: D::File,
    extent: SharedExtent,
    position: Position,
    number: GroupNumber,
}

impl<D: Disk> PartitionLog<D> {
    /// Submits what may go now. Called at the end of a turn and after each completion.
    pub(crate) fn submit(self: &Rc<Self>) {
        self.is_dirty.set(false);
        loop {
            let write = self.next_write(&mut self.state.borrow_mut());
            let Some(write) = write else { break };
            let log = self.clone();
            self.context.runtime.spawn(Box::pin(async move {
                let GroupWrite { file, extent, position, number } = write;
                let written = file.write(extent, position, WriteMode::Durable).await;
                log.complete(number, written);
            }));
        }
        self.make_next_if_due();
        self.retire_if_due();
    }

    /// Admits what waited for room, for a change or for the start, and submits.
    pub(super) fn resume(self: &Rc<Self>) {
        self.admit_waiting();
        self.submit();
        // A change may have left the log idle while appends waited for its end.
        let is_wanted = !self.state.borrow().waiting.is_empty();
        if is_wanted {
            self.start_if_idle();
        }
        self.progress.notify_waiters();
    }

    /// Frames the next group if the group-commit rule lets it go and there is a segment for it.
    fn next_write(&self, state: &mut LogState<D>) -> Option<GroupWrite<D>> {
        if state.phase != Phase::Running || state.stopped.is_some() {
            return None;
        }
        let gathered = GatheredBytes(state.gather.bytes());
        if decide(gathered, GroupsInFlight(state.in_flight.len())) == GroupDecision::Gather {
            return None;
        }
        let filled_bytes = state.gather.oldest_bytes()?;
        let fits = state.active.as_ref().is_some_and(|active| active.writer.fits(filled_bytes));
        if !fits && !self.roll_now(state) {
            return None;
        }
        let mut group = state.gather.take_oldest()?;
        let durable_offset = state.watermarks.durable;
        let active = state.active.as_mut().expect("a running log has an active segment");
        let base_offset = active.writer.point().offset;
        // While nothing of this segment is durable its marks say 0.
        let position = match active.durable.group {
            0 => Position::ZERO,
            _ => active.durable.position,
        };
        let durable = DurableMark { offset: durable_offset, position };
        let reserved = active
            .writer
            .frame(&mut group.extent, group.filled_bytes, durable)
            .expect("a group that fits, or the first of its segment");
        let file = active.file.clone().expect("a running log has opened its segment");
        let end = GroupEnd {
            segment: active.writer.segment(),
            after: reserved.after,
            epoch: state.owned.map_or(Epoch::NONE, |owned| owned.epoch),
            submitted: self.context.clock.now().boottime,
            bytes: reserved.bytes,
        };
        let number = state.in_flight.submit(end);
        let extent = group.extent.freeze();
        state.tail.push(base_offset, reserved.after.offset, extent.clone(), group.filled_bytes);
        let counters = &self.context.counters;
        counters.groups.add(1);
        counters.group_bytes.add(reserved.bytes as u64);
        counters.groups_in_flight.add(1);
        Some(GroupWrite { file, extent, position: reserved.position, number })
    }

    /// Begins the next segment with the next group, chained to the active one. No write is needed before.
    ///
    /// Returns `false` when no checkpoint names a next segment yet: the appends gather until one does.
    fn roll_now(&self, state: &mut LogState<D>) -> bool {
        let is_ready = state.next.as_ref().is_some_and(PreparedSegment::is_ready);
        if !is_ready || state.retiring.is_some() || state.is_retiring {
            return false;
        }
        let next = state.next.take().expect("it is ready");
        let old = state.active.take().expect("a running log has an active segment");
        let before = old.writer.point();
        let writer = SegmentWriter::begin(next.made, before.offset, before.chain);
        let durable = writer.point();
        state.active = Some(WrittenSegment { file: next.file, writer, durable });
        state.retiring = Some(old);
        self.context.counters.rolls.add(1);
        true
    }

    /// Takes the completion of a group.
    fn complete(self: &Rc<Self>, number: GroupNumber, written: Result<(), DiskError>) {
        let counters = &self.context.counters;
        counters.groups_in_flight.set(counters.groups_in_flight.get() - 1);
        match written {
            Ok(()) => self.make_durable(number),
            Err(error) => self.stop(error),
        }
        // What was gathered is smaller now: what waited for that may fit.
        self.resume();
    }

    fn make_durable(self: &Rc<Self>, number: GroupNumber) {
        let mut state = self.state.borrow_mut();
        // After the first error nothing counts any more (I9).
        if state.stopped.is_some() {
            return;
        }
        let durable = state.in_flight.complete(number);
        if durable.is_empty() {
            return;
        }
        let committed_before = state.watermarks.committed;
        for end in &durable {
            self.note_durable(&mut state, end);
            self.context.note_cached(self, end.bytes);
        }
        // Before the answers: who has one finds it in the watermarks.
        self.status.watermarks.publish(state.watermarks);
        self.acknowledge(&mut state);
        let has_moved = state.watermarks.committed > committed_before;
        drop(state);
        if has_moved {
            self.tail_moved.notify_waiters();
        }
        self.context.keep_tail_budget();
    }

    fn note_durable(&self, state: &mut LogState<D>, end: &GroupEnd) {
        state.watermarks.make_durable(end.after.offset);
        let segments = state.active.iter_mut().chain(&mut state.retiring);
        for segment in segments {
            if segment.writer.segment() == end.segment {
                segment.durable = end.after;
            }
        }
        // A group of an epoch that has ended is committed by the marker of the next one, not by itself.
        let is_current = state.promised <= end.epoch
            && state.owned.is_some_and(|owned| owned.epoch == end.epoch);
        if is_current && is_sole(&self.context, state.descriptor.as_ref()) {
            let durable = state.watermarks.durable;
            state.watermarks.commit(durable);
        }
    }

    /// Answers the appends that are durable now, if the gate, asked with a fresh clock, still lets us.
    fn acknowledge(&self, state: &mut LogState<D>) {
        let durable = state.watermarks.durable;
        let standing = state.standing();
        let mut judged: Option<(Epoch, Result<(), Shut>)> = None;
        while state.acks.front().is_some_and(|ack| ack.end <= durable) {
            let ack = state.acks.pop_front().expect("the front was just seen");
            let epoch = ack.appended.epoch;
            let verdict = match judged {
                Some((judged_epoch, verdict)) if judged_epoch == epoch => verdict,
                _ => {
                    let lease = || self.context.gate.lease.state_at(self.context.clock.now());
                    let verdict = standing.acknowledge(epoch, lease);
                    judged = Some((epoch, verdict));
                    verdict
                }
            };
            self.uncount_appends(1);
            let answer = match verdict {
                Ok(()) => {
                    self.context.counters.acknowledged.add(1);
                    Ok(ack.appended)
                }
                Err(shut) => {
                    self.context.counters.withheld.add(1);
                    Err(unknown(&ack, reason(shut, state.promised)))
                }
            };
            drop(ack.reply.send(answer));
        }
    }

    /// Stops the log at what is durable: the first device error ends its appends (I9).
    pub(super) fn stop(&self, error: DiskError) {
        let mut state = self.state.borrow_mut();
        if state.stopped.is_some() {
            return;
        }
        tracing::error!(partition = %self.id, %error, "the partition has stopped");
        let error = Arc::new(error);
        state.stopped = Some(error.clone());
        state.gather.clear();
        state.tail.clear();
        state.watermarks.stop_at_durable();
        self.status.stop(&error);
        self.context.counters.stopped.add(1);
        self.publish(&state);
        let acks = std::mem::take(&mut state.acks);
        drop(state);
        self.uncount_appends(acks.len());
        for ack in acks {
            let answer = Err(unknown(&ack, UnknownReason::Device(error.clone())));
            drop(ack.reply.send(answer));
        }
        self.refuse_waiting(&AppendError::Stopped { error });
        self.progress.notify_waiters();
        self.tail_moved.notify_waiters();
    }
}

fn unknown(ack: &PendingAck, reason: UnknownReason) -> AppendError {
    AppendError::Unknown { base_offset: Some(ack.appended.base_offset), reason }
}

fn reason(shut: Shut, promised: Epoch) -> UnknownReason {
    match shut {
        Shut::LeaseExpired { .. } => UnknownReason::LeaseExpired,
        Shut::NotOwner | Shut::Fenced { .. } => UnknownReason::EpochEnded { promised },
    }
}
