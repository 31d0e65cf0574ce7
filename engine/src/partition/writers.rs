//! The tasks that wait for the device on behalf of a shard's partitions and its journal, used again and again: in
//! steady state a write allocates nothing.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::context::LogContext;
use super::journaling::FrameWrite;
use super::log::PartitionLog;
use super::submission::GroupWrite;
use crate::io::disk::{Disk, DiskFile, WriteMode};

/// Writers kept for the next work: more are made when they are wanted, and end after it.
const IDLE_MAX: usize = 256;

/// One thing to wait for, and who is told.
pub(super) enum Work<D: Disk> {
    Group { log: Rc<PartitionLog<D>>, write: GroupWrite<D> },
    Sync { log: Rc<PartitionLog<D>>, file: D::File },
    Frame { context: Rc<LogContext<D>>, write: FrameWrite<D> },
}

impl<D: Disk> Work<D> {
    async fn carry_out(self) {
        match self {
            Work::Group { log, write } => {
                let GroupWrite { file, extent, position, number, kind } = write;
                let written = file.write(extent, position, kind.mode).await;
                log.complete(number, kind, written);
            }
            Work::Sync { log, file } => {
                let synced = file.sync().await;
                log.complete_sync(synced);
            }
            Work::Frame { context, write } => {
                let FrameWrite { file, bytes, position, number } = write;
                let written = file.write(bytes, position, WriteMode::Durable).await;
                context.complete_frame(number, written);
            }
        }
    }
}

/// One task's place for its next work.
struct Writer<D: Disk> {
    work: Cell<Option<Work<D>>>,
    waker: Cell<Option<Waker>>,
}

impl<D: Disk> Writer<D> {
    fn hand(&self, work: Work<D>) {
        self.work.set(Some(work));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    async fn next(&self) -> Work<D> {
        poll_fn(|task| match self.work.take() {
            Some(work) => Poll::Ready(work),
            None => {
                self.waker.set(Some(task.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}

/// The writers of one shard that have nothing to do.
pub(super) struct Writers<D: Disk> {
    idle: RefCell<Vec<Rc<Writer<D>>>>,
}

impl<D: Disk> Default for Writers<D> {
    fn default() -> Self {
        Writers { idle: RefCell::default() }
    }
}

impl<D: Disk> LogContext<D> {
    /// Has a writer carry out `work`, begun in the order of these calls.
    pub(super) fn carry_out(self: &Rc<Self>, work: Work<D>) {
        let idle = self.writers.idle.borrow_mut().pop();
        if let Some(writer) = idle {
            writer.hand(work);
            return;
        }
        let writer = Rc::new(Writer { work: Cell::new(Some(work)), waker: Cell::default() });
        // A writer without work keeps nothing of the shard alive.
        let context = Rc::downgrade(self);
        self.runtime.spawn(Box::pin(async move {
            loop {
                writer.next().await.carry_out().await;
                let Some(context) = context.upgrade() else { return };
                let mut idle = context.writers.idle.borrow_mut();
                if idle.len() == IDLE_MAX {
                    return;
                }
                idle.push(writer.clone());
            }
        }));
    }
}
