//! Appends records through the data client, and remembers which record was acknowledged at which offset.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use palisade_engine::io::SystemClock;
use palisade_engine::io::clock::{Clock, ClockReading};
use palisade_sidecar::client::{
    AppendOptions, DataClient, RecordBatch, RecordBatchBuilder, partition_of,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::input::Input;
use super::raw_device::{latencies, record};

/// Records of one batch at most.
const BATCH_RECORDS_MAX: u32 = 1000;

/// Bytes of one batch at which it is sent although it has room for more records.
const BATCH_BYTES_TARGET: usize = 1 << 20;

/// Batches waiting for their acknowledgement at once, over all partitions.
const BATCHES_IN_FLIGHT_MAX: usize = 48;

/// Which record of the input each acknowledged offset holds, by partition.
#[derive(Debug)]
pub(crate) struct Ledger {
    partitions: Vec<Vec<Acknowledged>>,
}

/// One acknowledged batch.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    pub(crate) base_offset: u64,
    pub(crate) record_numbers: Vec<u32>,
}

impl Ledger {
    pub(crate) fn new(partitions: u32) -> Ledger {
        Ledger { partitions: (0..partitions).map(|_| Vec::new()).collect() }
    }

    /// The acknowledged batches of each partition, by rising offset.
    pub(crate) fn into_partitions(self) -> Vec<Vec<Acknowledged>> {
        let mut partitions = self.partitions;
        for batches in &mut partitions {
            batches.sort_by_key(|batch| batch.base_offset);
        }
        partitions
    }
}

/// What appending came to.
#[derive(Debug)]
pub(crate) struct AppendFigures {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    pub(crate) ack_ns: Histogram<u64>,
}

/// A batch that is being filled for one partition.
struct Filling {
    builder: RecordBatchBuilder,
    record_numbers: Vec<u32>,
}

impl Filling {
    fn new() -> Filling {
        Filling { builder: RecordBatch::builder(64 << 10), record_numbers: Vec::new() }
    }
}

struct Done {
    partition: u32,
    batch: Acknowledged,
    latency: Duration,
}

/// Appends the numbered records of `input` to `stream`, each to the partition of its hash, and enters every
/// acknowledgement into `ledger`. Returns once all are acknowledged.
pub(crate) async fn append(
    client: &DataClient,
    stream: &str,
    input: &Input,
    numbers: Range<usize>,
    ledger: &mut Ledger,
    progress: &ProgressBar,
) -> anyhow::Result<AppendFigures> {
    let partitions = u32::try_from(ledger.partitions.len()).context("counting partitions")?;
    let mut figures =
        AppendFigures { records: 0, bytes: 0, elapsed: Duration::ZERO, ack_ns: latencies() };
    let started = SystemClock.now();
    let mut sender = Sender::new(client, stream);
    let mut filling: Vec<Filling> = (0..partitions).map(|_| Filling::new()).collect();
    for number in numbers {
        let bytes = input.record(number);
        let partition = partition_of(bytes, partitions);
        let batch = &mut filling[partition as usize];
        let is_full = batch.builder.records() == BATCH_RECORDS_MAX
            || batch.builder.payload_bytes() + bytes.len() > BATCH_BYTES_TARGET;
        if is_full && batch.builder.records() > 0 {
            sender.send(partition, std::mem::replace(batch, Filling::new())).await?;
            sender.collect_finished(ledger, &mut figures, progress)?;
        }
        batch.builder.push(bytes).with_context(|| format!("record {number} of the input"))?;
        batch.record_numbers.push(u32::try_from(number).context("numbering records")?);
        figures.bytes += bytes.len() as u64;
    }
    for (partition, batch) in (0..partitions).zip(filling) {
        if batch.builder.records() > 0 {
            sender.send(partition, batch).await?;
        }
    }
    sender.collect_all(ledger, &mut figures, progress).await?;
    figures.elapsed = SystemClock.now().elapsed_for_holder(started);
    Ok(figures)
}

/// Sends batches, a bounded number at once.
struct Sender<'a> {
    client: &'a DataClient,
    stream: &'a str,
    room: Arc<Semaphore>,
    under_way: JoinSet<anyhow::Result<Done>>,
}

impl<'a> Sender<'a> {
    fn new(client: &'a DataClient, stream: &'a str) -> Sender<'a> {
        let room = Arc::new(Semaphore::new(BATCHES_IN_FLIGHT_MAX));
        Sender { client, stream, room, under_way: JoinSet::new() }
    }

    async fn send(&mut self, partition: u32, filled: Filling) -> anyhow::Result<()> {
        let permit = self.room.clone().acquire_owned().await.context("sending a batch")?;
        let Filling { builder, record_numbers } = filled;
        let sent: ClockReading = SystemClock.now();
        let pending = self
            .client
            .submit(self.stream, partition, builder.finish(), AppendOptions::default())
            .await
            .with_context(|| format!("appending to {}/{partition}", self.stream))?;
        let name = format!("{}/{partition}", self.stream);
        self.under_way.spawn(async move {
            let appended =
                pending.acknowledged().await.with_context(|| format!("appending to {name}"))?;
            let latency = SystemClock.now().elapsed_for_holder(sent);
            drop(permit);
            let batch = Acknowledged { base_offset: appended.base_offset, record_numbers };
            Ok(Done { partition, batch, latency })
        });
        Ok(())
    }

    fn collect_finished(
        &mut self,
        ledger: &mut Ledger,
        figures: &mut AppendFigures,
        progress: &ProgressBar,
    ) -> anyhow::Result<()> {
        while let Some(done) = self.under_way.try_join_next() {
            enter(done.context("an append was cut short")??, ledger, figures, progress);
        }
        Ok(())
    }

    async fn collect_all(
        &mut self,
        ledger: &mut Ledger,
        figures: &mut AppendFigures,
        progress: &ProgressBar,
    ) -> anyhow::Result<()> {
        while let Some(done) = self.under_way.join_next().await {
            enter(done.context("an append was cut short")??, ledger, figures, progress);
        }
        Ok(())
    }
}

fn enter(done: Done, ledger: &mut Ledger, figures: &mut AppendFigures, progress: &ProgressBar) {
    let records = done.batch.record_numbers.len() as u64;
    record(&mut figures.ack_ns, done.latency);
    figures.records += records;
    progress.inc(records);
    ledger.partitions[done.partition as usize].push(done.batch);
}
