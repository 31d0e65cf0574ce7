//! What the engine's tests share: a scratch directory on the real file system, and small builders.

use std::path::Path;

use palisade_engine::engine::{Engine, IoChoice};
use palisade_engine::format::{RecordBatch, StoredBatch};
use palisade_engine::id::{Offset, PartitionName};
use palisade_engine::partition::{PartitionSettings, Read};
use palisade_engine::{EngineConfig, Partition};

/// Waits for a future on this thread.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A small engine: two shards, small segments so that logs roll.
pub(crate) fn config(directory: &Path, io: IoChoice) -> EngineConfig {
    let mut config = EngineConfig::new(directory);
    config.shards = 2;
    config.io = io;
    config.arena_bytes = 16 << 20;
    config.settings = PartitionSettings {
        segment_bytes: 256 << 10,
        first_segment_bytes: 64 << 10,
        ..PartitionSettings::default()
    };
    config
}

pub(crate) fn open(directory: &Path) -> Engine {
    Engine::open(config(directory, IoChoice::Auto)).unwrap()
}

pub(crate) fn name(text: &str) -> PartitionName {
    text.parse().unwrap()
}

pub(crate) fn partition(engine: &Engine) -> Partition {
    wait(engine.open_partition(&name("orders/0"))).unwrap()
}

pub(crate) fn batch<R: AsRef<[u8]>>(records: &[R]) -> RecordBatch {
    let mut builder = RecordBatch::builder();
    for record in records {
        builder.push(record.as_ref()).unwrap();
    }
    builder.finish()
}

pub(crate) fn records(batches: &[StoredBatch]) -> Vec<(u64, Vec<u8>)> {
    let all = batches.iter().flat_map(StoredBatch::iter);
    all.map(|(offset, record)| (offset.0, record.to_vec())).collect()
}

/// Everything committed from `from` on.
pub(crate) fn read_all(partition: &Partition, from: u64) -> Vec<(u64, Vec<u8>)> {
    wait(async {
        let mut all = Vec::new();
        let mut next = Offset(from);
        loop {
            let answer = partition.read(Read::from(next)).await.unwrap();
            if answer.batches.is_empty() && answer.next_offset == next {
                return all;
            }
            all.extend(records(&answer.batches));
            next = answer.next_offset;
        }
    })
}
