//! The systems compared, each used as its authors mean it to be with its strongest settings for the same durability.
//!
//! README.md says per system what "durable" means there and how it was checked.

mod okaywal;
mod palisade;
mod raft_engine;
mod raw;
mod rocksdb;
mod walrus;

use std::path::Path;
use std::thread;

use anyhow::Result;
use palisade_benches::stopwatch::Stopwatch;

use self::palisade::Tasks;
use crate::gauge::{BatchShape, Gauge, Limits, Sample, Tally};
use crate::work::{Batch, Operation, Route, Work};

pub use self::walrus::{
    DIRECTORY_VARIABLE as WALRUS_DIRECTORY_VARIABLE, QUIET_VARIABLE as WALRUS_QUIET_VARIABLE,
};

/// Who is asked to do the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum System {
    /// A bare io_uring loop over a pre-written file, `RWF_DSYNC`, one write a batch.
    Raw,
    /// Palisade, its callers as tasks of one thread.
    Palisade,
    /// Palisade, its callers as tasks of the shard's own thread.
    PalisadeShard,
    /// Palisade, each caller a thread that parks.
    PalisadeThreads,
    /// raft-engine: TiKV's log of many Raft groups in one file.
    RaftEngine,
    /// okaywal: group commit over one pre-allocated file.
    Okaywal,
    /// walrus: blocks of 10 MB a topic.
    Walrus,
    /// RocksDB's write-ahead log below a memtable that is never full.
    Rocksdb,
}

impl System {
    /// How the table and `--system` name it.
    pub fn name(self) -> &'static str {
        match self {
            System::Raw => "raw",
            System::Palisade => "palisade",
            System::PalisadeShard => "palisade-shard",
            System::PalisadeThreads => "palisade-threads",
            System::RaftEngine => "raft-engine",
            System::Okaywal => "okaywal",
            System::Walrus => "walrus",
            System::Rocksdb => "rocksdb",
        }
    }

    /// Why the system cannot do the work at all, if so.
    pub fn excuse(self, work: &Work) -> Option<&'static str> {
        match (self, work.operation) {
            (System::Okaywal, Operation::AppendUnsynced) => Some("every commit syncs"),
            (System::PalisadeShard | System::PalisadeThreads, Operation::ReadBack) => {
                Some("reads as palisade does")
            }
            _ => None,
        }
    }

    /// Does the work once in an empty `directory`.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn sample(self, directory: &Path, work: &Work, limits: Limits) -> Result<Sample> {
        match self {
            System::Raw => raw::sample(directory, work, limits),
            _ if work.operation == Operation::ReadBack => self.read_sample(directory, work, limits),
            System::Palisade => palisade::sample(directory, work, limits, Tasks::OnOneThread),
            System::PalisadeShard => palisade::sample(directory, work, limits, Tasks::OnTheShard),
            _ => {
                let clock = Stopwatch::start();
                let log = self.open(directory, work)?;
                touch(log.as_ref(), work)?;
                let setup_s = clock.elapsed().as_secs_f64();
                let sample = append_from_threads(log.as_ref(), work, limits)?;
                log.close()?;
                Ok(Sample { setup_s, ..sample })
            }
        }
    }

    /// Opens the log in `directory`.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn open(self, directory: &Path, work: &Work) -> Result<Box<dyn Log>> {
        Ok(match self {
            System::Raw => anyhow::bail!("a raw ring keeps no log"),
            System::Palisade | System::PalisadeShard | System::PalisadeThreads => {
                Box::new(palisade::PalisadeLog::open(directory, work)?)
            }
            System::RaftEngine => Box::new(raft_engine::RaftEngineLog::open(directory, work)?),
            System::Okaywal => Box::new(okaywal::OkaywalLog::open(directory, work)?),
            System::Walrus => Box::new(walrus::WalrusLog::open(directory, work)?),
            System::Rocksdb => Box::new(rocksdb::RocksdbLog::open(directory, work)?),
        })
    }

    /// Reopens `directory` from a cold page cache and hands out every record. Returns the seconds that counts as reading.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn read_back(self, directory: &Path, work: &Work, each: Each<'_>) -> Result<f64> {
        match self {
            System::Raw => anyhow::bail!("a raw ring keeps no log"),
            System::Palisade | System::PalisadeShard | System::PalisadeThreads => {
                palisade::read_back(directory, work, each)
            }
            System::RaftEngine => raft_engine::read_back(directory, work, each),
            System::Okaywal => okaywal::read_back(directory, work, each),
            System::Walrus => walrus::read_back(directory, work, each),
            System::Rocksdb => rocksdb::read_back(directory, work, each),
        }
    }

    fn read_sample(self, directory: &Path, work: &Work, limits: Limits) -> Result<Sample> {
        let clock = Stopwatch::start();
        let log = self.open(directory, work)?;
        let batch = Batch::of(work, 0);
        let batches = read_back_batches(work, limits);
        for _ in 0..batches {
            log.append(0, 0, &batch)?;
        }
        log.close()?;
        let setup_s = clock.elapsed().as_secs_f64();
        let (mut records, mut bytes) = (0_u64, 0_u64);
        let busy = palisade_benches::machine::BusyTime::now();
        let elapsed_s = self.read_back(directory, work, &mut |record| {
            records += 1;
            bytes += record.len() as u64;
        })?;
        let used_by_others = palisade_benches::machine::BusyTime::now().used_by_others_since(busy);
        let expected = batches * work.records as u64;
        anyhow::ensure!(records == expected, "{records} records came back of {expected}");
        Ok(Sample {
            records_per_s: records as f64 / elapsed_s,
            mb_per_s: bytes as f64 / 1e6 / elapsed_s,
            ack_p50_us: None,
            ack_p99_us: None,
            setup_s,
            used_by_others,
        })
    }
}

/// What is read back: at most a quarter of a GiB, so that a round stays short.
pub fn read_back_batches(work: &Work, limits: Limits) -> u64 {
    (limits.bytes_max.min(256 << 20) / work.batch_bytes()).max(1)
}

/// Takes each record read back.
pub type Each<'a> = &'a mut dyn FnMut(&[u8]);

/// A log that callers on threads of their own append to.
pub trait Log: Sync {
    /// Appends a batch and returns when what the work promises is true: for durable work, after a sync that began when
    /// the batch was already written.
    ///
    /// # Errors
    ///
    /// The system's.
    fn append(&self, caller: usize, partition: usize, batch: &Batch) -> Result<()>;

    /// Closes it in order, with everything synced.
    ///
    /// # Errors
    ///
    /// The system's.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Appends once to every partition: some systems make a partition at its first append, which is no steady state.
fn touch(log: &dyn Log, work: &Work) -> Result<()> {
    let batch = Batch::of(work, 0);
    on_each_thread(work.callers, |caller| {
        Route::of(work, caller)
            .each()
            .try_for_each(|partition| log.append(caller, partition, &batch))
    })
    .map(drop)
}

fn append_from_threads(log: &dyn Log, work: &Work, limits: Limits) -> Result<Sample> {
    Gauge::measure(limits, shape_of(work), |gauge| {
        on_each_thread(work.callers, |caller| {
            let mut tally = Tally::default();
            let mut route = Route::of(work, caller);
            let batch = Batch::of(work, caller as u64);
            while !gauge.is_over() {
                let asked = Stopwatch::start();
                log.append(caller, route.next(), &batch)?;
                tally.acknowledge(gauge, asked, batch.bytes());
            }
            Ok(tally)
        })
    })
}

fn shape_of(work: &Work) -> BatchShape {
    BatchShape { records: work.records, bytes: work.batch_bytes() }
}

fn on_each_thread<T: Send>(
    callers: usize,
    run: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..callers).map(|caller| scope.spawn(move || run(caller))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<T>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}
