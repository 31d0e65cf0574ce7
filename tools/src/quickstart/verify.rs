//! Reads everything back and compares it, record by record, with what was acknowledged.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use indicatif::ProgressBar;
use palisade_engine::io::SystemClock;
use palisade_engine::io::clock::Clock;
use palisade_sidecar::client::DataClient;

use super::input::Input;
use super::load::{Acknowledged, Ledger};

/// Bytes asked for in one read.
const READ_BYTES: usize = 1 << 20;

/// What reading back came to.
#[derive(Debug)]
pub(crate) struct VerifyFigures {
    pub(crate) records: u64,
    pub(crate) elapsed: Duration,
}

/// Reads each partition from its first offset to its end. Every offset must have been acknowledged, and
/// hold the very bytes that were appended.
pub(crate) async fn verify(
    client: &DataClient,
    stream: &str,
    input: &Input,
    ledger: Ledger,
    progress: &ProgressBar,
) -> anyhow::Result<VerifyFigures> {
    let started = SystemClock.now();
    let partitions = ledger.into_partitions();
    let reads = (0_u32..).zip(&partitions).map(|(partition, acknowledged)| {
        verify_partition(client, stream, partition, input, acknowledged, progress)
    });
    let records = futures_util::future::try_join_all(reads).await?;
    let elapsed = SystemClock.now().elapsed_for_holder(started);
    Ok(VerifyFigures { records: records.iter().sum(), elapsed })
}

async fn verify_partition(
    client: &DataClient,
    stream: &str,
    partition: u32,
    input: &Input,
    acknowledged: &[Acknowledged],
    progress: &ProgressBar,
) -> anyhow::Result<u64> {
    let mut expected = acknowledged.iter().flat_map(|batch| {
        (batch.base_offset..).zip(&batch.record_numbers).map(|(offset, number)| (offset, *number))
    });
    let mut next = 0;
    loop {
        let watermarks = client
            .watermarks(stream, partition)
            .await
            .with_context(|| format!("asking {stream}/{partition} for its watermarks"))?;
        if next == watermarks.committed {
            break;
        }
        let read = client
            .read(stream, partition, next, READ_BYTES, Duration::ZERO)
            .await
            .with_context(|| format!("reading {stream}/{partition} from offset {next}"))?;
        ensure!(read.next_offset > next, "{stream}/{partition}: nothing to read at offset {next}");
        for batch in &read.batches {
            for (offset, record) in batch.records().filter(|(offset, _)| *offset >= next) {
                let Some((expected_offset, number)) = expected.next() else {
                    bail!("{stream}/{partition}: offset {offset} was never acknowledged");
                };
                ensure!(
                    offset == expected_offset,
                    "{stream}/{partition}: offset {offset} where {expected_offset} was acknowledged"
                );
                ensure!(
                    record == input.record(number as usize),
                    "{stream}/{partition}: offset {offset} does not hold what was appended there"
                );
                progress.inc(1);
            }
        }
        next = read.next_offset;
    }
    if let Some((offset, _)) = expected.next() {
        bail!("{stream}/{partition}: offset {offset} was acknowledged and is missing");
    }
    Ok(next)
}
