//! Counts operations the system still works on, so that a runtime is only left when there are none.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use atomic_waker::AtomicWaker;

/// The count of one thread's operations. Clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    shared: Arc<Count>,
}

#[derive(Debug, Default)]
struct Count {
    operations: AtomicUsize,
    waker: AtomicWaker,
}

/// One operation in flight. It lives with the operation's buffers, and drops where they do.
#[derive(Debug)]
pub(super) struct Ticket {
    shared: Arc<Count>,
}

impl InFlight {
    /// Counts one operation until the ticket drops.
    pub(super) fn ticket(&self) -> Ticket {
        self.shared.operations.fetch_add(1, Ordering::Relaxed);
        Ticket { shared: Arc::clone(&self.shared) }
    }

    /// How many operations are in flight now.
    pub(super) fn count(&self) -> usize {
        self.shared.operations.load(Ordering::Acquire)
    }

    /// Resolves when none is in flight. One waiter at a time.
    pub(super) async fn drained(&self) {
        poll_fn(|context| {
            self.shared.waker.register(context.waker());
            if self.count() == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.shared.operations.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.waker.wake();
        }
    }
}
