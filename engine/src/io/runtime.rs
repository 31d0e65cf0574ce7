//! The runtime seam: tasks of one thread, time to wait, and a turn to give away.
//!
//! Waking is `std::task::Waker`; every runtime here accepts a wake from any thread.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

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
    /// On tokio-uring this is a no-op through the ring: a plain yield would keep it from submitting.
    fn turn(&self) -> LocalFuture<()>;
}
