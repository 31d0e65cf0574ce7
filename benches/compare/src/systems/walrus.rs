//! walrus 0.2: a topic has a block of 10 MB in a sparse file; `SyncEach` opens files with `O_SYNC` and calls fsync besides.
//!
//! Callers that share a partition each get a topic of their own: batches to one topic exclude each other with an error,
//! and walrus's own benches do the same. Its directory is set by `WALRUS_DATA_DIR` for the process.

use std::io::ErrorKind;
use std::path::Path;
use std::thread;

use anyhow::{Result, ensure};
use palisade_benches::stopwatch::Stopwatch;
use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus};

use super::{Each, Log};
use crate::cold::drop_pages;
use crate::work::{Batch, Operation, Work};

/// Set for a process by whoever starts it: walrus takes its directory from nowhere else.
pub const DIRECTORY_VARIABLE: &str = "WALRUS_DATA_DIR";
/// Keeps it from printing.
pub const QUIET_VARIABLE: &str = "WALRUS_QUIET";
const READ_BYTES: usize = 1 << 20;

pub(super) struct WalrusLog {
    log: Walrus,
    topics: Vec<String>,
    partitions: usize,
    is_synced: bool,
}

impl WalrusLog {
    pub(super) fn open(directory: &Path, work: &Work) -> Result<WalrusLog> {
        // What is only read back later is synced before it is: synced batches would take minutes.
        let is_synced = work.operation == Operation::AppendDurable;
        let schedule = if is_synced { FsyncSchedule::SyncEach } else { FsyncSchedule::NoFsync };
        Ok(WalrusLog {
            log: open(directory, schedule)?,
            topics: topics(work),
            partitions: work.partitions,
            is_synced,
        })
    }
}

fn open(directory: &Path, schedule: FsyncSchedule) -> Result<Walrus> {
    let own = std::env::var_os(DIRECTORY_VARIABLE);
    ensure!(own.is_some_and(|own| own == directory), "{DIRECTORY_VARIABLE} is not set for walrus");
    let reading = ReadConsistency::AtLeastOnce { persist_every: u32::MAX };
    Ok(Walrus::with_consistency_and_schedule(reading, schedule)?)
}

fn topics(work: &Work) -> Vec<String> {
    (0..work.partitions.max(work.callers)).map(|topic| format!("t{topic}")).collect()
}

impl Log for WalrusLog {
    fn append(&self, caller: usize, partition: usize, batch: &Batch) -> Result<()> {
        let topic = if self.partitions < self.topics.len() { caller } else { partition };
        let topic = &self.topics[topic];
        if let [record] = batch.records() {
            return Ok(self.log.append_for_topic(topic, record)?);
        }
        if !self.is_synced {
            // A batch is synced whatever the schedule says; single appends are not.
            for record in batch.records() {
                self.log.append_for_topic(topic, record)?;
            }
            return Ok(());
        }
        let records: Vec<&[u8]> = batch.records().iter().map(Vec::as_slice).collect();
        loop {
            match self.log.batch_append_for_topic(topic, &records) {
                Err(busy) if busy.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                answer => return Ok(answer?),
            }
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Timed: reading every topic to its end. The opening, which walks every block, is not.
pub(super) fn read_back(directory: &Path, work: &Work, each: Each<'_>) -> Result<f64> {
    let log = open(directory, FsyncSchedule::SyncEach)?;
    drop_pages(directory)?;
    let clock = Stopwatch::start();
    for topic in topics(work) {
        loop {
            let entries = log.batch_read_for_topic(&topic, READ_BYTES, true)?;
            if entries.is_empty() {
                break;
            }
            entries.iter().for_each(|entry| each(&entry.data));
        }
    }
    Ok(clock.elapsed().as_secs_f64())
}
