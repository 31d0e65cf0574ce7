//! The tasks a thread has spawned, so that they can be stopped before its runtime is left.

use std::cell::RefCell;
use std::rc::Rc;

use tokio::task::JoinSet;

use super::runtime::LocalFuture;

/// The tasks of one thread. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks {
    running: Rc<RefCell<JoinSet<()>>>,
}

impl Tasks {
    /// Starts a task.
    pub(super) fn spawn(&self, task: LocalFuture<()>) {
        let mut running = self.running.borrow_mut();
        // Those that ended are let go here, so that the set does not grow with every task ever spawned. A
        // panic of one was reported by the panic hook where it happened.
        while running.try_join_next().is_some() {}
        running.spawn_local(task);
    }

    /// Drops every task that still runs. What a task spawns while it is dropped goes, too.
    pub(super) async fn stop(&self) {
        loop {
            let mut running = std::mem::take(&mut *self.running.borrow_mut());
            if running.is_empty() {
                return;
            }
            running.shutdown().await;
        }
    }
}
