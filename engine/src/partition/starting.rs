//! The first change of a run: opens or makes the segment to write, takes up the epoch, and says on disk that the
//! log is not clean any more, all before the first append gets an offset (SCENARIOS L7).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::append::AppendError;
use super::authority::{LeaseRule, Ownership};
use super::checkpointing::Intent;
use super::disk_room::{WantedSegment, choose_bytes};
use super::log::{LogState, NoRoom, PartitionLog, Phase, PreparedSegment, WrittenSegment};
use super::pace::{Making, rest_after};
use crate::format::{
    BatchStamp, Chain, Descriptor, FIRST_GROUP_POSITION, GROUP_HEADER_BYTES, Member, NextSegment,
    Policy, ReplicaSet, SegmentHeader,
};
use crate::id::{BLOCK_BYTES, Epoch, NodeId, SegmentId};
use crate::io::disk::{Disk, DiskError, DiskOperation, OpenMode};
use crate::segment::{
    MakeError, OpenSegmentError, SegmentWriter, make_segment_paced, segment_path,
};

/// How often a full disk is looked at again.
pub(super) const ROOM_RETRY_AFTER: Duration = Duration::from_secs(1);

/// An epoch to take up with the start.
#[derive(Clone, Debug)]
pub(super) struct TakeUp {
    pub(super) epoch: Epoch,
    pub(super) descriptor: Descriptor,
    pub(super) rule: LeaseRule,
}

impl<D: Disk> PartitionLog<D> {
    /// Starts the log if an append waits for that.
    pub(super) fn start_if_idle(self: &Rc<Self>) {
        {
            let mut state = self.state.borrow_mut();
            if state.phase != Phase::Idle || state.stopped.is_some() {
                return;
            }
            state.phase = Phase::Starting;
        }
        let log = self.clone();
        self.context.runtime.spawn(Box::pin(async move {
            let _changing = log.changing.lock().await;
            if let Err(error) = log.start().await {
                log.fail_start(error).await;
            }
            log.resume();
        }));
    }

    /// Brings the log from idle to running. The caller holds `changing`.
    pub(super) async fn start(self: &Rc<Self>) -> Result<(), DiskError> {
        let take_up = {
            let state = self.state.borrow();
            let grants_itself = self.context.is_standalone() && state.owned.is_none();
            grants_itself.then(|| self.own_grant(&state))
        };
        self.begin_changes(take_up).await
    }

    /// Opens or makes the segment to write, then makes the promise and the end of cleanness durable in one
    /// checkpoint, then takes up the epoch. The caller holds `changing`.
    pub(super) async fn begin_changes(
        self: &Rc<Self>,
        take_up: Option<TakeUp>,
    ) -> Result<(), DiskError> {
        {
            let mut state = self.state.borrow_mut();
            if state.phase == Phase::Idle {
                state.phase = Phase::Starting;
            }
        }
        let is_starting = self.state.borrow().phase == Phase::Starting;
        if is_starting {
            self.open_segments().await?;
        }
        let promise = take_up.as_ref().map(|take_up| (take_up.epoch, take_up.descriptor.clone()));
        if is_starting || promise.is_some() {
            let written = self.write_checkpoint(Intent { promise, is_closing: false }).await;
            if let Err(error) = written {
                if is_starting {
                    self.put_back_unused();
                }
                return Err(error);
            }
        }
        // What the marker needs is lent before the epoch is taken up, so that both come together.
        let marker_room = match &take_up {
            Some(take_up) => Some(self.marker_room(&take_up.descriptor).await),
            None => None,
        };
        let mut state = self.state.borrow_mut();
        if let (Some(take_up), Some(room)) = (take_up, marker_room) {
            let TakeUp { epoch, descriptor, rule } = take_up;
            assert!(epoch > state.promised, "an epoch is taken up once");
            let append_time = state.last_time.max(self.context.clock.wall());
            state.last_time = append_time;
            let base_offset = state.watermarks.log_end;
            let stamp = BatchStamp { base_offset, epoch, append_time, ..BatchStamp::default() };
            state.promised = epoch;
            state.owned = Some(Ownership { epoch, rule });
            state.loss_generation = state.loss_generation.max(descriptor.loss_generation);
            state.epochs.begin(epoch, base_offset);
            state.gather.open(room);
            state.gather.push_marker(&descriptor.encode(), &stamp);
            state.descriptor = Some(descriptor);
        }
        state.phase = Phase::Running;
        self.publish(&state);
        let has_started = std::mem::replace(&mut state.has_started, true);
        drop(state);
        if !has_started {
            self.context.note_started();
        }
        Ok(())
    }

    /// The grant a standalone engine gives itself: a new term in every run, never an epoch of an earlier one.
    fn own_grant(&self, state: &LogState<D>) -> TakeUp {
        let term = state.promised.term().checked_add(1).expect("2^32 runs of one partition");
        let member = Member { node: NodeId::STANDALONE, storage: self.context.identity.storage };
        let descriptor = Descriptor {
            term,
            set: ReplicaSet { members: vec![member], ack_quorum: 1 },
            seal_sets: Vec::new(),
            policy: Policy::ServeSettled,
            loss_generation: state.loss_generation,
            successors: Vec::new(),
        };
        let epoch = Epoch::named(term, NodeId::STANDALONE);
        TakeUp { epoch, descriptor, rule: LeaseRule::Unbounded }
    }

    async fn marker_room(&self, descriptor: &Descriptor) -> crate::io::arena::Extent {
        let bytes =
            GROUP_HEADER_BYTES + crate::format::BATCH_HEADER_BYTES + descriptor.encode().len();
        let room = bytes.next_multiple_of(BLOCK_BYTES).max(4 * BLOCK_BYTES);
        self.context.allocate_waiting(room).await
    }

    /// Opens the files the last run left to go on with, or makes the first segment.
    async fn open_segments(self: &Rc<Self>) -> Result<(), DiskError> {
        self.open_stored_next().await?;
        let active = self.state.borrow().active.as_ref().map(|active| active.writer.segment());
        if let Some(segment) = active {
            let path = segment_path(&self.directory, segment);
            let open = async || self.context.disk.open(&path, OpenMode::Write).await;
            let file = self.context.with_descriptor(open).await?;
            if let Some(active) = &mut self.state.borrow_mut().active {
                active.file = Some(file);
            }
            return Ok(());
        }
        let prepared = self.state.borrow_mut().next.take();
        let prepared = match prepared {
            Some(prepared) => prepared,
            None => self.make_prepared().await?,
        };
        let mut state = self.state.borrow_mut();
        let before = state.closed.last().map_or(Chain::default(), |closed| closed.last_chain);
        let writer = SegmentWriter::begin(prepared.made, state.watermarks.log_end, before);
        let durable = writer.point();
        state.active = Some(WrittenSegment { file: prepared.file, writer, durable });
        Ok(())
    }

    /// Takes a segment that holds no group off its place: where the log ends when it is next needed is open,
    /// for the log may be cut before.
    fn put_back_unused(&self) {
        let mut state = self.state.borrow_mut();
        let is_unused = |active: &WrittenSegment<D>| active.writer.point().group == 0;
        let Some(unused) = state.active.take_if(|active| is_unused(active)) else { return };
        let made = NextSegment {
            segment: unused.writer.segment(),
            file_bytes: unused.writer.file_bytes(),
        };
        let prepared = PreparedSegment::new(unused.file, made);
        state.next.get_or_insert(prepared);
    }

    /// Opens the segment that the last run had made in advance; one that is gone is made anew later.
    async fn open_stored_next(&self) -> Result<(), DiskError> {
        let stored = self.state.borrow().next.as_ref().map(|next| next.made.segment);
        let Some(segment) = stored else { return Ok(()) };
        let opened = loop {
            let opened = crate::segment::open_segment(
                &self.context.disk,
                &self.directory,
                self.id,
                segment,
                OpenMode::Write,
            );
            match opened.await {
                Err(OpenSegmentError::ArenaFull { .. }) => {
                    self.context.wait_for_memory().await;
                }
                Err(OpenSegmentError::Disk(error)) if error.is_out_of_files() => {
                    self.context.wait_for_descriptors(&error).await;
                }
                opened => break opened,
            }
        };
        let mut state = self.state.borrow_mut();
        match opened {
            Ok((file, _)) => {
                // Without an active segment this one is.
                let is_needed = state.active.is_none();
                if let Some(next) = &mut state.next
                    && (is_needed || !next.is_opened_late())
                {
                    next.file = Some(file);
                }
            }
            Err(OpenSegmentError::Disk(error)) if !error.is_missing() => return Err(error),
            Err(error) => {
                tracing::warn!(partition = %self.id, %error, "the segment made in advance is unusable");
                state.next = None;
            }
        }
        Ok(())
    }

    /// Makes a segment file of the size that is due. No checkpoint names it yet.
    pub(super) async fn make_prepared(&self) -> Result<PreparedSegment<D>, DiskError> {
        loop {
            let segment = self.context.new_segment_id();
            match self.make_file(segment).await {
                Ok((file, file_bytes)) => {
                    self.recycled.note_made(segment);
                    let made = NextSegment { segment, file_bytes };
                    return Ok(PreparedSegment::new(Some(file), made));
                }
                Err(MakeError::Disk(error))
                    if error.source.kind() == std::io::ErrorKind::AlreadyExists =>
                {
                    tracing::warn!(partition = %self.id, %segment, "a segment has that name already");
                }
                Err(MakeError::Disk(error)) if error.is_full() => {
                    if self.context.release_recycled().await == 0 {
                        return Err(error);
                    }
                }
                Err(MakeError::Disk(error)) if error.is_out_of_files() => {
                    self.context.wait_for_descriptors(&error).await;
                }
                Err(MakeError::Disk(error)) => return Err(error),
                Err(_) => self.context.wait_for_memory().await,
            }
        }
    }

    /// Rests after each piece of a segment's file of `file_bytes`, as long as [`rest_after`] says.
    fn maker_rest(&self, file_bytes: u64) -> impl AsyncFn(u64) {
        let filled = |state: &LogState<D>| {
            let active = state.active.as_ref();
            active.map_or((0, 0), |active| (state.filled_bytes(active), active.writer.file_bytes()))
        };
        let (filled_before, _) = filled(&self.state.borrow());
        let context = &self.context;
        let piece_began = Cell::new(context.clock.now());
        async move |made_bytes| {
            let rest = {
                let state = self.state.borrow();
                let (filled_bytes, active_bytes) = filled(&state);
                rest_after(Making {
                    made_bytes,
                    file_bytes,
                    filled_bytes,
                    filled_before,
                    active_bytes,
                    is_appending: context.appends_in_flight.get() > 0,
                    is_awaited: !state.waiting.is_empty() || state.is_paused,
                    last_piece: context.clock.now().elapsed_for_holder(piece_began.get()),
                })
            };
            if rest > Duration::ZERO {
                context.runtime.sleep(rest).await;
            }
            piece_began.set(context.clock.now());
        }
    }

    /// Makes the file of a recycled one, or as long a new one as the disk has room for.
    async fn make_file(&self, segment: SegmentId) -> Result<(D::File, u64), MakeError> {
        let wanted = self.wanted_segment();
        let (partition, created) = (self.id, self.context.clock.wall());
        let header = |file_bytes| SegmentHeader { partition, segment, file_bytes, created };
        {
            let _counted = self.context.count_making(wanted.due_bytes);
            if let Some(file) = self.make_of_recycled(&header(wanted.due_bytes)).await? {
                return Ok((file, wanted.due_bytes));
            }
        }
        let disk = &self.context.disk;
        let space = disk.space(&self.directory).await?;
        let Ok(file_bytes) = choose_bytes(wanted, space) else {
            let full = std::io::ErrorKind::StorageFull.into();
            let error = DiskError::new(DiskOperation::Space, &self.directory, None, full);
            return Err(MakeError::Disk(error));
        };
        if file_bytes < wanted.due_bytes {
            self.context.counters.shortened_segments.add(1);
            tracing::warn!(partition = %self.id, file_bytes, ?space,
                "the disk is filling up: a shorter segment is made");
        }
        let _counted = self.context.count_making(file_bytes);
        let (header, rest) = (header(file_bytes), self.maker_rest(file_bytes));
        let file = make_segment_paced(disk, &self.directory, &header, rest).await?;
        Ok((file, file_bytes))
    }

    /// Twice the last segment, from `first_segment_bytes` to `segment_bytes`, and room for what waits.
    pub(super) fn wanted_segment(&self) -> WantedSegment {
        let state = self.state.borrow();
        let settings = state.settings;
        let last_bytes = match (&state.active, state.closed.last()) {
            (Some(active), _) => active.writer.file_bytes(),
            (None, Some(closed)) => closed.end_position.0,
            (None, None) => 0,
        };
        let grown = (2 * last_bytes).clamp(settings.first_segment_bytes, settings.segment_bytes);
        let needed = FIRST_GROUP_POSITION.0 + (state.wanted_bytes + 4 * BLOCK_BYTES) as u64;
        let needed_bytes = needed.next_multiple_of(BLOCK_BYTES as u64);
        WantedSegment {
            due_bytes: grown.next_multiple_of(BLOCK_BYTES as u64).max(needed_bytes),
            needed_bytes,
            is_refusing: state.no_room.is_some(),
            has_marker: state.gather.has_marker(),
        }
    }

    /// Asks the disk what it lacks for the next segment.
    pub(super) async fn room_for_next(&self) -> NoRoom {
        let wanted = self.wanted_segment();
        let needed = match self.context.disk.space(&self.directory).await {
            Ok(space) => choose_bytes(wanted, space).map_err(|little| little.needed_bytes),
            Err(_) => Ok(wanted.needed_bytes),
        };
        self.measure_room(needed.unwrap_or_else(|needed_bytes| needed_bytes)).await
    }

    /// Goes back to idle after a start that failed, and answers those who waited for it.
    pub(super) async fn fail_start(self: &Rc<Self>, error: DiskError) {
        if !error.is_full() {
            self.stop(std::sync::Arc::new(error));
            return;
        }
        let no_room = self.room_for_next().await;
        self.state.borrow_mut().phase = Phase::Idle;
        self.refuse_for_room(no_room);
        let log = self.clone();
        self.context.runtime.spawn(Box::pin(async move {
            log.context.runtime.sleep(ROOM_RETRY_AFTER).await;
            log.clear_no_room();
        }));
    }

    /// Refuses appends from here on, those that wait included, until there is room again.
    pub(super) fn refuse_for_room(&self, no_room: NoRoom) {
        tracing::warn!(partition = %self.id, ?no_room, "the disk is full: appends are refused");
        {
            let mut state = self.state.borrow_mut();
            state.no_room = Some(no_room);
            state.wanted_bytes = 0;
            self.context.counters.disk_full.add(state.waiting.len() as u64);
        }
        self.status.set_disk_full(true);
        let NoRoom { available_bytes, needed_bytes } = no_room;
        self.refuse_waiting(&AppendError::DiskFull { available_bytes, needed_bytes });
    }

    /// Lets appends try again.
    pub(super) fn clear_no_room(&self) {
        self.state.borrow_mut().no_room = None;
        self.status.set_disk_full(false);
    }
}
