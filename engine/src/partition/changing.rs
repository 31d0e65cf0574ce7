//! Changes of a log other than appends: trims, retention, rolls, closing, deleting. One at a time, each durable
//! in a checkpoint before anything is removed.

use std::rc::Rc;

use super::append::AppendError;
use super::authority::Shut;
use super::change::ChangeError;
use super::checkpoint_store::CHECKPOINT;
use super::checkpointing::Intent;
use super::log::{LogState, PartitionLog, Phase};
use super::retention::{SegmentSpan, must_roll_for_age, retained_start};
use super::set_aside::remove_or_set_aside;
use crate::format::ClosedSegment;
use crate::id::Offset;
use crate::io::disk::{Disk, DiskError};

/// Holds appends back until dropped; then those that waited are admitted.
pub(super) struct Paused<D: Disk>(Rc<PartitionLog<D>>);

impl<D: Disk> Drop for Paused<D> {
    fn drop(&mut self) {
        self.0.state.borrow_mut().is_paused = false;
        self.0.resume();
    }
}

impl<D: Disk> PartitionLog<D> {
    /// Holds appends back while a change is under way.
    pub(super) fn pause(self: &Rc<Self>) -> Paused<D> {
        self.state.borrow_mut().is_paused = true;
        Paused(self.clone())
    }

    /// Waits until everything admitted is durable and no segment is being made or closed.
    pub(super) async fn drain(self: &Rc<Self>) -> Result<(), ChangeError> {
        loop {
            let progress = self.progress.notified();
            self.submit();
            {
                let state = self.state.borrow();
                if let Some(error) = &state.stopped {
                    return Err(ChangeError::Stopped { error: error.clone() });
                }
                let is_busy = state.is_making && state.no_room.is_none();
                if state.is_drained() && !is_busy && state.retiring.is_none() && !state.is_retiring
                {
                    return Ok(());
                }
            }
            progress.await;
        }
    }

    /// Refuses changes of a log that is closed, has stopped, or is not owned.
    pub(super) fn check_change(&self, state: &LogState<D>) -> Result<(), ChangeError> {
        if let Some(error) = &state.stopped {
            return Err(ChangeError::Stopped { error: error.clone() });
        }
        if state.phase == Phase::Closed {
            return Err(ChangeError::Closed);
        }
        if self.context.is_standalone() {
            return Ok(());
        }
        let lease = || self.context.gate.lease.state_at(self.context.clock.now());
        match state.standing().admit(lease) {
            Ok(_) => Ok(()),
            Err(Shut::NotOwner) => Err(ChangeError::NotOwner),
            Err(Shut::Fenced { promised }) => Err(ChangeError::Fenced { promised }),
            Err(Shut::LeaseExpired { .. }) => Err(ChangeError::LeaseExpired),
        }
    }

    /// Drops the records below `to`; whole segments below it are removed once a checkpoint says so.
    pub(crate) async fn trim(self: &Rc<Self>, to: Offset) -> Result<Offset, ChangeError> {
        let _changing = self.changing.lock().await;
        self.trim_locked(to).await
    }

    async fn trim_locked(self: &Rc<Self>, to: Offset) -> Result<Offset, ChangeError> {
        let dropped = {
            let mut state = self.state.borrow_mut();
            self.check_change(&state)?;
            let (start, committed) = (state.watermarks.log_start, state.watermarks.committed);
            if to > committed {
                return Err(ChangeError::OutOfRange { offset: to, start, end: committed });
            }
            if to <= start {
                return Ok(start);
            }
            state.watermarks.trim(to);
            state.epochs.trim(to);
            let kept = state.closed.partition_point(|closed| closed.end_offset <= to);
            let dropped: Vec<_> = state.closed.drain(..kept).collect();
            let is_dropped = |segment| dropped.iter().any(|closed| closed.segment == segment);
            state.quarantined.retain(|range| !is_dropped(range.segment));
            self.publish(&state);
            dropped
        };
        // After a refusal for lack of room the files stay, and the next checkpoint says what this one did not.
        self.checkpoint_change(Intent::default()).await?;
        self.remove_segments(&dropped).await;
        Ok(self.state.borrow().watermarks.log_start)
    }

    /// Recycles files that no durable checkpoint names any more, and removes those that are not kept. One that cannot
    /// be removed now is left to the next open, which knows that nothing names it.
    pub(super) async fn remove_segments(&self, segments: &[ClosedSegment]) {
        let left = self.recycle(segments).await;
        for segment in &left {
            let removed = remove_or_set_aside(&self.context, &self.directory, self.id, *segment);
            if let Err(error) = removed.await {
                tracing::warn!(%error, "a segment that is not needed any more could not be removed");
            }
        }
        // A file system gives room back once the names are durably gone.
        if !left.is_empty()
            && let Err(error) = self.context.disk.sync_directory(&self.directory).await
        {
            tracing::warn!(%error, "the room of removed segments may come back later");
        }
    }

    /// Lets expired segments go, and rolls an active one whose records have all expired.
    pub(crate) async fn apply_retention(self: &Rc<Self>) -> Result<Offset, ChangeError> {
        let _changing = self.changing.lock().await;
        let now = self.context.clock.wall();
        let must_roll = {
            let state = self.state.borrow();
            self.check_change(&state)?;
            let limits = state.settings.retention;
            state.active.as_ref().is_some_and(|active| {
                active.writer.point().group > 0
                    && must_roll_for_age(limits, active.writer.last_time(), now)
            })
        };
        if must_roll {
            self.roll_locked().await?;
        }
        let start = {
            let state = self.state.borrow();
            let spans = state.closed.iter().map(|closed| SegmentSpan {
                end: closed.end_offset,
                bytes: closed.end_position.0,
                last_time: closed.last_time,
            });
            let spans: Vec<_> = spans.collect();
            let open = state.active.iter().chain(&state.retiring);
            let active_bytes = open.map(|segment| segment.writer.point().position.0).sum();
            let limits = state.settings.retention;
            retained_start(limits, &spans, active_bytes, state.watermarks.committed, now)
        };
        match start {
            Some(start) => self.trim_locked(start).await,
            None => Ok(self.state.borrow().watermarks.log_start),
        }
    }

    /// Applies retention if this log has limits, in its own time.
    pub(crate) fn apply_retention_in_background(self: &Rc<Self>) {
        {
            let state = self.state.borrow();
            let limits = state.settings.retention;
            let has_limits = limits.bytes_max.is_some() || limits.age_max.is_some();
            if !has_limits || self.check_change(&state).is_err() {
                return;
            }
        }
        let log = self.clone();
        self.context.runtime.spawn(Box::pin(async move {
            if let Err(error) = log.apply_retention().await {
                tracing::warn!(partition = %log.id, %error, "retention was not applied");
            }
        }));
    }

    /// Closes the active segment; the next append begins a new one.
    pub(crate) async fn roll(self: &Rc<Self>) -> Result<Offset, ChangeError> {
        let _changing = self.changing.lock().await;
        self.check_change(&self.state.borrow())?;
        self.roll_locked().await
    }

    pub(super) async fn roll_locked(self: &Rc<Self>) -> Result<Offset, ChangeError> {
        let _paused = self.pause();
        self.drain().await?;
        let open = {
            let state = self.state.borrow();
            let log_end = state.watermarks.log_end;
            let active = state.active.as_ref().filter(|active| active.writer.point().group > 0);
            let Some(active) = active else { return Ok(log_end) };
            (active.file.clone(), active.writer.footer())
        };
        if let (Some(file), footer) = open
            && let Err(error) = self.write_footer(&file, &footer).await
        {
            return Err(self.failed(error).await);
        }
        let log_end = {
            let mut state = self.state.borrow_mut();
            let active = state.active.take().expect("nobody else changes the log");
            state.closed.push(active.as_closed());
            state.phase = Phase::Idle;
            state.watermarks.log_end
        };
        self.checkpoint_change(Intent::default()).await?;
        Ok(log_end)
    }

    /// Drains the log and marks it clean; it takes nothing more.
    pub(crate) async fn close(self: &Rc<Self>) -> Result<Offset, ChangeError> {
        let _changing = self.changing.lock().await;
        if self.state.borrow().phase == Phase::Closed {
            return Err(ChangeError::Closed);
        }
        let _paused = self.pause();
        self.refuse_waiting(&AppendError::Closed);
        let drained = self.drain().await;
        let (was_changed, log_end) = {
            let mut state = self.state.borrow_mut();
            let was_changed = state.phase == Phase::Running;
            state.phase = Phase::Closed;
            state.owned = None;
            state.tail.clear();
            self.publish(&state);
            (was_changed, state.watermarks.log_end)
        };
        self.status.set_closed();
        self.refuse_waiting(&AppendError::Closed);
        self.read_segments.clear();
        self.tail_moved.notify_waiters();
        self.release_recycled().await;
        drained?;
        if was_changed {
            self.checkpoint_change(Intent { promise: None, is_closing: true }).await?;
        }
        let mut state = self.state.borrow_mut();
        if let Some(active) = &mut state.active {
            active.file = None;
        }
        state.next = None;
        Ok(log_end)
    }

    /// Closes the log and removes its files, the checkpoint first: without it there is no partition.
    pub(crate) async fn delete(self: &Rc<Self>) -> Result<(), ChangeError> {
        match self.close().await {
            Ok(_) | Err(ChangeError::Closed | ChangeError::Stopped { .. }) => {}
            Err(error) => return Err(error),
        }
        let _changing = self.changing.lock().await;
        if let Err(error) = self.remove_files().await {
            return Err(self.failed(error).await);
        }
        Ok(())
    }

    async fn remove_files(&self) -> Result<(), DiskError> {
        let disk = &self.context.disk;
        disk.remove(&self.directory.join(CHECKPOINT)).await?;
        disk.sync_directory(&self.directory).await?;
        for entry in disk.list(&self.directory).await? {
            disk.remove(&self.directory.join(&entry.name)).await?;
        }
        disk.remove_directory(&self.directory).await?;
        if let Some(stream) = self.directory.parent() {
            disk.sync_directory(stream).await?;
        }
        Ok(())
    }
}
