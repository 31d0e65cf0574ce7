//! The raw side: the same bytes on a bare ring, one operation for each of the engine's calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use palisade_benches::raw_ring::{DEPTH_MAX, RawFile, RawOperation, RawRing, RawWork};
use palisade_engine::id::BLOCK_BYTES;

use super::args::Promise;
use super::lane::Sample;
use super::meter::{Meter, Section, per_second};

/// Registered memory of the ring at most; less depth rather than more of it.
const RING_BYTES_MAX: usize = 64 << 20;
const WRITE_FILE_BYTES: u64 = 256 << 20;
/// The side's name in plots.
pub(crate) const SIDE: &str = "raw ring";

/// A ring, its files, and what one operation stands for.
#[derive(Debug)]
pub(crate) struct RawSide {
    ring: RawRing,
    files: Vec<RawFile>,
    next: usize,
    work: RawWork,
    /// Of the engine's records: an operation moves them and their framing.
    records_each: f64,
    record_bytes: u64,
    operations_per_s: f64,
}

/// One turn.
#[derive(Clone, Debug)]
pub(crate) struct RawTurn {
    pub(crate) records_per_s: f64,
    pub(crate) sample: Sample,
}

impl RawSide {
    /// Writes of whole blocks that hold one batch each, into a pre-written file; synced unless acknowledgements are not.
    pub(crate) fn writing(
        directory: &Path,
        batch_bytes: usize,
        depth: u32,
        promise: Promise,
        records: u64,
        record_bytes: u64,
    ) -> anyhow::Result<RawSide> {
        let operation = match promise {
            Promise::Accepted => RawOperation::Write,
            Promise::Local | Promise::Committed => RawOperation::WriteDurable,
        };
        let path = directory.join("raw");
        let file = RawFile::prewritten(&path, WRITE_FILE_BYTES)
            .with_context(|| format!("writing {}", path.display()))?;
        let bytes = batch_bytes.next_multiple_of(BLOCK_BYTES);
        let work = RawWork { operation, bytes, depth: depth_of(depth, bytes), count: 0 };
        #[expect(clippy::cast_precision_loss, reason = "a batch has fewer than 2^52 records")]
        let records_each = records as f64;
        RawSide::new(vec![file], work, records_each, record_bytes)
    }

    /// Reads of `bytes` from `files`, which hold `records_per_byte`.
    pub(crate) fn reading(
        files: &[PathBuf],
        bytes: usize,
        depth: u32,
        records_per_byte: f64,
        record_bytes: u64,
    ) -> anyhow::Result<RawSide> {
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        let open = |path: &PathBuf| {
            RawFile::open(path).with_context(|| format!("opening {}", path.display()))
        };
        let mut files = files.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
        files.retain(|file| file.length_bytes() >= bytes as u64);
        let work = RawWork {
            operation: RawOperation::Read,
            bytes,
            depth: depth_of(depth, bytes),
            count: 0,
        };
        #[expect(clippy::cast_precision_loss, reason = "an operation is below 2^52 bytes")]
        let records_each = records_per_byte * bytes as f64;
        RawSide::new(files, work, records_each, record_bytes)
    }

    fn new(
        files: Vec<RawFile>,
        work: RawWork,
        records_each: f64,
        record_bytes: u64,
    ) -> anyhow::Result<RawSide> {
        if files.is_empty() {
            bail!("no file is as long as one operation of the raw ring");
        }
        let ring = RawRing::new(work.bytes, work.depth)
            .context("--raw needs io_uring, and memlock for its buffers")?;
        let operations_per_s = 0.0;
        let mut side =
            RawSide { ring, files, next: 0, work, records_each, record_bytes, operations_per_s };
        // How many operations fill a turn is known only after some.
        side.turn_of(u64::from(4 * side.work.depth))?;
        side.turn_of(side.count_in(Duration::from_millis(100)))?;
        Ok(side)
    }

    /// Operations in flight.
    pub(crate) fn depth(&self) -> u32 {
        self.work.depth
    }

    /// Bytes of one operation.
    pub(crate) fn operation_bytes(&self) -> usize {
        self.work.bytes
    }

    /// Runs for about as long as the engine's side does.
    pub(crate) fn turn(&mut self, section: Section, meter: &mut Meter) -> anyhow::Result<RawTurn> {
        let (sample, elapsed) = self.turn_of(self.count_in(section.length))?;
        meter.push_point(SIDE, &sample, elapsed);
        Ok(RawTurn { records_per_s: per_second(sample.records, elapsed), sample })
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate times seconds, bounded below"
    )]
    fn count_in(&self, length: Duration) -> u64 {
        ((self.operations_per_s * length.as_secs_f64()) as u64).max(u64::from(self.work.depth))
    }

    /// Runs `count` operations over the files in turn, each file up to its end.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "counts of records, far below 2^52"
    )]
    fn turn_of(&mut self, count: u64) -> anyhow::Result<(Sample, Duration)> {
        let (mut left, mut elapsed, mut sample) = (count, Duration::ZERO, Sample::new());
        while left > 0 {
            let files = self.files.len();
            let file = &mut self.files[self.next % files];
            let whole = file.length_bytes() / self.work.bytes as u64;
            let count = if files == 1 { left } else { left.min(whole) };
            let run = self
                .ring
                .run(file, RawWork { count, ..self.work })
                .with_context(|| format!("the raw ring on {}", file.path().display()))?;
            elapsed += run.elapsed;
            run.latencies.iter().for_each(|latency| sample.note(*latency, 0, 0));
            left -= count;
            self.next += 1;
        }
        sample.records = (count as f64 * self.records_each) as u64;
        sample.record_bytes = sample.records * self.record_bytes;
        self.operations_per_s = per_second(count, elapsed);
        Ok((sample, elapsed))
    }
}

fn depth_of(depth: u32, bytes: usize) -> u32 {
    let fits = u32::try_from(RING_BYTES_MAX / bytes).unwrap_or(DEPTH_MAX);
    depth.min(DEPTH_MAX).min(fits).max(1)
}
