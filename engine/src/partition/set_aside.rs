//! What was found at open and not understood, and what recovery did.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::context::LogContext;
use crate::format::{FormatError, SlotsError};
use crate::id::{BLOCK_BYTES, Offset, PartitionId, Position, SegmentId};
use crate::io::disk::{Disk, DiskError, DiskFile, OpenMode};
use crate::segment::{OpenSegmentError, open_segment, segment_path};

/// Something that was found and not understood at open: moved aside or left alone, never deleted.
#[derive(Clone, Debug)]
pub struct SetAside {
    /// Where it lies now.
    pub path: PathBuf,
    /// Why.
    pub reason: SetAsideReason,
}

/// Why something was set aside.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SetAsideReason {
    /// No slot of the checkpoint can be believed; promises live there, so nothing is rebuilt from data.
    BadCheckpoint(SlotsError),
    /// The checkpoint was written by a newer release; the partition is left where it is.
    NewerVersion(FormatError),
    /// A segment's header cannot be believed.
    BadSegmentHeader(FormatError),
    /// A file that no checkpoint names.
    UnknownFile,
    /// The device failed while it was being opened.
    Disk(Arc<DiskError>),
}

/// What recovery did to one partition that had not been closed cleanly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes read to find the end.
    pub walked_bytes: u64,
    /// Bytes behind the last whole group that were cut off: appends that were never acknowledged.
    pub torn_bytes: u64,
    /// Bytes that only the journal held and that are in a segment now.
    pub journal_bytes: u64,
    /// The log end that had been durable, if the file was found shorter than that: records are lost.
    pub lost_end: Option<Offset>,
    /// Damaged ranges that were put under quarantine.
    pub quarantined: u64,
}

/// The directory, in the data directory, of files that were put aside.
pub(crate) const SET_ASIDE: &str = "set-aside";

/// Removes a segment file that nothing names any more. One whose header cannot be believed is put aside instead:
/// it is never deleted (SCENARIOS L24).
pub(super) async fn remove_or_set_aside<D: Disk>(
    context: &LogContext<D>,
    directory: &Path,
    partition: PartitionId,
    segment: SegmentId,
) -> Result<Option<SetAside>, DiskError> {
    let disk = &context.disk;
    let path = segment_path(directory, segment);
    let source = loop {
        let opened = open_segment(disk, directory, partition, segment, OpenMode::Read).await;
        match opened {
            Ok(_) => break None,
            Err(OpenSegmentError::ArenaFull { .. }) => context.wait_for_memory().await,
            Err(OpenSegmentError::Disk(error)) if error.is_missing() => return Ok(None),
            Err(OpenSegmentError::Disk(error)) => return Err(error),
            Err(OpenSegmentError::Header { source, .. }) => break Some(Some(source)),
            Err(_) => break Some(None),
        }
    };
    // Making a segment writes its header last: without one, zeros are a file that never held anything.
    let is_unfinished = match &source {
        Some(Some(FormatError::Magic { found: 0, .. } | FormatError::Truncated { .. })) => {
            is_zero(context, &path).await?
        }
        _ => false,
    };
    let Some(source) = source.filter(|_| !is_unfinished) else {
        disk.remove(&path).await?;
        return Ok(None);
    };
    let aside = context.directory.join(SET_ASIDE);
    disk.create_directory(&aside).await?;
    let kept = aside.join(format!("{}-{}-{segment}.segment", partition.stream, partition.index));
    disk.rename(&path, &kept).await?;
    disk.sync_directory(&aside).await?;
    let reason = match source {
        Some(source) => SetAsideReason::BadSegmentHeader(source),
        None => SetAsideReason::UnknownFile,
    };
    tracing::error!(from = %path.display(), to = %kept.display(), ?reason, "set aside");
    Ok(Some(SetAside { path: kept, reason }))
}

async fn is_zero<D: Disk>(context: &LogContext<D>, path: &Path) -> Result<bool, DiskError> {
    let file = context.disk.open(path, OpenMode::Read).await?;
    let two_blocks = context.allocate_waiting(2 * BLOCK_BYTES).await;
    let head = file.read(two_blocks, Position::ZERO).await?;
    Ok(head.as_slice().iter().all(|byte| *byte == 0))
}
