//! Hands groups to the device, and turns their completions into watermarks and acknowledgements.

use std::cell::RefMut;
use std::rc::Rc;
use std::sync::Arc;

use super::admission::LIMIT_RETRY_AFTER;
use super::append::{AppendError, UnknownReason};
use super::authority::Shut;
use super::group_commit::{GROUPS_IN_FLIGHT_MAX, GroupToWrite, write_mode};
use super::in_flight::GroupNumber;
use super::journaling::STORE_BYTES;
use super::log::{
    GroupEnd, LogState, PartitionLog, PendingAck, Phase, PreparedSegment, WrittenSegment, is_sole,
};
use super::way::{DIRECT_BYTES_MIN, Way, choose};
use super::writers::Work;
use crate::format::{DurableMark, GROUP_HEADER_BYTES};
use crate::id::{BLOCK_BYTES, Epoch, Offset, Position};
use crate::io::arena::{Extent, SharedExtent};
use crate::io::disk::{Disk, DiskError, WriteMode};
use crate::segment::SegmentWriter;

/// A framed group on its way to the device.
pub(super) struct GroupWrite<D: Disk> {
    pub(super) file: D::File,
    pub(super) extent: SharedExtent,
    pub(super) position: Position,
    pub(super) number: GroupNumber,
    pub(super) kind: GroupKind,
}

/// How a group is written, and what the shard counts it as while it is on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupKind {
    pub(super) mode: WriteMode,
    is_small: bool,
    was_journaled: bool,
}

impl<D: Disk> PartitionLog<D> {
    /// Submits what may go now. Called at the end of a turn and after each completion.
    pub(crate) fn submit(self: &Rc<Self>) {
        self.is_dirty.set(false);
        loop {
            let write = self.next_write(&mut self.state.borrow_mut());
            let Some(write) = write else { break };
            self.context.carry_out(Work::Group { log: self.clone(), write });
        }
        self.acknowledge_accepted();
        self.sync_if_due();
        self.make_next_if_due();
        self.retire_if_due();
    }

    /// Admits what waited for room, for a change or for the start, and submits.
    pub(super) fn resume(self: &Rc<Self>) {
        self.admit_waiting();
        // Not now: who has just been answered may have more, which then goes into the same group.
        self.mark_dirty();
        // A change may have left the log idle while appends waited for its end.
        let is_wanted = !self.state.borrow().waiting.is_empty();
        if is_wanted {
            self.start_if_idle();
        }
        self.progress.notify_waiters();
        let journal = self.context.journal.borrow();
        if journal.waiting() > 0 || journal.wants_room() {
            self.context.mark_journal_dirty();
        }
    }

    /// Frames the next group for a segment if one may go now and there is room for it.
    fn next_write(self: &Rc<Self>, state: &mut LogState<D>) -> Option<GroupWrite<D>> {
        if state.phase != Phase::Running || state.stopped.is_some() {
            return None;
        }
        let situation = self.situation(state);
        if situation.wants_journal() {
            self.context.make_journal_if_wanted();
        }
        let way = choose(situation);
        let has_unstored = state.journaled.has_unstored();
        state.must_store &= has_unstored;
        let wants_store = state.must_store
            || state.is_paused
            || !state.waiting.is_empty()
            || state.journaled.unstored_bytes() >= STORE_BYTES
            || way == Way::Direct;
        if has_unstored && wants_store && state.in_flight.writing() < GROUPS_IN_FLIGHT_MAX {
            return self.frame_journaled(state);
        }
        match way {
            Way::Direct if self.is_sync_behind(state) => None,
            Way::Direct if !has_unstored => self.frame_gathered(state),
            Way::Journal => {
                self.wait_for_frame(state.gather.bytes());
                None
            }
            Way::Expect => {
                state.callers.note_turn();
                self.context.look_again(self.clone());
                None
            }
            Way::Direct | Way::Gather => None,
        }
    }

    /// Frames the oldest gathered group.
    fn frame_gathered(self: &Rc<Self>, state: &mut LogState<D>) -> Option<GroupWrite<D>> {
        let filled_bytes = state.gather.oldest_bytes()?;
        let fits = state.active.as_ref().is_some_and(|active| active.writer.fits(filled_bytes));
        if !fits && !self.roll_now(state) {
            return None;
        }
        let group = state.gather.take_oldest()?;
        let is_awaited = state.awaits_durable() || group.has_marker;
        let kind = GroupKind {
            mode: write_mode(GroupToWrite { bytes: filled_bytes, is_awaited }),
            is_small: filled_bytes < DIRECT_BYTES_MIN,
            was_journaled: false,
        };
        Some(self.frame(state, group.extent, filled_bytes, kind))
    }

    /// Frames the oldest groups in the journal as one group of a segment.
    fn frame_journaled(self: &Rc<Self>, state: &mut LogState<D>) -> Option<GroupWrite<D>> {
        let active = state.active.as_ref()?;
        let left = active.writer.file_bytes().saturating_sub(active.writer.point().position.0);
        let left = usize::try_from(left).unwrap_or(usize::MAX).saturating_sub(GROUP_HEADER_BYTES);
        let first_bytes = state.journaled.next_to_store(0).next()?.batches.len();
        if !active.writer.fits(GROUP_HEADER_BYTES + first_bytes) && !self.roll_now(state) {
            return None;
        }
        let mut bytes_max = if left < first_bytes { STORE_BYTES } else { left.min(STORE_BYTES) };
        let (mut extent, count, bytes) = loop {
            let (mut count, mut bytes) = (0, GROUP_HEADER_BYTES);
            for group in state.journaled.next_to_store(bytes_max) {
                count += 1;
                bytes += group.batches.len();
            }
            let room = bytes.next_multiple_of(BLOCK_BYTES);
            if let Some(extent) = self.context.allocate_to_store(room) {
                break (extent, count, bytes);
            }
            if count == 1 {
                self.resume_later();
                return None;
            }
            // Where memory lies in pieces, a shorter group will do.
            bytes_max /= 4;
        };
        let mut at = GROUP_HEADER_BYTES;
        for group in state.journaled.next_to_store(bytes_max) {
            let batches = group.batches.as_slice();
            extent.as_mut_slice()[at..][..batches.len()].copy_from_slice(batches);
            at += batches.len();
        }
        state.journaled.begin_storing(count);
        self.context.journal.borrow_mut().note_stored(bytes - GROUP_HEADER_BYTES);
        self.context.storing.set(self.context.storing.get() + 1);
        self.context.counters.stored_groups.add(1);
        let kind = GroupKind { mode: WriteMode::Durable, is_small: false, was_journaled: true };
        Some(self.frame(state, extent, bytes, kind))
    }

    /// Gives a group its place in the active segment, where it fits.
    fn frame(
        &self,
        state: &mut LogState<D>,
        mut extent: Extent,
        filled_bytes: usize,
        kind: GroupKind,
    ) -> GroupWrite<D> {
        let stored = state.stored;
        let active = state.active.as_mut().expect("a running log has an active segment");
        let base_offset = active.writer.point().offset;
        // While nothing of this segment is durable its marks say 0.
        let position = match active.durable.group {
            0 => Position::ZERO,
            _ => active.durable.position,
        };
        // What is durable by the journal alone does not count: the walk finds it elsewhere.
        let durable = DurableMark { offset: stored, position };
        let reserved = active
            .writer
            .frame(&mut extent, filled_bytes, durable)
            .expect("a group that fits, or the first of its segment");
        let file = active.file.clone().expect("a running log has opened its segment");
        let end = GroupEnd {
            segment: active.writer.segment(),
            after: reserved.after,
            epoch: state.owned.map_or(Epoch::NONE, |owned| owned.epoch),
            submitted: self.context.clock.now().boottime,
            bytes: reserved.bytes,
            is_small: kind.is_small,
        };
        let next_offset = reserved.after.offset;
        let number = state.in_flight.submit(end, reserved.bytes, kind.mode);
        let extent = extent.freeze();
        let batches = extent.slice(GROUP_HEADER_BYTES..filled_bytes);
        match kind.was_journaled {
            true => state.tail.replace(base_offset, next_offset, batches),
            false => state.tail.push(base_offset, next_offset, batches),
        }
        if kind.is_small {
            self.context.small_in_flight.set(self.context.small_in_flight.get() + 1);
        }
        let counters = &self.context.counters;
        counters.groups.add(1);
        counters.group_bytes.add(reserved.bytes as u64);
        counters.groups_in_flight.add(1);
        GroupWrite { file, extent, position: reserved.position, number, kind }
    }

    /// Tries again when memory may have come back.
    fn resume_later(self: &Rc<Self>) {
        let log = self.clone();
        self.context.runtime.spawn(Box::pin(async move {
            log.context.runtime.sleep(LIMIT_RETRY_AFTER).await;
            log.resume();
        }));
    }

    /// Begins the next segment with the next group, chained to the active one. No write is needed before.
    ///
    /// Returns `false` when no checkpoint names a next segment yet: the appends gather until one does.
    fn roll_now(&self, state: &mut LogState<D>) -> bool {
        let is_ready = state.next.as_ref().is_some_and(PreparedSegment::is_ready);
        state.needs_roll = !is_ready || state.retiring.is_some() || state.is_retiring;
        if state.needs_roll {
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
    pub(super) fn complete(
        self: &Rc<Self>,
        number: GroupNumber,
        kind: GroupKind,
        written: Result<(), DiskError>,
    ) {
        let context = &self.context;
        let counters = &context.counters;
        counters.groups_in_flight.set(counters.groups_in_flight.get() - 1);
        if kind.is_small {
            context.small_in_flight.set(context.small_in_flight.get() - 1);
        }
        if kind.was_journaled {
            context.storing.set(context.storing.get() - 1);
        }
        match written {
            Ok(()) => {
                self.state.borrow_mut().in_flight.complete(number);
                self.advance();
            }
            Err(error) => self.stop(Arc::new(error)),
        }
        if kind.was_journaled {
            context.mark_journal_dirty();
        }
        // What was gathered is smaller now: what waited for that may fit.
        self.resume();
    }

    /// Takes what has become durable out of flight, and answers whom that concerns.
    pub(super) fn advance(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        // After the first error nothing counts any more (I9).
        if state.stopped.is_some() {
            return;
        }
        let committed_before = state.watermarks.committed;
        let waiting_before = state.acks.len();
        let mut submitted = None;
        while let Some(end) = state.in_flight.pop_durable() {
            submitted = Some(end.submitted);
            self.note_stored(&mut state, &end);
            self.context.note_cached(self, end.bytes);
        }
        let Some(submitted) = submitted else { return };
        self.answer(state, committed_before);
        let mut state = self.state.borrow_mut();
        let answered = waiting_before - state.acks.len();
        let now = self.context.clock.now().boottime;
        state.callers.note_answered(answered, now, now.saturating_sub(submitted));
    }

    /// Takes note that a frame of the journal with groups of this log is durable.
    pub(super) fn advance_by_journal(self: &Rc<Self>) {
        let state = self.state.borrow_mut();
        if state.stopped.is_none() {
            let committed_before = state.watermarks.committed;
            self.answer(state, committed_before);
        }
        self.resume();
    }

    /// Moves the watermarks over what the journal has made durable too, and answers whom that concerns.
    fn answer(&self, mut state: RefMut<'_, LogState<D>>, committed_before: Offset) {
        let durable = state.watermarks.durable;
        if let Some((end, epoch)) = state.journaled.durable_from(durable) {
            self.note_durable(&mut state, end, epoch);
        }
        let committed = state.watermarks.committed;
        state.producers.settle(committed);
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

    fn note_stored(&self, state: &mut LogState<D>, end: &GroupEnd) {
        state.stored = end.after.offset;
        state.journaled.release(end.after.offset);
        let segments = state.active.iter_mut().chain(&mut state.retiring);
        for segment in segments {
            if segment.writer.segment() == end.segment {
                segment.durable = end.after;
            }
        }
        self.note_durable(state, end.after.offset, end.epoch);
    }

    fn note_durable(&self, state: &mut LogState<D>, end: Offset, epoch: Epoch) {
        state.watermarks.make_durable(end);
        // A group of an epoch that has ended is committed by the marker of the next one, not by itself.
        let is_current =
            state.promised <= epoch && state.owned.is_some_and(|owned| owned.epoch == epoch);
        if is_current && is_sole(&self.context, state.descriptor.as_ref()) {
            let durable = state.watermarks.durable;
            state.watermarks.commit(durable);
        }
    }

    /// Answers the appends that are durable now, if the gate, asked with a fresh clock, still lets us.
    fn acknowledge(&self, state: &mut LogState<D>) {
        let durable = state.watermarks.durable;
        let mut judge = self.judge_once(state);
        while let Some(ack) = state.acks.pop_front_if(|ack| ack.end <= durable) {
            self.settle(ack, &mut judge, state.promised);
        }
    }

    /// Answers the accepted appends that waited for less to be gathered, if the gate still lets us.
    fn acknowledge_accepted(&self) {
        let mut state = self.state.borrow_mut();
        if state.accepted.is_empty() || self.is_ahead(&state) {
            return;
        }
        let mut judge = self.judge_once(&state);
        let promised = state.promised;
        for ack in state.accepted.drain(..) {
            self.settle(ack, &mut judge, promised);
        }
    }

    /// The gate's answer for each epoch, asked once.
    fn judge_once(&self, state: &LogState<D>) -> impl FnMut(Epoch) -> Result<(), Shut> + use<D> {
        let standing = state.standing();
        let context = self.context.clone();
        let mut judged: Option<(Epoch, Result<(), Shut>)> = None;
        move |epoch| match judged {
            Some((judged_epoch, verdict)) if judged_epoch == epoch => verdict,
            _ => {
                let lease = || context.gate.lease.state_at(context.clock.now());
                let verdict = standing.acknowledge(epoch, lease);
                judged = Some((epoch, verdict));
                verdict
            }
        }
    }

    fn settle(
        &self,
        ack: PendingAck,
        judge: &mut impl FnMut(Epoch) -> Result<(), Shut>,
        promised: Epoch,
    ) {
        self.uncount_appends(1);
        let answer = match judge(ack.appended.epoch) {
            Ok(()) => {
                self.context.counters.acknowledged.add(1);
                Ok(ack.appended)
            }
            Err(shut) => {
                self.context.counters.withheld.add(1);
                Err(unknown(&ack, reason(shut, promised)))
            }
        };
        ack.reply.send(answer);
    }

    /// Stops the log at what is durable: the first device error ends its appends (I9).
    pub(super) fn stop(&self, error: Arc<DiskError>) {
        let mut state = self.state.borrow_mut();
        if state.stopped.is_some() {
            return;
        }
        tracing::error!(partition = %self.id, %error, "the partition has stopped");
        state.stopped = Some(error.clone());
        state.gather.clear();
        state.watermarks.stop_at_durable();
        let durable = state.watermarks.durable;
        state.tail.truncate(durable);
        if !state.journaled.is_empty() {
            // Nothing will take its groups to a segment in this run, so they must stay where they are; what
            // lies in memory serves readers until then.
            let unstored_bytes = state.journaled.unstored_bytes();
            let mut journal = self.context.journal.borrow_mut();
            journal.note_stored(unstored_bytes);
            journal.freeze();
            drop(journal);
            self.context.mark_journal_dirty();
        }
        self.status.stop(&error);
        self.context.counters.stopped.add(1);
        self.publish(&state);
        let mut acks = std::mem::take(&mut state.acks);
        acks.append(&mut state.accepted);
        drop(state);
        self.uncount_appends(acks.len());
        for ack in acks {
            let answer = Err(unknown(&ack, UnknownReason::Device(error.clone())));
            ack.reply.send(answer);
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
