//! What a data directory holds, by its identity and its checkpoints alone.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::session::{OfflineError, Task};
use crate::engine::IDENTITY;
use crate::format::{BelievedCheckpoint, Identity, SlotsError, believe_slots};
use crate::id::{BLOCK_BYTES, PartitionName, Position};
use crate::io::disk::{Disk, DiskError, DiskFile, DiskOperation, OpenMode};
use crate::io::runtime::Runtime;
use crate::partition::{CHECKPOINT, STREAMS};

/// A data directory as its checkpoints describe it.
#[derive(Debug)]
pub struct DirectoryContents {
    /// Whose directory it is.
    pub identity: Identity,
    /// Its partitions, by name; those whose checkpoint cannot be read come last.
    pub partitions: Vec<PartitionContents>,
}

/// One partition's directory.
#[derive(Debug)]
pub struct PartitionContents {
    /// The directory of its files.
    pub path: PathBuf,
    /// Its checkpoint, or why none can be believed.
    pub checkpoint: Result<BelievedCheckpoint, SlotsError>,
}

impl PartitionContents {
    /// The partition's name, if its checkpoint can be read.
    #[must_use]
    pub fn name(&self) -> Option<PartitionName> {
        let checkpoint = &self.checkpoint.as_ref().ok()?.checkpoint;
        Some(PartitionName {
            stream: checkpoint.stream_name.clone(),
            index: checkpoint.partition.index,
        })
    }

    /// The checkpoint's file.
    #[must_use]
    pub fn checkpoint_path(&self) -> PathBuf {
        self.path.join(CHECKPOINT)
    }
}

pub(super) struct Inspect;

impl Task for Inspect {
    type Output = DirectoryContents;

    async fn run<D: Disk>(
        self,
        disk: D,
        _runtime: Rc<dyn Runtime>,
        directory: &Path,
    ) -> Result<DirectoryContents, OfflineError> {
        contents_of(&disk, directory).await
    }
}

pub(super) async fn contents_of<D: Disk>(
    disk: &D,
    directory: &Path,
) -> Result<DirectoryContents, OfflineError> {
    let path = directory.join(IDENTITY);
    let identity = read_file(disk, &path).await?;
    let identity =
        Identity::decode(&identity).map_err(|source| OfflineError::Identity { path, source })?;
    let mut partitions = Vec::new();
    let streams = directory.join(STREAMS);
    for stream in directories(disk, &streams).await? {
        for path in directories(disk, &stream).await? {
            let slots = match read_file(disk, &path.join(CHECKPOINT)).await {
                Err(error) if error.is_missing() => Vec::new(),
                slots => slots?,
            };
            partitions.push(PartitionContents { path, checkpoint: believe_slots(&slots) });
        }
    }
    partitions.sort_by_key(|partition| (partition.name().is_none(), partition.name()));
    Ok(DirectoryContents { identity, partitions })
}

/// Finds one partition by name, with its checkpoint.
pub(super) fn find<'a>(
    contents: &'a DirectoryContents,
    directory: &Path,
    name: &PartitionName,
) -> Result<&'a PartitionContents, OfflineError> {
    contents.partitions.iter().find(|partition| partition.name().as_ref() == Some(name)).ok_or_else(
        || OfflineError::UnknownPartition { path: directory.to_owned(), name: name.clone() },
    )
}

async fn directories<D: Disk>(disk: &D, path: &Path) -> Result<Vec<PathBuf>, DiskError> {
    match disk.list(path).await {
        Err(error) if error.is_missing() => Ok(Vec::new()),
        entries => Ok(entries?
            .into_iter()
            .filter(|entry| entry.is_directory)
            .map(|entry| path.join(entry.name))
            .collect()),
    }
}

/// Reads a small file whole, in pieces the arena can lend.
async fn read_file<D: Disk>(disk: &D, path: &Path) -> Result<Vec<u8>, DiskError> {
    const PIECE_BYTES: usize = 1 << 20;
    let file = disk.open(path, OpenMode::Read).await?;
    let mut bytes = Vec::new();
    loop {
        let room = disk.arena().allocate(PIECE_BYTES).ok_or_else(|| DiskError {
            operation: DiskOperation::Read,
            path: path.to_owned(),
            position: None,
            source: std::io::ErrorKind::OutOfMemory.into(),
        })?;
        let piece = file.read(room, Position(bytes.len() as u64)).await?;
        bytes.extend_from_slice(piece.as_slice());
        if piece.len() < PIECE_BYTES || !bytes.len().is_multiple_of(BLOCK_BYTES) {
            return Ok(bytes);
        }
    }
}
