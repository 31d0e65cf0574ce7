//! Walks every byte of a data directory that belongs to a log, and names what is not as it should be.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::contents::{PartitionContents, contents_of, find};
use super::fault::{Fault, FaultKind};
use super::session::{self, OfflineError, Task};
use super::walk::{segments_of, walk_tail};
use crate::format::{
    ActiveSegment, BelievedCheckpoint, Chain, Checkpoint, ClosedSegment, DurableMark,
    FIRST_GROUP_POSITION, SegmentPoint,
};
use crate::id::{Offset, PartitionName, Position, SegmentId};
use crate::io::disk::{Disk, OpenMode};
use crate::io::runtime::Runtime;
use crate::journal::{Replay, journal_path, replay};
use crate::segment::{
    OpenSegmentError, ScanRange, ScanReport, Tail, is_recycled_name, load_footer, open_segment,
    scan_segment, segment_id_of_name, segment_path,
};

/// What a walk over a directory found.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// One entry a partition, by name.
    pub partitions: Vec<PartitionReport>,
}

/// What a walk over one partition found.
#[derive(Debug)]
pub struct PartitionReport {
    /// The directory of its files.
    pub path: PathBuf,
    /// Its name, unless its checkpoint is unreadable.
    pub name: Option<PartitionName>,
    /// Segment files walked.
    pub segments: u64,
    /// Bytes of groups walked.
    pub bytes: u64,
    /// Records that passed every check.
    pub records: u64,
    /// What is not as it should be, in the order of the files.
    pub faults: Vec<Fault>,
}

impl VerifyReport {
    /// Tells whether records or promises are lost or in danger anywhere.
    #[must_use]
    pub fn has_damage(&self) -> bool {
        self.partitions
            .iter()
            .flat_map(|partition| &partition.faults)
            .any(|fault| fault.kind.is_damage())
    }
}

/// Walks all partitions of a data directory, or the one that is named. Changes nothing.
///
/// # Errors
///
/// [`OfflineError`]: the walk did not come to its end; faults of the log are in the report, not here.
pub fn verify(
    directory: &Path,
    only: Option<&PartitionName>,
) -> Result<VerifyReport, OfflineError> {
    session::run(directory, Verify { only: only.cloned() })
}

struct Verify {
    only: Option<PartitionName>,
}

impl Task for Verify {
    type Output = VerifyReport;

    async fn run<D: Disk>(
        self,
        disk: D,
        runtime: Rc<dyn Runtime>,
        directory: &Path,
    ) -> Result<VerifyReport, OfflineError> {
        let contents = contents_of(&disk, directory).await?;
        let chosen = match &self.only {
            Some(name) => vec![find(&contents, directory, name)?],
            None => contents.partitions.iter().collect(),
        };
        let mut report = VerifyReport::default();
        let journals =
            JournalsOf { directory, replay: replay(&disk, runtime.as_ref(), directory).await? };
        for partition in chosen {
            report.partitions.push(verify_partition(&disk, partition, &journals).await?);
        }
        Ok(report)
    }
}

/// What the journals hold of the data directory.
struct JournalsOf<'a> {
    directory: &'a Path,
    replay: Replay,
}

async fn verify_partition<D: Disk>(
    disk: &D,
    partition: &PartitionContents,
    journals: &JournalsOf<'_>,
) -> Result<PartitionReport, OfflineError> {
    let mut walk = PartitionWalk {
        disk,
        directory: &partition.path,
        report: PartitionReport {
            path: partition.path.clone(),
            name: partition.name(),
            segments: 0,
            bytes: 0,
            records: 0,
            faults: Vec::new(),
        },
    };
    match &partition.checkpoint {
        Ok(BelievedCheckpoint { checkpoint, damaged }) => {
            if let Some(damaged) = damaged {
                let reason = damaged.to_string();
                walk.fault(partition.checkpoint_path(), None, FaultKind::CheckpointSlot { reason });
            }
            for closed in &checkpoint.closed {
                walk.closed(checkpoint, closed).await?;
            }
            if let Some(active) = &checkpoint.active {
                walk.active(checkpoint, active).await?;
            }
            walk.journal(checkpoint, journals).await?;
            walk.unknown_files(checkpoint).await?;
        }
        Err(error) => {
            let reason = error.to_string();
            walk.fault(
                partition.checkpoint_path(),
                None,
                FaultKind::CheckpointUnreadable { reason },
            );
        }
    }
    Ok(walk.report)
}

struct PartitionWalk<'a, D> {
    disk: &'a D,
    directory: &'a Path,
    report: PartitionReport,
}

impl<D: Disk> PartitionWalk<'_, D> {
    async fn closed(
        &mut self,
        checkpoint: &Checkpoint,
        closed: &ClosedSegment,
    ) -> Result<(), OfflineError> {
        let path = segment_path(self.directory, closed.segment);
        let opened = open_segment(
            self.disk,
            self.directory,
            checkpoint.partition,
            closed.segment,
            OpenMode::Read,
        );
        let file = match opened.await {
            Ok((file, _)) => file,
            Err(error) => return self.unreadable(path, error),
        };
        let durable = DurableMark { offset: closed.end_offset, position: closed.end_position };
        let range = from_first_group(
            closed.segment,
            closed.base_offset,
            durable,
            Some(closed.end_position),
        );
        let report = self.scan(&file, range).await?;
        let end = report.end.offset;
        self.take(&path, FIRST_GROUP_POSITION, &report, closed.base_offset);
        let is_cut = matches!(report.tail, Tail::CutShort { .. });
        if end != closed.end_offset && !is_cut && report.corrupt.is_empty() {
            let kind = FaultKind::EndDiffers { expected: closed.end_offset, found: end };
            self.fault(path.clone(), None, kind);
        }
        if load_footer(self.disk, &file, closed).await?.is_none() {
            let positions = closed.end_position..closed.end_position;
            self.fault(path, Some(positions), FaultKind::Footer);
        }
        Ok(())
    }

    /// The part the checkpoint vouches for first, then what came after it.
    async fn active(
        &mut self,
        checkpoint: &Checkpoint,
        active: &ActiveSegment,
    ) -> Result<(), OfflineError> {
        let path = segment_path(self.directory, active.segment);
        let opened = open_segment(
            self.disk,
            self.directory,
            checkpoint.partition,
            active.segment,
            OpenMode::Read,
        );
        let file = match opened.await {
            Ok((file, _)) => file,
            Err(error) => return self.unreadable(path, error),
        };
        if active.durable.position > FIRST_GROUP_POSITION {
            let durable =
                DurableMark { offset: active.durable.offset, position: active.durable.position };
            let end = Some(active.durable.position);
            let range = from_first_group(active.segment, active.base_offset, durable, end);
            let report = self.scan(&file, range).await?;
            self.take(&path, FIRST_GROUP_POSITION, &report, active.base_offset);
        }
        for walk in walk_tail(self.disk, self.directory, checkpoint).await? {
            let is_active = walk.segment == active.segment;
            let (start, base) = if is_active {
                (active.durable.position, active.durable.offset)
            } else {
                (FIRST_GROUP_POSITION, walk.base_offset)
            };
            let path = segment_path(self.directory, walk.segment);
            self.take(&path, start, &walk.report, base);
        }
        Ok(())
    }

    /// What only the journal holds.
    async fn journal(
        &mut self,
        checkpoint: &Checkpoint,
        journals: &JournalsOf<'_>,
    ) -> Result<(), OfflineError> {
        let Some(mark) = checkpoint.journal.filter(|_| !checkpoint.clean) else { return Ok(()) };
        let segments = match segments_of(self.disk, self.directory, checkpoint).await {
            // The segment was reported as unreadable; where the log ends is unknown.
            Err(OfflineError::Segment(_)) => return Ok(()),
            segments => segments?,
        };
        let stored = segments.last().map_or(checkpoint.next_offset, |segment| segment.end.offset);
        let behind = journals.replay.behind(checkpoint.partition, mark, stored);
        self.report.records += behind.end.0 - stored.0;
        self.report.bytes +=
            behind.batches.iter().map(|(_, batch)| batch.len() as u64).sum::<u64>();
        if let Some(lost_until) = behind.lost_until {
            let kind = FaultKind::CutShort { offsets: behind.end..lost_until };
            self.fault(journal_path(journals.directory, mark.journal), None, kind);
        }
        Ok(())
    }

    async fn unknown_files(&mut self, checkpoint: &Checkpoint) -> Result<(), OfflineError> {
        let known: BTreeSet<SegmentId> = checkpoint
            .closed
            .iter()
            .map(|closed| closed.segment)
            .chain(checkpoint.active.map(|active| active.segment))
            .chain(checkpoint.next.map(|next| next.segment))
            .collect();
        let mut entries = self.disk.list(self.directory).await?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        for entry in entries {
            let is_ours = entry.name == crate::partition::CHECKPOINT
                || is_recycled_name(&entry.name)
                || segment_id_of_name(&entry.name).is_some_and(|id| known.contains(&id));
            if !is_ours {
                self.fault(self.directory.join(entry.name), None, FaultKind::UnknownFile);
            }
        }
        Ok(())
    }

    async fn scan(&self, file: &D::File, range: ScanRange) -> Result<ScanReport, OfflineError> {
        Ok(scan_segment(self.disk, file, range, |_| {}).await?)
    }

    /// Enters what one walk found.
    fn take(&mut self, path: &Path, start: Position, report: &ScanReport, base: Offset) {
        if start == FIRST_GROUP_POSITION {
            self.report.segments += 1;
        }
        self.report.bytes += report.end.position.0.saturating_sub(start.0);
        let mut records = report.end.offset.0.saturating_sub(base.0);
        for corrupt in &report.corrupt {
            records -= corrupt.offsets.end.0 - corrupt.offsets.start.0;
            let kind = FaultKind::Corrupt { offsets: corrupt.offsets.clone() };
            self.fault(path.to_owned(), Some(corrupt.positions.clone()), kind);
        }
        self.report.records += records;
        let end = report.end;
        match report.tail {
            Tail::Clean => {}
            Tail::Torn { bytes } => {
                let positions = end.position..end.position.plus(bytes);
                self.fault(path.to_owned(), Some(positions), FaultKind::Torn);
            }
            Tail::CutShort { bytes, durable } => {
                let positions = end.position..end.position.plus(bytes);
                let kind = FaultKind::CutShort { offsets: end.offset..durable };
                self.fault(path.to_owned(), Some(positions), kind);
            }
        }
    }

    fn unreadable(&mut self, path: PathBuf, error: OpenSegmentError) -> Result<(), OfflineError> {
        match error {
            // Not the log's fault, and the walk is not whole without it.
            OpenSegmentError::ArenaFull { .. } => Err(error.into()),
            error => {
                self.report.segments += 1;
                let kind = FaultKind::SegmentUnreadable { reason: error.to_string() };
                self.fault(path, None, kind);
                Ok(())
            }
        }
    }

    fn fault(
        &mut self,
        path: PathBuf,
        positions: Option<std::ops::Range<Position>>,
        kind: FaultKind,
    ) {
        self.report.faults.push(Fault { path, positions, kind });
    }
}

/// The segment before may be trimmed, so the first group's own word is taken for the chain in front of it.
fn from_first_group(
    segment: SegmentId,
    base_offset: Offset,
    durable: DurableMark,
    end: Option<Position>,
) -> ScanRange {
    let start = SegmentPoint {
        position: FIRST_GROUP_POSITION,
        offset: base_offset,
        chain: Chain::default(),
        group: 0,
    };
    ScanRange { segment, start, is_chain_known: false, durable, end }
}
