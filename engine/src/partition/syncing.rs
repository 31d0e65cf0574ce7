//! Syncs the groups that were written without being made durable: large ones that nobody waits for. When, says
//! `group_commit.rs`.

use std::rc::Rc;
use std::sync::Arc;

use super::group_commit::{
    UNDURABLE_SYNCS_MAX, UNSYNCED_ARENA_SHARE, UNSYNCED_BYTES_MAX, Unsynced, is_sync_due,
};
use super::log::{LogState, PartitionLog};
use super::writers::Work;
use crate::io::disk::{Disk, DiskError};

impl<D: Disk> PartitionLog<D> {
    /// Begins a sync of the oldest segment that has such groups, if one is due and none is on its way.
    pub(super) fn sync_if_due(self: &Rc<Self>) {
        let file = {
            let mut state = self.state.borrow_mut();
            if state.stopped.is_some() || state.in_flight.is_syncing() {
                return;
            }
            let Some(oldest) = state.in_flight.oldest_written() else { return };
            let segment = oldest.segment;
            let is_retiring =
                state.retiring.as_ref().is_some_and(|full| full.writer.segment() == segment);
            let unsynced = Unsynced {
                bytes: state.in_flight.written_bytes(),
                bytes_max: self.unsynced_bytes_max(),
                is_awaited: state.awaits_durable() || is_retiring,
                is_writing: state.in_flight.submitted() > 0,
            };
            if !is_sync_due(unsynced) {
                return;
            }
            state.in_flight.begin_sync(|end| end.segment == segment);
            let mut segments = state.active.iter().chain(&state.retiring);
            let written = segments.find(|written| written.writer.segment() == segment);
            written.and_then(|written| written.file.clone()).expect("it was written in this run")
        };
        self.context.counters.group_syncs.add(1);
        self.context.carry_out(Work::Sync { log: self.clone(), file });
    }

    /// Tells whether so much is not synced yet that more must not be written. Completions bring the next decision.
    pub(super) fn is_sync_behind(&self, state: &LogState<D>) -> bool {
        state.in_flight.undurable_bytes() >= UNDURABLE_SYNCS_MAX * self.unsynced_bytes_max()
    }

    fn unsynced_bytes_max(&self) -> usize {
        let arena = self.context.disk.arena();
        UNSYNCED_BYTES_MAX.min(arena.capacity_bytes() / UNSYNCED_ARENA_SHARE)
    }

    pub(super) fn complete_sync(self: &Rc<Self>, synced: Result<(), DiskError>) {
        match synced {
            Ok(()) => {
                self.state.borrow_mut().in_flight.complete_sync();
                self.advance();
            }
            Err(error) => self.stop(Arc::new(error)),
        }
        self.resume();
    }
}

impl<D: Disk> LogState<D> {
    /// Tells whether somebody waits for what was admitted to be durable: an append, a change, or a group in the journal
    /// that counts only behind what lies before it.
    pub(super) fn awaits_durable(&self) -> bool {
        self.is_paused || !self.acks.is_empty() || !self.journaled.is_empty()
    }
}
