//! raft-engine 0.4: the logs of many Raft groups in one file; waiting writers form a group, whose leader syncs once.
//!
//! A Raft group has one writer at a time, since its entries are numbered without holes. So callers that share a
//! partition each get a group of their own, which is how raft-engine batches them.

use std::path::Path;
use std::sync::Mutex;

use anyhow::Result;
use palisade_benches::stopwatch::Stopwatch;
use protobuf::descriptor::UninterpretedOption;
use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};

use super::{Each, Log};
use crate::cold::drop_pages;
use crate::work::{Batch, Operation, Work};

/// Files made ahead at the start, so that none is extended while it is measured.
const PREFILL_MIB: u64 = 512;
/// Entries fetched at a time.
const FETCH_ENTRIES: u64 = 1_000;

/// An entry: any protobuf message with a number and bytes will do.
struct Entries;

impl MessageExt for Entries {
    type Entry = UninterpretedOption;

    fn index(entry: &UninterpretedOption) -> u64 {
        entry.get_positive_int_value()
    }
}

pub(super) struct RaftEngineLog {
    engine: Engine,
    /// The next index of each group, from 1.
    next: Vec<Mutex<u64>>,
    partitions: usize,
    is_synced: bool,
}

impl RaftEngineLog {
    pub(super) fn open(directory: &Path, work: &Work) -> Result<RaftEngineLog> {
        let engine = Engine::open(config(directory, work))?;
        let groups = work.partitions.max(work.callers);
        let next = (0..groups as u64)
            .map(|group| Mutex::new(engine.last_index(group + 1).unwrap_or(0) + 1))
            .collect();
        let is_synced = work.operation != Operation::AppendUnsynced;
        Ok(RaftEngineLog { engine, next, partitions: work.partitions, is_synced })
    }
}

fn config(directory: &Path, work: &Work) -> Config {
    Config {
        dir: directory.to_string_lossy().into_owned(),
        // Noise does not compress.
        batch_compression_threshold: ReadableSize(0),
        purge_threshold: ReadableSize::mb(PREFILL_MIB),
        enable_log_recycle: true,
        prefill_for_recycle: work.operation != Operation::ReadBack,
        prefill_limit: (work.operation != Operation::ReadBack)
            .then_some(ReadableSize::mb(PREFILL_MIB)),
        ..Config::default()
    }
}

impl Log for RaftEngineLog {
    fn append(&self, caller: usize, partition: usize, batch: &Batch) -> Result<()> {
        let group = if self.partitions < self.next.len() { caller } else { partition };
        // Held during the write: the entries of a group reach the log in order.
        let mut next = self.next[group].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let entry = |(index, record): (u64, &Vec<u8>)| {
            let mut entry = UninterpretedOption::default();
            entry.set_positive_int_value(index);
            entry.set_string_value(record.clone());
            entry
        };
        let entries: Vec<_> = (*next..).zip(batch.records()).map(entry).collect();
        let mut log_batch = LogBatch::with_capacity(1);
        log_batch.add_entries::<Entries>(group as u64 + 1, &entries)?;
        self.engine.write(&mut log_batch, self.is_synced)?;
        *next += entries.len() as u64;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.engine.sync()?)
    }
}

/// Timed: fetching every entry of every group. The opening, which reads the whole log once to index it, is not.
pub(super) fn read_back(directory: &Path, work: &Work, each: Each<'_>) -> Result<f64> {
    let engine = Engine::open(config(directory, work))?;
    drop_pages(directory)?;
    let clock = Stopwatch::start();
    let mut entries = Vec::new();
    for group in engine.raft_groups() {
        let (Some(first), Some(last)) = (engine.first_index(group), engine.last_index(group))
        else {
            continue;
        };
        for from in (first..=last).step_by(FETCH_ENTRIES as usize) {
            let end = (from + FETCH_ENTRIES).min(last + 1);
            engine.fetch_entries_to::<Entries>(group, from, end, None, &mut entries)?;
            entries.drain(..).for_each(|entry| each(entry.get_string_value()));
        }
    }
    Ok(clock.elapsed().as_secs_f64())
}
