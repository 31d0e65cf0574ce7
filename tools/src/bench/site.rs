//! Where a bench runs: a scratch directory, an engine in it, its partitions, and what keeps the disk from filling.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use futures_util::future::join_all;
use palisade_benches::executor::block_on;
use palisade_engine::engine::{CreateError, OpenError};
use palisade_engine::id::{Offset, PartitionId, PartitionIndex, PartitionName, StreamId};
use palisade_engine::partition::{PartitionSettings, PartitionSpec};
use palisade_engine::{Engine, Partition};

use super::args::CommonArgs;
use crate::outcome::Refusal;

/// Partitions created at once: well below every limit of a shard.
const CREATED_AT_ONCE: u64 = 64;
const SEGMENT_BYTES_LEAST: u64 = 64 << 10;
const SEGMENT_BYTES_MOST: u64 = 64 << 20;
const FIRST_SEGMENT_BYTES: u64 = 1 << 20;

/// A directory that goes away, with all a bench wrote.
#[derive(Debug)]
pub(crate) struct Site {
    directory: tempfile::TempDir,
}

impl Site {
    /// Makes a directory within `--data-dir`, if the disk has room for `bytes` and a quarter more.
    pub(crate) fn new(common: &CommonArgs, bytes: u64) -> anyhow::Result<Site> {
        let parent = &common.data_dir;
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        let space = rustix::fs::statvfs(parent).with_context(|| parent.display().to_string())?;
        let available = space.f_bavail.saturating_mul(space.f_frsize);
        let needed = bytes.saturating_add(bytes / 4);
        if available < needed {
            return Err(anyhow!(Refusal(format!(
                "{}: this bench needs {} MiB and {} are free; use --data-dir, or less of --keep, --data or --partitions",
                parent.display(),
                needed >> 20,
                available >> 20,
            ))));
        }
        let directory = tempfile::Builder::new()
            .prefix("palisade-bench-")
            .tempdir_in(parent)
            .with_context(|| format!("a scratch directory in {}", parent.display()))?;
        Ok(Site { directory })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Opens an engine in the directory `name`.
    pub(crate) fn open(&self, name: &str, common: &CommonArgs) -> anyhow::Result<Engine> {
        let directory = self.join(name);
        let arena = usize::try_from(common.arena).context("--arena")?;
        let opened = Engine::builder(&directory)
            .shards(common.shards.into())
            .arena_bytes(arena)
            .io(common.io.into())
            .open();
        opened.map_err(|error| match error {
            OpenError::Locked { .. } => anyhow!(Refusal(error.to_string())),
            error => anyhow!(error).context(format!("opening {}", directory.display())),
        })
    }
}

/// Returns the settings of each of `partitions` that may hold `keep_bytes` together.
///
/// Segments are small where partitions are many: they are written full of zeros before use.
pub(crate) fn settings_of(partitions: u64, keep_bytes: u64) -> PartitionSettings {
    let each = keep_bytes / partitions.max(1);
    let segment_bytes = (each / 4).clamp(SEGMENT_BYTES_LEAST, SEGMENT_BYTES_MOST);
    PartitionSettings {
        segment_bytes,
        first_segment_bytes: segment_bytes.min(FIRST_SEGMENT_BYTES),
        ..PartitionSettings::default()
    }
}

/// Returns how much of the disk `partitions` may take at once: what is kept, and the segments in use and made ahead.
pub(crate) fn disk_bytes(partitions: u64, keep_bytes: u64) -> u64 {
    let segment = settings_of(partitions, keep_bytes).segment_bytes;
    keep_bytes.saturating_add(partitions.saturating_mul(3 * segment))
}

/// Creates `count` partitions of the stream `name`.
pub(crate) fn create(
    engine: &Engine,
    name: &str,
    count: u64,
    settings: PartitionSettings,
) -> anyhow::Result<Vec<Partition>> {
    let stream = StreamId(fastrand::u128(..));
    let mut partitions = Vec::new();
    for first in (0..count).step_by(usize::try_from(CREATED_AT_ONCE)?) {
        let some = first..count.min(first + CREATED_AT_ONCE);
        let created = some.map(|index| create_one(engine, stream, name, index, settings));
        for partition in block_on(join_all(created)) {
            partitions.push(partition?);
        }
    }
    Ok(partitions)
}

async fn create_one(
    engine: &Engine,
    stream: StreamId,
    name: &str,
    index: u64,
    settings: PartitionSettings,
) -> anyhow::Result<Partition> {
    let id = PartitionId { stream, index: PartitionIndex(u32::try_from(index)?) };
    let name: PartitionName = format!("{name}/{index}").parse()?;
    let spec = PartitionSpec { id, name: name.clone(), settings };
    let created: Result<Partition, CreateError> = engine.create_partition(spec).await;
    created.with_context(|| format!("creating {name}"))
}

/// Trims partitions that hold more than their share, while a load runs.
#[derive(Debug)]
pub(crate) struct Trimmer {
    records_max: u64,
}

impl Trimmer {
    pub(crate) fn new(partitions: u64, keep_bytes: u64, stored_bytes_a_record: u64) -> Trimmer {
        let records = keep_bytes / partitions.max(1) / stored_bytes_a_record.max(1);
        Trimmer { records_max: records.max(1) }
    }

    /// Drops the older half of what is too much. A refused trim is tried again at the next look.
    pub(crate) fn trim(&self, partitions: &[Partition]) {
        let trims: Vec<_> = partitions
            .iter()
            .filter_map(|partition| {
                let marks = partition.watermarks();
                let held = marks.committed.0.saturating_sub(marks.log_start.0);
                let to = Offset(marks.committed.0.saturating_sub(self.records_max / 2));
                (held > self.records_max).then(|| partition.trim(to))
            })
            .collect();
        // What stops a partition stops its appends, too, and is reported there.
        drop(block_on(join_all(trims)));
    }
}

/// Closes the engine in order.
pub(crate) fn close(engine: Engine) -> anyhow::Result<()> {
    block_on(engine.close()).map(|_| ()).context("closing the engine")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_partitions_get_small_segments() {
        let one = settings_of(1, 512 << 20);
        let many = settings_of(10_000, 512 << 20);

        assert_eq!((one.segment_bytes, one.first_segment_bytes), (64 << 20, 1 << 20));
        assert_eq!((many.segment_bytes, many.first_segment_bytes), (64 << 10, 64 << 10));
        assert!(disk_bytes(10_000, 512 << 20) < 3 << 30);
    }
}
