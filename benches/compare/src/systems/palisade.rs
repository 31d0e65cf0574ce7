//! Palisade through its public API: one shard, default settings, `Committed` acknowledgements.
//!
//! Callers are tasks of one thread with a core of its own or of the shard itself, as the API means them to be, or threads
//! that park. Each append copies its batch, since an append takes the batch away.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use palisade_benches::executor::block_on;
use palisade_benches::load::{keep_off_the_shard, on_shard, wait_for};
use palisade_benches::stopwatch::{Stopwatch, pause};
use palisade_engine::engine::{Engine, Partition};
use palisade_engine::format::RecordBatch;
use palisade_engine::id::{Offset, PartitionName};
use palisade_engine::partition::{AppendError, AppendOptions, Durability, PartitionSettings, Read};

use super::{Each, Log, shape_of};
use crate::cold::drop_pages;
use crate::gauge::{Gauge, Limits, Sample, Tally};
use crate::work::{Batch, Operation, Route, Work};

/// From here on segments begin at their least size: ten thousand of the default would fill the disk.
const MANY_PARTITIONS: usize = 1_000;
const SMALL_SEGMENT_BYTES: u64 = 64 << 10;
const READ_BYTES: usize = 1 << 20;

pub(super) struct PalisadeLog {
    engine: Engine,
    partitions: Partitions,
}

/// What callers append to.
#[derive(Clone)]
struct Partitions {
    all: Arc<[Partition]>,
    durability: Durability,
}

/// Where the callers' tasks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tasks {
    OnOneThread,
    OnTheShard,
}

impl PalisadeLog {
    pub(super) fn open(directory: &Path, work: &Work) -> Result<PalisadeLog> {
        let settings = match work.partitions {
            MANY_PARTITIONS.. => PartitionSettings {
                first_segment_bytes: SMALL_SEGMENT_BYTES,
                ..PartitionSettings::default()
            },
            _ => PartitionSettings::default(),
        };
        let engine = Engine::builder(directory).shards(1).settings(settings).open()?;
        let partitions = block_on(open_partitions(&engine, work.partitions))?;
        let durability = match work.operation {
            Operation::AppendUnsynced => Durability::Accepted,
            Operation::AppendDurable | Operation::ReadBack => Durability::Committed,
        };
        let partitions = Partitions { all: partitions.into(), durability };
        Ok(PalisadeLog { engine, partitions })
    }
}

impl Partitions {
    async fn append_in_turn(&self, partition: usize, batch: &RecordBatch) -> Result<Wake> {
        let options = AppendOptions { durability: self.durability, ..AppendOptions::default() };
        match self.all[partition].append(batch.clone(), options).await {
            Ok(_) => Ok(Wake::Done),
            Err(AppendError::Busy { retry_after }) => Ok(Wake::RetryAfter(retry_after)),
            Err(error) => Err(error.into()),
        }
    }

    /// One caller: asks, waits for the answer, asks again.
    async fn call(&self, gauge: &Gauge, work: &Work, caller: usize) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut route = Route::of(work, caller);
        let batch = Batch::of(work, caller as u64);
        let records = record_batch(&batch)?;
        while !gauge.is_over() {
            let asked = Stopwatch::start();
            let partition = route.next();
            while let Wake::RetryAfter(wait) = self.append_in_turn(partition, &records).await? {
                wait_for(&self.all[partition], wait).await;
            }
            tally.acknowledge(gauge, asked, batch.bytes());
        }
        Ok(tally)
    }

    /// All callers, as tasks of whatever polls this.
    async fn call_all(&self, gauge: &Gauge, work: &Work) -> Result<Vec<Tally>> {
        let mut callers: FuturesUnordered<_> =
            (0..work.callers).map(|caller| self.call(gauge, work, caller)).collect();
        let mut tallies = Vec::new();
        while let Some(tally) = callers.next().await {
            tallies.push(tally?);
        }
        Ok(tallies)
    }
}

enum Wake {
    Done,
    RetryAfter(Duration),
}

async fn open_partitions(engine: &Engine, count: usize) -> Result<Vec<Partition>> {
    let mut partitions = Vec::with_capacity(count);
    for number in 0..count {
        let name: PartitionName = format!("compare/{number}").parse()?;
        partitions.push(engine.open_partition(&name).await?);
    }
    Ok(partitions)
}

fn record_batch(batch: &Batch) -> Result<RecordBatch> {
    let mut builder = RecordBatch::builder();
    for record in batch.records() {
        builder.push(record)?;
    }
    Ok(builder.finish())
}

impl Log for PalisadeLog {
    fn append(&self, _caller: usize, partition: usize, batch: &Batch) -> Result<()> {
        let records = record_batch(batch)?;
        while let Wake::RetryAfter(wait) =
            block_on(self.partitions.append_in_turn(partition, &records))?
        {
            pause(wait);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        block_on(self.engine.close())?;
        Ok(())
    }
}

/// All callers as tasks.
pub(super) fn sample(
    directory: &Path,
    work: &Work,
    limits: Limits,
    tasks: Tasks,
) -> Result<Sample> {
    let clock = Stopwatch::start();
    let log = PalisadeLog::open(directory, work)?;
    super::touch(&log, work)?;
    let setup_s = clock.elapsed().as_secs_f64();
    let sample = Gauge::measure(limits, shape_of(work), |gauge| match tasks {
        Tasks::OnOneThread => {
            keep_off_the_shard();
            block_on(log.partitions.call_all(gauge, work))
        }
        Tasks::OnTheShard => {
            let (partitions, gauge, work) = (log.partitions.clone(), gauge.clone(), work.clone());
            on_shard(&log.engine, move || async move { partitions.call_all(&gauge, &work).await })
        }
    })?;
    Box::new(log).close()?;
    Ok(Sample { setup_s, ..sample })
}

/// Timed: reads of a MiB, one after the other, of every partition. The opening is not.
pub(super) fn read_back(directory: &Path, work: &Work, each: Each<'_>) -> Result<f64> {
    let log = PalisadeLog::open(directory, work)?;
    drop_pages(directory)?;
    let clock = Stopwatch::start();
    for partition in &*log.partitions.all {
        let (mut from, end) = (Offset(0), partition.watermarks().committed);
        while from < end {
            let answer =
                block_on(partition.read(Read { bytes_max: READ_BYTES, ..Read::from(from) }))?;
            for batch in &answer.batches {
                batch.iter().for_each(|(_offset, record)| each(record));
            }
            anyhow::ensure!(answer.next_offset > from, "a read made no progress");
            from = answer.next_offset;
        }
    }
    let elapsed = clock.elapsed().as_secs_f64();
    Box::new(log).close()?;
    Ok(elapsed)
}
