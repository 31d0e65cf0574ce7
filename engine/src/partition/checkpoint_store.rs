//! The file of a partition's checkpoints: two slots that carry the same state, replaced by a larger file when full.

use std::path::{Path, PathBuf};

use super::context::LogContext;
use super::set_aside::{SetAside, SetAsideReason};
use crate::format::{
    Checkpoint, FormatError, SlotWrite, SlotsError, believe_slots, place_checkpoint,
};
use crate::id::Position;
use crate::io::disk::{Disk, DiskError, DiskFile, OpenMode, WriteMode};

/// The name of the checkpoint's file.
pub(crate) const CHECKPOINT: &str = "checkpoint";

/// The name a larger checkpoint file has until it is whole.
const CHECKPOINT_NEW: &str = "checkpoint.new";

/// What one read or write of a checkpoint file moves.
const PIECE_BYTES: usize = 64 << 10;

/// Why a partition was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum OpenLogError {
    /// It is left as it is, and the rest of the engine opens.
    #[error("{}: set aside", .0.path.display())]
    SetAside(SetAside),
    /// A newer release wrote it: the engine does not open.
    #[error("{}: {source}", path.display())]
    Newer { path: PathBuf, source: FormatError },
    /// A newer release wrote into its segments: the engine does not open.
    #[error("{}: {source}", path.display())]
    NewerData { path: PathBuf, source: FormatError },
    /// The disk failed on something all partitions share.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl OpenLogError {
    pub(super) fn set_aside(path: &Path, reason: SetAsideReason) -> OpenLogError {
        OpenLogError::SetAside(SetAside { path: path.to_owned(), reason })
    }
}

/// Where the next checkpoint goes.
#[derive(Debug)]
pub(super) struct CheckpointStore {
    directory: PathBuf,
    /// Of the last checkpoint that was written whole.
    sequence: u64,
    file_bytes: u64,
}

impl CheckpointStore {
    /// The store of a partition that has no checkpoint yet.
    pub(super) fn new(directory: &Path) -> CheckpointStore {
        CheckpointStore { directory: directory.to_owned(), sequence: 0, file_bytes: 0 }
    }

    /// Loads the checkpoint to be believed.
    pub(super) async fn load<D: Disk>(
        context: &LogContext<D>,
        directory: &Path,
    ) -> Result<(CheckpointStore, Checkpoint), OpenLogError> {
        let path = directory.join(CHECKPOINT);
        let bytes = read_whole(context, &path).await.map_err(|error| {
            let reason = SetAsideReason::Disk(std::sync::Arc::new(error));
            OpenLogError::set_aside(directory, reason)
        })?;
        match believe_slots(&bytes) {
            Ok(believed) => {
                if let Some(damaged) = believed.damaged {
                    tracing::warn!(path = %path.display(), %damaged,
                        "one slot of the checkpoint is torn or damaged; the other one is believed");
                }
                let store = CheckpointStore {
                    directory: directory.to_owned(),
                    sequence: believed.checkpoint.sequence,
                    // The first checkpoint of a run goes into a new file: a write of a killed process may
                    // still be on its way into this one, and its name may not be durable.
                    file_bytes: 0,
                };
                Ok((store, believed.checkpoint))
            }
            Err(SlotsError::Newer { newer }) => Err(OpenLogError::Newer { path, source: newer }),
            Err(error) => {
                Err(OpenLogError::set_aside(directory, SetAsideReason::BadCheckpoint(error)))
            }
        }
    }

    /// The number the next checkpoint must carry.
    pub(super) fn next_sequence(&self) -> u64 {
        self.sequence + 1
    }

    /// Has the next checkpoint go to a new file, whatever room the present one has.
    pub(super) fn start_new_file(&mut self) {
        self.file_bytes = 0;
    }

    /// Makes a checkpoint durable, in both slots: one that is damaged later must leave the same state in the
    /// other, never an older one. After an error the one before it may still stand.
    pub(super) async fn write<D: Disk>(
        &mut self,
        context: &LogContext<D>,
        checkpoint: &Checkpoint,
    ) -> Result<(), DiskError> {
        self.write_slot(context, checkpoint).await?;
        let again = Checkpoint { sequence: self.next_sequence(), ..checkpoint.clone() };
        self.write_slot(context, &again).await?;
        context.counters.checkpoints.add(1);
        Ok(())
    }

    async fn write_slot<D: Disk>(
        &mut self,
        context: &LogContext<D>,
        checkpoint: &Checkpoint,
    ) -> Result<(), DiskError> {
        assert!(checkpoint.sequence == self.next_sequence());
        let path = self.directory.join(CHECKPOINT);
        match place_checkpoint(checkpoint, self.file_bytes) {
            SlotWrite::InPlace { position, bytes } => {
                let open = async || context.disk.open(&path, OpenMode::Write).await;
                let file = context.with_descriptor(open).await?;
                let mut extent = context.allocate_waiting(bytes.len()).await;
                extent.as_mut_slice().copy_from_slice(&bytes);
                file.write(extent.freeze(), position, WriteMode::Durable).await?;
            }
            SlotWrite::NewFile { bytes } => {
                self.replace(context, &path, &bytes).await?;
                self.file_bytes = bytes.len() as u64;
            }
        }
        self.sequence = checkpoint.sequence;
        Ok(())
    }

    async fn replace<D: Disk>(
        &self,
        context: &LogContext<D>,
        path: &Path,
        bytes: &[u8],
    ) -> Result<(), DiskError> {
        let aside = self.directory.join(CHECKPOINT_NEW);
        let disk = &context.disk;
        match disk.remove(&aside).await {
            Err(error) if !error.is_missing() => return Err(error),
            _ => {}
        }
        let open = async || disk.open(&aside, OpenMode::CreateNew).await;
        let file = context.with_descriptor(open).await?;
        let mut position = Position::ZERO;
        for piece in bytes.chunks(PIECE_BYTES) {
            let mut extent = context.allocate_waiting(piece.len()).await;
            extent.as_mut_slice().copy_from_slice(piece);
            file.write(extent.freeze(), position, WriteMode::Written).await?;
            position = position.plus(piece.len() as u64);
        }
        file.sync().await?;
        disk.rename(&aside, path).await?;
        context.with_descriptor(async || disk.sync_directory(&self.directory).await).await
    }
}

async fn read_whole<D: Disk>(context: &LogContext<D>, path: &Path) -> Result<Vec<u8>, DiskError> {
    let file = context.disk.open(path, OpenMode::Read).await?;
    let length = file.length().await?;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < length {
        let extent = context.allocate_waiting(PIECE_BYTES).await;
        let piece = file.read(extent, Position(bytes.len() as u64)).await?;
        if piece.is_empty() {
            break;
        }
        bytes.extend_from_slice(piece.as_slice());
    }
    // A killed process may have written it without making it durable, and what is read here is believed: a
    // promise or a cut must not be forgotten again once it was acted upon.
    file.sync().await?;
    Ok(bytes)
}
