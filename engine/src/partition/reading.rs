//! Answers reads: from the groups in memory, from the segments on disk, or when there is more to read.
//!
//! Never above `committed`. A group leaves memory only once it is durable on disk, so between the two there is
//! no gap at any instant (SCENARIOS L11).

use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use super::admission::LIMIT_RETRY_AFTER;
use super::log::{LogState, PartitionLog, Phase};
use super::read::{Read, ReadAnswer, ReadError, UncheckedAnswer, Wait};
use crate::format::{ClosedSegment, StoredBatch};
use crate::id::Offset;
use crate::io::clock::WallTime;
use crate::io::disk::Disk;
use crate::segment::PayloadCheck;

/// Where the answer to a read goes.
pub(crate) type ReadReply = oneshot::Sender<Result<UncheckedAnswer, ReadError>>;

impl<D: Disk> PartitionLog<D> {
    /// Takes a read. What lies in memory is answered at once.
    pub(crate) fn read(self: &Rc<Self>, read: Read, payloads: PayloadCheck, reply: ReadReply) {
        match self.read_now(&read) {
            Ok(Some(answer)) => drop(reply.send(Ok(answer))),
            Err(error) => drop(reply.send(Err(error))),
            Ok(None) => {
                let log = self.clone();
                self.context.runtime.spawn(Box::pin(async move {
                    let mut reply = reply;
                    let mut read_on = pin!(log.read_later(read, payloads));
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
    fn read_now(&self, read: &Read) -> Result<Option<UncheckedAnswer>, ReadError> {
        let state = self.state.borrow();
        self.check_read(&state, read.from)?;
        let committed = state.watermarks.committed;
        if read.from == committed {
            return match read.wait {
                Wait::No => Ok(Some(checked_answer(&state, Vec::new(), read.from))),
                Wait::UpTo(_) | Wait::Forever => Ok(None),
            };
        }
        if state.tail.start().is_none_or(|start| start > read.from) {
            return Ok(None);
        }
        let sharing = |bytes| self.context.sharing(bytes);
        let cached = state.tail.read(read.from, committed, read.bytes_max, sharing);
        let next = cached.batches.last().map_or(read.from, StoredBatch::next_offset);
        self.context.counters.tail_reads.add(1);
        Ok(Some(checked_answer(&state, cached.batches, next)))
    }

    async fn read_later(
        self: &Rc<Self>,
        read: Read,
        payloads: PayloadCheck,
    ) -> Result<UncheckedAnswer, ReadError> {
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
        self.read_cold(&read, payloads).await
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
            match self.find_time(&source, time).await? {
                // The walk may have begun at a group in front of the log start.
                Some(found) => return Ok(found.max(offset).min(committed)),
                None => offset = source.end.offset.max(Offset(offset.0 + 1)),
            }
        }
    }

    pub(super) fn check_read(&self, state: &LogState<D>, from: Offset) -> Result<(), ReadError> {
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

/// An answer from memory: this process made its payloads.
fn checked_answer<D: Disk>(
    state: &LogState<D>,
    batches: Vec<StoredBatch>,
    next_offset: Offset,
) -> UncheckedAnswer {
    let answer = ReadAnswer { batches, next_offset, watermarks: state.watermarks };
    UncheckedAnswer { answer, unchecked: 0 }
}
