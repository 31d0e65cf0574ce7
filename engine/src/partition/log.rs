//! The log of one partition on its shard: its state, and how it comes into being.
//!
//! What is done with the state lies in the files beside this one, one per concern; each borrows the state
//! for a stretch without awaits. A change that awaits holds `changing`, so there is one at a time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::answers::Reply;
use super::append::{AppendError, AppendOptions, Appended};
use super::authority::{Ownership, Standing};
use super::callers::Callers;
use super::checkpoint_store::CheckpointStore;
use super::context::LogContext;
use super::epoch_history::EpochHistory;
use super::gather::Gather;
use super::in_flight::InFlight;
use super::journaled::Journaled;
use super::producers::Producers;
use super::push_order::PushOrder;
use super::read_segments::ReadSegments;
use super::recycling::RecycledFiles;
use super::reserving::AppendBatch;
use super::settings::PartitionSettings;
use super::status::SharedStatus;
use super::tail_cache::TailCache;
use super::watermarks::Watermarks;
use crate::format::{
    ActiveSegment, Checkpoint, ClosedSegment, Descriptor, NextSegment, QuarantinedRange,
    SegmentPoint,
};
use crate::id::{Epoch, Offset, PartitionId, PartitionName, SegmentId};
use crate::io::clock::WallTime;
use crate::io::disk::{Disk, DiskError};
use crate::segment::{SegmentWriter, SparseIndex};

/// The longest segment whose file is closed between being made and being needed. Ten thousand small partitions
/// then hold little more than ten thousand files open.
const CLOSED_NEXT_BYTES_MAX: u64 = 1 << 20;

/// A partition to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionSpec {
    /// Its id, never used before.
    pub id: PartitionId,
    /// What people call it.
    pub name: PartitionName,
    /// How it is stored.
    pub settings: PartitionSettings,
}

/// Where the answer to an append goes.
pub(crate) type AppendReply = Reply<Result<Appended, AppendError>>;

/// How far a partition is in its life of this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing has been changed since it was opened: on disk it is as the last run left it.
    Idle,
    /// The first change is being prepared: the unclean checkpoint, the epoch, a segment.
    Starting,
    /// Takes appends.
    Running,
    /// Takes nothing any more.
    Closed,
}

/// An append that waits for the start.
#[derive(Debug)]
pub(super) struct WaitingAppend {
    pub(super) batch: AppendBatch,
    pub(super) options: AppendOptions,
    pub(super) reply: AppendReply,
}

/// An admitted append that waits for its acknowledgement.
#[derive(Debug)]
pub(super) struct PendingAck {
    pub(super) appended: Appended,
    pub(super) end: Offset,
    pub(super) reply: AppendReply,
}

/// What is true once a group and all before it are durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupEnd {
    pub(super) segment: SegmentId,
    pub(super) after: SegmentPoint,
    pub(super) epoch: Epoch,
    pub(super) submitted: Duration,
    /// What the group takes in memory.
    pub(super) bytes: usize,
    /// Whether it is smaller than what is worth a write of its own.
    pub(super) is_small: bool,
}

/// A segment that has groups in it, written or on their way.
#[derive(Debug)]
pub(super) struct WrittenSegment<D: Disk> {
    /// Opened by the first change of the run.
    pub(super) file: Option<D::File>,
    pub(super) writer: SegmentWriter,
    pub(super) durable: SegmentPoint,
}

impl<D: Disk> WrittenSegment<D> {
    pub(super) fn resumed(active: &ActiveSegment) -> WrittenSegment<D> {
        WrittenSegment {
            file: None,
            writer: SegmentWriter::resume(active, SparseIndex::default()),
            durable: active.durable,
        }
    }

    /// The segment as a checkpoint names it while it is written.
    pub(super) fn as_active(&self) -> ActiveSegment {
        ActiveSegment {
            segment: self.writer.segment(),
            file_bytes: self.writer.file_bytes(),
            base_offset: self.writer.base_offset(),
            first_time: self.writer.first_time(),
            last_time: self.writer.last_time(),
            durable: self.durable,
        }
    }
}

/// The segment made in advance.
#[derive(Debug)]
pub(super) struct PreparedSegment<D: Disk> {
    /// Opened by the first change of the run.
    pub(super) file: Option<D::File>,
    pub(super) made: NextSegment,
    /// Whether a checkpoint names it: only then may a group go there.
    pub(super) is_checkpointed: bool,
}

impl<D: Disk> PreparedSegment<D> {
    /// One that no checkpoint names yet.
    pub(super) fn new(file: Option<D::File>, made: NextSegment) -> PreparedSegment<D> {
        PreparedSegment { file, made, is_checkpointed: false }
    }

    fn stored(made: NextSegment) -> PreparedSegment<D> {
        PreparedSegment { is_checkpointed: true, ..PreparedSegment::new(None, made) }
    }

    /// Tells whether its file is closed between being made and being needed.
    pub(super) fn is_opened_late(&self) -> bool {
        self.made.file_bytes <= CLOSED_NEXT_BYTES_MAX
    }

    /// Tells whether groups may go there once its file is open.
    pub(super) fn is_closed(&self) -> bool {
        self.is_checkpointed && self.file.is_none()
    }

    /// Tells whether groups may go there.
    pub(super) fn is_ready(&self) -> bool {
        self.is_checkpointed && self.file.is_some()
    }
}

/// The lack of room that makes appends be refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoRoom {
    pub(super) available_bytes: u64,
    pub(super) needed_bytes: u64,
}

/// Everything a partition knows.
pub(super) struct LogState<D: Disk> {
    pub(super) phase: Phase,
    /// Whether it has taken appends in this run.
    pub(super) has_started: bool,
    /// Appends are held back while a change drains the log.
    pub(super) is_paused: bool,
    pub(super) stopped: Option<Arc<DiskError>>,
    pub(super) no_room: Option<NoRoom>,
    pub(super) watermarks: Watermarks,
    pub(super) promised: Epoch,
    pub(super) descriptor: Option<Descriptor>,
    pub(super) owned: Option<Ownership>,
    pub(super) pushes: PushOrder,
    pub(super) loss_generation: u64,
    pub(super) epochs: EpochHistory,
    pub(super) producers: Producers,
    pub(super) last_time: WallTime,
    pub(super) waiting: VecDeque<WaitingAppend>,
    pub(super) waiting_bytes: usize,
    pub(super) gather: Gather,
    pub(super) in_flight: InFlight<GroupEnd>,
    pub(super) journaled: Journaled,
    /// Everything below is durable in segments.
    pub(super) stored: Offset,
    /// The groups in the journal are to be written to segments now.
    pub(super) must_store: bool,
    pub(super) acks: VecDeque<PendingAck>,
    /// Answers that wait for less to be gathered; nobody waits for these to be durable.
    pub(super) accepted: VecDeque<PendingAck>,
    pub(super) callers: Callers,
    pub(super) tail: TailCache,
    pub(super) closed: Vec<ClosedSegment>,
    pub(super) quarantined: Vec<QuarantinedRange>,
    /// Full, and waiting for its last groups to become durable and for a checkpoint that says so.
    pub(super) retiring: Option<WrittenSegment<D>>,
    pub(super) active: Option<WrittenSegment<D>>,
    pub(super) next: Option<PreparedSegment<D>>,
    /// How often the log was cut: a read that a cut overtook starts again.
    pub(super) cuts: u64,
    /// A segment is being made.
    pub(super) is_making: bool,
    /// The retiring segment is being closed.
    pub(super) is_retiring: bool,
    /// A group is due that has no room in the active segment, and there was no other to put it in.
    pub(super) needs_roll: bool,
    /// The longest batch that waits for a segment with room for it.
    pub(super) wanted_bytes: usize,
    pub(super) settings: PartitionSettings,
}

/// One partition's log on its shard.
pub(crate) struct PartitionLog<D: Disk> {
    pub(super) context: Rc<LogContext<D>>,
    pub(super) id: PartitionId,
    pub(super) name: PartitionName,
    pub(super) directory: PathBuf,
    pub(super) status: Arc<SharedStatus>,
    pub(super) state: RefCell<LogState<D>>,
    pub(super) checkpoints: tokio::sync::Mutex<CheckpointStore>,
    pub(super) read_segments: ReadSegments<D>,
    pub(super) recycled: RecycledFiles,
    /// Held by whatever changes the log across awaits: grants, cuts, trims, closing.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// Told when groups complete, segments get ready, or the log stops.
    pub(super) progress: Notify,
    /// Told when `committed` moves, and when the log ends.
    pub(super) tail_moved: Notify,
    pub(super) is_dirty: std::cell::Cell<bool>,
    /// The bytes with which it waits for the journal's next frame, if it does.
    pub(super) waits_with: std::cell::Cell<Option<usize>>,
}

impl<D: Disk> PartitionLog<D> {
    /// Puts together a log from what its checkpoint says, ending at `end`.
    pub(super) fn from_checkpoint(
        context: Rc<LogContext<D>>,
        directory: PathBuf,
        checkpoint: Checkpoint,
        store: CheckpointStore,
    ) -> Rc<PartitionLog<D>> {
        let end = checkpoint.next_offset;
        let is_sole = is_sole(&context, checkpoint.descriptor.as_ref());
        let committed = if is_sole { end } else { checkpoint.committed };
        let active = checkpoint.active.as_ref();
        let last_closed = checkpoint.closed.last().map(|closed| closed.last_time);
        let last_time = active.map(|active| active.last_time).max(last_closed);
        let state = LogState {
            phase: Phase::Idle,
            has_started: false,
            is_paused: false,
            stopped: None,
            no_room: None,
            watermarks: Watermarks::recovered(checkpoint.log_start, committed, end),
            promised: checkpoint.promise,
            descriptor: checkpoint.descriptor,
            owned: None,
            pushes: PushOrder::default(),
            loss_generation: checkpoint.loss_generation,
            epochs: EpochHistory::from_entries(checkpoint.epochs),
            producers: Producers::from_entries(&checkpoint.producers, context.limits.producers_max),
            last_time: last_time.unwrap_or(WallTime::UNKNOWN),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            gather: Gather::default(),
            in_flight: InFlight::default(),
            journaled: Journaled::default(),
            stored: end,
            must_store: false,
            acks: VecDeque::new(),
            accepted: VecDeque::new(),
            callers: Callers::default(),
            tail: TailCache::default(),
            closed: checkpoint.closed,
            quarantined: checkpoint.quarantined,
            retiring: None,
            active: active.map(WrittenSegment::resumed),
            next: checkpoint.next.map(PreparedSegment::stored),
            cuts: 0,
            is_making: false,
            is_retiring: false,
            needs_roll: false,
            wanted_bytes: 0,
            settings: PartitionSettings::from_stored(checkpoint.settings),
        };
        let name =
            PartitionName { stream: checkpoint.stream_name, index: checkpoint.partition.index };
        let log = Rc::new(PartitionLog {
            read_segments: ReadSegments::new(context.limits.open_segments_max),
            recycled: RecycledFiles::default(),
            context,
            id: checkpoint.partition,
            name,
            directory,
            status: Arc::default(),
            state: RefCell::new(state),
            checkpoints: tokio::sync::Mutex::new(store),
            changing: tokio::sync::Mutex::new(()),
            progress: Notify::new(),
            tail_moved: Notify::new(),
            is_dirty: std::cell::Cell::new(false),
            waits_with: std::cell::Cell::new(None),
        });
        log.context.add_log(&log);
        log.publish(&log.state.borrow());
        log
    }

    /// The partition's id.
    pub(crate) fn id(&self) -> PartitionId {
        self.id
    }

    /// The partition's name.
    pub(crate) fn name(&self) -> &PartitionName {
        &self.name
    }

    /// What other threads may know.
    pub(crate) fn status(&self) -> &Arc<SharedStatus> {
        &self.status
    }

    /// When the oldest write in flight was submitted, on CLOCK_BOOTTIME.
    pub(crate) fn oldest_write(&self) -> Option<Duration> {
        self.state.borrow().in_flight.oldest().map(|end| end.submitted)
    }

    /// Lets go of the oldest group in memory; the shard has noted it as durable.
    pub(crate) fn forget_oldest_group(&self) {
        // Called while memory is lent for an append to this very partition: then its state is borrowed, and
        // the group goes with the next one.
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.tail.pop_oldest();
        }
    }

    /// Shows the state to other threads.
    pub(super) fn publish(&self, state: &LogState<D>) {
        self.status.watermarks.publish(state.watermarks);
        self.status.set_epochs(state.promised, state.owned.map(|owned| owned.epoch));
    }

    /// Shows how many segments there are.
    pub(super) fn publish_segments(&self, state: &LogState<D>) {
        let closed: u64 = state.closed.iter().map(|closed| closed.end_position.0).sum();
        let open = state.active.iter().chain(&state.retiring);
        let open: Vec<u64> = open.map(|segment| segment.writer.point().position.0).collect();
        let bytes = closed + open.iter().sum::<u64>();
        self.status.set_segments(state.closed.len() + open.len(), bytes);
    }

    /// Notes that the partition has something to submit at the end of the turn.
    pub(super) fn mark_dirty(self: &Rc<Self>) {
        if !self.is_dirty.replace(true) {
            self.context.mark_dirty(self.clone());
        }
    }
}

impl<D: Disk> LogState<D> {
    /// What decides about authority.
    pub(super) fn standing(&self) -> Standing {
        Standing { promised: self.promised, owned: self.owned }
    }

    /// What the active segment holds or is about to.
    pub(super) fn filled_bytes(&self, active: &WrittenSegment<D>) -> u64 {
        let coming = self.gather.bytes() + self.journaled.unstored_bytes();
        active.writer.point().position.0 + coming as u64
    }

    /// Tells whether a next segment may be of use: not to a change that waits, with all groups on their way.
    pub(super) fn needs_next(&self) -> bool {
        let is_used = !self.is_paused || !self.gather.is_empty() || self.journaled.has_unstored();
        is_used && self.stopped.is_none()
    }

    /// Tells whether a roll to a next segment that is ready is all that a due group waits for.
    pub(super) fn is_about_to_roll(&self) -> bool {
        self.needs_roll && self.retiring.is_none() && !self.is_retiring
    }

    /// Closes the next segment's file if it is opened late anyway and nothing waits for it now.
    pub(super) fn close_idle_next(&mut self) {
        let is_awaited = self.is_about_to_roll() || self.active.is_none();
        if let Some(next) = &mut self.next
            && next.is_opened_late()
            && !is_awaited
        {
            next.file = None;
        }
    }

    /// Tells whether everything admitted is durable.
    pub(super) fn is_drained(&self) -> bool {
        self.gather.is_empty() && self.in_flight.is_empty() && self.journaled.is_empty()
    }
}

/// Tells whether this storage alone is the replica set: then what is durable here is committed.
pub(super) fn is_sole<D: Disk>(context: &LogContext<D>, descriptor: Option<&Descriptor>) -> bool {
    let Some(descriptor) = descriptor else { return context.is_standalone() };
    match descriptor.set.members.as_slice() {
        [member] => member.storage == context.identity.storage,
        _ => false,
    }
}

impl<D: Disk> std::fmt::Debug for PartitionLog<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartitionLog")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}
