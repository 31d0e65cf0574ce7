//! Answers reads: from the groups in memory, from the segments on disk, or when there is more to read.
//!
//! Never above `committed`. A group leaves memory only once it is durable on disk, so between the two there is
//! no gap at any instant (SCENARIOS L11).

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use super::admission::LIMIT_RETRY_AFTER;
use super::log::{LogState, PartitionLog, Phase, WrittenSegment};
use super::read::{Read, ReadAnswer, ReadError, Wait};
use super::read_segments::{OpenSegment, SegmentHold};
use crate::format::{ClosedSegment, StoredBatch};
use crate::id::{Offset, SegmentId};
use crate::io::clock::WallTime;
use crate::io::disk::{Disk, DiskError, OpenMode};
use crate::segment::{
    ScanError, SegmentCursor, SegmentEnd, SegmentRead, SegmentReadAnswer, SegmentReadError,
    SegmentReader, load_index, segment_path,
};

/// Where the answer to a read goes.
pub(crate) type ReadReply = oneshot::Sender<Result<ReadAnswer, ReadError>>;

/// A segment to read from, and where its readable part ends.
struct Source<D: Disk> {
    reader: SegmentReader<D>,
    cursor: SegmentCursor,
    end: SegmentEnd,
    /// Keeps the file from being recycled while it is read.
    _hold: SegmentHold,
}

/// Which segment holds an offset.
enum Holder<D: Disk> {
    Closed { closed: ClosedSegment, hold: SegmentHold },
    Written { source: Option<Source<D>>, segment: SegmentId, hold: SegmentHold },
}

impl<D: Disk> PartitionLog<D> {
    /// Takes a read. What lies in memory is answered at once.
    pub(crate) fn read(self: &Rc<Self>, read: Read, reply: ReadReply) {
        match self.read_now(&read) {
            Ok(Some(answer)) => drop(reply.send(Ok(answer))),
            Err(error) => drop(reply.send(Err(error))),
            Ok(None) => {
                let log = self.clone();
                self.context.runtime.spawn(Box::pin(async move {
                    let mut reply = reply;
                    let mut read_on = pin!(log.read_later(read));
                    // A caller that has gone away must not leave a waiter behind.
                    let answer = match select(read_on.as_mut(), pin!(reply.closed())).await {
                        Either::Left((answer, _)) => answer,
                        Either::Right(_) => return,
                    };
                    drop(reply.send(answer));
                }));
            }
        }
    }

    /// Answers from memory alone; `None` when the read must wait or go to the disk.
    fn read_now(&self, read: &Read) -> Result<Option<ReadAnswer>, ReadError> {
        let state = self.state.borrow();
        self.check_read(&state, read.from)?;
        let committed = state.watermarks.committed;
        if read.from == committed {
            return match read.wait {
                Wait::No => Ok(Some(answer(&state, Vec::new(), read.from))),
                Wait::UpTo(_) | Wait::Forever => Ok(None),
            };
        }
        if state.tail.start().is_none_or(|start| start > read.from) {
            return Ok(None);
        }
        let cached = state.tail.read(read.from, committed, read.bytes_max);
        let next = cached.batches.last().map_or(read.from, StoredBatch::next_offset);
        self.context.counters.tail_reads.add(1);
        Ok(Some(answer(&state, cached.batches, next)))
    }

    async fn read_later(self: &Rc<Self>, read: Read) -> Result<ReadAnswer, ReadError> {
        if self.state.borrow().watermarks.committed == read.from {
            self.wait_for_more(&read).await?;
            if let Some(answer) = self.read_now(&Read { wait: Wait::No, ..read })? {
                return Ok(answer);
            }
        }
        let limits = &self.context.limits;
        let in_flight = &self.context.reads_in_flight;
        if in_flight.get() >= limits.reads_in_flight_max {
            return Err(ReadError::Busy { retry_after: LIMIT_RETRY_AFTER });
        }
        in_flight.set(in_flight.get() + 1);
        let _done = CountDown(in_flight);
        self.context.counters.cold_reads.add(1);
        self.read_cold(&read).await
    }

    /// Waits, woken and not polling, until there is something behind `from` or the time is over.
    async fn wait_for_more(&self, read: &Read) -> Result<(), ReadError> {
        let waiting = &self.context.readers_waiting;
        if waiting.get() >= self.context.limits.readers_waiting_max {
            return Err(ReadError::Busy { retry_after: LIMIT_RETRY_AFTER });
        }
        waiting.set(waiting.get() + 1);
        let _done = CountDown(waiting);
        let more = async {
            loop {
                let moved = self.tail_moved.notified();
                {
                    let state = self.state.borrow();
                    self.check_read(&state, read.from)?;
                    if state.watermarks.committed > read.from {
                        return Ok(());
                    }
                }
                moved.await;
            }
        };
        match read.wait {
            Wait::UpTo(duration) => {
                let over = self.context.runtime.sleep(duration);
                match select(pin!(more), over).await {
                    Either::Left((more, _)) => more,
                    Either::Right(_) => Ok(()),
                }
            }
            Wait::No | Wait::Forever => more.await,
        }
    }

    /// Collects batches from disk, segment by segment, going over to memory where that begins.
    async fn read_cold(self: &Rc<Self>, read: &Read) -> Result<ReadAnswer, ReadError> {
        let mut batches: Vec<StoredBatch> = Vec::new();
        let mut next = read.from;
        let mut left = read.bytes_max;
        let cuts = self.state.borrow().cuts;
        loop {
            let in_memory = {
                let state = self.state.borrow();
                if state.cuts != cuts || next < state.watermarks.log_start {
                    return overtaken(&state, read);
                }
                if next >= state.watermarks.committed {
                    break;
                }
                let is_cached = state.tail.start().is_some_and(|start| start <= next);
                is_cached.then(|| state.tail.read(next, state.watermarks.committed, left).batches)
            };
            let has_cached = in_memory.is_some();
            let (found, after) = match in_memory {
                Some(found) => {
                    let after = found.last().map_or(next, StoredBatch::next_offset);
                    (found, after)
                }
                None => match self.read_segment(next, left).await {
                    Ok(answer) => (answer.batches, answer.next_offset),
                    Err(_) if !batches.is_empty() => break,
                    Err(error) => return Err(error),
                },
            };
            let bytes: usize = found.iter().map(|batch| batch.bytes().len()).sum();
            let is_over = !batches.is_empty() && bytes > left;
            if is_over || (after == next && found.is_empty()) {
                break;
            }
            batches.extend(found);
            next = after;
            left = left.saturating_sub(bytes);
            if left == 0 || has_cached {
                break;
            }
        }
        let state = self.state.borrow();
        if state.cuts != cuts {
            return overtaken(&state, read);
        }
        // A fresh look at the lease: the read may have taken long (I5).
        self.check_read(&state, read.from)?;
        Ok(answer(&state, batches, next))
    }

    async fn read_segment(
        self: &Rc<Self>,
        from: Offset,
        bytes_max: usize,
    ) -> Result<SegmentReadAnswer, ReadError> {
        let source = self.source_of(from).await?;
        let read =
            SegmentRead { from, cursor: source.cursor, end: source.end, bytes_max, markers: false };
        let mut answer = source.reader.read(read).await;
        if let Err(SegmentReadError::ArenaFull { bytes }) = answer {
            // What serves tail readers makes room for what is asked now.
            drop(self.context.allocate(bytes));
            answer = source.reader.read(read).await;
        }
        let mut answer = answer.map_err(read_error)?;
        if answer.batches.is_empty() {
            // Only markers were left: the next segment goes on from here.
            answer.next_offset = answer.next_offset.max(source.end.offset);
        }
        Ok(answer)
    }

    /// Opens the segment that holds `offset`.
    async fn source_of(self: &Rc<Self>, offset: Offset) -> Result<Source<D>, ReadError> {
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
                Ok(Source { reader, cursor, end, _hold: hold })
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
        let index = load_index(&self.context.disk, &file, &closed).await.map_err(scan_error)?;
        let reader = SegmentReader::new(self.context.disk.clone(), file, closed.segment);
        let open = Rc::new(OpenSegment { hold, closed, reader, index });
        // A segment that was dropped meanwhile is not kept open: nobody would forget it again.
        if self.state.borrow().closed.contains(&closed) {
            self.read_segments.keep(open.clone());
        }
        Ok(open)
    }

    async fn open_for_reading(&self, path: &std::path::Path) -> Result<D::File, ReadError> {
        self.context.disk.open(path, OpenMode::Read).await.map_err(disk_error)
    }

    /// Returns the offset of the first record appended at or after `time`.
    pub(crate) async fn offset_at(self: &Rc<Self>, time: WallTime) -> Result<Offset, ReadError> {
        let mut offset = {
            let state = self.state.borrow();
            self.check_read(&state, state.watermarks.log_start)?;
            let is_before = |closed: &ClosedSegment| closed.last_time < time;
            let skipped = state.closed.iter().rev().find(|closed| is_before(closed));
            let start = skipped.map_or(Offset::ZERO, |closed| closed.end_offset);
            start.max(state.watermarks.log_start)
        };
        loop {
            let committed = self.state.borrow().watermarks.committed;
            if offset >= committed {
                return Ok(committed);
            }
            let source = match self.source_of(offset).await {
                Ok(source) => source,
                Err(ReadError::Corrupt { offsets, .. }) if offsets.end > offset => {
                    offset = offsets.end;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let found = source.reader.offset_at(time, source.cursor, source.end).await;
            match found.map_err(read_error)? {
                // The walk may have begun at a group in front of the log start.
                Some(found) => return Ok(found.max(offset).min(committed)),
                None => offset = source.end.offset.max(Offset(offset.0 + 1)),
            }
        }
    }

    fn check_read(&self, state: &LogState<D>, from: Offset) -> Result<(), ReadError> {
        if state.phase == Phase::Closed {
            return Err(ReadError::Closed);
        }
        let lease = || self.context.gate.lease.state_at(self.context.clock.now());
        if state.standing().read(lease).is_err() {
            return Err(ReadError::LeaseExpired);
        }
        let (log_start, committed) = (state.watermarks.log_start, state.watermarks.committed);
        if from < log_start {
            return Err(ReadError::BelowLogStart { from, log_start });
        }
        if from > committed {
            return Err(ReadError::BeyondEnd { from, committed });
        }
        Ok(())
    }
}

/// Counts one less when dropped.
struct CountDown<'a>(&'a std::cell::Cell<usize>);

impl Drop for CountDown<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
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
    Source { reader, cursor, end, _hold: hold }
}

fn answer<D: Disk>(state: &LogState<D>, batches: Vec<StoredBatch>, next: Offset) -> ReadAnswer {
    ReadAnswer { batches, next_offset: next, watermarks: state.watermarks }
}

/// The log was trimmed or cut under a read: the caller asks again and meets what is there now.
fn overtaken<D: Disk>(state: &LogState<D>, read: &Read) -> Result<ReadAnswer, ReadError> {
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

fn read_error(error: SegmentReadError) -> ReadError {
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
