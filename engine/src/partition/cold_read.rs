//! Reads from the segments on disk: which segment, whether the read goes on with a scan, and in its turn on the lane.

use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::admission::LIMIT_RETRY_AFTER;
use super::cold_lane::Urgency;
use super::context::DESCRIPTOR_RETRY_AFTER;
use super::log::{LogState, PartitionLog, Phase, WrittenSegment};
use super::read::{Read, ReadAnswer, ReadError, UncheckedAnswer};
use super::read_ahead::PieceSource;
use super::read_segments::{OpenSegment, SegmentHold};
use super::scan_rule::{PIECE_BYTES, PIECE_BYTES_BESIDE_APPENDS, next_piece};
use super::scans::Scan;
use crate::format::{ClosedSegment, IndexEntry, StoredBatch};
use crate::id::{Offset, Position, SegmentId};
use crate::io::clock::WallTime;
use crate::io::disk::{Disk, DiskError, OpenMode};
use crate::segment::{
    PayloadCheck, READ_BYTES_MIN, ScanError, SegmentCursor, SegmentEnd, SegmentRead,
    SegmentReadAnswer, SegmentReadError, SegmentReader, Sharing, SparseIndex, load_index,
    piece_bytes_for, segment_path,
};

/// What finding the index of a segment takes of the lane.
const INDEX_READ_BYTES: usize = 1 << 20;

/// A segment to read from, and where its readable part ends.
pub(super) struct Source<D: Disk> {
    reader: SegmentReader<D>,
    cursor: SegmentCursor,
    pub(super) end: SegmentEnd,
    /// `None` for a segment that is being written: its writer has it.
    index: Option<Arc<SparseIndex>>,
    /// Keeps the file from being recycled while it is read.
    hold: SegmentHold,
}

/// Which segment holds an offset.
enum Holder<D: Disk> {
    Closed { closed: ClosedSegment, hold: SegmentHold },
    Written { source: Option<Source<D>>, segment: SegmentId, hold: SegmentHold },
}

/// A closed segment that a caller may map, and what it may read of it.
#[derive(Debug)]
pub(crate) struct MapSource {
    pub(crate) path: PathBuf,
    pub(crate) segment: SegmentId,
    pub(crate) base_offset: Offset,
    /// The first readable record.
    pub(crate) first_offset: Offset,
    pub(crate) end: SegmentEnd,
    pub(crate) index: Arc<SparseIndex>,
    pub(crate) hold: SegmentHold,
}

/// Whether a part of a read may wait for the disk: the first one may, further ones take what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Waits,
    TakesWhatIsThere,
}

/// One part of a read.
#[derive(Clone, Copy, Debug)]
struct Part {
    from: Offset,
    bytes_max: usize,
    payloads: PayloadCheck,
    patience: Patience,
    /// How often the log had been cut when the read began.
    cuts: u64,
}

impl<D: Disk> PartitionLog<D> {
    /// Collects batches from disk, going over to memory where that begins.
    pub(super) async fn read_cold(
        self: &Rc<Self>,
        read: &Read,
        payloads: PayloadCheck,
    ) -> Result<UncheckedAnswer, ReadError> {
        let mut batches: Vec<StoredBatch> = Vec::new();
        let mut unchecked = 0;
        let cuts = self.state.borrow().cuts;
        let patience = Patience::Waits;
        let mut part =
            Part { from: read.from, bytes_max: read.bytes_max, payloads, patience, cuts };
        loop {
            let in_memory = {
                let state = self.state.borrow();
                if state.cuts != cuts || part.from < state.watermarks.log_start {
                    return overtaken(&state, read);
                }
                if part.from >= state.watermarks.committed {
                    break;
                }
                self.read_memory(&state, &part)
            };
            let has_cached = in_memory.is_some();
            let (found, after) = match in_memory {
                Some(found) => {
                    let after = found.last().map_or(part.from, StoredBatch::next_offset);
                    (found, after)
                }
                None => match self.read_segment(part).await {
                    Ok(Some(answer)) => {
                        unchecked += answer.batches.len();
                        (answer.batches, answer.next_offset)
                    }
                    Ok(None) => break,
                    Err(_) if !batches.is_empty() => break,
                    Err(error) => return Err(error),
                },
            };
            let bytes = bytes_of(&found);
            let is_over = !batches.is_empty() && bytes > part.bytes_max;
            if is_over || (after == part.from && found.is_empty()) {
                break;
            }
            if !found.is_empty() {
                part.patience = Patience::TakesWhatIsThere;
            }
            batches.extend(found);
            part.from = after;
            part.bytes_max = part.bytes_max.saturating_sub(bytes);
            if part.bytes_max == 0 || has_cached {
                break;
            }
        }
        let state = self.state.borrow();
        if state.cuts != cuts {
            return overtaken(&state, read);
        }
        // A fresh look at the lease: the read may have taken long (I5).
        self.check_read(&state, read.from)?;
        let unchecked = if payloads == PayloadCheck::Later { unchecked } else { 0 };
        let watermarks = state.watermarks;
        let answer = ReadAnswer { batches, next_offset: part.from, watermarks };
        Ok(UncheckedAnswer { answer, unchecked })
    }

    /// Answers from the groups in memory, if they reach back that far.
    fn read_memory(&self, state: &LogState<D>, part: &Part) -> Option<Vec<StoredBatch>> {
        let is_cached = state.tail.start().is_some_and(|start| start <= part.from);
        is_cached.then(|| {
            let committed = state.watermarks.committed;
            let sharing = |bytes| self.context.sharing(bytes);
            state.tail.read(part.from, committed, part.bytes_max, sharing).batches
        })
    }

    /// Reads from one segment. `None` when that takes more patience than there is.
    async fn read_segment(
        self: &Rc<Self>,
        part: Part,
    ) -> Result<Option<SegmentReadAnswer>, ReadError> {
        let scans = &self.read_segments.scans;
        let mut scan = match part.payloads {
            PayloadCheck::Later => scans.take(part.from),
            // Asked again because of damage: the disk is to say what is there.
            PayloadCheck::Now => None,
        };
        let is_there = scan.as_ref().is_some_and(Scan::is_ready);
        if part.patience == Patience::TakesWhatIsThere && !is_there {
            scan.into_iter().for_each(|scan| scans.put(scan));
            return Ok(None);
        }
        let source = self.source_of(part.from).await?;
        let read = SegmentRead {
            from: part.from,
            cursor: source.cursor,
            end: source.end,
            bytes_max: part.bytes_max,
            markers: false,
            payloads: part.payloads,
            sharing: Sharing::Lend,
        };
        if let Some(following) = scan.take() {
            match self.read_on(following, &source, read, &part).await {
                ReadOn::Answered(answer) => return Ok(Some(answer)),
                ReadOn::NotNow => return Ok(None),
                ReadOn::AsksDisk(followed) => scan = followed,
            }
        }
        if part.patience == Patience::TakesWhatIsThere {
            return Ok(None);
        }
        let mut answer = self.read_direct(&source, read).await?;
        if answer.batches.is_empty() {
            // Only markers were left: the next segment goes on from here.
            answer.next_offset = answer.next_offset.max(source.end.offset);
        }
        if part.payloads == PayloadCheck::Later {
            let segment = source.reader.segment();
            let mut scan =
                scan.unwrap_or_else(|| Scan::new(segment, answer.cursor, answer.next_offset));
            scan.advance(answer.cursor, answer.next_offset);
            self.follow(scan, part.cuts);
        }
        Ok(Some(answer))
    }

    /// Goes on with a scan: takes what was read ahead of it, and has more read ahead.
    async fn read_on(
        self: &Rc<Self>,
        mut scan: Scan,
        source: &Source<D>,
        read: SegmentRead,
        part: &Part,
    ) -> ReadOn {
        let segment = source.reader.segment();
        if scan.segment != segment {
            scan.enter(segment, source.cursor);
        }
        if part.patience == Patience::Waits {
            scan.window = scan.window.grown(self.context.read_ahead.window_bytes_max());
        }
        self.read_further(&mut scan, source);
        let Some(piece) = scan.pieces.front() else {
            return ReadOn::AsksDisk(Some(scan));
        };
        let sharing = self.context.sharing(piece.bytes());
        let read = SegmentRead { cursor: scan.cursor, sharing, ..read };
        let (slot, start) = (piece.slot.clone(), piece.positions.start);
        let found = match slot.wait().await {
            Some(extent) => source.reader.read_piece_of(&read, &extent, start),
            None => None,
        };
        // Gone, or not what it should be: what is ahead is given up, and the window closes.
        let Some(answer) = found else { return ReadOn::AsksDisk(None) };
        let is_over = bytes_of(&answer.batches) > part.bytes_max;
        if is_over && part.patience == Patience::TakesWhatIsThere {
            self.follow(scan, part.cuts);
            return ReadOn::NotNow;
        }
        scan.advance(answer.cursor, answer.next_offset);
        self.read_further(&mut scan, source);
        self.follow(scan, part.cuts);
        self.context.counters.ahead_reads.add(1);
        ReadOn::Answered(answer)
    }

    /// Has pieces read ahead until the window is full, or there is no room.
    fn read_further(self: &Rc<Self>, scan: &mut Scan, source: &Source<D>) {
        let context = &self.context;
        while scan.window.wants_more(scan.ahead_bytes()) {
            let Some(positions) = self.piece_after(source, scan.ahead_end()) else { return };
            let Some(piece) = context.read_ahead.begin(positions.clone()) else { return };
            let is_first = scan.pieces.is_empty();
            let piece_source: PieceSource<D> = PieceSource {
                file: source.reader.file().clone(),
                arena: context.disk.arena().clone(),
                lane: context.cold_lane.clone(),
                urgency: if is_first { Urgency::Demanded } else { Urgency::Ahead },
                _hold: source.hold.clone(),
            };
            let slot = Rc::downgrade(&piece.slot);
            let load = context.read_ahead.clone().load(piece_source, positions, slot);
            context.runtime.spawn(Box::pin(load));
            scan.pieces.push_back(piece);
        }
    }

    fn piece_after(&self, source: &Source<D>, start: Position) -> Option<Range<Position>> {
        let end = source.end.position;
        let piece_bytes = match self.context.cold_lane.is_beside_appends() {
            true => PIECE_BYTES_BESIDE_APPENDS,
            false => PIECE_BYTES,
        };
        self.look_up(source, |index| next_piece(index.entries(), start, end, piece_bytes))
    }

    /// Asks the index of a segment; `None` also when it is not at hand.
    fn look_up<T>(
        &self,
        source: &Source<D>,
        ask: impl FnOnce(&SparseIndex) -> Option<T>,
    ) -> Option<T> {
        if let Some(index) = &source.index {
            return ask(index);
        }
        let state = self.state.borrow();
        let segment = source.reader.segment();
        let mut written = state.active.iter().chain(&state.retiring);
        let written = written.find(|written| written.writer.segment() == segment)?;
        ask(written.writer.index())
    }

    /// Follows a scan on, unless its segment was cut or dropped meanwhile.
    fn follow(&self, scan: Scan, cuts: u64) {
        let state = self.state.borrow();
        let is_there = state.cuts == cuts && scan.next_offset >= state.watermarks.log_start;
        if is_there && state.phase != Phase::Closed {
            self.read_segments.scans.put(scan);
        }
    }

    async fn read_direct(
        &self,
        source: &Source<D>,
        mut read: SegmentRead,
    ) -> Result<SegmentReadAnswer, ReadError> {
        let lane = &self.context.cold_lane;
        let first_bytes = piece_bytes_for(&read).max(self.group_bytes_at(source, read.cursor));
        let _passage = lane.enter(first_bytes, Urgency::Demanded).await;
        read.sharing = self.context.sharing(first_bytes);
        let mut answer = source.reader.read_in_pieces(read, first_bytes).await;
        if let Err(SegmentReadError::ArenaFull { bytes }) = answer {
            // What serves other readers makes room for what is asked now; for one batch, if not for more.
            if self.context.allocate(bytes).is_none() {
                read.bytes_max = 0;
                drop(self.context.allocate(piece_bytes_for(&read)));
            }
            answer = source.reader.read(read).await;
        }
        answer.map_err(segment_read_error)
    }

    /// The most that the groups from `cursor` to the next one in the index take; 0 when the index does not tell.
    fn group_bytes_at(&self, source: &Source<D>, cursor: SegmentCursor) -> usize {
        let next = self.look_up(source, |index| {
            let is_before = |entry: &IndexEntry| entry.position <= cursor.position;
            let place = index.entries().partition_point(is_before);
            index.entries().get(place).map(|entry| entry.position)
        });
        let bytes = next.map_or(0, |next| next.0 - cursor.position.0);
        usize::try_from(bytes).unwrap_or(usize::MAX).min(INDEX_READ_BYTES)
    }

    /// Finds the first record of a segment that was appended at or after `time`.
    pub(super) async fn find_time(
        &self,
        source: &Source<D>,
        time: WallTime,
    ) -> Result<Option<Offset>, ReadError> {
        let lane = &self.context.cold_lane;
        let _passage = lane.enter(INDEX_READ_BYTES, Urgency::Demanded).await;
        // Append times never fall, so what the index has before `time` lies before what is sought.
        let before = self.look_up(source, |index| index.locate_time(time));
        let before = before.map(SegmentCursor::from);
        let cursor = before.filter(|before| before.offset > source.cursor.offset);
        let found =
            source.reader.offset_at(time, cursor.unwrap_or(source.cursor), source.end).await;
        found.map_err(segment_read_error)
    }

    /// Finds the closed segment that holds `offset`, for a caller to map. `None` when no closed one does, or some of
    /// it is damaged.
    pub(crate) async fn map_source(
        self: &Rc<Self>,
        offset: Offset,
    ) -> Result<Option<MapSource>, ReadError> {
        let (closed, hold) = {
            let state = self.state.borrow();
            self.check_read(&state, offset)?;
            let place = state.closed.partition_point(|closed| closed.end_offset <= offset);
            let Some(closed) = state.closed.get(place).copied() else { return Ok(None) };
            let is_whole = state.quarantined.iter().all(|range| range.segment != closed.segment);
            if !is_whole || closed.base_offset > offset || offset >= state.watermarks.committed {
                return Ok(None);
            }
            (closed, self.read_segments.hold(closed.segment))
        };
        let open = self.open_closed(closed, hold.clone()).await?;
        let state = self.state.borrow();
        self.check_read(&state, offset)?;
        if !state.closed.contains(&closed) {
            return Err(ReadError::Busy { retry_after: Duration::ZERO });
        }
        Ok(Some(MapSource {
            path: segment_path(&self.directory, closed.segment),
            segment: closed.segment,
            base_offset: closed.base_offset,
            first_offset: closed.base_offset.max(state.watermarks.log_start),
            end: SegmentEnd {
                position: closed.end_position,
                offset: closed.end_offset.min(state.watermarks.committed),
            },
            index: open.index.clone(),
            hold,
        }))
    }

    /// Opens the segment that holds `offset`.
    pub(super) async fn source_of(self: &Rc<Self>, offset: Offset) -> Result<Source<D>, ReadError> {
        let holder = {
            let state = self.state.borrow();
            if let Some(range) =
                state.quarantined.iter().find(|range| range.offsets.contains(&offset))
            {
                return Err(ReadError::Corrupt {
                    path: segment_path(&self.directory, range.segment),
                    positions: range.positions.clone(),
                    offsets: range.offsets.clone(),
                });
            }
            self.holder_of(&state, offset)
        };
        match holder {
            Holder::Closed { closed, hold } => {
                let open = self.open_closed(closed, hold).await?;
                let cursor = match open.index.locate(offset) {
                    Some(entry) => SegmentCursor::from(entry),
                    None => SegmentCursor::first(closed.base_offset),
                };
                let committed = self.state.borrow().watermarks.committed;
                let end = SegmentEnd {
                    position: closed.end_position,
                    offset: closed.end_offset.min(committed),
                };
                let (reader, hold) = (open.reader.clone(), open.hold.clone());
                Ok(Source { reader, cursor, end, index: Some(open.index.clone()), hold })
            }
            Holder::Written { source: Some(source), .. } => Ok(source),
            Holder::Written { source: None, segment, hold } => {
                // Opened by nobody in this run so far: the log is idle.
                let path = segment_path(&self.directory, segment);
                let file = self.open_for_reading(&path).await?;
                let reader = SegmentReader::new(self.context.disk.clone(), file, segment);
                let state = self.state.borrow();
                let written = state.active.iter().chain(&state.retiring);
                let written =
                    written.into_iter().find(|written| written.writer.segment() == segment);
                let source =
                    written.map(|written| written_source(&state, written, reader, offset, hold));
                source.ok_or(ReadError::Busy { retry_after: LIMIT_RETRY_AFTER })
            }
        }
    }

    fn holder_of(&self, state: &LogState<D>, offset: Offset) -> Holder<D> {
        let place = state.closed.partition_point(|closed| closed.end_offset <= offset);
        if let Some(closed) = state.closed.get(place) {
            let hold = self.read_segments.hold(closed.segment);
            return Holder::Closed { closed: *closed, hold };
        }
        let holds = |written: &&WrittenSegment<D>| written.writer.point().offset > offset;
        let written = state.retiring.as_ref().filter(holds).or(state.active.as_ref());
        let written = written.expect("what is committed lies in some segment");
        let segment = written.writer.segment();
        let hold = self.read_segments.hold(segment);
        let source = written.file.clone().map(|file| {
            let reader = SegmentReader::new(self.context.disk.clone(), file, segment);
            written_source(state, written, reader, offset, hold.clone())
        });
        Holder::Written { source, segment, hold }
    }

    async fn open_closed(
        &self,
        closed: ClosedSegment,
        hold: SegmentHold,
    ) -> Result<Rc<OpenSegment<D>>, ReadError> {
        if let Some(open) = self.read_segments.find(&closed) {
            return Ok(open);
        }
        let path = segment_path(&self.directory, closed.segment);
        let file = self.open_for_reading(&path).await?;
        let index = {
            let lane = &self.context.cold_lane;
            let _passage = lane.enter(INDEX_READ_BYTES, Urgency::Demanded).await;
            let mut index = load_index(&self.context.disk, &file, &closed).await;
            if let Err(ScanError::ArenaFull { bytes }) = index {
                drop(self.context.allocate(bytes.max(READ_BYTES_MIN)));
                index = load_index(&self.context.disk, &file, &closed).await;
            }
            Arc::new(index.map_err(scan_error)?)
        };
        let reader = SegmentReader::new(self.context.disk.clone(), file, closed.segment);
        let open = Rc::new(OpenSegment { hold, closed, reader, index });
        // A segment that was dropped meanwhile is not kept open: nobody would forget it again.
        if self.state.borrow().closed.contains(&closed) {
            self.read_segments.keep(open.clone());
        }
        Ok(open)
    }

    async fn open_for_reading(&self, path: &std::path::Path) -> Result<D::File, ReadError> {
        let opened = match self.context.disk.open(path, OpenMode::Read).await {
            Err(error) if error.is_out_of_files() => {
                self.context.close_idle_files();
                self.context.disk.open(path, OpenMode::Read).await
            }
            opened => opened,
        };
        match opened {
            Err(error) if error.is_out_of_files() => {
                Err(ReadError::Busy { retry_after: DESCRIPTOR_RETRY_AFTER })
            }
            opened => opened.map_err(disk_error),
        }
    }
}

/// What became of going on with a scan.
enum ReadOn {
    Answered(SegmentReadAnswer),
    /// The next batch is longer than what is left of the read.
    NotNow,
    /// Nothing of it is ahead; the scan, if it is still one.
    AsksDisk(Option<Scan>),
}

fn bytes_of(batches: &[StoredBatch]) -> usize {
    batches.iter().map(|batch| batch.bytes().len()).sum()
}

/// The readable part of a segment that is being written: what is durable and committed of it.
fn written_source<D: Disk>(
    state: &LogState<D>,
    written: &WrittenSegment<D>,
    reader: SegmentReader<D>,
    offset: Offset,
    hold: SegmentHold,
) -> Source<D> {
    let cursor = match written.writer.index().locate(offset) {
        Some(entry) => SegmentCursor::from(entry),
        None => SegmentCursor::first(written.writer.base_offset()),
    };
    let end = SegmentEnd {
        position: written.durable.position,
        offset: written.durable.offset.min(state.watermarks.committed),
    };
    Source { reader, cursor, end, index: None, hold }
}

/// The log was trimmed or cut under a read: the caller asks again and meets what is there now.
fn overtaken<D: Disk>(state: &LogState<D>, read: &Read) -> Result<UncheckedAnswer, ReadError> {
    let log_start = state.watermarks.log_start;
    if read.from < log_start {
        return Err(ReadError::BelowLogStart { from: read.from, log_start });
    }
    Err(ReadError::Busy { retry_after: Duration::ZERO })
}

fn disk_error(error: DiskError) -> ReadError {
    ReadError::Disk(Arc::new(error))
}

fn scan_error(error: ScanError) -> ReadError {
    match error {
        ScanError::Disk(error) => disk_error(error),
        _ => ReadError::Busy { retry_after: LIMIT_RETRY_AFTER },
    }
}

pub(crate) fn segment_read_error(error: SegmentReadError) -> ReadError {
    match error {
        SegmentReadError::Corrupt { path, positions, offsets } => {
            ReadError::Corrupt { path, positions, offsets }
        }
        SegmentReadError::Disk(error) => disk_error(error),
        SegmentReadError::NewerVersion { path, position, source } => {
            ReadError::NewerVersion { path, position, source }
        }
        _ => ReadError::Busy { retry_after: LIMIT_RETRY_AFTER },
    }
}
