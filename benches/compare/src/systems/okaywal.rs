//! okaywal 0.3: one log a process; an entry's commit returns after an fdatasync that covers it, shared by waiting callers.
//!
//! It has no partitions: a chunk says which one it is of. Segments are written with zeros when made and reused after a
//! checkpoint, which here keeps nothing, as after a store that has taken over what the segment held.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use okaywal::{Configuration, Entry, EntryId, LogManager, LogVoid, ReadChunkResult};
use okaywal::{SegmentReader, WriteAheadLog};
use palisade_benches::stopwatch::Stopwatch;

use super::{Each, Log};
use crate::cold::drop_pages;
use crate::work::{Batch, Operation, Work};

/// The default of 1 MiB would make a checkpoint every few writes.
const SEGMENT_BYTES: u32 = 32 << 20;
/// One that no work here fills: what is read back must not have been checkpointed.
const KEEPING_SEGMENT_BYTES: u32 = 512 << 20;
const BUFFER_BYTES: usize = 256 << 10;
const PARTITION_BYTES: usize = 4;

pub(super) struct OkaywalLog {
    log: WriteAheadLog,
}

impl OkaywalLog {
    pub(super) fn open(directory: &Path, work: &Work) -> Result<OkaywalLog> {
        let log = configuration(directory, work).open(LogVoid)?;
        Ok(OkaywalLog { log })
    }
}

fn configuration(directory: &Path, work: &Work) -> Configuration {
    let segment = match work.operation {
        Operation::ReadBack => KEEPING_SEGMENT_BYTES,
        _ => SEGMENT_BYTES,
    };
    Configuration::default_for(directory)
        .preallocate_bytes(segment)
        .checkpoint_after_bytes(u64::from(segment) / 4 * 3)
        .buffer_bytes(BUFFER_BYTES)
}

impl Log for OkaywalLog {
    fn append(&self, _caller: usize, partition: usize, batch: &Batch) -> Result<()> {
        let partition = u32::try_from(partition)?.to_le_bytes();
        let mut entry = self.log.begin_entry()?;
        for record in batch.records() {
            let length = u32::try_from(PARTITION_BYTES + record.len())?;
            let mut chunk = entry.begin_chunk(length)?;
            io::Write::write_all(&mut chunk, &partition)?;
            io::Write::write_all(&mut chunk, record)?;
            chunk.finish()?;
        }
        entry.commit()?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.log.shutdown()?)
    }
}

/// okaywal reads in order only while it opens, so the opening is what is timed.
pub(super) fn read_back(directory: &Path, work: &Work, each: Each<'_>) -> Result<f64> {
    drop_pages(directory)?;
    let records = Arc::new(Mutex::new(Vec::new()));
    let collector = Collector { records: Arc::clone(&records) };
    let clock = Stopwatch::start();
    let log = configuration(directory, work).open(collector)?;
    let elapsed = clock.elapsed().as_secs_f64();
    for chunk in records.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).iter() {
        each(&chunk[PARTITION_BYTES..]);
    }
    log.shutdown()?;
    Ok(elapsed)
}

/// Keeps what recovery hands over.
struct Collector {
    records: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}

impl LogManager for Collector {
    fn recover(&mut self, entry: &mut Entry<'_>) -> io::Result<()> {
        let mut chunks = Vec::new();
        loop {
            match entry.read_chunk()? {
                ReadChunkResult::Chunk(mut chunk) => {
                    chunks.push(chunk.read_all()?);
                    if !chunk.check_crc()? {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                }
                ReadChunkResult::EndOfEntry => break,
                // An entry that was never committed counts for nothing.
                ReadChunkResult::AbortedEntry => return Ok(()),
            }
        }
        self.records.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).append(&mut chunks);
        Ok(())
    }

    fn checkpoint_to(
        &mut self,
        _last: EntryId,
        _entries: &mut SegmentReader,
        _log: &WriteAheadLog,
    ) -> io::Result<()> {
        Ok(())
    }
}
