//! The bounded queue through which other threads reach a shard, and the waker that ends its park.
//!
//! No lock, no growth. Once ended, every request in it or coming later is answered `Closed`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use atomic_waker::AtomicWaker;
use crossbeam::queue::ArrayQueue;

use super::report::{CloseError, ShardReport};
use super::request::{Reply, Request};

/// What became of a request that was sent.
#[derive(Debug)]
pub(crate) enum Sent {
    /// It waits in the mailbox, or has been answered.
    Taken,
    /// The mailbox is full; the request is gone.
    Full,
}

/// One shard's mailbox, shared by everybody who has a handle.
#[derive(Debug)]
pub(crate) struct Mailbox {
    requests: ArrayQueue<Request>,
    shard: Arc<AtomicWaker>,
    close_asked: AtomicBool,
    /// Who wants to hear how the close went. Locked once or twice in the life of a shard.
    closers: Mutex<Vec<Reply<ShardReport, CloseError>>>,
    ended: AtomicBool,
}

impl Mailbox {
    pub(crate) fn new(slots: usize) -> Mailbox {
        Mailbox {
            requests: ArrayQueue::new(slots.max(1)),
            shard: Arc::new(AtomicWaker::new()),
            close_asked: AtomicBool::new(false),
            closers: Mutex::default(),
            ended: AtomicBool::new(false),
        }
    }

    /// Queues a request and wakes the shard if it is parked.
    pub(crate) fn send(&self, request: Request) -> Sent {
        if self.ended.load(Ordering::Acquire) {
            request.refuse_closed();
            return Sent::Taken;
        }
        if self.requests.push(request).is_err() {
            return Sent::Full;
        }
        // The shard may have ended between the check and the push: then nobody else will look again.
        if self.ended.load(Ordering::Acquire) {
            self.refuse_all();
        }
        self.shard.wake();
        Sent::Taken
    }

    /// Takes the next request. Only the shard calls this.
    pub(crate) fn receive(&self) -> Option<Request> {
        self.requests.pop()
    }

    /// Tells whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Notes whom to wake. Look into the mailbox once more afterwards, before parking.
    pub(crate) fn register(&self, waker: &Waker) {
        self.shard.register(waker);
    }

    /// Asks the shard to close; never fails for lack of room. Dropped unanswered if the shard has ended.
    pub(crate) fn ask_to_close(&self, reply: Option<Reply<ShardReport, CloseError>>) {
        self.closers().extend(reply);
        self.close_asked.store(true, Ordering::Release);
        if self.is_ended() {
            self.closers().clear();
        }
        self.shard.wake();
    }

    /// Takes everybody who wants to hear how the close went.
    pub(crate) fn take_closers(&self) -> Vec<Reply<ShardReport, CloseError>> {
        std::mem::take(&mut self.closers())
    }

    /// Tells whether somebody asked the shard to close.
    pub(crate) fn is_close_asked(&self) -> bool {
        self.close_asked.load(Ordering::Acquire)
    }

    /// Ends the mailbox: everything in it, and everything to come, is refused.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.refuse_all();
    }

    /// What shards and their partitions wake the loop by.
    pub(crate) fn waker(&self) -> Arc<AtomicWaker> {
        self.shard.clone()
    }

    /// Tells whether the shard has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn closers(&self) -> MutexGuard<'_, Vec<Reply<ShardReport, CloseError>>> {
        self.closers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse_all(&self) {
        while let Some(request) = self.requests.pop() {
            request.refuse_closed();
        }
    }
}

/// Ends the mailbox when the shard's thread leaves, however it leaves.
#[derive(Debug)]
pub(crate) struct EndOnDrop(pub(crate) Arc<Mailbox>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
        self.0.take_closers();
    }
}
