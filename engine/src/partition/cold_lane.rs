//! The lane on which a shard reads from its disk: so many reads and bytes at once, and fewer beside appends, so that a
//! scan does not stand between an append and the device. The others queue: what a reader waits for goes first.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::counters::LogCounters;
use super::settings::ShardLimits;
use crate::io::clock::Clock;

/// How long after an append the lane stays narrow.
const APPENDS_LINGER: Duration = Duration::from_millis(50);

/// Whether somebody waits for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// A reader does.
    Demanded,
    /// It is read ahead.
    Ahead,
}

/// How wide the lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneLimits {
    pub(super) reads_max: usize,
    pub(super) bytes_max: usize,
    pub(super) bytes_beside_appends_max: usize,
}

impl LaneLimits {
    /// The limits of a shard, and never more than an eighth of its memory.
    pub(super) fn of(limits: &ShardLimits, arena_bytes: usize) -> LaneLimits {
        let share = arena_bytes / 8;
        LaneLimits {
            reads_max: limits.cold_reads_in_flight_max,
            bytes_max: limits.cold_bytes_in_flight_max.min(share),
            bytes_beside_appends_max: limits.cold_bytes_beside_appends_max.min(share),
        }
    }
}

/// What is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneLoad {
    reads: usize,
    bytes: usize,
}

impl LaneLoad {
    /// The rule: one read may always go; more while they fit.
    fn admits(self, bytes: usize, limits: &LaneLimits, is_beside_appends: bool) -> bool {
        let bytes_max = match is_beside_appends {
            true => limits.bytes_beside_appends_max,
            false => limits.bytes_max,
        };
        self.reads == 0
            || (self.reads < limits.reads_max && self.bytes.saturating_add(bytes) <= bytes_max)
    }
}

/// A read that waits for its turn.
struct Waiter {
    bytes: usize,
    turn: oneshot::Sender<Passage>,
}

#[derive(Default)]
struct LaneState {
    load: LaneLoad,
    demanded: VecDeque<Waiter>,
    ahead: VecDeque<Waiter>,
    appends_seen: u64,
    appends_seen_at: Option<Duration>,
}

/// The lane of one shard.
pub(super) struct ColdLane {
    limits: LaneLimits,
    clock: Arc<dyn Clock>,
    counters: Arc<LogCounters>,
    state: RefCell<LaneState>,
}

/// The right to have one read in flight, until dropped.
pub(super) struct Passage {
    lane: Rc<ColdLane>,
    bytes: usize,
}

impl ColdLane {
    pub(super) fn new(
        limits: LaneLimits,
        clock: Arc<dyn Clock>,
        counters: Arc<LogCounters>,
    ) -> Rc<ColdLane> {
        Rc::new(ColdLane { limits, clock, counters, state: RefCell::default() })
    }

    /// Waits for the turn of a read of `bytes`.
    pub(super) async fn enter(self: &Rc<Self>, bytes: usize, urgency: Urgency) -> Passage {
        let (turn, granted) = oneshot::channel();
        let waiter = Waiter { bytes, turn };
        {
            let mut state = self.state.borrow_mut();
            match urgency {
                Urgency::Demanded => state.demanded.push_back(waiter),
                Urgency::Ahead => state.ahead.push_back(waiter),
            }
        }
        self.grant();
        granted.await.expect("a lane outlives its queue")
    }

    /// Lets go whoever may. Those who have given up waiting are passed over.
    fn grant(self: &Rc<Self>) {
        loop {
            let is_beside_appends = self.is_beside_appends();
            let waiter = {
                let mut state = self.state.borrow_mut();
                state.demanded.retain(|waiter| !waiter.turn.is_closed());
                state.ahead.retain(|waiter| !waiter.turn.is_closed());
                let load = state.load;
                let queue = match state.demanded.is_empty() {
                    true => &mut state.ahead,
                    false => &mut state.demanded,
                };
                let admitted = queue
                    .front()
                    .is_some_and(|first| load.admits(first.bytes, &self.limits, is_beside_appends));
                if !admitted {
                    return;
                }
                let waiter = queue.pop_front().expect("the front was just seen");
                state.load.reads += 1;
                state.load.bytes += waiter.bytes;
                waiter
            };
            let passage = Passage { lane: self.clone(), bytes: waiter.bytes };
            drop(waiter.turn.send(passage));
        }
    }

    /// Tells whether there were appends a short while ago.
    pub(super) fn is_beside_appends(&self) -> bool {
        let now = self.clock.now().boottime;
        let appends = self.counters.appends.get();
        let mut state = self.state.borrow_mut();
        if state.appends_seen != appends {
            state.appends_seen = appends;
            state.appends_seen_at = Some(now);
        }
        state.appends_seen_at.is_some_and(|seen| now.saturating_sub(seen) < APPENDS_LINGER)
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        {
            let mut state = self.lane.state.borrow_mut();
            state.load.reads -= 1;
            state.load.bytes -= self.bytes;
        }
        self.lane.grant();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::io::simulated::{SimulatedClock, SimulatedRuntime};

    const LIMITS: LaneLimits =
        LaneLimits { reads_max: 3, bytes_max: 100, bytes_beside_appends_max: 10 };

    fn lane() -> (Rc<ColdLane>, Arc<LogCounters>) {
        let runtime = SimulatedRuntime::new(1);
        let counters = Arc::new(LogCounters::default());
        (ColdLane::new(LIMITS, Arc::new(SimulatedClock::new(&runtime)), counters.clone()), counters)
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn expect_turn<F: Future<Output = Passage>>(future: Pin<&mut F>) -> Passage {
        match poll(future) {
            Poll::Ready(passage) => passage,
            Poll::Pending => panic!("the read should have its turn"),
        }
    }

    #[test]
    fn one_read_may_always_go_and_more_while_they_fit() {
        let load = |reads, bytes| LaneLoad { reads, bytes };

        assert!(load(0, 0).admits(1000, &LIMITS, true));
        assert!(load(1, 60).admits(40, &LIMITS, false));
        assert!(!load(1, 60).admits(41, &LIMITS, false));
        assert!(!load(1, 6).admits(5, &LIMITS, true));
        assert!(!load(3, 3).admits(1, &LIMITS, false));
        assert!(!load(1, 1).admits(usize::MAX, &LIMITS, false));
    }

    #[test]
    fn what_a_reader_waits_for_goes_before_what_is_read_ahead() {
        let (lane, _) = lane();
        let first = expect_turn(pin!(lane.enter(100, Urgency::Ahead)));
        let mut ahead = pin!(lane.enter(100, Urgency::Ahead));
        let mut demanded = pin!(lane.enter(100, Urgency::Demanded));
        assert!(poll(ahead.as_mut()).is_pending());
        assert!(poll(demanded.as_mut()).is_pending());

        drop(first);

        assert!(poll(ahead.as_mut()).is_pending());
        let second = expect_turn(demanded.as_mut());
        drop(second);
        drop(expect_turn(ahead.as_mut()));
        assert_eq!(lane.state.borrow().load, LaneLoad::default());
    }

    #[test]
    fn reader_that_went_away_holds_nobody_up() {
        let (lane, _) = lane();
        let first = expect_turn(pin!(lane.enter(100, Urgency::Demanded)));
        {
            let mut gone = pin!(lane.enter(100, Urgency::Demanded));
            assert!(poll(gone.as_mut()).is_pending());
        }
        let mut next = pin!(lane.enter(1, Urgency::Ahead));
        assert!(poll(next.as_mut()).is_pending());

        drop(first);

        drop(expect_turn(next.as_mut()));
        assert_eq!(lane.state.borrow().load, LaneLoad::default());
    }

    #[test]
    fn lane_is_narrow_beside_appends() {
        let (lane, counters) = lane();
        counters.appends.add(1);
        let first = expect_turn(pin!(lane.enter(8, Urgency::Demanded)));
        let mut second = pin!(lane.enter(8, Urgency::Demanded));

        assert!(poll(second.as_mut()).is_pending());

        drop(first);
        drop(expect_turn(second.as_mut()));
    }
}
