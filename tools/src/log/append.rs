//! `palisade log append`: standard input to a partition, in order, synced before the command ends.

use std::collections::VecDeque;
use std::io::BufRead;
use std::time::Duration;

use anyhow::{Context, bail};
use palisade_engine::id::{Offset, PartitionName};
use palisade_engine::{Append, AppendError, AppendOptions, Engine, Partition, RecordBatch};

use crate::cli::LogAppendArgs;
use crate::outcome::{Outcome, Refusal};

/// Batches under way at once: enough to keep the disk busy while lines are read.
const BATCHES_IN_FLIGHT_MAX: usize = 32;

/// A batch is sent when it holds this many bytes, even if it has room for more records.
const BATCH_BYTES_TARGET: usize = 256 << 10;

pub(crate) async fn run(args: &LogAppendArgs, json: bool) -> anyhow::Result<Outcome> {
    let name = super::parse_name(&args.partition)?;
    let engine = super::open_engine(&args.directory, args.io)?;
    refuse_to_shadow(&engine, &name)?;
    let partition =
        engine.open_partition(&name).await.with_context(|| format!("opening {name}"))?;
    let first = partition.watermarks().log_end;
    let appended = append_lines(&partition, std::io::stdin().lock(), args.batch).await;
    // Closing makes what was acknowledged safe, whatever became of the rest.
    let closed = super::close_engine(engine).await;
    let next = appended?;
    closed?;
    let records = next.records_since(first);
    if json {
        let line = serde_json::json!({
            "outcome": "done", "partition": name.to_string(), "records": records,
            "first_offset": first.0, "next_offset": next.0,
        });
        println!("{line}");
    } else {
        println!("{name}: {records} records, offsets {first} to {next} (exclusive)");
    }
    Ok(Outcome::Done)
}

/// A partition whose checkpoint is lost has lost its name, too: a new one of that name would hide its records.
fn refuse_to_shadow(engine: &Engine, name: &PartitionName) -> anyhow::Result<()> {
    let set_aside = &engine.report().set_aside;
    if engine.find(name).is_some() || set_aside.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = set_aside
        .iter()
        .map(|set_aside| format!("{}: {:?}", set_aside.path.display(), set_aside.reason))
        .collect();
    bail!(Refusal(format!(
        "{name} is not known, and may be among what could not be opened; restore that from a copy, or move \
         it away to start {name} anew: {}",
        list.join("; ")
    )))
}

async fn append_lines(
    partition: &Partition,
    mut lines: impl BufRead,
    batch_records_max: u32,
) -> anyhow::Result<Offset> {
    let mut pipeline = Pipeline::new(partition);
    let mut batch = RecordBatch::builder();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.read_until(b'\n', &mut line).context("reading standard input")?;
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        let full = batch.records() >= batch_records_max || batch.bytes() >= BATCH_BYTES_TARGET;
        if batch.records() > 0 && (read == 0 || full) {
            pipeline.push(std::mem::take(&mut batch).finish()).await?;
        }
        if read == 0 {
            return pipeline.drain().await;
        }
        let next_record = pipeline.next.0 + u64::from(batch.records());
        batch.push(&line).with_context(|| format!("the line for offset {next_record}"))?;
    }
}

/// Appends under way, oldest first. Each names the offset it expects, so one refused as busy makes those
/// behind it fail too, and they are all sent again in order.
struct Pipeline<'a> {
    partition: &'a Partition,
    under_way: VecDeque<(RecordBatch, Offset, Append)>,
    next: Offset,
}

impl<'a> Pipeline<'a> {
    fn new(partition: &'a Partition) -> Pipeline<'a> {
        let next = partition.watermarks().log_end;
        Pipeline { partition, under_way: VecDeque::new(), next }
    }

    async fn push(&mut self, batch: RecordBatch) -> anyhow::Result<()> {
        while self.under_way.len() >= BATCHES_IN_FLIGHT_MAX {
            self.finish_oldest().await?;
        }
        let records = u64::from(batch.records());
        let append = self.send(&batch, self.next);
        self.under_way.push_back((batch, self.next, append));
        self.next = self.next.checked_add(records).context("the partition is full")?;
        Ok(())
    }

    async fn drain(mut self) -> anyhow::Result<Offset> {
        while !self.under_way.is_empty() {
            self.finish_oldest().await?;
        }
        Ok(self.next)
    }

    async fn finish_oldest(&mut self) -> anyhow::Result<()> {
        let Some((batch, expected, append)) = self.under_way.pop_front() else {
            return Ok(());
        };
        match append.await {
            Ok(_) => Ok(()),
            Err(AppendError::Busy { retry_after }) => {
                self.send_again(batch, expected, retry_after).await
            }
            Err(error) => Err(error).with_context(|| format!("appending at offset {expected}")),
        }
    }

    /// Waits for the refusals of everything behind `batch`, then sends it all again.
    async fn send_again(
        &mut self,
        batch: RecordBatch,
        expected: Offset,
        retry_after: Duration,
    ) -> anyhow::Result<()> {
        let mut again = vec![(batch, expected)];
        while let Some((batch, expected, append)) = self.under_way.pop_front() {
            match append.await {
                Err(AppendError::Busy { .. } | AppendError::OffsetMismatch { .. }) => {
                    again.push((batch, expected));
                }
                Ok(_) => bail!("offset {expected} was appended out of order"),
                Err(error) => {
                    return Err(error).with_context(|| format!("appending at offset {expected}"));
                }
            }
        }
        tokio::time::sleep(retry_after).await;
        for (batch, expected) in again {
            let append = self.send(&batch, expected);
            self.under_way.push_back((batch, expected, append));
        }
        Ok(())
    }

    fn send(&self, batch: &RecordBatch, expected: Offset) -> Append {
        let options = AppendOptions { expected_offset: Some(expected), ..AppendOptions::default() };
        self.partition.append(batch.clone(), options)
    }
}
