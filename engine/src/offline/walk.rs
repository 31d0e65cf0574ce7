//! Which segments of a partition hold readable records, and where each ends. After a crash the end of the last
//! one is found by the same walk that recovery makes, without writing anything.

use std::path::Path;

use super::session::OfflineError;
use crate::format::{
    Chain, Checkpoint, DurableMark, FIRST_GROUP_POSITION, NextSegment, SegmentHeader, SegmentPoint,
};
use crate::id::{Offset, SegmentId};
use crate::io::disk::{Disk, OpenMode};
use crate::segment::{
    OpenSegmentError, ScanRange, ScanReport, SegmentEnd, durable_claim, open_segment, scan_segment,
};

/// A segment and the part of it that belongs to the log.
pub(super) struct WalkedSegment {
    pub(super) segment: SegmentId,
    pub(super) base_offset: Offset,
    pub(super) end: SegmentEnd,
}

/// What the walk behind the checkpoint's durable place found in one segment.
pub(super) struct TailWalk {
    pub(super) segment: SegmentId,
    pub(super) base_offset: Offset,
    pub(super) report: ScanReport,
}

/// Walks what was written after the checkpoint: the active segment from its durable place, and the next one if
/// its first group follows. Nothing is walked after an orderly close.
pub(super) async fn walk_tail<D: Disk>(
    disk: &D,
    directory: &Path,
    checkpoint: &Checkpoint,
) -> Result<Vec<TailWalk>, OfflineError> {
    let Some(active) = checkpoint.active.filter(|_| !checkpoint.clean) else {
        return Ok(Vec::new());
    };
    let next = match checkpoint.next {
        None => None,
        Some(next) => {
            let (file, _) = open(disk, directory, checkpoint, next.segment).await?;
            let claim = durable_claim(disk, &file, next.segment, u64::MAX).await?;
            Some((next, file, claim))
        }
    };
    let before_next = next.as_ref().map_or(Offset::ZERO, |(_, _, claim)| claim.before);
    let range = ScanRange {
        segment: active.segment,
        start: active.durable,
        is_chain_known: true,
        durable: DurableMark {
            offset: active.durable.offset.max(before_next),
            position: active.durable.position,
        },
        end: None,
    };
    let (file, _) = open(disk, directory, checkpoint, active.segment).await?;
    let report = scan_segment(disk, &file, range, |_| {}).await?;
    let (end, is_chain_known) = (report.end, report.is_chain_known);
    let base_offset = active.base_offset;
    let mut walks = vec![TailWalk { segment: active.segment, base_offset, report }];
    if let Some((next, file, claim)) = next {
        let range = first_groups(next, end, is_chain_known, claim.own);
        let report = scan_segment(disk, &file, range, |_| {}).await?;
        if report.groups > 0 {
            walks.push(TailWalk { segment: next.segment, base_offset: end.offset, report });
        }
    }
    Ok(walks)
}

/// The segments of the log in order, with their ends.
pub(super) async fn segments_of<D: Disk>(
    disk: &D,
    directory: &Path,
    checkpoint: &Checkpoint,
) -> Result<Vec<WalkedSegment>, OfflineError> {
    let mut segments: Vec<WalkedSegment> = checkpoint
        .closed
        .iter()
        .map(|closed| WalkedSegment {
            segment: closed.segment,
            base_offset: closed.base_offset,
            end: SegmentEnd { position: closed.end_position, offset: closed.end_offset },
        })
        .collect();
    let tail = walk_tail(disk, directory, checkpoint).await?;
    if tail.is_empty()
        && let Some(active) = checkpoint.active
    {
        let end = SegmentEnd { position: active.durable.position, offset: active.durable.offset };
        let base_offset = active.base_offset;
        segments.push(WalkedSegment { segment: active.segment, base_offset, end });
    }
    segments.extend(tail.into_iter().map(|walk| WalkedSegment {
        segment: walk.segment,
        base_offset: walk.base_offset,
        end: SegmentEnd { position: walk.report.end.position, offset: walk.report.end.offset },
    }));
    Ok(segments)
}

fn first_groups(
    next: NextSegment,
    before: SegmentPoint,
    is_chain_known: bool,
    durable: DurableMark,
) -> ScanRange {
    ScanRange {
        segment: next.segment,
        start: SegmentPoint {
            position: FIRST_GROUP_POSITION,
            offset: before.offset,
            chain: Chain::seed(next.segment, before.chain),
            group: 0,
        },
        is_chain_known,
        durable,
        end: None,
    }
}

async fn open<D: Disk>(
    disk: &D,
    directory: &Path,
    checkpoint: &Checkpoint,
    segment: SegmentId,
) -> Result<(D::File, SegmentHeader), OpenSegmentError> {
    open_segment(disk, directory, checkpoint.partition, segment, OpenMode::Read).await
}
