//! Admits appends: the gate and the limits first, then an offset, then the one copy.
//!
//! Nothing here waits, locks or, in steady state, allocates but the answer's channel made by the caller.

use std::rc::Rc;
use std::time::Duration;

use super::append::{AppendError, AppendOptions, Appended, Durability};
use super::authority::Shut;
use super::gather::Gather;
use super::log::{AppendReply, LogState, PartitionLog, PendingAck, Phase, WaitingAppend};
use super::producers::Verdict;
use super::reserving::AppendBatch;
use crate::format::{
    BATCH_BYTES_MAX, BatchStamp, FIRST_GROUP_POSITION, GROUP_HEADER_BYTES, ProducerEntry,
};
use crate::id::Epoch;
use crate::io::arena::Extent;
use crate::io::disk::Disk;

/// How long a caller that met a limit should wait: a few durable writes.
pub(super) const LIMIT_RETRY_AFTER: Duration = Duration::from_millis(1);

/// Bytes gathered and not submitted from which an append that needs not be durable is answered later, when less waits:
/// whoever keeps some appends in flight is then slowed to what the device takes, and not refused at the limit.
///
/// Enough to keep the device busy while an answer finds its caller. Source: docs/BENCHMARKS.md, "not synced".
const ACCEPTED_AHEAD_BYTES: usize = 2 << 20;

/// The share of a shard's memory that may be gathered so, where that is less.
const ACCEPTED_ARENA_SHARE: usize = 16;

/// When a batch that may be appended gets its offset.
enum Admission {
    Now,
    /// Once the log has started, a change is done, or there is a segment for it.
    Waits,
}

/// Where a batch is gathered.
enum Room {
    /// In the group that gathers.
    Gathering,
    /// In a new group.
    Lent(Extent),
    /// Where it lies: that becomes a group.
    Own,
}

/// Where a batch belongs.
enum Place {
    AtTheEnd {
        epoch: Epoch,
    },
    /// It was appended before.
    Taken(ProducerEntry),
}

/// Tells whether everything gathered and one more batch are sure to find room in segments that exist.
///
/// So a full disk is met before an offset is assigned, never after.
fn has_room<D: Disk>(state: &LogState<D>, batch_bytes: usize) -> bool {
    let Some(active) = &state.active else { return false };
    let journaled = state.journaled.padded_bytes();
    let needed = (state.gather.padded_bytes_with(batch_bytes) + journaled) as u64;
    let left = active.writer.file_bytes().saturating_sub(active.writer.point().position.0);
    let is_first = state.gather.is_empty() && !state.journaled.has_unstored();
    if needed <= left || (is_first && active.writer.point().group == 0) {
        return true;
    }
    state.next.as_ref().is_some_and(|next| {
        let room = next.made.file_bytes.saturating_sub(FIRST_GROUP_POSITION.0);
        next.is_checkpointed && (needed <= room || is_first)
    })
}

/// What a producer is told whose batch is not the next one.
fn refusal(verdict: Verdict, got: u64) -> AppendError {
    match verdict {
        Verdict::Gap { expected } => AppendError::OutOfOrder { expected, got },
        Verdict::Fenced { epoch } => AppendError::ProducerFenced { epoch },
        Verdict::Forgotten { oldest } => AppendError::AlreadyAppended { oldest, got },
        Verdict::New | Verdict::Repeated(_) => unreachable!("these are not refused"),
    }
}

impl<D: Disk> PartitionLog<D> {
    /// Takes an append. Its answer comes now or when it is as durable as asked.
    pub(crate) fn append(
        self: &Rc<Self>,
        batch: AppendBatch,
        options: AppendOptions,
        reply: AppendReply,
    ) {
        let refused = match self.admit_or_wait(batch, options, reply) {
            Ok(()) => return,
            Err(refused) => refused,
        };
        let (error, reply) = refused;
        match error {
            AppendError::Busy { .. } => self.context.counters.busy.add(1),
            AppendError::DiskFull { .. } => self.context.counters.disk_full.add(1),
            _ => self.context.counters.refused.add(1),
        }
        reply.send(Err(error));
    }

    fn admit_or_wait(
        self: &Rc<Self>,
        batch: AppendBatch,
        options: AppendOptions,
        reply: AppendReply,
    ) -> Result<(), (AppendError, AppendReply)> {
        match self.judge(&batch) {
            Err(error) => Err((error, reply)),
            Ok(Admission::Now) => self.admit(batch, options, reply),
            Ok(Admission::Waits) => {
                let mut state = self.state.borrow_mut();
                state.waiting_bytes += batch.bytes();
                state.wanted_bytes = state.wanted_bytes.max(batch.bytes());
                state.waiting.push_back(WaitingAppend { batch, options, reply });
                drop(state);
                self.count_append(1);
                self.start_if_idle();
                // What is in the journal may have to move on before there is room.
                self.mark_dirty();
                self.make_next_if_due();
                Ok(())
            }
        }
    }

    /// Checks everything that can refuse a batch before it gets an offset.
    fn judge(&self, batch: &AppendBatch) -> Result<Admission, AppendError> {
        let state = self.state.borrow();
        let limits = &self.context.limits;
        if let Some(error) = &state.stopped {
            return Err(AppendError::Stopped { error: error.clone() });
        }
        if state.phase == Phase::Closed {
            return Err(AppendError::Closed);
        }
        if batch.is_empty() {
            return Err(AppendError::EmptyBatch);
        }
        let bytes_max = self.batch_bytes_max();
        if batch.bytes() > bytes_max {
            return Err(AppendError::BatchTooLarge { bytes: batch.bytes(), bytes_max });
        }
        // A standalone log takes up its epoch by its start, so before that there is none to ask about.
        if !self.context.is_standalone() {
            self.check_gate(&state)?;
        }
        if state.phase == Phase::Running
            && !state.is_paused
            && state.waiting.is_empty()
            && has_room(&state, batch.bytes())
            && self.context.appends_in_flight.get() < limits.appends_in_flight_max
            && state.gather.bytes() < limits.gathered_bytes_max
        {
            return Ok(Admission::Now);
        }
        if let Some(no_room) = state.no_room {
            return Err(AppendError::DiskFull {
                available_bytes: no_room.available_bytes,
                needed_bytes: no_room.needed_bytes,
            });
        }
        let gathered = state.gather.bytes() + state.waiting_bytes;
        if (gathered > 0 && gathered + batch.bytes() > limits.gathered_bytes_max)
            || self.context.appends_in_flight.get() >= limits.appends_in_flight_max
        {
            return Err(AppendError::Busy { retry_after: LIMIT_RETRY_AFTER });
        }
        Ok(Admission::Waits)
    }

    /// The longest batch this partition can take: it must fit into memory beside what serves readers.
    pub(super) fn batch_bytes_max(&self) -> usize {
        let arena = self.context.disk.arena().capacity_bytes() / 4;
        BATCH_BYTES_MAX.min(arena.saturating_sub(GROUP_HEADER_BYTES))
    }

    /// Asks the gate; a partition without an epoch of this run may still become one by its start.
    pub(super) fn check_gate(&self, state: &LogState<D>) -> Result<Epoch, AppendError> {
        let lease = || self.context.gate.lease.state_at(self.context.clock.now());
        state.standing().admit(lease).map_err(|shut| match shut {
            Shut::NotOwner => AppendError::NotOwner,
            Shut::Fenced { promised } => AppendError::Fenced { promised },
            Shut::LeaseExpired { epoch } => AppendError::LeaseExpired { epoch },
        })
    }

    /// Finds where a batch is gathered; `None` if there is no memory now.
    fn find_room(&self, batch: &AppendBatch) -> Option<Room> {
        if batch.is_in_place() {
            return Some(Room::Own);
        }
        let Some(bytes) = self.state.borrow().gather.room_needed(batch.bytes()) else {
            return Some(Room::Gathering);
        };
        // Where memory lies in pieces, a small one will do.
        let context = &self.context;
        let least = Gather::room_least(batch.bytes());
        let lent = context.allocate_for_append(bytes);
        let lent = lent.or_else(|| context.allocate_for_append(least));
        match (lent, batch) {
            (Some(extent), _) => Some(Room::Lent(extent)),
            (None, AppendBatch::Reserved(_)) => Some(Room::Own),
            (None, AppendBatch::Callers(_)) => None,
        }
    }

    /// Gives the batch its offset and copies it into the group that gathers, or makes it one where it lies.
    pub(super) fn admit(
        self: &Rc<Self>,
        batch: AppendBatch,
        options: AppendOptions,
        reply: AppendReply,
    ) -> Result<(), (AppendError, AppendReply)> {
        let Some(room) = self.find_room(&batch) else {
            return Err((AppendError::Busy { retry_after: LIMIT_RETRY_AFTER }, reply));
        };
        let mut state = self.state.borrow_mut();
        let epoch = match self.find_place(&state, &batch, options) {
            Ok(Place::AtTheEnd { epoch }) => epoch,
            Ok(Place::Taken(first)) => {
                self.answer_repeated(&mut state, &first, options.durability, reply);
                return Ok(());
            }
            Err(error) => return Err((error, reply)),
        };
        let log_end = state.watermarks.log_end;
        let append_time = state.last_time.max(self.context.clock.wall());
        state.last_time = append_time;
        let stamp = BatchStamp {
            base_offset: log_end,
            epoch,
            append_time,
            client_time: options.client_time,
            producer: options.producer,
        };
        state.epochs.begin(epoch, log_end);
        let (records, bytes) = (batch.records(), batch.bytes());
        match (room, batch) {
            (Room::Own, AppendBatch::Reserved(batch)) => state.gather.take_in(batch, &stamp),
            (Room::Lent(extent), batch) => {
                state.gather.open(extent);
                state.gather.push(&batch, &stamp);
            }
            (_, batch) => state.gather.push(&batch, &stamp),
        }
        let producer = options.producer;
        let entry = ProducerEntry { producer, base_offset: log_end, records, append_time, epoch };
        state.producers.note(entry);
        state.watermarks.admit(u64::from(records));
        let appended = Appended { base_offset: log_end, records, epoch, append_time };
        let end = state.watermarks.log_end;
        self.status.watermarks.publish(state.watermarks);
        let counters = &self.context.counters;
        counters.appends.add(1);
        counters.records.add(u64::from(records));
        counters.append_bytes.add(bytes as u64);
        let is_accepted = options.durability == Durability::Accepted;
        if is_accepted && !self.is_ahead(&state) {
            counters.acknowledged.add(1);
            reply.send(Ok(appended));
        } else {
            let ack = PendingAck { appended, end, reply };
            match is_accepted {
                true => state.accepted.push_back(ack),
                false => state.acks.push_back(ack),
            }
            self.count_append(1);
        }
        drop(state);
        self.mark_dirty();
        Ok(())
    }

    /// Tells whether so much has been gathered that answers to accepted appends wait for the device.
    pub(super) fn is_ahead(&self, state: &LogState<D>) -> bool {
        let arena = self.context.disk.arena().capacity_bytes();
        let limit = self.context.limits.gathered_bytes_max / 4;
        state.gather.bytes() > ACCEPTED_AHEAD_BYTES.min(limit).min(arena / ACCEPTED_ARENA_SHARE)
    }

    /// Finds whether the batch may go to the end of the log, or lies in it already.
    fn find_place(
        &self,
        state: &LogState<D>,
        batch: &AppendBatch,
        options: AppendOptions,
    ) -> Result<Place, AppendError> {
        let epoch = self.check_gate(state)?;
        match state.producers.judge(options.producer) {
            Verdict::New => {}
            Verdict::Repeated(first) => return Ok(Place::Taken(first)),
            refused => return Err(refusal(refused, options.producer.sequence)),
        }
        let log_end = state.watermarks.log_end;
        if let Some(expected) = options.expected_offset
            && expected != log_end
        {
            return Err(AppendError::OffsetMismatch { expected, log_end });
        }
        if log_end.checked_add(u64::from(batch.records())).is_none() {
            return Err(AppendError::OffsetsExhausted { log_end });
        }
        Ok(Place::AtTheEnd { epoch })
    }

    /// Answers a repeated append what its first try was answered, or will be: never earlier.
    fn answer_repeated(
        &self,
        state: &mut LogState<D>,
        first: &ProducerEntry,
        durability: Durability,
        reply: AppendReply,
    ) {
        let ProducerEntry { base_offset, records, epoch, append_time, .. } = *first;
        let appended = Appended { base_offset, records, epoch, append_time };
        let end = base_offset.checked_add(u64::from(records)).expect("it was admitted");
        self.context.counters.repeated.add(1);
        let is_answered = match durability {
            Durability::Accepted => true,
            Durability::Local => end <= state.watermarks.durable,
            Durability::Committed => end <= state.watermarks.committed,
        };
        if is_answered {
            reply.send(Ok(appended));
            return;
        }
        let place = state.acks.partition_point(|ack| ack.end <= end);
        state.acks.insert(place, PendingAck { appended, end, reply });
        self.count_append(1);
    }

    /// Admits what waited, in order, as far as there is room.
    pub(super) fn admit_waiting(self: &Rc<Self>) {
        loop {
            let append = {
                let mut state = self.state.borrow_mut();
                let Some(first) = state.waiting.front() else { return };
                let bytes = first.batch.bytes();
                let is_admitting = state.phase == Phase::Running
                    && !state.is_paused
                    && state.gather.bytes() < self.context.limits.gathered_bytes_max;
                if !is_admitting || !has_room(&state, bytes) {
                    return;
                }
                state.waiting_bytes -= bytes;
                state.waiting.pop_front().expect("the front was just seen")
            };
            self.uncount_appends(1);
            let WaitingAppend { batch, options, reply } = append;
            if let Err((error, reply)) = self.admit(batch, options, reply) {
                reply.send(Err(error));
            }
        }
    }

    /// Refuses what waited.
    pub(super) fn refuse_waiting(&self, error: &AppendError) {
        let waiting = {
            let mut state = self.state.borrow_mut();
            state.waiting_bytes = 0;
            std::mem::take(&mut state.waiting)
        };
        self.uncount_appends(waiting.len());
        for append in waiting {
            append.reply.send(Err(error.clone()));
        }
    }

    pub(super) fn count_append(&self, count: usize) {
        let in_flight = self.context.appends_in_flight.get() + count;
        self.context.appends_in_flight.set(in_flight);
        self.context.counters.appends_in_flight.set(in_flight as u64);
    }

    pub(super) fn uncount_appends(&self, count: usize) {
        let in_flight = self.context.appends_in_flight.get() - count;
        self.context.appends_in_flight.set(in_flight);
        self.context.counters.appends_in_flight.set(in_flight as u64);
    }
}
