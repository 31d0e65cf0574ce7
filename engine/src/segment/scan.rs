//! The walk over a segment after a crash: from a known place to the valid end, telling a clean end, a torn
//! tail and corruption apart.
//!
//! A group that does not validate is corruption when it had been durable: below the checkpoint's durable mark,
//! or below one that a later header of the same segment carries. Then its range is reported and the walk goes
//! on behind it. Otherwise the log ends there. Nothing is written.

use std::collections::VecDeque;
use std::ops::Range;

use super::group_walk::{FoundGroup, check_group, find_group};
use super::index::SparseIndex;
use super::survey::{Survey, SurveyDepth, survey};
use super::window::{Window, WindowError};
use crate::format::{
    BatchHeader, BatchKind, DurableMark, EpochStart, FormatError, GROUP_HEADER_BYTES, GroupHeader,
    IndexEntry, SegmentPoint,
};
use crate::id::{BLOCK_BYTES, Epoch, Offset, Position, SegmentId};
use crate::io::clock::WallTime;
use crate::io::disk::{Disk, DiskError, DiskFile};

/// What to walk, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRange {
    /// The segment; groups of others are not believed.
    pub segment: SegmentId,
    /// Where to start.
    pub start: SegmentPoint,
    /// Whether `start` carries the right chain. It does not behind a range that cannot be read, nor when the
    /// segment before is gone; then the first group's own word is taken, if the group is known durable.
    pub is_chain_known: bool,
    /// What is known to be durable.
    pub durable: DurableMark,
    /// Where to end, if the segment's end is known; else the walk finds it.
    pub end: Option<Position>,
}

/// Bytes that did not validate although they had been durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorruptRange {
    /// The bytes.
    pub positions: Range<Position>,
    /// The records that cannot be read.
    pub offsets: Range<Offset>,
}

/// What lies behind the valid end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Nothing: zeros, the end of the file, or the end that was known.
    Clean,
    /// Bytes of groups that were in flight. They were never durable, and are dropped.
    Torn {
        /// How many bytes, to the last that is not zero, or of the last header in a file that was another segment's
        /// before.
        bytes: u64,
    },
    /// The file is shorter than what had been durable: somebody cut it. What is left of the last group is
    /// dropped, and the records up to `durable` are lost.
    CutShort {
        /// How many bytes of groups that are not whole.
        bytes: u64,
        /// The log end that had been durable.
        durable: Offset,
    },
}

/// What a walk found.
#[derive(Clone, Debug)]
pub struct ScanReport {
    /// The valid end.
    pub end: SegmentPoint,
    /// Whether `end` carries the right chain; not so when what lies in front of it cannot be read.
    pub is_chain_known: bool,
    /// What lies behind it.
    pub tail: Tail,
    /// What cannot be read in front of it, in order.
    pub corrupt: Vec<CorruptRange>,
    /// The groups walked.
    pub groups: u64,
    /// Those of them that no header walked calls durable, in order: they may have been in flight.
    pub in_flight: VecDeque<GroupHeader>,
    /// An index over them.
    pub index: SparseIndex,
    /// The append time of the first batch walked; unknown without one.
    pub first_time: WallTime,
    /// The append time of the last batch walked; unknown without one.
    pub last_time: WallTime,
    /// Every change of epoch met, the first batch's epoch included.
    pub epochs: Vec<EpochStart>,
    /// The markers met.
    pub markers: Vec<EpochStart>,
}

/// Why a walk ended without an answer. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The disk refused.
    #[error(transparent)]
    Disk(DiskError),
    /// The arena has no room now; try again later.
    #[error("the arena has no {bytes} bytes to read into")]
    ArenaFull {
        /// What was asked.
        bytes: usize,
    },
    /// A newer release has written here; use that release.
    #[error("at {position}: {source}")]
    NewerVersion {
        /// Where.
        position: Position,
        /// The versions.
        source: FormatError,
    },
}

impl From<WindowError> for ScanError {
    fn from(error: WindowError) -> ScanError {
        match error {
            WindowError::Disk(error) => ScanError::Disk(error),
            WindowError::ArenaFull { bytes } => ScanError::ArenaFull { bytes },
        }
    }
}

/// Walks a segment. `visit` sees the header of every batch that is taken, in order.
///
/// # Errors
///
/// [`ScanError`]: the segment's end is not known; open nothing.
pub async fn scan_segment<D: Disk>(
    disk: &D,
    file: &D::File,
    range: ScanRange,
    visit: impl FnMut(&BatchHeader),
) -> Result<ScanReport, ScanError> {
    let file_end = Position(file.length().await.map_err(ScanError::Disk)?);
    let end = range.end.map_or(file_end, |end| end.min(file_end));
    let mut window = Window::new(disk, file);
    let mut walk = Walk::new(range, visit);
    let mut surveyed = None;
    loop {
        let point = walk.report.end;
        if point.position >= end {
            walk.end_at(end);
            break;
        }
        let bytes = window.at(point.position, BLOCK_BYTES).await?;
        if let Some(found) = walk.expect_group(bytes)? {
            let group = window.at(point.position, found.header.length_bytes as usize).await?;
            if walk.take(&found, group) {
                continue;
            }
        }
        let behind = survey(&mut window, range.segment, &point, end, SurveyDepth::Whole).await?;
        // The claims of headers met earlier still hold.
        let known: DurableMark = *surveyed.get_or_insert(behind.durable);
        if !walk.judge(&behind, known, end) {
            break;
        }
    }
    Ok(walk.report)
}

/// The state of a walk; all decisions, no I/O.
struct Walk<V> {
    range: ScanRange,
    report: ScanReport,
    visit: V,
}

impl<V: FnMut(&BatchHeader)> Walk<V> {
    fn new(range: ScanRange, visit: V) -> Walk<V> {
        let report = ScanReport {
            end: range.start,
            is_chain_known: range.is_chain_known,
            tail: Tail::Clean,
            corrupt: Vec::new(),
            groups: 0,
            in_flight: VecDeque::new(),
            index: SparseIndex::default(),
            first_time: WallTime::UNKNOWN,
            last_time: WallTime::UNKNOWN,
            epochs: Vec::new(),
            markers: Vec::new(),
        };
        Walk { range, report, visit }
    }

    /// The group at the walk's place, if its header says it is the next one.
    fn expect_group(&self, bytes: &[u8]) -> Result<Option<FoundGroup>, ScanError> {
        let point = &self.report.end;
        let found = match find_group(bytes, self.range.segment, point.position) {
            Ok(found) => found,
            Err(source @ FormatError::NewerVersion { .. }) => {
                return Err(ScanError::NewerVersion { position: point.position, source });
            }
            Err(_) => return Ok(None),
        };
        let header = &found.header;
        let is_next = header.number == point.group && header.base_offset == point.offset;
        let is_chained = match self.report.is_chain_known {
            true => header.chain == point.chain,
            false => self.is_durable(header.position, header.base_offset, self.range.durable),
        };
        Ok((is_next && is_chained).then_some(found))
    }

    /// Takes the group if all of it is sound.
    fn take(&mut self, found: &FoundGroup, group: &[u8]) -> bool {
        let header = &found.header;
        let (report, visit) = (&mut self.report, &mut self.visit);
        let is_first = report.groups == 0;
        let mut first_time = None;
        let Ok(chain) = check_group(group, found, |batch| {
            first_time.get_or_insert(batch.stamp.append_time);
            note_batch(report, batch);
            visit(batch);
        }) else {
            return false;
        };
        let time = first_time.unwrap_or_default();
        if is_first {
            report.first_time = time;
        }
        report.index.note(IndexEntry {
            offset: header.base_offset,
            position: header.position,
            time,
        });
        let durable = header.durable.position;
        while report.in_flight.pop_front_if(|before| before.position < durable).is_some() {}
        report.in_flight.push_back(*header);
        report.groups += 1;
        report.is_chain_known = true;
        report.end = SegmentPoint {
            position: header.end_position(),
            offset: header.next_offset,
            chain,
            group: header.number + 1,
        };
        true
    }

    /// The walk has come to the end of what there is.
    fn end_at(&mut self, end: Position) {
        let (point, durable) = (self.report.end, self.range.durable);
        if self.range.end.is_none_or(|known| end < known)
            && self.is_durable(point.position, point.offset, durable)
        {
            self.report.tail = Tail::CutShort { bytes: 0, durable: durable.offset };
        }
    }

    /// Decides what the place is at which no group was taken. Returns whether the walk goes on.
    fn judge(&mut self, behind: &Survey, claimed: DurableMark, end: Position) -> bool {
        let point = self.report.end;
        let known = self.range.durable;
        let durable = DurableMark {
            offset: known.offset.max(claimed.offset),
            position: known.position.max(claimed.position),
        };
        let dropped_bytes = behind.own_end.0 - point.position.0;
        if !self.is_durable(point.position, point.offset, durable) {
            if dropped_bytes > 0 {
                self.report.tail = Tail::Torn { bytes: dropped_bytes };
            }
            return false;
        }
        // A hole between what was durable and the next whole group may be a group that never landed.
        let next = behind
            .readable
            .map(|found| found.header)
            .filter(|next| next.position <= durable.position || next.base_offset < durable.offset);
        if let Some(next) = next {
            self.quarantine(next.position, next.base_offset);
            self.report.end = SegmentPoint {
                position: next.position,
                offset: next.base_offset,
                chain: next.chain,
                group: next.number,
            };
            self.report.is_chain_known = true;
            return true;
        }
        if end < durable.position {
            let lost = durable.offset.max(point.offset);
            self.report.tail = Tail::CutShort { bytes: end.0 - point.position.0, durable: lost };
            return false;
        }
        let corrupt_end = match (durable.position > point.position, behind.readable) {
            (true, _) => durable.position,
            (false, Some(next)) => next.header.position,
            (false, None) => behind.written_end.max(point.position.plus(BLOCK_BYTES as u64)),
        };
        self.quarantine(corrupt_end, durable.offset.max(point.offset));
        self.report.is_chain_known = false;
        let torn_bytes = behind.own_end.0.saturating_sub(corrupt_end.0);
        if torn_bytes > 0 {
            self.report.tail = Tail::Torn { bytes: torn_bytes };
        }
        false
    }

    fn is_durable(&self, position: Position, offset: Offset, durable: DurableMark) -> bool {
        position < durable.position || offset < durable.offset
    }

    /// Notes that nothing can be read from the walk's place to the given one, and moves there.
    fn quarantine(&mut self, position: Position, offset: Offset) {
        let point = &mut self.report.end;
        self.report.corrupt.push(CorruptRange {
            positions: point.position..position,
            offsets: point.offset..offset,
        });
        point.position = position;
        point.offset = offset;
    }
}

fn note_batch(report: &mut ScanReport, batch: &BatchHeader) {
    let start = EpochStart { epoch: batch.stamp.epoch, start: batch.stamp.base_offset };
    let last = report.epochs.last().map_or(Epoch::NONE, |last| last.epoch);
    if last != start.epoch {
        report.epochs.push(start);
    }
    if batch.kind == BatchKind::Marker {
        report.markers.push(start);
    }
    report.last_time = batch.stamp.append_time;
}

const _: () = assert!(GROUP_HEADER_BYTES <= BLOCK_BYTES);
