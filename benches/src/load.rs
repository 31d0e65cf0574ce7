//! Drives the engine through its public API the way a caller would: many appends in flight, one alone, a scan.
//!
//! The futures here run anywhere: on the calling thread, or on the shard itself through [`on_shard`].

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use palisade_engine::engine::{Append, Engine, Partition, ShardIndex};
use palisade_engine::format::{GROUP_HEADER_BYTES, RecordBatch};
use palisade_engine::id::{BLOCK_BYTES, Offset, PartitionName};
use palisade_engine::partition::{AppendError, AppendOptions, PartitionSettings, Read, Wait};

use crate::executor::block_on;
use crate::raw_ring::fill_with_noise;
use crate::scratch::files_below;
use crate::stopwatch::{Stopwatch, pause};

/// The length stored in front of each record. Source: docs/FORMAT.md.
const RECORD_PREFIX_BYTES: usize = 4;

/// Where a load runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// On a thread of its own; every append crosses to the shard and back.
    OtherThread,
    /// On the shard's own thread, through `spawn_on`.
    Shard,
}

impl Caller {
    /// Both ways of calling.
    pub const BOTH: [Caller; 2] = [Caller::OtherThread, Caller::Shard];

    /// Names it in a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Caller::OtherThread => "from another thread",
            Caller::Shard => "on the shard",
        }
    }
}

/// An engine of one shard with one open partition, in its own directory.
#[derive(Debug)]
pub struct OpenLog {
    /// The engine.
    pub engine: Engine,
    /// Its partition.
    pub partition: Partition,
    directory: PathBuf,
}

impl OpenLog {
    /// Opens the log in `directory`, making it if it is not there.
    ///
    /// # Panics
    ///
    /// If the engine does not open: there is nothing to measure then.
    #[must_use]
    pub fn open(directory: &Path, settings: PartitionSettings) -> OpenLog {
        let engine = Engine::builder(directory).shards(1).settings(settings).open();
        let engine = engine.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        OpenLog::first_partition_of(engine, directory)
    }

    /// Opens the one partition of an engine on `directory`.
    ///
    /// # Panics
    ///
    /// If it does not open.
    #[must_use]
    pub fn first_partition_of(engine: Engine, directory: &Path) -> OpenLog {
        let name: PartitionName = "bench/0".parse().expect("a valid name");
        let partition = block_on(engine.open_partition(&name)).expect("a partition to measure");
        OpenLog::of(engine, partition, directory)
    }

    /// Takes a log that was opened in another way.
    #[must_use]
    pub fn of(engine: Engine, partition: Partition, directory: &Path) -> OpenLog {
        OpenLog { engine, partition, directory: directory.to_owned() }
    }

    /// Runs `load` where `caller` says and returns its result.
    ///
    /// # Panics
    ///
    /// If the load panics.
    pub fn run<T, F, L>(&self, caller: Caller, load: L) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
        L: FnOnce(Partition) -> F + Send + 'static,
    {
        let partition = self.partition.clone();
        match caller {
            Caller::OtherThread => block_on(load(partition)),
            Caller::Shard => on_shard(&self.engine, move || load(partition)),
        }
    }

    /// Drops everything appended so far, so that a bench of any length stays within its disk space.
    ///
    /// # Panics
    ///
    /// If the trim fails.
    pub fn trim(&self) {
        let end = self.partition.watermarks().committed;
        block_on(self.partition.trim(end)).expect("a trim to the committed end");
    }

    /// Trims, and waits until the files have stopped changing: the next segment is made in the background, which
    /// would be measured too.
    pub fn reset(&self) {
        self.trim();
        self.settle();
    }

    /// Waits until no file of the log has changed its length for 50 ms.
    pub fn settle(&self) {
        settle(&self.directory);
    }

    /// Closes the engine in order.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn close(self) {
        block_on(self.engine.close()).expect("an orderly close");
    }
}

/// Waits until no file below `directory` has changed its length for 50 ms.
pub fn settle(directory: &Path) {
    let mut before = files_below(directory);
    loop {
        pause(Duration::from_millis(50));
        let now = files_below(directory);
        if now == before {
            return;
        }
        before = now;
    }
}

/// Pins this thread to the last core, the first shard has the first one. Left alone, the scheduler puts a caller on the
/// core of the shard that wakes it, and the two then take turns; a program with callers of its own keeps cores for them.
pub fn keep_off_the_shard() {
    if let Some(last) = core_affinity::get_core_ids().unwrap_or_default().last() {
        core_affinity::set_for_current(*last);
    }
}

/// Runs `load` on the first shard's own thread and waits for its result.
///
/// # Panics
///
/// If the load panics.
pub fn on_shard<T, F, L>(engine: &Engine, load: L) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
    L: FnOnce() -> F + Send + 'static,
{
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let task = move || async move {
        // The receiver below outlives the task, unless the engine ended first; then nobody asks.
        sender.send(load().await).ok();
    };
    engine.spawn_on(ShardIndex(0), task).expect("a shard that takes tasks");
    receiver.recv().expect("the load ran to its end on the shard")
}

/// Makes a batch of `records` records of `record_bytes` noise each.
///
/// # Panics
///
/// If they do not fit one batch.
#[must_use]
pub fn batch_of(records: u64, record_bytes: usize) -> RecordBatch {
    let mut builder = RecordBatch::builder();
    let mut record = vec![0; record_bytes];
    for seed in 0..records {
        fill_with_noise(&mut record, seed);
        builder.push(&record).expect("a batch within its limits");
    }
    builder.finish()
}

/// Makes a batch of 1 KiB records (the last one somewhat longer) that fills a group of `group_bytes` to the byte.
///
/// # Panics
///
/// If they do not fit one batch, or the group is below a block.
#[must_use]
pub fn batch_filling(group_bytes: usize) -> RecordBatch {
    const RECORD_BYTES: usize = 1024;
    const STORED_BYTES: usize = RECORD_BYTES + RECORD_PREFIX_BYTES;
    assert!(group_bytes >= BLOCK_BYTES);
    let batch_bytes = group_bytes - GROUP_HEADER_BYTES;
    let mut builder = RecordBatch::builder();
    let mut record = vec![0; 2 * STORED_BYTES];
    fill_with_noise(&mut record, 1);
    while batch_bytes - builder.bytes() >= 2 * STORED_BYTES {
        builder.push(&record[..RECORD_BYTES]).expect("a batch within its limits");
    }
    let rest = batch_bytes - builder.bytes() - RECORD_PREFIX_BYTES;
    builder.push(&record[..rest]).expect("a batch within its limits");
    let batch = builder.finish();
    assert_eq!(batch.bytes(), batch_bytes);
    batch
}

/// How much is appended.
#[derive(Clone, Copy, Debug)]
pub struct AppendWork {
    /// Batches in all.
    pub count: u64,
    /// Batches submitted and not yet acknowledged, at most.
    pub window: usize,
}

/// Appends copies of `batch`, `work.window` in flight, each acknowledged when synced, and returns the time from the
/// first call to the last acknowledgement. Copying the batch is the caller's cost and counted.
///
/// # Panics
///
/// If an append fails otherwise than by [`AppendError::Busy`], which is waited out.
pub async fn append_many(partition: Partition, batch: RecordBatch, work: AppendWork) -> Duration {
    append_many_as(partition, batch, work, AppendOptions::default()).await
}

/// As [`append_many`], each append acknowledged when `options` say.
///
/// # Panics
///
/// As [`append_many`].
pub async fn append_many_as(
    partition: Partition,
    batch: RecordBatch,
    work: AppendWork,
    options: AppendOptions,
) -> Duration {
    let mut in_flight: VecDeque<Append> = VecDeque::with_capacity(work.window);
    let mut left = work.count;
    let clock = Stopwatch::start();
    while left > 0 || !in_flight.is_empty() {
        while left > 0 && in_flight.len() < work.window {
            in_flight.push_back(partition.append(batch.clone(), options));
            left -= 1;
        }
        let Some(oldest) = in_flight.pop_front() else { break };
        match oldest.await {
            Ok(_) => {}
            Err(AppendError::Busy { retry_after }) => {
                // Always, not only with nothing in flight: answers that are there at once would keep a shard from its work.
                left += 1;
                wait_for(&partition, retry_after).await;
            }
            Err(error) => panic!("an append of a bench failed: {error}"),
        }
    }
    clock.elapsed()
}

/// Appends copies of `batch` through [`Partition::reserve`] by `work.window` independent callers: each fills what it was lent, as a
/// broker does from a socket, commits it, and goes on when that is acknowledged as `options` say. Returns the time from the
/// first call to the last acknowledgement.
///
/// # Panics
///
/// As [`append_many`].
pub async fn append_reserved(
    partition: Partition,
    batch: RecordBatch,
    work: AppendWork,
    options: AppendOptions,
) -> Duration {
    let left = Cell::new(work.count);
    let append = async || {
        let mut reservation = partition.reserve(batch.payload().len()).await?;
        reservation.as_mut_slice().copy_from_slice(batch.payload());
        let committed = reservation.commit(batch.records(), batch.payload_crc(), options);
        committed.expect("the payload of a batch").await
    };
    let caller = async || {
        while left.get() > 0 {
            left.set(left.get() - 1);
            loop {
                match append().await {
                    Ok(_) => break,
                    Err(AppendError::Busy { retry_after }) => {
                        wait_for(&partition, retry_after).await;
                    }
                    Err(error) => panic!("an append of a bench failed: {error}"),
                }
            }
        }
    };
    let clock = Stopwatch::start();
    join_all((0..work.window).map(|_| caller())).await;
    clock.elapsed()
}

/// Appends copies of `batch` to `partitions` in turn by `work.window` independent callers, each of which starts its next
/// append when its last one is acknowledged as synced. Returns the time from the first call to the last acknowledgement.
///
/// # Panics
///
/// As [`append_many`].
pub async fn append_across(
    partitions: Vec<Partition>,
    batch: RecordBatch,
    work: AppendWork,
) -> Duration {
    let begun = Cell::new(0_usize);
    let count = usize::try_from(work.count).expect("a count of this run");
    let caller = async || loop {
        let index = begun.get();
        if index == count {
            return;
        }
        begun.set(index + 1);
        let partition = &partitions[index % partitions.len()];
        loop {
            match partition.append(batch.clone(), AppendOptions::default()).await {
                Ok(_) => break,
                Err(AppendError::Busy { retry_after }) => wait_for(partition, retry_after).await,
                Err(error) => panic!("an append of a bench failed: {error}"),
            }
        }
    };
    let clock = Stopwatch::start();
    join_all((0..work.window).map(|_| caller())).await;
    clock.elapsed()
}

/// Appends copies of `batch` one at a time and returns how long each took from call to acknowledgement.
///
/// # Panics
///
/// If an append fails.
pub async fn append_alone(partition: Partition, batch: RecordBatch, count: u64) -> Vec<Duration> {
    let mut latencies = Vec::new();
    for _ in 0..count {
        let copy = batch.clone();
        let clock = Stopwatch::start();
        let appended = partition.append(copy, AppendOptions::default()).await;
        latencies.push(clock.elapsed());
        appended.expect("a lone append meets no limit");
    }
    latencies
}

/// Waits on whatever runtime polls this: a read at the end of the log that gives up after `length`.
pub async fn wait_for(partition: &Partition, length: Duration) {
    let from = partition.watermarks().committed;
    let read = Read { bytes_max: 1, wait: Wait::UpTo(length), ..Read::from(from) };
    // Its answer does not matter, only that it took its time.
    drop(partition.read(read).await);
}

/// What a scan covers: offsets `from` to `end`, in reads of at most `bytes_max`.
#[derive(Clone, Copy, Debug)]
pub struct ScanWork {
    /// The first offset.
    pub from: Offset,
    /// Where to stop.
    pub end: Offset,
    /// Of each read.
    pub bytes_max: usize,
}

/// Reads all of `work`, one read after the other, and returns the bytes of the batches that came.
///
/// # Panics
///
/// If a read fails or makes no progress.
pub async fn scan(partition: Partition, work: ScanWork) -> u64 {
    let (mut from, mut bytes) = (work.from, 0);
    while from < work.end {
        let read = Read { bytes_max: work.bytes_max, ..Read::from(from) };
        let answer = partition.read(read).await.expect("a read of what was committed");
        assert!(answer.next_offset > from, "a read below the committed end made no progress");
        bytes += answer.batches.iter().map(|batch| batch.bytes().len() as u64).sum::<u64>();
        from = answer.next_offset;
    }
    bytes
}
