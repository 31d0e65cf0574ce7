//! Finds, creates and opens partitions. A clean one is opened without reading its data; any other is walked from
//! its last checkpoint, its tail synced before it is served, and closed by one checkpoint.
//!
//! After a crash nothing more is ever written into a file of the run that crashed, because writes of that run
//! may still be on their way; the next append begins a new segment under a new random id.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::checkpoint_store::{CHECKPOINT, CheckpointStore, OpenLogError};
use super::context::LogContext;
use super::log::{PartitionLog, PartitionSpec};
use super::recovery::{Recovered, recover};
use super::set_aside::{Recovery, SetAside, SetAsideReason};
use crate::format::Checkpoint;
use crate::id::{Epoch, Offset, PartitionId, PartitionIndex, StreamId};
use crate::io::disk::{Disk, DiskError, DiskFile, OpenMode};
use crate::segment::{is_recycled_name, segment_id_of_name, segment_path};

/// The directory of all streams in the data directory.
pub(crate) const STREAMS: &str = "streams";

/// A partition that has a checkpoint, or data without one.
#[derive(Clone, Debug)]
pub(crate) struct FoundPartition {
    pub(crate) id: PartitionId,
    pub(crate) directory: PathBuf,
    /// Files that waited to become segments: the run that ended may still write into them.
    recycled: Vec<PathBuf>,
}

/// Lists the partitions of a data directory. A directory with neither checkpoint nor segment is a creation that
/// a crash cut short; one that has lost its checkpoint is found, and set aside when it is opened.
pub(crate) async fn find_partitions<D: Disk>(
    context: &LogContext<D>,
) -> Result<Vec<FoundPartition>, DiskError> {
    let disk = &context.disk;
    let root = context.directory.join(STREAMS);
    let streams = match disk.list(&root).await {
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        streams => streams?,
    };
    // A process that was killed may have made these names and not made them durable; from here on they count.
    disk.sync_directory(&root).await?;
    let mut found = Vec::new();
    for stream in streams.iter().filter(|entry| entry.is_directory) {
        let Some(stream_id) = stream_of(&stream.name) else { continue };
        let directory = root.join(&stream.name);
        disk.sync_directory(&directory).await?;
        for index in disk.list(&directory).await? {
            let Ok(number) = index.name.parse() else { continue };
            let directory = directory.join(&index.name);
            let entries = disk.list(&directory).await?;
            let is_partition =
                |name: &str| name == CHECKPOINT || segment_id_of_name(name).is_some();
            if entries.iter().any(|entry| is_partition(&entry.name)) {
                let id = PartitionId { stream: stream_id, index: PartitionIndex(number) };
                let recycled = entries.iter().filter(|entry| is_recycled_name(&entry.name));
                let recycled = recycled.map(|entry| directory.join(&entry.name)).collect();
                found.push(FoundPartition { id, directory, recycled });
            }
        }
    }
    found.sort_by_key(|partition| partition.id);
    Ok(found)
}

fn stream_of(name: &str) -> Option<StreamId> {
    (name.len() == 32).then(|| u128::from_str_radix(name, 16).ok().map(StreamId)).flatten()
}

impl<D: Disk> PartitionLog<D> {
    /// Creates a partition. It exists once this returns, whatever happens then.
    pub(crate) async fn create(
        context: Rc<LogContext<D>>,
        spec: PartitionSpec,
    ) -> Result<Rc<PartitionLog<D>>, DiskError> {
        let disk = &context.disk;
        let streams = context.directory.join(STREAMS);
        let stream = streams.join(spec.id.stream.to_string());
        let directory = stream.join(spec.id.index.to_string());
        for made in [&streams, &stream, &directory] {
            disk.create_directory(made).await?;
        }
        let mut store = CheckpointStore::new(&directory);
        let checkpoint = first_checkpoint(&spec, store.next_sequence());
        store.write(&context, &checkpoint).await?;
        // From the inside out: a name is durable only with all the names above it.
        for changed in [&stream, &streams, &context.directory] {
            disk.sync_directory(changed).await?;
        }
        Ok(PartitionLog::from_checkpoint(context, directory, checkpoint, store))
    }

    /// Opens a partition that has been found.
    pub(crate) async fn open(
        context: Rc<LogContext<D>>,
        found: FoundPartition,
    ) -> Result<(Rc<PartitionLog<D>>, Option<Recovery>, Vec<SetAside>), OpenLogError> {
        let directory = found.directory;
        // What a killed process renamed last may be seen and still be lost with the power.
        if let Err(error) = context.disk.sync_directory(&directory).await {
            return Err(failed(&directory, error));
        }
        for path in &found.recycled {
            match context.disk.remove(path).await {
                Err(error) if !error.is_missing() => return Err(failed(&directory, error)),
                _ => {}
            }
        }
        let (mut store, checkpoint) = CheckpointStore::load(&context, &directory).await?;
        if checkpoint.partition != found.id {
            return Err(OpenLogError::set_aside(&directory, SetAsideReason::UnknownFile));
        }
        let is_whole = match is_whole(&context, &directory, &checkpoint).await {
            Ok(is_whole) => is_whole,
            Err(error) => return Err(failed(&directory, error)),
        };
        if checkpoint.clean && is_whole {
            let log = PartitionLog::from_checkpoint(context, directory, checkpoint, store);
            log.publish_segments(&log.state.borrow());
            return Ok((log, None, Vec::new()));
        }
        match recover(&context, &directory, checkpoint, &mut store).await {
            Ok(Recovered { checkpoint, recovery, set_aside }) => {
                let log = PartitionLog::from_checkpoint(context, directory, checkpoint, store);
                log.publish_segments(&log.state.borrow());
                Ok((log, Some(recovery), set_aside))
            }
            Err(error) => Err(error),
        }
    }
}

/// The device failed on one partition: the others open all the same.
pub(super) fn failed(directory: &Path, error: DiskError) -> OpenLogError {
    OpenLogError::set_aside(directory, SetAsideReason::Disk(std::sync::Arc::new(error)))
}

/// Tells whether the active segment's file is as long as it was: a clean log may have been cut by hand since.
async fn is_whole<D: Disk>(
    context: &LogContext<D>,
    directory: &Path,
    checkpoint: &Checkpoint,
) -> Result<bool, DiskError> {
    let Some(active) = &checkpoint.active else { return Ok(true) };
    let path = segment_path(directory, active.segment);
    let file = context.disk.open(&path, OpenMode::Read).await?;
    Ok(file.length().await? >= active.durable.position.0)
}

fn first_checkpoint(spec: &PartitionSpec, sequence: u64) -> Checkpoint {
    Checkpoint {
        sequence,
        partition: spec.id,
        stream_name: spec.name.stream.clone(),
        clean: true,
        log_start: Offset::ZERO,
        next_offset: Offset::ZERO,
        committed: Offset::ZERO,
        promise: Epoch::NONE,
        descriptor: None,
        loss_generation: 0,
        epochs: Vec::new(),
        producers: Vec::new(),
        closed: Vec::new(),
        quarantined: Vec::new(),
        active: None,
        next: None,
        settings: spec.settings.bounded().to_stored(),
        journal: None,
    }
}
