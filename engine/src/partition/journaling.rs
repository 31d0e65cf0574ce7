//! Takes the small groups of a shard's partitions into the journal's next frame, and out of the journal to their
//! segments. What goes where is decided in `way.rs`.

use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use super::context::LogContext;
use super::gather::GATHER_BYTES_MAX;
use super::group_commit::{GROUP_BYTES_TARGET, GatheredBytes, GroupsInFlight};
use super::journaled::JournaledGroup;
use super::log::{LogState, PartitionLog, Phase};
use super::set_aside::SET_ASIDE;
use super::way::{Situation, Way, choose};
use super::writers::Work;
use crate::format::{BatchHeader, GROUP_HEADER_BYTES, JournalHeader, JournalMark};
use crate::id::{Epoch, JournalId, Offset, Position};
use crate::io::arena::SharedExtent;
use crate::io::disk::{Disk, DiskError};
use crate::journal::{
    FrameBuilder, FrameHold, FrameNumber, FramePiece, make_journal, remove_journal,
    set_journal_aside,
};

/// The bytes of groups in the journal that one write takes to a segment, and from which a partition's are taken
/// there without waiting for the journal to fill up.
pub(super) const STORE_BYTES: usize = GATHER_BYTES_MAX - GROUP_HEADER_BYTES;

/// Groups on their way from the journal to segments at a time, over all partitions of a shard.
///
/// Source: FACTS, "60,000 durable 4 KiB writes/s at depth 32": enough to keep the device busy, few enough that
/// frames find it free.
const STORING_MAX: usize = 16;

/// How long to wait for memory or disk room before trying again.
const MEMORY_RETRY_AFTER: Duration = Duration::from_millis(1);
const ROOM_RETRY_AFTER: Duration = Duration::from_secs(10);

/// The free room a disk must have, in journals, before one is made.
const FREE_JOURNALS_MIN: u64 = 4;

/// What became of a partition's turn to fill the frame.
enum Taken {
    /// The frame has no room for all of it.
    FrameFull,
    /// It has nothing more for the journal; what it has gathered goes another way.
    Done,
}

impl<D: Disk> PartitionLog<D> {
    /// Which way what was gathered goes now.
    pub(super) fn way(&self, state: &LogState<D>) -> Way {
        choose(self.situation(state))
    }

    pub(super) fn situation(&self, state: &LogState<D>) -> Situation {
        let context = &self.context;
        let journal = context.journal.borrow();
        let own_small = state.in_flight.iter().filter(|end| end.is_small).count();
        let others_wait = match self.waits_with.get() {
            Some(_) => journal.waiting() > 1,
            None => journal.waiting() > 0,
        };
        Situation {
            gathered: GatheredBytes(state.gather.bytes()),
            in_flight: GroupsInFlight(state.in_flight.writing()),
            has_journaled: state.journaled.has_unstored(),
            must_be_direct: state.is_paused || state.gather.has_marker(),
            is_crowded: others_wait
                || context.has_dirty_beside(self)
                || context.small_in_flight.get() > own_small
                || journal.frames_in_flight() > 0,
            has_journal: journal.is_made(),
            is_expecting: state
                .callers
                .is_expecting(state.acks.len(), || context.clock.now().boottime),
        }
    }

    /// Has the journal's next frame take what was gathered.
    pub(super) fn wait_for_frame(self: &Rc<Self>, bytes: usize) {
        let mut journal = self.context.journal.borrow_mut();
        match self.waits_with.replace(Some(bytes)) {
            Some(before) => journal.wait_on(before, bytes),
            None => journal.wait(Rc::downgrade(self), bytes),
        }
        drop(journal);
        self.context.mark_journal_dirty();
    }

    /// From which frame on the journal may hold what the segments do not.
    pub(super) fn journal_mark(&self, state: &LogState<D>) -> JournalMark {
        let journal = self.context.journal.borrow();
        let from = state.journaled.first().unwrap_or(journal.next_sequence());
        JournalMark { journal: journal.id(), from }
    }

    /// Copies what was gathered into a frame, group by group.
    fn fill(self: &Rc<Self>, frame: &mut FrameBuilder<Content<D>>) -> Taken {
        let mut state = self.state.borrow_mut();
        if state.phase != Phase::Running || state.stopped.is_some() {
            return Taken::Done;
        }
        while self.way(&state) == Way::Journal {
            let Some(bytes) = state.gather.oldest_bytes() else { return Taken::Done };
            if !frame.fits(bytes - GROUP_HEADER_BYTES) {
                return Taken::FrameFull;
            }
            let group = state.gather.take_oldest().expect("it has bytes");
            let batches = &group.extent.as_slice()[GROUP_HEADER_BYTES..group.filled_bytes];
            let first = BatchHeader::decode(batches).expect("we wrote it");
            let base_offset = first.stamp.base_offset;
            let epoch = state.owned.map_or(Epoch::NONE, |owned| owned.epoch);
            let piece = Piece { base_offset, next_offset: group.next_offset, epoch };
            frame.push(self.id, base_offset, batches, (Rc::downgrade(self), piece));
        }
        Taken::Done
    }

    fn note_journaled(&self, piece: Piece, batches: SharedExtent, frame: FrameHold) {
        let Piece { base_offset, next_offset, epoch } = piece;
        let mut state = self.state.borrow_mut();
        state.tail.push(base_offset, next_offset, batches.clone());
        state.journaled.push(JournaledGroup { base_offset, next_offset, epoch, batches, frame });
    }

    /// Has the groups in the journal written to segments. Returns whether all of them are on their way.
    fn store(self: &Rc<Self>) -> bool {
        self.state.borrow_mut().must_store = true;
        self.submit();
        let state = self.state.borrow();
        state.stopped.is_some() || !state.journaled.has_unstored()
    }
}

/// A frame on its way to the device.
pub(super) struct FrameWrite<D: Disk> {
    pub(super) file: D::File,
    pub(super) bytes: SharedExtent,
    pub(super) position: Position,
    pub(super) number: FrameNumber,
}

/// What goes into a frame: whose it is, and what of it.
type Content<D> = (Weak<PartitionLog<D>>, Piece);

/// The lists that are needed for a frame, kept from one to the next so that in steady state none is allocated.
pub(super) struct FrameLists<D: Disk> {
    pieces: Cell<Vec<FramePiece<Content<D>>>>,
    /// Those whose turn it was, and who may have something that goes another way.
    elsewhere: Cell<Vec<Rc<PartitionLog<D>>>>,
    owners: Cell<Vec<Weak<PartitionLog<D>>>>,
}

impl<D: Disk> Default for FrameLists<D> {
    fn default() -> Self {
        FrameLists { pieces: Cell::default(), elsewhere: Cell::default(), owners: Cell::default() }
    }
}

/// What a partition has in a frame.
#[derive(Clone, Copy, Debug)]
struct Piece {
    base_offset: Offset,
    next_offset: Offset,
    epoch: Epoch,
}

impl<D: Disk> LogContext<D> {
    /// Submits the frames that may go now, and has old ones written to segments. Called at the end of a turn.
    pub(crate) fn pump_journal(self: &Rc<Self>) {
        if !self.take_journal_dirty() {
            return;
        }
        self.journal.borrow_mut().reclaim();
        self.store_if_due();
        while self.submit_frame() {}
        let memory = self.journal.borrow().memory_bytes();
        self.counters.journal_memory_bytes.set(memory as u64);
    }

    fn store_if_due(&self) {
        while self.storing.get() < STORING_MAX {
            let next = {
                let mut journal = self.journal.borrow_mut();
                if !journal.wants_room() {
                    return;
                }
                journal.next_to_store()
            };
            let Some((owner, sequence)) = next else { return };
            let Some(log) = owner.upgrade() else { continue };
            let is_due = {
                let state = log.state.borrow();
                state.journaled.first_unstored().is_some_and(|first| first <= sequence)
            };
            if is_due && !log.store() {
                // It waits for a segment or for memory, and comes back by itself when it has that.
                self.journal.borrow_mut().store_later(owner, sequence);
                return;
            }
        }
    }

    /// Fills and submits one frame if it may go.
    fn submit_frame(self: &Rc<Self>) -> bool {
        let is_frozen = {
            let journal = self.journal.borrow();
            journal.waiting() > 0 && !journal.is_made()
        };
        if is_frozen {
            self.send_waiting_elsewhere();
            return false;
        }
        let Some(room) = self.journal.borrow().frame_room_due() else { return false };
        if self.is_frame_expecting() {
            self.look_at_journal_again();
            return false;
        }
        let Some(extent) = self.allocate(room) else {
            self.pump_later();
            return false;
        };
        let mut frame = FrameBuilder::new(extent, self.frame_lists.pieces.take());
        let mut elsewhere = self.frame_lists.elsewhere.take();
        loop {
            let waiting = self.journal.borrow_mut().take_waiting(|owner| {
                owner.upgrade().and_then(|log| log.waits_with.get()).unwrap_or(0)
            });
            let Some(owner) = waiting else { break };
            let Some(log) = owner.upgrade() else { continue };
            log.waits_with.set(None);
            match log.fill(&mut frame) {
                Taken::FrameFull => {
                    let bytes = log.state.borrow().gather.bytes();
                    log.waits_with.set(Some(bytes));
                    self.journal.borrow_mut().put_back(owner, bytes);
                    // It has more than it was noted with; the next frame has room for that.
                    self.mark_journal_dirty();
                    break;
                }
                Taken::Done => elsewhere.push(log),
            }
        }
        let is_filled = !frame.is_empty();
        if is_filled {
            self.write_frame(frame);
        }
        for log in elsewhere.drain(..) {
            // Something may have come that goes another way, or a change may wait for the log to be empty.
            let has_more = !log.state.borrow().gather.is_empty();
            if has_more {
                log.submit();
            }
        }
        self.frame_lists.elsewhere.set(elsewhere);
        is_filled
    }

    /// Tells whether the few partitions that wait for a frame should wait for the others of the last one, too.
    fn is_frame_expecting(&self) -> bool {
        let journal = self.journal.borrow();
        let mut callers = self.frame_callers.get();
        let is_expecting = journal.frames_in_flight() == 0
            && journal.waiting_bytes() < GROUP_BYTES_TARGET
            && callers.is_expecting(journal.waiting(), || self.clock.now().boottime);
        if is_expecting {
            callers.note_turn();
            self.frame_callers.set(callers);
        }
        is_expecting
    }

    fn write_frame(self: &Rc<Self>, frame: FrameBuilder<Content<D>>) {
        let now = self.clock.now().boottime;
        let sealed = self.journal.borrow_mut().seal(frame, now);
        let counters = &self.counters;
        counters.journal_frames.add(1);
        counters.journal_groups.add(sealed.pieces.len() as u64);
        counters.journal_bytes.add(sealed.bytes.len() as u64);
        let mut pieces = sealed.pieces;
        for FramePiece { owner: (owner, piece), range, .. } in pieces.drain(..) {
            let log = owner.upgrade().expect("the shard keeps its partitions");
            log.note_journaled(piece, sealed.bytes.slice(range), sealed.hold.clone());
        }
        self.frame_lists.pieces.set(pieces);
        let (file, bytes, position) = (sealed.file, sealed.bytes, sealed.position);
        let write = FrameWrite { file, bytes, position, number: sealed.number };
        self.carry_out(Work::Frame { context: self.clone(), write });
    }

    /// Takes the completion of a frame.
    pub(super) fn complete_frame(
        self: &Rc<Self>,
        number: FrameNumber,
        written: Result<(), DiskError>,
    ) {
        if let Err(error) = written {
            // What is in the journal concerns every partition of the shard.
            let error = Arc::new(error);
            tracing::error!(%error, "the journal has failed: all partitions of its shard stop");
            self.journal.borrow_mut().freeze();
            for log in self.logs() {
                log.stop(error.clone());
            }
            return;
        }
        let now = self.clock.now().boottime;
        let submitted = self.journal.borrow().oldest_submitted().unwrap_or(now);
        let mut owners = self.frame_lists.owners.take();
        self.journal.borrow_mut().complete(number, &mut owners);
        let mut callers = self.frame_callers.get();
        callers.note_answered(owners.len(), now, now.saturating_sub(submitted));
        self.frame_callers.set(callers);
        for log in owners.drain(..).filter_map(|owner| owner.upgrade()) {
            log.advance_by_journal();
        }
        self.frame_lists.owners.set(owners);
        self.mark_journal_dirty();
    }

    /// Has those who wait for a frame write to their segments: there is no journal any more.
    fn send_waiting_elsewhere(&self) {
        loop {
            let waiting = self.journal.borrow_mut().take_waiting(|owner| {
                owner.upgrade().and_then(|log| log.waits_with.get()).unwrap_or(0)
            });
            let Some(owner) = waiting else { return };
            if let Some(log) = owner.upgrade() {
                log.waits_with.set(None);
                log.submit();
            }
        }
    }

    /// Looks after the journal again when memory may have come back.
    fn pump_later(self: &Rc<Self>) {
        let context = self.clone();
        self.runtime.spawn(Box::pin(async move {
            context.runtime.sleep(MEMORY_RETRY_AFTER).await;
            context.mark_journal_dirty();
        }));
    }

    /// Removes the journal's file: every partition is clean, so nothing in it counts.
    pub(crate) async fn remove_journal(&self) {
        let (journal, is_made) = {
            let journal = self.journal.borrow();
            (journal.id(), journal.is_made())
        };
        if !is_made {
            return;
        }
        match remove_journal(&self.disk, &self.directory, journal).await {
            Ok(()) => self.counters.journal_file_bytes.set(0),
            Err(error) => {
                tracing::warn!(%error, "a journal that is not needed any more is left to the next open");
            }
        }
    }

    /// Removes the journals of earlier runs, or keeps them aside for somebody to look at.
    pub(crate) async fn retire_journals(&self, journals: &[JournalId], keep: bool) {
        for journal in journals {
            let retired = match keep {
                false => remove_journal(&self.disk, &self.directory, *journal).await,
                true => set_journal_aside(&self.disk, &self.directory, *journal, SET_ASIDE)
                    .await
                    .map(|path| tracing::error!(path = %path.display(), "a journal was set aside")),
            };
            if let Err(error) = retired {
                tracing::warn!(%error, "a journal of an earlier run is left to the next open");
            }
        }
    }

    /// Makes the journal in the background, once several partitions have small groups.
    pub(super) fn make_journal_if_wanted(self: &Rc<Self>) {
        let is_due = self.journal.borrow_mut().begin_making();
        if !is_due {
            return;
        }
        let context = self.clone();
        self.runtime.spawn(Box::pin(async move {
            let (journal, file_bytes) = {
                let journal = context.journal.borrow();
                (journal.id(), journal.file_bytes())
            };
            context.counters.journal_file_bytes.set(file_bytes);
            let made = match context.disk.space(&context.directory).await {
                Ok(space) if space.available_bytes < FREE_JOURNALS_MIN * file_bytes => None,
                _ => {
                    let created = context.clock.wall();
                    let header = JournalHeader { journal, file_bytes, created };
                    let (disk, directory) = (&context.disk, &context.directory);
                    match make_journal(disk, context.runtime.as_ref(), directory, &header).await {
                        Ok(file) => Some(file),
                        Err(error) => {
                            tracing::warn!(%error, "no journal: small groups go to segments one by one");
                            None
                        }
                    }
                }
            };
            context.keep_spare(GATHER_BYTES_MAX);
            if made.is_none() {
                context.counters.journal_file_bytes.set(0);
                context.runtime.sleep(ROOM_RETRY_AFTER).await;
            }
            context.journal.borrow_mut().end_making(made);
        }));
    }
}
