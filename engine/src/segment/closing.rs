//! Closes a segment: its footer behind its last group, the rest of the file given back. And finds the footer
//! again, or rebuilds it: it is a cache, checked against the checkpoint before it is believed.

use super::index::SparseIndex;
use super::scan::{ScanError, ScanRange, ScanReport, scan_segment};
use crate::format::{ClosedSegment, DurableMark, FIRST_GROUP_POSITION, Footer, SegmentPoint};
use crate::id::{BLOCK_BYTES, Position};
use crate::io::disk::{Disk, DiskError, DiskFile, WriteMode};

/// Why no footer was written. The segment is as readable as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseSegmentError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The arena has no room now; try again later.
    #[error("the arena has no {bytes} bytes to write the footer from")]
    ArenaFull {
        /// What was asked.
        bytes: usize,
    },
}

/// Writes the footer behind the segment's last group and syncs the file: with it every group, whoever wrote
/// it. The file keeps its length, so that more groups may go over the footer.
///
/// Returns the position behind the footer.
///
/// # Errors
///
/// [`CloseSegmentError`]: whether the groups are durable is unknown, too.
pub async fn write_footer<D: Disk>(
    disk: &D,
    file: &D::File,
    footer: &Footer,
) -> Result<Position, CloseSegmentError> {
    let encoded = footer.encode();
    let bytes = encoded.len();
    let mut extent = disk.arena().allocate(bytes).ok_or(CloseSegmentError::ArenaFull { bytes })?;
    extent.as_mut_slice().copy_from_slice(&encoded);
    file.write(extent.freeze(), footer.end_position, WriteMode::Written).await?;
    file.sync().await?;
    Ok(footer.end_position.plus(bytes as u64))
}

/// Closes the segment: writes its footer and gives back what the file has behind it.
///
/// # Errors
///
/// [`CloseSegmentError`]: the segment is not closed; its groups are as before.
pub async fn close_segment<D: Disk>(
    disk: &D,
    file: &D::File,
    footer: &Footer,
) -> Result<(), CloseSegmentError> {
    let end = write_footer(disk, file, footer).await?;
    file.set_length(end.0).await?;
    file.sync().await?;
    Ok(())
}

/// Reads the footer of a closed segment; `None` when it is missing, damaged, or not about the very end that
/// the checkpoint names.
///
/// # Errors
///
/// [`ScanError`]: unknown.
pub async fn load_footer<D: Disk>(
    disk: &D,
    file: &D::File,
    closed: &ClosedSegment,
) -> Result<Option<Footer>, ScanError> {
    let Some(head) = read(disk, file, closed.end_position, BLOCK_BYTES).await? else {
        return Ok(None);
    };
    let Ok(footer_bytes) = Footer::padded_bytes(&head) else { return Ok(None) };
    let file_bytes = file.length().await.map_err(ScanError::Disk)?;
    if footer_bytes as u64 > file_bytes.saturating_sub(closed.end_position.0) {
        return Ok(None);
    }
    let Some(whole) = read(disk, file, closed.end_position, footer_bytes).await? else {
        return Ok(None);
    };
    Ok(Footer::decode(&whole).ok().filter(|footer| {
        footer.segment == closed.segment
            && footer.base_offset == closed.base_offset
            && footer.end_offset == closed.end_offset
            && footer.end_position == closed.end_position
            && footer.last_chain == closed.last_chain
    }))
}

/// Rebuilds the footer of a closed segment from its groups. Every group is checked; what is corrupt is in the
/// report.
///
/// # Errors
///
/// [`ScanError`]: unknown.
pub async fn rebuild_footer<D: Disk>(
    disk: &D,
    file: &D::File,
    closed: &ClosedSegment,
) -> Result<(Footer, ScanReport), ScanError> {
    let start = SegmentPoint {
        position: FIRST_GROUP_POSITION,
        offset: closed.base_offset,
        ..SegmentPoint::default()
    };
    let range = ScanRange {
        segment: closed.segment,
        start,
        is_chain_known: false,
        durable: DurableMark { offset: closed.end_offset, position: closed.end_position },
        end: Some(closed.end_position),
    };
    let report = scan_segment(disk, file, range, |_| {}).await?;
    let footer = Footer {
        segment: closed.segment,
        base_offset: closed.base_offset,
        end_offset: closed.end_offset,
        end_position: closed.end_position,
        last_chain: closed.last_chain,
        first_time: closed.first_time,
        last_time: closed.last_time,
        entries: report.index.entries().to_vec(),
    };
    Ok((footer, report))
}

/// Finds the index of a closed segment: from its footer, or else from its groups.
///
/// # Errors
///
/// [`ScanError`]: unknown.
pub async fn load_index<D: Disk>(
    disk: &D,
    file: &D::File,
    closed: &ClosedSegment,
) -> Result<SparseIndex, ScanError> {
    if let Some(footer) = load_footer(disk, file, closed).await? {
        return Ok(SparseIndex::from_entries(footer.entries));
    }
    let (_, report) = rebuild_footer(disk, file, closed).await?;
    Ok(report.index)
}

/// Reads exactly `bytes`, or `None` where the file ends before.
async fn read<D: Disk>(
    disk: &D,
    file: &D::File,
    position: Position,
    bytes: usize,
) -> Result<Option<Vec<u8>>, ScanError> {
    let extent = disk.arena().allocate(bytes).ok_or(ScanError::ArenaFull { bytes })?;
    let extent = file.read(extent, position).await.map_err(ScanError::Disk)?;
    Ok((extent.len() == bytes).then(|| extent.as_slice().to_vec()))
}
