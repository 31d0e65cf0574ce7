//! RocksDB 10's write-ahead log: `sync` writes below a memtable that is never full. Waiting writers form a group, whose
//! leader writes for all and calls fdatasync once.
//!
//! A partition is a prefix of the key. The log written to is a recycled one, as in a store that has run for a while:
//! its blocks exist, so a sync changes no metadata.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use palisade_benches::stopwatch::Stopwatch;
use rocksdb::{DB, IteratorMode, Options, ReadOptions, WriteBatch, WriteOptions};

use super::{Each, Log};
use crate::cold::drop_pages;
use crate::work::{Batch, Operation, Work};

const MEMTABLE_BYTES: usize = 8 << 30;
/// How much of the recycled log exists. What comes after it extends the file.
const RECYCLED_BYTES: usize = 256 << 20;
const PIECE_BYTES: usize = 1 << 20;
const READ_AHEAD_BYTES: usize = 2 << 20;

pub(super) struct RocksdbLog {
    store: DB,
    next: AtomicU64,
    options: WriteOptions,
}

impl RocksdbLog {
    pub(super) fn open(directory: &Path, work: &Work) -> Result<RocksdbLog> {
        let store = DB::open(&options(), directory)?;
        if work.operation != Operation::ReadBack {
            recycle_a_log(&store)?;
        }
        let mut options = WriteOptions::default();
        options.set_sync(work.operation != Operation::AppendUnsynced);
        Ok(RocksdbLog { store, next: AtomicU64::new(0), options })
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_max_total_wal_size(MEMTABLE_BYTES as u64);
    options.set_disable_auto_compactions(true);
    options.set_compression_type(rocksdb::DBCompressionType::None);
    // The group's memtable inserts overlap the next group's log write.
    options.set_enable_pipelined_write(true);
    options.set_recycle_log_file_num(4);
    options
}

/// Fills a log and lets the store take it over, then once more: the log begun by the second time is the first one again.
fn recycle_a_log(store: &DB) -> Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    palisade_benches::raw_ring::fill_with_noise(&mut piece, 1);
    let key = [0xff; 13];
    for _ in 0..RECYCLED_BYTES / PIECE_BYTES {
        // The same key: the log gets every byte, the table written from the memtable one piece.
        store.put(key, &piece)?;
    }
    store.flush()?;
    store.delete(key)?;
    store.flush()?;
    Ok(())
}

impl Log for RocksdbLog {
    fn append(&self, _caller: usize, partition: usize, batch: &Batch) -> Result<()> {
        let records = batch.records();
        let first = self.next.fetch_add(records.len() as u64, Ordering::Relaxed);
        let partition = u32::try_from(partition)?.to_be_bytes();
        let mut writes = WriteBatch::default();
        for (sequence, record) in (first..).zip(records) {
            let mut key = [0; 12];
            key[..4].copy_from_slice(&partition);
            key[4..].copy_from_slice(&sequence.to_be_bytes());
            writes.put(key, record);
        }
        Ok(self.store.write_opt(writes, &self.options)?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Timed: a scan of all keys in order, out of the table that the opening made of the log. The opening is not.
pub(super) fn read_back(directory: &Path, _work: &Work, each: Each<'_>) -> Result<f64> {
    let store = DB::open(&options(), directory)?;
    store.flush()?;
    drop_pages(directory)?;
    let clock = Stopwatch::start();
    let mut reading = ReadOptions::default();
    reading.set_readahead_size(READ_AHEAD_BYTES);
    for entry in store.iterator_opt(IteratorMode::Start, reading) {
        let (_key, record) = entry?;
        each(&record);
    }
    Ok(clock.elapsed().as_secs_f64())
}
