//! Writes what is true of a partition now as its next checkpoint.

use super::change::ChangeError;
use super::log::{LogState, NoRoom, PartitionLog, Phase};
use crate::format::{Checkpoint, Descriptor, NextSegment};
use crate::id::Epoch;
use crate::io::disk::{Disk, DiskError};

/// What a checkpoint says beyond what is true already.
#[derive(Clone, Debug, Default)]
pub(super) struct Intent {
    /// A promise that counts once the checkpoint is durable.
    pub(super) promise: Option<(Epoch, Descriptor)>,
    /// The log is closed in order.
    pub(super) is_closing: bool,
}

impl<D: Disk> PartitionLog<D> {
    /// Makes the present state durable. Checkpoints are written one at a time, each of what is true when
    /// its turn comes, so everything that was true at the call is in it.
    pub(super) async fn write_checkpoint(&self, intent: Intent) -> Result<(), DiskError> {
        let mut store = self.checkpoints.lock().await;
        let checkpoint = self.snapshot(&self.state.borrow(), store.next_sequence(), intent);
        store.write(&self.context, &checkpoint).await?;
        self.note_next_named(checkpoint.next);
        self.publish_segments(&self.state.borrow());
        Ok(())
    }

    /// Writes a checkpoint for a change that a caller asked for; an error other than a full disk stops the log.
    pub(super) async fn checkpoint_change(&self, intent: Intent) -> Result<(), ChangeError> {
        match self.write_checkpoint(intent).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(error).await),
        }
    }

    /// What a failed disk operation means for whoever asked for a change.
    pub(super) async fn failed(&self, error: DiskError) -> ChangeError {
        if error.is_full() {
            let no_room = self.measure_room(crate::id::BLOCK_BYTES as u64).await;
            return ChangeError::DiskFull {
                available_bytes: no_room.available_bytes,
                needed_bytes: no_room.needed_bytes,
            };
        }
        self.stop(std::sync::Arc::new(error));
        let stopped = self.state.borrow().stopped.clone();
        ChangeError::Stopped { error: stopped.expect("it was just stopped") }
    }

    pub(super) async fn measure_room(&self, needed_bytes: u64) -> NoRoom {
        let space = self.context.disk.space(&self.directory).await;
        let available_bytes = space.map_or(0, |space| space.available_bytes);
        NoRoom { available_bytes, needed_bytes }
    }

    fn snapshot(&self, state: &LogState<D>, sequence: u64, intent: Intent) -> Checkpoint {
        let next_offset = state.watermarks.durable;
        let (promise, descriptor) = match intent.promise {
            Some((promise, descriptor)) => {
                assert!(promise >= state.promised, "a promise never falls");
                (promise, Some(descriptor))
            }
            None => (state.promised, state.descriptor.clone()),
        };
        // Until the full segment is closed, the checkpoint still names it active and the one behind it next.
        let (active, next) = match (&state.retiring, &state.active) {
            (Some(retiring), Some(active)) => {
                let next = NextSegment {
                    segment: active.writer.segment(),
                    file_bytes: active.writer.file_bytes(),
                };
                (Some(retiring.as_active()), Some(next))
            }
            (_, active) => (
                active.as_ref().map(|active| active.as_active()),
                state.next.as_ref().map(|next| next.made),
            ),
        };
        let epochs = state.epochs.entries().iter();
        let clean = intent.is_closing || state.phase == Phase::Idle;
        Checkpoint {
            sequence,
            partition: self.id,
            stream_name: self.name.stream.clone(),
            clean,
            log_start: state.watermarks.log_start,
            next_offset,
            committed: state.watermarks.committed.min(next_offset),
            promise,
            descriptor,
            loss_generation: state.loss_generation,
            epochs: epochs.filter(|entry| entry.start <= next_offset).copied().collect(),
            producers: state.producers.entries_below(next_offset),
            closed: state.closed.clone(),
            quarantined: state.quarantined.clone(),
            active,
            next,
            settings: state.settings.to_stored(),
            journal: (!clean).then(|| self.journal_mark(state)),
        }
    }
}
