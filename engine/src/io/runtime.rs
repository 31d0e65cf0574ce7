//! The runtime seam: tasks of one thread, time to wait, and a turn to give away.
//!
//! Waking is `std::task::Waker`; every runtime here accepts a wake from any thread.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::ring::RingTurn;

/// A future of one thread, boxed.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Runs the tasks of one thread. Held as `Rc<dyn Runtime>` by what lives on that thread.
pub trait Runtime: std::fmt::Debug + 'static {
    /// Starts a task on this thread. It runs until it ends or the runtime is dropped.
    fn spawn(&self, task: LocalFuture<()>);

    /// Resolves after at least `duration` of this runtime's time.
    fn sleep(&self, duration: Duration) -> LocalFuture<()>;

    /// Lets everything else that is ready run once, and lets the ring submit, before it resolves.
    ///
    /// On tokio-uring this is a no-op through the ring: a plain yield would keep it from submitting. On a real machine
    /// other threads that wait for this core run first.
    fn turn(&self) -> Turn;
}

/// Lets other threads that wait for this core run.
///
/// A shard gives turns away while it waits for callers, and does not sleep: a caller that the system has put on the
/// shard's core would only run once the shard's time is up. Source: docs/BENCHMARKS.md, "Callers on the shard's core".
pub(super) fn give_core_away() {
    rustix::thread::sched_yield();
}

/// A turn given away. Those of a shard that is waiting for callers follow each other closely, so on a ring none is
/// allocated.
#[must_use = "the turn is given away by waiting for it"]
pub struct Turn(TurnKind);

enum TurnKind {
    Ring(RingTurn),
    Other(LocalFuture<()>),
}

impl Turn {
    /// A turn of a runtime without a ring.
    pub fn new(turn: LocalFuture<()>) -> Turn {
        Turn(TurnKind::Other(turn))
    }

    pub(in crate::io) fn of_ring(turn: RingTurn) -> Turn {
        Turn(TurnKind::Ring(turn))
    }
}

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            TurnKind::Ring(turn) => Pin::new(turn).poll(context),
            TurnKind::Other(turn) => turn.as_mut().poll(context),
        }
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Turn")
    }
}
