//! Calls in flight on one thread: starts them, waits for any of them or for a time, without a runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// The calls of this thread; it parks while it waits for them.
pub(crate) struct Calls<F> {
    in_flight: FuturesUnordered<F>,
    waker: Waker,
}

impl<F: Future> Calls<F> {
    /// For the calling thread alone.
    pub(crate) fn new() -> Calls<F> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        Calls { in_flight: FuturesUnordered::new(), waker }
    }

    pub(crate) fn len(&self) -> usize {
        self.in_flight.len()
    }

    pub(crate) fn push(&mut self, call: F) {
        self.in_flight.push(call);
    }

    /// Returns a call's result if one is there.
    pub(crate) fn poll(&mut self) -> Option<F::Output> {
        let mut context = Context::from_waker(&self.waker);
        match pin!(&mut self.in_flight).poll_next(&mut context) {
            Poll::Ready(result) => result,
            Poll::Pending => None,
        }
    }

    /// Waits for a call's result, at most `length`. `None` also when nothing is in flight or the thread was woken early.
    pub(crate) fn wait(&mut self, length: Duration) -> Option<F::Output> {
        let ready = self.poll();
        if ready.is_some() || length.is_zero() {
            return ready;
        }
        thread::park_timeout(length);
        self.poll()
    }
}
