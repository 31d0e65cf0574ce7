//! Closes an engine in order: every shard drains, marks its partitions clean, and its thread leaves.

use std::sync::PoisonError;

use tokio::sync::oneshot;

use super::{Engine, EngineShared, Running};
use crate::id::PartitionId;
use crate::shard::{CloseError, find_local};

/// What the engine did when it closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloseReport {
    /// Partitions marked clean: the next open reads none of their data.
    pub clean: usize,
    /// Partitions that could not be marked clean; the next open walks them.
    pub unclean: Vec<PartitionId>,
}

impl Engine {
    /// Closes the engine: refuses what comes, drains what was admitted, writes clean checkpoints, ends the
    /// threads, and unlocks the directory. Every pending future resolves.
    ///
    /// # Errors
    ///
    /// [`CloseError`]: not all shards closed in order; the next open recovers what they left.
    pub async fn close(&self) -> Result<CloseReport, CloseError> {
        if std::mem::replace(&mut self.shared.running().is_closing, true) {
            return Err(CloseError::AlreadyClosing);
        }
        let mut answers = Vec::new();
        for shard in &self.shared.shards {
            let (reply, answer) = oneshot::channel();
            shard.mailbox.ask_to_close(Some(reply));
            answers.push(answer);
        }
        let mut report = CloseReport::default();
        let mut failed = None;
        for answer in answers {
            match answer.await.unwrap_or(Err(CloseError::ShardEnded)) {
                Ok(shard) => {
                    report.clean += shard.clean;
                    report.unclean.extend(shard.unclean);
                }
                Err(error) => failed = Some(error),
            }
        }
        self.shared.end();
        failed.map_or(Ok(report), Err)
    }
}

impl EngineShared {
    pub(super) fn running(&self) -> std::sync::MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the threads, which are leaving, and unlocks the directory. A shard cannot wait for itself:
    /// called there, the thread ends and the lock goes once the caller has returned to it.
    fn end(&self) {
        let Running { threads, lock, .. } = std::mem::take(&mut *self.running());
        self.running().is_closing = true;
        if self.shards.iter().any(|shard| find_local(shard.key).is_some()) {
            return;
        }
        for thread in threads {
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("a shard ended by a panic");
            }
        }
        drop(lock);
    }
}

impl Drop for EngineShared {
    fn drop(&mut self) {
        for shard in &self.shards {
            shard.mailbox.ask_to_close(None);
        }
        self.end();
    }
}
