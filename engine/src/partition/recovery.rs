//! What an unclean open does to one partition: walk, sync, one checkpoint, and only then clean up.
//!
//! A crash at any step leaves the unclean checkpoint in place, so the next open does it all again (L7).

use std::cell::RefCell;
use std::path::Path;

use super::checkpoint_store::{CheckpointStore, OpenLogError};
use super::context::LogContext;
use super::epoch_history::EpochHistory;
use super::opening::failed;
use super::producers::Producers;
use super::replaying::append_replayed;
use super::set_aside::{Recovery, SetAside, remove_or_set_aside};
use super::settling::settle_tail;
use crate::format::{
    ActiveSegment, BATCH_BYTES_MAX, BatchHeader, Chain, Checkpoint, ClosedSegment, DurableMark,
    FIRST_GROUP_POSITION, Footer, GROUP_HEADER_BYTES, NextSegment, QuarantinedRange, SegmentPoint,
    SegmentState,
};
use crate::id::{BLOCK_BYTES, Offset, Position, SegmentId};
use crate::io::clock::WallTime;
use crate::io::disk::{Disk, DiskError, DiskFile, OpenMode};
use crate::segment::{
    DurableClaim, ScanError, ScanRange, ScanReport, Tail, close_segment, durable_claim,
    scan_segment, segment_id_of_name, segment_path,
};

/// What is looked at of the segment made in advance, to see whether the run had come to it. All of it is read only where
/// the one before it may have been full, or its end is in doubt.
const PEEK_BYTES: u64 = 128 << 10;

/// A segment with more room than this left behind its last group has not been rolled.
const GROUP_PADDED_BYTES_MAX: u64 =
    (GROUP_HEADER_BYTES + BATCH_BYTES_MAX).next_multiple_of(BLOCK_BYTES) as u64;

/// A log that is whole again, and how it became so.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) checkpoint: Checkpoint,
    pub(super) recovery: Recovery,
    pub(super) set_aside: Vec<SetAside>,
}

/// A segment of the run that crashed, walked to its valid end.
struct Walked<D: Disk> {
    file: D::File,
    closed: ClosedSegment,
    /// Where the walk began: everything below was known to be durable.
    start: Position,
    report: ScanReport,
    /// What was cut off the file behind the engine's back.
    missing_bytes: u64,
}

/// Walks the log from its last checkpoint and closes it at its valid end.
pub(super) async fn recover<D: Disk>(
    context: &LogContext<D>,
    directory: &Path,
    mut checkpoint: Checkpoint,
    store: &mut CheckpointStore,
) -> Result<Recovered, OpenLogError> {
    let mut recovery = Recovery::default();
    let producers_max = context.limits.producers_max;
    let producers = RefCell::new(Producers::from_entries(&checkpoint.producers, producers_max));
    let mut walked = walk(context, directory, &checkpoint, &producers).await?;
    for segment in &walked {
        note(&mut recovery, directory, segment);
    }
    // A segment without groups holds nothing and its file goes with the clean-up, unless it held something once.
    walked.retain(|walked| {
        walked.closed.end_position > FIRST_GROUP_POSITION
            || matches!(walked.report.tail, Tail::CutShort { .. })
    });
    let mut history = EpochHistory::from_entries(checkpoint.epochs.iter().copied());
    let mut end = checkpoint.closed.last().map_or(checkpoint.log_start, |closed| closed.end_offset);
    for segment in &walked {
        end = segment.closed.end_offset;
        for entry in &segment.report.epochs {
            if history.last().is_none_or(|last| last.epoch < entry.epoch) {
                history.begin(entry.epoch, entry.start.min(end));
            }
        }
        let ranges = segment.report.corrupt.iter().map(|range| QuarantinedRange {
            segment: segment.closed.segment,
            positions: range.positions.clone(),
            offsets: range.offsets.clone(),
        });
        checkpoint.quarantined.extend(ranges);
        // What is about to be served must survive a power cut first (L6).
        let id = segment.closed.segment;
        let in_flight = segment.report.in_flight.iter();
        let settled = settle_tail(context, &segment.file, id, in_flight).await;
        settled.map_err(|error| failed(directory, error))?;
        checkpoint.closed.push(segment.closed);
    }
    let before = checkpoint.closed.last().map_or(Chain::default(), |closed| closed.last_chain);
    let replayed =
        append_replayed(context, directory, &checkpoint, end, before, &mut recovery, &producers)
            .await?;
    if let Some(replayed) = replayed {
        if history.last().is_none_or(|last| last.epoch < replayed.last_epoch) {
            history.begin(replayed.last_epoch, end);
        }
        end = replayed.closed.end_offset;
        checkpoint.closed.push(replayed.closed);
    }
    checkpoint.journal = None;
    checkpoint.active = None;
    checkpoint.next = None;
    checkpoint.clean = true;
    checkpoint.sequence = store.next_sequence();
    checkpoint.epochs = history.entries().to_vec();
    checkpoint.log_start = checkpoint.log_start.min(end);
    checkpoint.committed = checkpoint.committed.min(end);
    checkpoint.next_offset = end;
    // A file cut short by somebody ends below what the checkpoint remembers.
    checkpoint.producers = producers.into_inner().entries_below(end);
    // Into a new file: a checkpoint write of the dead run may still land in the old one.
    store.start_new_file();
    store.write(context, &checkpoint).await.map_err(|error| failed(directory, error))?;
    for segment in &walked {
        close_file(context, segment).await;
    }
    drop(walked);
    let set_aside = clean_up(context, directory, &checkpoint).await?;
    Ok(Recovered { checkpoint, recovery, set_aside })
}

fn note<D: Disk>(recovery: &mut Recovery, directory: &Path, segment: &Walked<D>) {
    recovery.walked_bytes += segment.report.end.position.0.saturating_sub(segment.start.0);
    recovery.quarantined += segment.report.corrupt.len() as u64;
    let path = segment_path(directory, segment.closed.segment);
    if segment.missing_bytes > 0 {
        recovery.torn_bytes += segment.missing_bytes;
        tracing::error!(path = %path.display(), bytes = segment.missing_bytes,
            "the file is shorter than it was made; what stood there is lost");
    }
    match segment.report.tail {
        Tail::Clean => {}
        Tail::Torn { bytes } => {
            recovery.torn_bytes += bytes;
            tracing::warn!(path = %path.display(), bytes, "a torn tail was cut off");
        }
        Tail::CutShort { bytes, durable } => {
            recovery.torn_bytes += bytes;
            recovery.lost_end = Some(durable);
            tracing::error!(path = %path.display(), bytes, %durable,
                "the file is shorter than what had been durable; records are lost");
        }
    }
    for range in &segment.report.corrupt {
        tracing::error!(path = %path.display(), positions = ?range.positions,
            offsets = ?range.offsets, "damaged bytes were put under quarantine");
    }
}

/// Walks the active segment and, if the crashed run had rolled, the next one.
async fn walk<D: Disk>(
    context: &LogContext<D>,
    directory: &Path,
    checkpoint: &Checkpoint,
    producers: &RefCell<Producers>,
) -> Result<Vec<Walked<D>>, OpenLogError> {
    let Some(active) = &checkpoint.active else { return Ok(Vec::new()) };
    let before = checkpoint.closed.last().map_or(Chain::default(), |closed| closed.last_chain);
    let open = |segment: SegmentId| {
        let path = segment_path(directory, segment);
        let disk = context.disk.clone();
        async move { disk.open(&path, OpenMode::Write).await }
    };
    let file = open(active.segment).await.map_err(|error| failed(directory, error))?;
    let next = match checkpoint.next {
        Some(next) => match open(next.segment).await {
            Ok(file) => Some((next, file)),
            Err(error) if error.is_missing() => None,
            Err(error) => return Err(failed(directory, error)),
        },
        None => None,
    };
    let length = file.length().await.map_err(|error| failed(directory, error))?;
    let start = match length < active.durable.position.0 {
        // Cut short by somebody: what is left is found from the beginning.
        true => first_point(active.segment, active.base_offset, before),
        false => active.durable,
    };
    let is_from_start = start.group == 0;
    let full_bytes = if length < active.file_bytes { 0 } else { active.file_bytes };
    let walk = ActiveWalk { context, directory, active, file: &file, start, full_bytes };
    let (report, claim) = walk.scan(next.as_ref(), producers).await?;
    let closed = closed_of(active, &report, is_from_start);
    let missing_bytes = missing(context, &file, active.file_bytes, &report).await;
    let missing_bytes = missing_bytes.map_err(|error| failed(directory, error))?;
    let walked = Walked { file, start: start.position, closed, report, missing_bytes };
    let mut all = vec![walked];
    let end = all[0].report.end;
    if let Some((next, file)) = next.filter(|_| !claim.is_empty) {
        let start = first_point(next.segment, end.offset, end.chain);
        let range = ScanRange {
            segment: next.segment,
            start,
            is_chain_known: all[0].report.is_chain_known,
            durable: claim.own,
            end: None,
        };
        let report = scan(context, directory, &file, range, producers).await?;
        if report.groups > 0 || !report.corrupt.is_empty() {
            let closed = closed_of(&as_active(next, start), &report, true);
            all.push(Walked { file, start: start.position, closed, report, missing_bytes: 0 });
        }
    }
    Ok(all)
}

/// How many bytes a file lacks that was made with `file_bytes`. One with a footer was cut by its own closing.
async fn missing<D: Disk>(
    context: &LogContext<D>,
    file: &D::File,
    file_bytes: u64,
    report: &ScanReport,
) -> Result<u64, DiskError> {
    let missing_bytes = file_bytes.saturating_sub(file.length().await?);
    if missing_bytes == 0 {
        return Ok(0);
    }
    let block = context.allocate_waiting(BLOCK_BYTES).await;
    let block = file.read(block, report.end.position).await?;
    match Footer::padded_bytes(block.as_slice()) {
        Ok(_) => Ok(0),
        Err(_) => Ok(missing_bytes),
    }
}

fn first_point(segment: SegmentId, offset: Offset, before: Chain) -> SegmentPoint {
    let position = FIRST_GROUP_POSITION;
    SegmentPoint { position, offset, chain: Chain::seed(segment, before), group: 0 }
}

fn as_active(next: NextSegment, start: SegmentPoint) -> ActiveSegment {
    ActiveSegment {
        segment: next.segment,
        file_bytes: next.file_bytes,
        base_offset: start.offset,
        first_time: WallTime::UNKNOWN,
        last_time: WallTime::UNKNOWN,
        durable: start,
    }
}

fn closed_of(active: &ActiveSegment, report: &ScanReport, is_from_start: bool) -> ClosedSegment {
    let quarantined = !report.corrupt.is_empty();
    let first_time = match is_from_start || active.first_time == WallTime::UNKNOWN {
        true => report.first_time,
        false => active.first_time,
    };
    ClosedSegment {
        segment: active.segment,
        base_offset: active.base_offset,
        end_offset: report.end.offset,
        end_position: report.end.position,
        last_chain: report.end.chain,
        first_time,
        last_time: report.last_time.max(active.last_time),
        state: if quarantined { SegmentState::Quarantined } else { SegmentState::Healthy },
    }
}

/// The walk of the segment that the checkpoint names active.
struct ActiveWalk<'a, D: Disk> {
    context: &'a LogContext<D>,
    directory: &'a Path,
    active: &'a ActiveSegment,
    file: &'a D::File,
    start: SegmentPoint,
    /// The file's length as it was made; 0 if somebody cut it.
    full_bytes: u64,
}

impl<D: Disk> ActiveWalk<'_, D> {
    /// Walks it, and looks at as much of the next one as that takes.
    async fn scan(
        &self,
        next: Option<&(NextSegment, D::File)>,
        producers: &RefCell<Producers>,
    ) -> Result<(ScanReport, DurableClaim), OpenLogError> {
        let Some((next, next_file)) = next else {
            return Ok((
                self.scan_with(&DurableClaim::EMPTY, producers).await?,
                DurableClaim::EMPTY,
            ));
        };
        let claim_of = async |bytes_max| {
            let (disk, segment) = (&self.context.disk, next.segment);
            let claim = || durable_claim(disk, next_file, segment, bytes_max);
            with_memory(self.context, self.directory, claim).await
        };
        let peeked = claim_of(PEEK_BYTES).await?;
        if peeked.is_empty {
            let known = producers.borrow().clone();
            let report = self.scan_with(&peeked, producers).await?;
            if !self.may_have_rolled(&report) {
                return Ok((report, peeked));
            }
            let claim = claim_of(u64::MAX).await?;
            if claim.is_empty {
                return Ok((report, claim));
            }
            // What is known now may change where the walk ends.
            *producers.borrow_mut() = known;
            return Ok((self.scan_with(&claim, producers).await?, claim));
        }
        let claim = claim_of(u64::MAX).await?;
        Ok((self.scan_with(&claim, producers).await?, claim))
    }

    /// Walks it, knowing what the next one's groups say of it.
    async fn scan_with(
        &self,
        claim: &DurableClaim,
        producers: &RefCell<Producers>,
    ) -> Result<ScanReport, OpenLogError> {
        let active = self.active;
        let durable = DurableMark {
            offset: active.durable.offset.max(claim.before),
            position: active.durable.position,
        };
        let range = ScanRange {
            segment: active.segment,
            start: self.start,
            is_chain_known: true,
            durable,
            end: None,
        };
        scan(self.context, self.directory, self.file, range, producers).await
    }

    /// Tells whether groups may lie in the next segment: this one may have been full, or its end is in doubt.
    fn may_have_rolled(&self, report: &ScanReport) -> bool {
        report.end.position.0 + GROUP_PADDED_BYTES_MAX > self.full_bytes
            || report.tail != Tail::Clean
            || !report.corrupt.is_empty()
    }
}

async fn scan<D: Disk>(
    context: &LogContext<D>,
    directory: &Path,
    file: &D::File,
    range: ScanRange,
    producers: &RefCell<Producers>,
) -> Result<ScanReport, OpenLogError> {
    let note = |header: &BatchHeader| producers.borrow_mut().note_settled(header);
    with_memory(context, directory, || scan_segment(&context.disk, file, range, note)).await
}

/// Tries again while memory is short.
async fn with_memory<D: Disk, A, F: Future<Output = Result<A, ScanError>>>(
    context: &LogContext<D>,
    directory: &Path,
    attempt: impl Fn() -> F,
) -> Result<A, OpenLogError> {
    loop {
        match attempt().await {
            Ok(answer) => return Ok(answer),
            Err(ScanError::Disk(error)) => return Err(failed(directory, error)),
            Err(ScanError::ArenaFull { .. }) => context.wait_for_memory().await,
            Err(ScanError::NewerVersion { source, .. }) => {
                return Err(OpenLogError::NewerData { path: directory.to_owned(), source });
            }
        }
    }
}

/// Writes the footer and gives back what the file has behind it: a cache, and room. Both can fail harmlessly.
async fn close_file<D: Disk>(context: &LogContext<D>, segment: &Walked<D>) {
    let closed = &segment.closed;
    let footer = Footer {
        segment: closed.segment,
        base_offset: closed.base_offset,
        end_offset: closed.end_offset,
        end_position: closed.end_position,
        last_chain: closed.last_chain,
        first_time: closed.first_time,
        last_time: closed.last_time,
        entries: segment.report.index.entries().to_vec(),
    };
    if !segment.report.corrupt.is_empty() || matches!(segment.report.tail, Tail::CutShort { .. }) {
        // Damaged bytes are kept as they are, whatever lies behind them.
        return;
    }
    if let Err(error) = close_segment(&context.disk, &segment.file, &footer).await {
        tracing::warn!(%error, "a recovered segment got no footer; it is read without");
    }
}

/// Removes files that no checkpoint names and that are ours; sets aside what is not understood (L24).
async fn clean_up<D: Disk>(
    context: &LogContext<D>,
    directory: &Path,
    checkpoint: &Checkpoint,
) -> Result<Vec<SetAside>, OpenLogError> {
    let entries = context.disk.list(directory).await.map_err(|error| failed(directory, error))?;
    let mut set_aside = Vec::new();
    for entry in entries {
        let Some(segment) = segment_id_of_name(&entry.name) else { continue };
        if checkpoint.closed.iter().any(|closed| closed.segment == segment) {
            continue;
        }
        let aside = remove_or_set_aside(context, directory, checkpoint.partition, segment).await;
        set_aside.extend(aside.map_err(|error| failed(directory, error))?);
    }
    Ok(set_aside)
}
