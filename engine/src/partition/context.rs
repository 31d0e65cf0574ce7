//! What the partitions of one shard share: its seams, its limits and what is used of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use atomic_waker::AtomicWaker;

use super::callers::Callers;
use super::cold_lane::{ColdLane, LaneLimits};
use super::counters::LogCounters;
use super::gate_state::GateState;
use super::journaling::FrameLists;
use super::lending::may_lend;
use super::log::PartitionLog;
use super::read_ahead::ReadAhead;
use super::reserving::ReservedBytes;
use super::settings::ShardLimits;
use super::writers::Writers;
use crate::format::{DirectoryMode, Identity};
use crate::id::{JournalId, SegmentId};
use crate::io::Environment;
use crate::io::arena::Extent;
use crate::io::clock::Clock;
use crate::io::disk::{Disk, DiskError};
use crate::io::runtime::Runtime;
use crate::io::transport::Transport;
use crate::journal::{Journal, Replay};
use crate::segment::Sharing;

/// Next segments of a shard's partitions that are made at a time. More would fill the device and the file system's
/// journal with the syncs of many files, and appends wait behind those.
const MAKERS_MAX: usize = 4;

/// The share of the arena that appends leave alone: one in this many. What gathers waits for segments to be closed,
/// made and checkpointed, so the memory for that may not be taken by what gathers.
const KEPT_SHARE: usize = 16;

/// How long a task that needs a file descriptor waits before it asks again.
pub(super) const DESCRIPTOR_RETRY_AFTER: Duration = Duration::from_millis(50);

/// How often at most the log says that file descriptors are wanting.
const WARNING_EVERY: Duration = Duration::from_secs(10);

/// How long a task that needs memory waits before it asks again.
const MEMORY_RETRY_AFTER: Duration = Duration::from_millis(1);

/// The journal of a shard, with its partitions as owners.
pub(super) type ShardJournal<D> = Journal<D, Weak<PartitionLog<D>>>;

/// The share of the arena that frames of the journal may take: one in this many.
const JOURNAL_MEMORY_SHARE: usize = 4;

/// One shard's common ground.
pub(crate) struct LogContext<D: Disk> {
    pub(crate) disk: D,
    pub(crate) runtime: Rc<dyn Runtime>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) directory: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) gate: Arc<GateState>,
    pub(crate) limits: ShardLimits,
    pub(crate) counters: Arc<LogCounters>,
    pub(crate) appends_in_flight: Cell<usize>,
    pub(crate) reads_in_flight: Cell<usize>,
    pub(crate) readers_waiting: Cell<usize>,
    pub(super) cold_lane: Rc<ColdLane>,
    pub(super) read_ahead: Rc<ReadAhead>,
    pub(super) reserved: ReservedBytes,
    pub(super) writers: Writers<D>,
    pub(super) frame_lists: FrameLists<D>,
    waker: Arc<AtomicWaker>,
    random: RefCell<fastrand::Rng>,
    dirty: RefCell<VecDeque<Rc<PartitionLog<D>>>>,
    /// To be looked at again after a turn of the ring.
    expecting: RefCell<Vec<Rc<PartitionLog<D>>>>,
    is_journal_expecting: Cell<bool>,
    /// Whom the last frame of the journal answered.
    pub(super) frame_callers: Cell<Callers>,
    pub(super) journal: RefCell<ShardJournal<D>>,
    /// The journal has something to do at the end of this turn.
    is_journal_dirty: Cell<bool>,
    /// Small groups on their way to segments.
    pub(super) small_in_flight: Cell<usize>,
    /// Groups on their way from the journal to segments.
    pub(super) storing: Cell<usize>,
    /// Memory for a group on its way from the journal when there is no other: so the journal always empties.
    spare: RefCell<Option<Extent>>,
    /// Partitions that take appends in this run.
    started: Cell<usize>,
    /// Bytes of the files that are being made.
    pub(super) making_bytes: Cell<u64>,
    /// Held while a next segment is made.
    pub(super) makers: tokio::sync::Semaphore,
    /// When the log last said that file descriptors are wanting.
    warned_of_files: Cell<Option<Duration>>,
    logs: RefCell<Vec<Weak<PartitionLog<D>>>>,
    pub(super) replay: tokio::sync::Mutex<Option<Rc<Replay>>>,
    tail_bytes: Cell<usize>,
    /// Whose oldest durable group goes next, and its bytes.
    tail: RefCell<VecDeque<(Weak<PartitionLog<D>>, usize)>>,
}

impl<D: Disk> LogContext<D> {
    #[expect(clippy::too_many_arguments, reason = "each is one thing the shard has, named once")]
    pub(crate) fn new<T: Transport>(
        environment: &Environment<D, T>,
        directory: PathBuf,
        identity: Identity,
        gate: Arc<GateState>,
        limits: ShardLimits,
        counters: Arc<LogCounters>,
        waker: Arc<AtomicWaker>,
        seed: u64,
    ) -> Rc<LogContext<D>> {
        let arena_bytes = environment.disk.arena().capacity_bytes();
        let lane = LaneLimits::of(&limits, arena_bytes);
        // The time is mixed in so that a run with a fixed seed does not draw its predecessor's names.
        let mut random = fastrand::Rng::with_seed(
            seed ^ environment.clock.wall().0.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        );
        let journal = JournalId(random.u64(1..));
        let memory = arena_bytes / JOURNAL_MEMORY_SHARE;
        Rc::new(LogContext {
            cold_lane: ColdLane::new(lane, environment.clock.clone(), counters.clone()),
            read_ahead: ReadAhead::new(
                limits.read_ahead_bytes_max,
                arena_bytes,
                environment.clock.clone(),
            ),
            disk: environment.disk.clone(),
            runtime: environment.runtime.clone(),
            clock: environment.clock.clone(),
            directory,
            identity,
            gate,
            limits,
            counters,
            appends_in_flight: Cell::new(0),
            reads_in_flight: Cell::new(0),
            readers_waiting: Cell::new(0),
            reserved: ReservedBytes::default(),
            writers: Writers::default(),
            frame_lists: FrameLists::default(),
            waker,
            random: RefCell::new(random),
            dirty: RefCell::default(),
            expecting: RefCell::default(),
            is_journal_expecting: Cell::new(false),
            frame_callers: Cell::default(),
            journal: RefCell::new(Journal::new(journal, limits.journal_bytes, memory)),
            is_journal_dirty: Cell::new(false),
            small_in_flight: Cell::new(0),
            storing: Cell::new(0),
            spare: RefCell::default(),
            started: Cell::new(0),
            making_bytes: Cell::new(0),
            makers: tokio::sync::Semaphore::new(MAKERS_MAX),
            warned_of_files: Cell::default(),
            logs: RefCell::default(),
            replay: tokio::sync::Mutex::default(),
            tail_bytes: Cell::new(0),
            tail: RefCell::default(),
        })
    }

    /// Tells whether the engine grants itself.
    pub(crate) fn is_standalone(&self) -> bool {
        self.identity.mode == DirectoryMode::Standalone
    }

    /// A name no segment ever had: 64 random bits.
    pub(crate) fn new_segment_id(&self) -> SegmentId {
        SegmentId(self.random.borrow_mut().u64(1..))
    }

    /// Notes that one more partition takes appends. From the second one on there is a journal: made only when their
    /// groups want it, it would be made while all of them write and sync files of their own, which takes seconds.
    pub(super) fn note_started(self: &Rc<Self>) {
        self.started.set(self.started.get() + 1);
        if self.started.get() > 1 {
            self.make_journal_if_wanted();
        }
    }

    /// Has the shard's loop let the partition submit at the end of this turn.
    pub(crate) fn mark_dirty(&self, log: Rc<PartitionLog<D>>) {
        self.dirty.borrow_mut().push_back(log);
        self.waker.wake();
    }

    pub(crate) fn take_dirty(&self) -> Option<Rc<PartitionLog<D>>> {
        self.dirty.borrow_mut().pop_front()
    }

    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.borrow().is_empty() || self.is_journal_dirty.get()
    }

    /// Has the shard's loop let the partition submit after a turn of the ring, in which others may come.
    pub(super) fn look_again(&self, log: Rc<PartitionLog<D>>) {
        self.expecting.borrow_mut().push(log);
    }

    /// Has the shard's loop look after the journal after a turn of the ring.
    pub(super) fn look_at_journal_again(&self) {
        self.is_journal_expecting.set(true);
    }

    /// Tells whether a partition or the journal is to be looked at again.
    pub(crate) fn is_expecting(&self) -> bool {
        self.is_journal_expecting.get() || !self.expecting.borrow().is_empty()
    }

    /// Marks what was to be looked at again. Called at the start of a turn.
    pub(crate) fn end_expecting(&self) {
        if self.is_journal_expecting.take() {
            self.mark_journal_dirty();
        }
        let mut expecting = self.expecting.borrow_mut();
        for log in expecting.drain(..) {
            log.mark_dirty();
        }
    }

    /// Tells whether partitions other than `log` have something to submit at the end of this turn.
    pub(super) fn has_dirty_beside(&self, log: &PartitionLog<D>) -> bool {
        self.dirty.borrow().iter().any(|dirty| !std::ptr::eq(Rc::as_ptr(dirty), log))
    }

    /// Has the shard's loop look after the journal at the end of this turn.
    pub(super) fn mark_journal_dirty(&self) {
        if !self.is_journal_dirty.replace(true) {
            self.waker.wake();
        }
    }

    pub(super) fn take_journal_dirty(&self) -> bool {
        self.is_journal_dirty.replace(false)
    }

    /// Notes a partition of the shard.
    pub(super) fn add_log(&self, log: &Rc<PartitionLog<D>>) {
        let mut logs = self.logs.borrow_mut();
        if logs.len() == logs.capacity() {
            logs.retain(|log| log.strong_count() > 0);
        }
        logs.push(Rc::downgrade(log));
    }

    /// The partitions of the shard.
    pub(super) fn logs(&self) -> Vec<Rc<PartitionLog<D>>> {
        self.logs.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Lends memory to move groups out of the journal, from the spare if there is no other.
    pub(super) fn allocate_to_store(&self, bytes: usize) -> Option<Extent> {
        let lent = self.allocate(bytes);
        lent.or_else(|| self.spare.borrow_mut().take_if(|spare| spare.len() >= bytes))
    }

    /// Puts memory by for [`allocate_to_store`](Self::allocate_to_store) if there is none and some is free.
    pub(super) fn keep_spare(&self, bytes: usize) {
        let mut spare = self.spare.borrow_mut();
        if spare.is_none() {
            *spare = self.disk.arena().allocate(bytes);
        }
    }

    /// Lends memory for writing, taking it from what was read ahead and then from tail readers if there is no
    /// other.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<Extent> {
        loop {
            if let Some(extent) = self.disk.arena().allocate(bytes) {
                return Some(extent);
            }
            if !self.evict_one() {
                return None;
            }
        }
    }

    /// Lends memory for a caller's records, all but what the background needs to go on.
    pub(crate) fn allocate_for_append(&self, bytes: usize) -> Option<Extent> {
        let arena = self.disk.arena();
        let kept_bytes = arena.capacity_bytes() / KEPT_SHARE;
        while arena.available_bytes() < bytes + kept_bytes {
            if !self.evict_one() {
                return None;
            }
        }
        self.allocate(bytes)
    }

    fn evict_one(&self) -> bool {
        self.read_ahead.evict_oldest() || self.evict_oldest()
    }

    /// Waits until there may be memory again, once nothing is left that is only kept for readers. For work in the
    /// background only.
    pub(super) async fn wait_for_memory(&self) {
        if !self.evict_one() {
            self.runtime.sleep(MEMORY_RETRY_AFTER).await;
        }
    }

    /// Whose memory the next `bytes` for a reader come in: the arena's, until readers hold their share of it.
    pub(super) fn sharing(&self, bytes: usize) -> Sharing {
        let arena = self.disk.arena();
        let lent_max = arena.capacity_bytes() / 100 * self.limits.lent_percent_max;
        if may_lend(arena.lent_bytes(), lent_max, bytes) {
            return Sharing::Lend;
        }
        self.counters.copied_reads.add(1);
        Sharing::Copy
    }

    /// Lends memory, waiting until there is some. For work in the background only.
    pub(crate) async fn allocate_waiting(&self, bytes: usize) -> Extent {
        loop {
            if let Some(extent) = self.allocate(bytes) {
                return extent;
            }
            self.wait_for_memory().await;
        }
    }

    /// Runs an operation that needs a file descriptor, again while the process has none left: nothing was done then. For
    /// work in the background only.
    pub(super) async fn with_descriptor<T>(
        &self,
        operation: impl AsyncFn() -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        loop {
            match operation().await {
                Err(error) if error.is_out_of_files() => self.wait_for_descriptors(&error).await,
                answer => return answer,
            }
        }
    }

    /// Waits until there may be file descriptors again.
    pub(super) async fn wait_for_descriptors(&self, error: &DiskError) {
        let now = self.clock.now().boottime;
        let is_news = self.warned_of_files.get().is_none_or(|last| now >= last + WARNING_EVERY);
        if is_news {
            self.warned_of_files.set(Some(now));
            tracing::warn!(%error, "no file descriptors are left: raise the limit on open files");
        }
        self.close_idle_files();
        self.runtime.sleep(DESCRIPTOR_RETRY_AFTER).await;
    }

    /// Closes what is only open because it may be of use later.
    pub(super) fn close_idle_files(&self) {
        for log in self.logs() {
            log.read_segments.clear();
            log.state.borrow_mut().close_idle_next();
        }
    }

    /// Notes a durable group kept for tail readers, and lets go of the oldest ones beyond the budget.
    pub(crate) fn note_cached(&self, log: &Rc<PartitionLog<D>>, bytes: usize) {
        self.tail.borrow_mut().push_back((Rc::downgrade(log), bytes));
        self.tail_bytes.set(self.tail_bytes.get() + bytes);
    }

    pub(crate) fn keep_tail_budget(&self) {
        while self.tail_bytes.get() > self.limits.tail_bytes_max && self.evict_oldest() {}
        self.counters.tail_bytes.set(self.tail_bytes.get() as u64);
    }

    fn evict_oldest(&self) -> bool {
        let Some((log, bytes)) = self.tail.borrow_mut().pop_front() else { return false };
        self.tail_bytes.set(self.tail_bytes.get() - bytes);
        if let Some(log) = log.upgrade() {
            log.forget_oldest_group();
        }
        true
    }

    /// Notes for the session's renewals when the oldest write in flight was submitted.
    pub(crate) fn note_oldest_write<'a>(
        &self,
        logs: impl Iterator<Item = &'a Rc<PartitionLog<D>>>,
    ) {
        let oldest = logs.filter_map(|log| log.oldest_write());
        let oldest = oldest.chain(self.journal.borrow().oldest_submitted()).min();
        let micros =
            oldest.map_or(0, |at| u64::try_from(at.as_micros()).unwrap_or(u64::MAX).max(1));
        self.counters.oldest_write_us.set(micros);
    }
}

impl<D: Disk> std::fmt::Debug for LogContext<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogContext")
            .field("directory", &self.directory)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
