//! Places for answers that go from a shard to whoever waits for them, used again and again: in steady state none is
//! allocated.
//!
//! A place belongs to a [`Reply`] and an [`Answer`]; when both are gone it goes back to the pool. No lock, no unsafe
//! code: the value lies in a queue of one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use atomic_waker::AtomicWaker;
use crossbeam::queue::ArrayQueue;
use tokio::task::coop::poll_proceed;

/// Places kept for the next answers: more than that many are made anew when they are wanted.
const IDLE_MAX: usize = 4096;

/// Both ends of a place.
const ENDS: u8 = 2;

/// The places of one shard that nobody uses now. Clones share them.
#[derive(Debug)]
pub(crate) struct Answers<T> {
    idle: Arc<ArrayQueue<Arc<Place<T>>>>,
}

#[derive(Debug)]
struct Place<T> {
    answer: ArrayQueue<T>,
    /// Whether the one who answers is gone, with or without an answer.
    is_ended: AtomicBool,
    waiter: AtomicWaker,
    /// How many of the two ends are alive.
    ends: AtomicU8,
}

impl<T> Place<T> {
    fn new() -> Place<T> {
        Place {
            answer: ArrayQueue::new(1),
            is_ended: AtomicBool::new(false),
            waiter: AtomicWaker::new(),
            ends: AtomicU8::new(ENDS),
        }
    }
}

impl<T> Answers<T> {
    pub(crate) fn new() -> Answers<T> {
        Answers { idle: Arc::new(ArrayQueue::new(IDLE_MAX)) }
    }

    /// The two ends of one answer.
    pub(crate) fn pair(&self) -> (Reply<T>, Answer<T>) {
        let place = self.idle.pop().unwrap_or_else(|| Arc::new(Place::new()));
        let answer = End { place: place.clone(), idle: self.idle.clone() };
        (Reply { end: End { place, idle: self.idle.clone() } }, Answer { end: answer })
    }
}

impl<T> Clone for Answers<T> {
    fn clone(&self) -> Answers<T> {
        Answers { idle: self.idle.clone() }
    }
}

/// One end of a place.
#[derive(Debug)]
struct End<T> {
    place: Arc<Place<T>>,
    idle: Arc<ArrayQueue<Arc<Place<T>>>>,
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        // Release: whatever this end did with the place is done before the other one gives it to somebody else.
        // Acquire: the same, seen from the other side.
        if self.place.ends.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        drop(self.place.answer.pop());
        drop(self.place.waiter.take());
        self.place.is_ended.store(false, Ordering::Relaxed);
        self.place.ends.store(ENDS, Ordering::Relaxed);
        // A full pool has enough of them.
        drop(self.idle.push(self.place.clone()));
    }
}

/// Where an answer goes. Dropped without one, the other end is told that none will come.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    end: End<T>,
}

impl<T> Reply<T> {
    /// Answers. Who no longer waits wants none.
    pub(crate) fn send(self, answer: T) {
        let place = &self.end.place;
        assert!(place.answer.push(answer).is_ok(), "a place takes one answer");
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        // Behind the answer, if there is one.
        self.end.place.is_ended.store(true, Ordering::Release);
        self.end.place.waiter.wake();
    }
}

/// Where an answer comes from. Resolves to `None` when none will come.
#[derive(Debug)]
#[must_use = "an answer is only there for who waits for it"]
pub(crate) struct Answer<T> {
    end: End<T>,
}

impl<T> Answer<T> {
    fn look(&self) -> Poll<Option<T>> {
        let place = &self.end.place;
        // First this: an answer is there before the one who gave it is gone.
        let is_ended = place.is_ended.load(Ordering::Acquire);
        match place.answer.pop() {
            Some(answer) => Poll::Ready(Some(answer)),
            None if is_ended => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        // A task whose answers are always there at once must let others run, and the ring submit.
        let turn = ready!(poll_proceed(context));
        let mut answer = self.look();
        if answer.is_pending() {
            self.end.place.waiter.register(context.waker());
            answer = self.look();
        }
        if answer.is_ready() {
            turn.made_progress();
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    use super::*;

    fn pool() -> Answers<u64> {
        Answers::new()
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn answer_wakes_who_waits_and_frees_the_place() {
        let answers = pool();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let context = &mut Context::from_waker(&waker);
        let (reply, mut answer) = answers.pair();

        assert_eq!(Pin::new(&mut answer).poll(context), Poll::Pending);
        reply.send(7);

        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(Pin::new(&mut answer).poll(context), Poll::Ready(Some(7)));
        assert_eq!(answers.idle.len(), 0);
        drop(answer);
        assert_eq!(answers.idle.len(), 1);
    }

    #[test]
    fn reply_that_is_dropped_ends_the_wait() {
        let answers = pool();
        let context = &mut Context::from_waker(Waker::noop());
        let (reply, mut answer) = answers.pair();
        assert_eq!(Pin::new(&mut answer).poll(context), Poll::Pending);

        drop(reply);

        assert_eq!(Pin::new(&mut answer).poll(context), Poll::Ready(None));
    }

    #[test]
    fn place_is_used_again_as_if_it_were_new() {
        let answers = pool();
        let context = &mut Context::from_waker(Waker::noop());
        let (reply, answer) = answers.pair();
        drop(answer);
        reply.send(7);
        let (reply, answer) = answers.pair();
        drop(reply);
        drop(answer);

        let (reply, mut answer) = answers.pair();

        assert_eq!(Arc::strong_count(&reply.end.place), 2, "both ends of the one place there is");
        assert_eq!(answers.idle.len(), 0);
        assert_eq!(Pin::new(&mut answer).poll(context), Poll::Pending);
        reply.send(8);
        assert_eq!(Pin::new(&mut answer).poll(context), Poll::Ready(Some(8)));
    }

    #[test]
    fn every_answer_arrives_at_its_own_end_between_threads() {
        const COUNT: u64 = 20_000;
        let answers = pool();
        let (sender, receiver) = std::sync::mpsc::sync_channel::<(u64, Reply<u64>)>(16);
        let shard = std::thread::spawn(move || {
            for (number, reply) in receiver {
                // Some are never answered.
                match number % 7 {
                    0 => drop(reply),
                    _ => reply.send(number),
                }
            }
        });

        let mut asked = std::collections::VecDeque::new();
        for number in 0..COUNT {
            let (reply, answer) = answers.pair();
            sender.send((number, reply)).unwrap();
            // Some are not waited for.
            if number % 5 > 0 {
                asked.push_back((number, answer));
            }
            if asked.len() > 8 {
                let (number, answer) = asked.pop_front().unwrap();
                let expected = (number % 7 > 0).then_some(number);
                assert_eq!(futures_executor::block_on(answer), expected);
            }
        }
        drop(sender);
        shard.join().unwrap();

        drop(asked);
        assert!(answers.idle.len() <= 64, "places were made anew: {}", answers.idle.len());
    }
}
