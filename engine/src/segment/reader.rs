//! Reads batches of a segment from the disk into arena memory, and hands them out as `Bytes` without a copy.
//!
//! Every header and payload is checked. Damage is an error that names the records it hides and where reading
//! resumes; it is never skipped in silence.

use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;

use super::read_plan::{PlanStop, ReadPlan, ReadPlanner};
use super::scan::ScanError;
use super::survey::{SurveyDepth, survey};
use super::window::Window;
use crate::format::{FIRST_GROUP_POSITION, FormatError, IndexEntry, SegmentPoint, StoredBatch};
use crate::id::{BLOCK_BYTES, Offset, Position, SegmentId};
use crate::io::arena::{Extent, SharedExtent};
use crate::io::clock::WallTime;
use crate::io::disk::{Disk, DiskError, DiskFile};

/// The least bytes of one read from the disk, as far as the segment goes.
pub const READ_BYTES_MIN: usize = 64 << 10;

/// The most bytes of one read from the disk, except for one group that is longer.
pub const READ_BYTES_MAX: usize = 1 << 20;

/// A group to start from: where it is, and the log end in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentCursor {
    /// Where the group starts.
    pub position: Position,
    /// The log end in front of it.
    pub offset: Offset,
}

impl SegmentCursor {
    /// The first group of the segment that starts at `base_offset`.
    #[must_use]
    pub fn first(base_offset: Offset) -> SegmentCursor {
        SegmentCursor { position: FIRST_GROUP_POSITION, offset: base_offset }
    }
}

impl From<IndexEntry> for SegmentCursor {
    fn from(entry: IndexEntry) -> SegmentCursor {
        SegmentCursor { position: entry.position, offset: entry.offset }
    }
}

/// Where reading must end. Neither is ever passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Behind the last readable group.
    pub position: Position,
    /// Behind the last readable record.
    pub offset: Offset,
}

/// When the checksums of payloads are compared. Those of headers always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadCheck {
    /// While reading.
    #[default]
    Now,
    /// By whoever takes the batches, or not at all.
    Later,
}

/// Whose memory batches are handed out in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// The arena's, without a copy; it counts as lent until the last reader lets go.
    #[default]
    Lend,
    /// Copies on the heap: the arena has lent as much as it may.
    Copy,
}

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRead {
    /// The first record wanted; the first batch may start below it.
    pub from: Offset,
    /// A group at or below it: from the index, or from the answer before.
    pub cursor: SegmentCursor,
    /// Where to end.
    pub end: SegmentEnd,
    /// Reading ends before the batch that would exceed this; one batch is always read.
    pub bytes_max: usize,
    /// Whether markers are read, too. A damaged one is `Corrupt` with an empty range of records.
    pub markers: bool,
    /// When payloads are checked.
    pub payloads: PayloadCheck,
    /// Whose memory the batches come in.
    pub sharing: Sharing,
}

/// What was read.
#[derive(Clone, Debug)]
pub struct SegmentReadAnswer {
    /// Whole batches, in order; none at the end.
    pub batches: Vec<StoredBatch>,
    /// Where the next read starts.
    pub next_offset: Offset,
    /// The group in which it starts.
    pub cursor: SegmentCursor,
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentReadError {
    /// Bytes are damaged. What lies before has been read, and reading resumes at `offsets.end`.
    #[error(
        "{}: bytes {}..{} are damaged; records {}..{} cannot be read",
        path.display(), positions.start, positions.end, offsets.start, offsets.end
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The bytes.
        positions: Range<Position>,
        /// The records they held.
        offsets: Range<Offset>,
    },
    /// A newer release has written here; use that release.
    #[error("{} at {position}: {source}", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Where.
        position: Position,
        /// The versions.
        source: FormatError,
    },
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The arena has no room now; try again later.
    #[error("the arena has no {bytes} bytes to read into")]
    ArenaFull {
        /// What was asked.
        bytes: usize,
    },
}

/// The reading end of a segment. `Clone` shares the file.
#[derive(Clone, Debug)]
pub struct SegmentReader<D: Disk> {
    disk: D,
    file: D::File,
    segment: SegmentId,
}

impl<D: Disk> SegmentReader<D> {
    /// Reads `segment` from its open file.
    #[must_use]
    pub fn new(disk: D, file: D::File, segment: SegmentId) -> SegmentReader<D> {
        SegmentReader { disk, file, segment }
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &D::File {
        &self.file
    }

    /// The segment's name.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Reads batches with records from `read.from` on.
    ///
    /// # Errors
    ///
    /// [`SegmentReadError`]: nothing was read.
    pub async fn read(&self, read: SegmentRead) -> Result<SegmentReadAnswer, SegmentReadError> {
        self.read_in_pieces(read, piece_bytes_for(&read)).await
    }

    /// The same, where `first_bytes` from the cursor are known to hold what is looked for: it takes one read of the
    /// disk then, and not a second one for the rest of a long group.
    pub(crate) async fn read_in_pieces(
        &self,
        read: SegmentRead,
        first_bytes: usize,
    ) -> Result<SegmentReadAnswer, SegmentReadError> {
        let mut cursor = read.cursor;
        let mut piece_bytes = first_bytes;
        loop {
            let piece = self.read_piece(&read, cursor.position, piece_bytes).await?;
            let planner = ReadPlanner {
                segment: self.segment,
                read: &read,
                piece: piece.as_slice(),
                piece_start: cursor.position,
            };
            let plan = planner.plan(cursor, read.from);
            if !plan.batches.is_empty() || matches!(plan.stop, PlanStop::Done) {
                return Ok(hand_out_cut(piece, plan, read.sharing));
            }
            drop(piece);
            let moved = plan.cursor.position > cursor.position;
            cursor = plan.cursor;
            match plan.stop {
                PlanStop::NeedsBytes(bytes) if moved || bytes > piece_bytes => {
                    piece_bytes = piece_bytes_for(&read).max(bytes);
                }
                PlanStop::Damaged { positions, offsets } => {
                    return Err(self.corrupt(positions, offsets));
                }
                PlanStop::Newer(source) => return Err(self.newer(cursor.position, source)),
                // The file ends inside the group, or no group starts here.
                _ => cursor = self.resume_behind(&read, cursor).await?,
            }
        }
    }

    /// Reads from a piece of the file that is in memory already and starts at `piece_start`, in which
    /// `read.cursor` lies. `None` when that takes more than the piece, or there is anything wrong with it: the
    /// file will say.
    #[must_use]
    pub fn read_piece_of(
        &self,
        read: &SegmentRead,
        piece: &SharedExtent,
        piece_start: Position,
    ) -> Option<SegmentReadAnswer> {
        let planner =
            ReadPlanner { segment: self.segment, read, piece: piece.as_slice(), piece_start };
        let plan = planner.plan(read.cursor, read.from);
        (!plan.batches.is_empty()).then(|| hand_out(piece, plan, read.sharing))
    }

    /// Finds the first record appended at or after `time`, walking from `cursor`; `None` if there is none
    /// before `end`. What is damaged on the way is passed over: it has no time.
    ///
    /// # Errors
    ///
    /// [`SegmentReadError`], never `Corrupt`: unknown.
    pub async fn offset_at(
        &self,
        time: WallTime,
        cursor: SegmentCursor,
        end: SegmentEnd,
    ) -> Result<Option<Offset>, SegmentReadError> {
        let bytes_max = READ_BYTES_MIN;
        let from = cursor.offset;
        let (payloads, sharing) = (PayloadCheck::Now, Sharing::Copy);
        let mut read =
            SegmentRead { from, cursor, end, bytes_max, markers: false, payloads, sharing };
        loop {
            match self.read(read).await {
                Ok(answer) if answer.batches.is_empty() => return Ok(None),
                Ok(answer) => {
                    let found = answer.batches.iter().find(|batch| batch.append_time() >= time);
                    if let Some(found) = found {
                        return Ok(Some(found.base_offset()));
                    }
                    (read.from, read.cursor) = (answer.next_offset, answer.cursor);
                }
                Err(SegmentReadError::Corrupt { offsets, .. }) if offsets.end > read.from => {
                    read.from = offsets.end;
                }
                Err(SegmentReadError::Corrupt { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    async fn read_piece(
        &self,
        read: &SegmentRead,
        position: Position,
        piece_bytes: usize,
    ) -> Result<Extent, SegmentReadError> {
        let left = read.end.position.0.saturating_sub(position.0);
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(piece_bytes);
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        let arena = self.disk.arena();
        let extent = arena.allocate(bytes).ok_or(SegmentReadError::ArenaFull { bytes })?;
        if bytes == 0 {
            return Ok(extent);
        }
        Ok(self.file.read(extent, position).await?)
    }

    /// Finds the next group behind a place where none starts. Above `read.from` that is an error, which names
    /// what cannot be read.
    async fn resume_behind(
        &self,
        read: &SegmentRead,
        cursor: SegmentCursor,
    ) -> Result<SegmentCursor, SegmentReadError> {
        let point = SegmentPoint {
            position: cursor.position,
            offset: cursor.offset,
            ..SegmentPoint::default()
        };
        let mut window = Window::new(&self.disk, &self.file);
        let depth = SurveyDepth::FirstReadable;
        let behind = survey(&mut window, self.segment, &point, read.end.position, depth)
            .await
            .map_err(|error| self.read_error(error))?;
        let next = match behind.readable {
            Some(found) => SegmentCursor {
                position: found.header.position,
                offset: found.header.base_offset.min(read.end.offset),
            },
            None => SegmentCursor { position: read.end.position, offset: read.end.offset },
        };
        if next.offset > read.from {
            return Err(self.corrupt(cursor.position..next.position, cursor.offset..next.offset));
        }
        Ok(next)
    }

    fn corrupt(&self, positions: Range<Position>, offsets: Range<Offset>) -> SegmentReadError {
        SegmentReadError::Corrupt { path: self.file.path().to_path_buf(), positions, offsets }
    }

    fn newer(&self, position: Position, source: FormatError) -> SegmentReadError {
        SegmentReadError::NewerVersion { path: self.file.path().to_path_buf(), position, source }
    }

    fn read_error(&self, error: ScanError) -> SegmentReadError {
        match error {
            ScanError::Disk(error) => SegmentReadError::Disk(error),
            ScanError::ArenaFull { bytes } => SegmentReadError::ArenaFull { bytes },
            ScanError::NewerVersion { position, source } => self.newer(position, source),
        }
    }
}

/// Room for what is asked and for the groups walked over to get there.
pub(crate) fn piece_bytes_for(read: &SegmentRead) -> usize {
    read.bytes_max.saturating_add(READ_BYTES_MIN).clamp(READ_BYTES_MIN, READ_BYTES_MAX)
}

/// Hands the batches of a piece out; what lies behind the last goes back to the arena.
fn hand_out_cut(mut piece: Extent, plan: ReadPlan, sharing: Sharing) -> SegmentReadAnswer {
    if let Some((_, last)) = plan.batches.last() {
        piece.truncate(last.end);
    }
    hand_out(&piece.freeze(), plan, sharing)
}

/// Shares the piece's memory among the batches, or copies them out of it.
fn hand_out(piece: &SharedExtent, plan: ReadPlan, sharing: Sharing) -> SegmentReadAnswer {
    let ReadPlan { batches, next_offset, cursor, .. } = plan;
    if batches.is_empty() {
        return SegmentReadAnswer { batches: Vec::new(), next_offset, cursor };
    }
    let batches = match sharing {
        Sharing::Lend => {
            piece.mark_lent();
            let bytes = piece.clone().into_bytes();
            let batch = |(header, range)| StoredBatch::from_checked(bytes.slice(range), header);
            batches.into_iter().map(batch).collect()
        }
        Sharing::Copy => {
            let copy = |range| Bytes::copy_from_slice(&piece.as_slice()[range]);
            let batch = |(header, range)| StoredBatch::from_checked(copy(range), header);
            batches.into_iter().map(batch).collect()
        }
    };
    SegmentReadAnswer { batches, next_offset, cursor }
}
