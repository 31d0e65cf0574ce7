//! Keeps the next segment ready before the active one is full, and closes the full one behind it.
//!
//! At most one roll is not in a checkpoint: recovery walks the segment the checkpoint names active, then the
//! one it names next.

use std::rc::Rc;

use super::checkpointing::Intent;
use super::log::{PartitionLog, Phase, PreparedSegment, WrittenSegment};
use super::starting::ROOM_RETRY_AFTER;
use crate::format::{ClosedSegment, NextSegment, SegmentState};
use crate::io::disk::{Disk, DiskError, OpenMode};
use crate::segment::{CloseSegmentError, close_segment, segment_path};

/// The share of the active segment that is filled before the next one is made: one in this many.
const MAKE_NEXT_AT: u64 = 4;

/// The share of the active segment that is left when the next one's file is opened: one in this many.
const OPEN_NEXT_AT: u64 = 16;

impl<D: Disk> PartitionLog<D> {
    /// Starts making the next segment when the active one fills up or something waits for it.
    pub(super) fn make_next_if_due(self: &Rc<Self>) {
        self.open_next_if_due();
        {
            let mut state = self.state.borrow_mut();
            let is_free = state.phase == Phase::Running
                && state.stopped.is_none()
                && state.no_room.is_none()
                && !state.is_making
                && state.next.is_none()
                && state.needs_next();
            let is_due = state.active.as_ref().is_some_and(|active| {
                let file_bytes = active.writer.file_bytes();
                // A recycled file takes no room that is not taken already.
                state.filled_bytes(active) >= file_bytes / MAKE_NEXT_AT
                    || !state.waiting.is_empty()
                    || self.recycled.has_files()
            });
            if !is_free || !is_due {
                return;
            }
            state.is_making = true;
        }
        let log = self.clone();
        self.context.runtime.spawn(Box::pin(async move {
            log.make_next().await;
            log.state.borrow_mut().is_making = false;
            log.resume();
        }));
    }

    /// Opens the next segment's file when the active one is nearly full: those of many small partitions are not
    /// kept open until then, and not while the segment before the active one is still open.
    fn open_next_if_due(self: &Rc<Self>) {
        let segment = {
            let mut state = self.state.borrow_mut();
            let is_free = state.phase == Phase::Running
                && state.stopped.is_none()
                && state.retiring.is_none()
                && !state.is_retiring
                && !state.is_making;
            let Some(next) = state.next.as_ref().filter(|next| next.is_closed()) else { return };
            let segment = next.made.segment;
            let is_due = state.needs_roll
                || state.active.as_ref().is_none_or(|active| {
                    let file_bytes = active.writer.file_bytes();
                    state.filled_bytes(active) >= file_bytes - file_bytes / OPEN_NEXT_AT
                });
            if !is_free || !is_due {
                return;
            }
            state.is_making = true;
            segment
        };
        let log = self.clone();
        self.context.runtime.spawn(Box::pin(async move {
            let path = segment_path(&log.directory, segment);
            let open = async || log.context.disk.open(&path, OpenMode::Write).await;
            match log.context.with_descriptor(open).await {
                Ok(file) => {
                    if let Some(next) = &mut log.state.borrow_mut().next {
                        next.file = Some(file);
                    }
                }
                Err(error) => log.stop(std::sync::Arc::new(error)),
            }
            log.state.borrow_mut().is_making = false;
            log.resume();
        }));
    }

    /// Makes the next segment and has a checkpoint name it. A full disk is tried again until there is room.
    async fn make_next(self: &Rc<Self>) {
        loop {
            let maker = self.context.makers.acquire().await.expect("nobody closes it");
            let is_needed = self.state.borrow().needs_next();
            let prepared = if is_needed { self.prepare_next().await } else { Ok(()) };
            drop(maker);
            let error = match prepared {
                Ok(()) => {
                    if self.state.borrow().no_room.is_some() {
                        self.clear_no_room();
                    }
                    return;
                }
                Err(error) => error,
            };
            if !error.is_full() {
                self.stop(std::sync::Arc::new(error));
                return;
            }
            let no_room = self.room_for_next().await;
            self.refuse_for_room(no_room);
            self.progress.notify_waiters();
            self.context.runtime.sleep(ROOM_RETRY_AFTER).await;
            let is_over = {
                let state = self.state.borrow();
                state.phase != Phase::Running || state.stopped.is_some() || state.is_paused
            };
            if is_over {
                self.clear_no_room();
                return;
            }
        }
    }

    async fn prepare_next(&self) -> Result<(), DiskError> {
        let is_made = self.state.borrow().next.is_some();
        if !is_made {
            let mut prepared = self.make_prepared().await?;
            if prepared.is_opened_late() {
                // Before the checkpoint, which needs a descriptor, too.
                prepared.file = None;
            }
            let mut state = self.state.borrow_mut();
            state.next = Some(prepared);
            state.wanted_bytes = 0;
            if state.retiring.is_some() {
                // A checkpoint has no word for a third segment. The one that closes the full segment names this one.
                return Ok(());
            }
        }
        self.write_checkpoint(Intent::default()).await
    }

    /// Notes that a durable checkpoint names `named` as the next segment.
    pub(super) fn note_next_named(&self, named: Option<NextSegment>) {
        let mut state = self.state.borrow_mut();
        let is_new = |next: &&mut PreparedSegment<D>| !next.is_checkpointed;
        let Some(next) = state.next.as_mut().filter(is_new) else { return };
        if named == Some(next.made) {
            next.is_checkpointed = true;
        }
    }

    /// Closes the full segment once all of its groups are durable.
    pub(super) fn retire_if_due(self: &Rc<Self>) {
        {
            let mut state = self.state.borrow_mut();
            let is_due = !state.is_retiring
                && state.stopped.is_none()
                && state.retiring.as_ref().is_some_and(WrittenSegment::is_durable);
            if !is_due {
                return;
            }
            state.is_retiring = true;
        }
        let log = self.clone();
        self.context.runtime.spawn(Box::pin(async move {
            if let Err(error) = log.retire().await {
                log.stop(std::sync::Arc::new(error));
            }
            log.state.borrow_mut().is_retiring = false;
            log.resume();
        }));
    }

    async fn retire(&self) -> Result<(), DiskError> {
        let (file, footer) = {
            let state = self.state.borrow();
            let retiring = state.retiring.as_ref().expect("it was due");
            (retiring.file.clone().expect("it was written"), retiring.writer.footer())
        };
        self.write_footer(&file, &footer).await?;
        // The checkpoint may need its descriptor.
        drop(file);
        {
            let mut state = self.state.borrow_mut();
            let retired = state.retiring.take().expect("nobody else retires");
            state.closed.push(retired.as_closed());
        }
        self.write_closing_checkpoint().await
    }

    /// A closed segment may fill the checkpoint's slot, and the larger file may find no room: that waits.
    async fn write_closing_checkpoint(&self) -> Result<(), DiskError> {
        loop {
            match self.write_checkpoint(Intent::default()).await {
                Err(error) if error.is_full() => {
                    self.context.runtime.sleep(ROOM_RETRY_AFTER).await;
                }
                written => return written,
            }
        }
    }

    pub(super) async fn write_footer(
        &self,
        file: &D::File,
        footer: &crate::format::Footer,
    ) -> Result<(), DiskError> {
        loop {
            match close_segment(&self.context.disk, file, footer).await {
                Ok(()) => return Ok(()),
                Err(CloseSegmentError::Disk(error)) => return Err(error),
                Err(_) => self.context.wait_for_memory().await,
            }
        }
    }
}

impl<D: Disk> WrittenSegment<D> {
    /// Tells whether every group framed for it is durable.
    pub(super) fn is_durable(&self) -> bool {
        self.durable == self.writer.point()
    }

    /// The segment as a checkpoint names it once it is written no more.
    pub(super) fn as_closed(&self) -> ClosedSegment {
        assert!(self.is_durable(), "a segment is closed when all of it is durable");
        ClosedSegment {
            segment: self.writer.segment(),
            base_offset: self.writer.base_offset(),
            end_offset: self.durable.offset,
            end_position: self.durable.position,
            last_chain: self.durable.chain,
            first_time: self.writer.first_time(),
            last_time: self.writer.last_time(),
            state: SegmentState::Healthy,
        }
    }
}
