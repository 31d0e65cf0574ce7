//! The simulated runtime: runs every task of every simulated process on one thread, in virtual time.
//!
//! The seed chooses the order among tasks that are ready. Time moves only when nothing is ready. It must never
//! wait for anything real: when nothing is ready and nothing is due, that is a deadlock, and it panics.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::io::runtime::{LocalFuture, Runtime, Turn};

/// How many polls may happen at one instant before the run counts as spinning.
const POLLS_PER_INSTANT_MAX: u64 = 2_000_000;

/// The future given to [`SimulatedRuntime::block_on`]; it competes with the tasks like one of them.
const MAIN_TASK: u64 = 0;

/// The group of tasks spawned on the runtime itself.
const ROOT_GROUP: u64 = 0;

/// The instant all simulated clocks derive from, in nanoseconds since the simulation began.
#[derive(Debug, Default)]
pub(super) struct VirtualTime(AtomicU64);

impl VirtualTime {
    pub(super) fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, now: Duration) {
        let nanoseconds = u64::try_from(now.as_nanos()).expect("a simulation of under 584 years");
        self.0.store(nanoseconds, Ordering::Relaxed);
    }
}

/// Owns every task of a simulation; dropping it drops them all.
///
/// Tasks hold [`TaskGroup`]s, never the runtime itself, or nothing would ever be freed.
pub struct SimulatedRuntime {
    scheduler: Rc<Scheduler>,
}

impl SimulatedRuntime {
    /// Makes a runtime whose every choice follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> SimulatedRuntime {
        let groups = BTreeMap::from([(ROOT_GROUP, GroupState::default())]);
        SimulatedRuntime {
            scheduler: Rc::new(Scheduler {
                seed,
                now: Arc::default(),
                random: RefCell::new(fastrand::Rng::with_seed(seed)),
                woken: Arc::default(),
                round: RefCell::default(),
                round_number: Cell::new(0),
                tasks: RefCell::default(),
                groups: RefCell::new(groups),
                alarms: RefCell::default(),
                last_id: Cell::new(0),
                fingerprint: Cell::new(seed),
                polls_at_this_instant: Cell::new(0),
                is_running: Cell::new(false),
            }),
        }
    }

    /// The seed, for the message of a failed test.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.scheduler.seed
    }

    /// Virtual time since the simulation began.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.scheduler.now.now()
    }

    /// Depends on every task run so far and on when it ran: equal for equal runs.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.scheduler.fingerprint.get()
    }

    /// A random source of its own, which follows from the seed.
    #[must_use]
    pub fn fork_random(&self) -> fastrand::Rng {
        self.scheduler.fork_random()
    }

    /// Calls `call` once `delay` has passed: a fault at an instant, whatever runs then.
    pub fn call_after(&self, delay: Duration, call: impl FnOnce() + 'static) {
        self.scheduler.call_after(delay, call);
    }

    /// Makes a new group: the tasks of one process, which can be killed together.
    #[must_use]
    pub fn group(&self) -> TaskGroup {
        self.scheduler.clone().new_group()
    }

    /// Runs tasks until `future` resolves.
    ///
    /// # Panics
    ///
    /// With the seed: on a deadlock (nothing is ready and nothing is due), on a spin (time stands still for
    /// too many polls), and from inside a task.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let scheduler = &self.scheduler;
        let _running = scheduler.enter();
        let mut future = pin!(future);
        let waker = scheduler.waker_of(MAIN_TASK);
        waker.wake_by_ref();
        loop {
            match scheduler.next_ready() {
                Some(MAIN_TASK) => {
                    let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
                    if let Poll::Ready(output) = polled {
                        return output;
                    }
                }
                Some(task) => scheduler.poll(task),
                None => assert!(
                    scheduler.advance(Duration::MAX),
                    "seed {}: deadlock at {:?}: {} tasks wait, nothing is ready and nothing is due",
                    scheduler.seed,
                    self.now(),
                    scheduler.tasks.borrow().len(),
                ),
            }
        }
    }

    /// Runs everything that is ready or due up to `instant` of virtual time, then stands there.
    ///
    /// # Panics
    ///
    /// As [`block_on`](Self::block_on), but waiting for nothing is no deadlock here.
    pub fn run_until(&self, instant: Duration) {
        let scheduler = &self.scheduler;
        let _running = scheduler.enter();
        loop {
            match scheduler.next_ready() {
                Some(MAIN_TASK) => {}
                Some(task) => scheduler.poll(task),
                None if scheduler.advance(instant) => {}
                None => break,
            }
        }
        if scheduler.now.now() < instant {
            scheduler.now.set(instant);
        }
    }

    /// [`run_until`](Self::run_until) `duration` from now.
    pub fn run_for(&self, duration: Duration) {
        self.run_until(self.now() + duration);
    }

    pub(super) fn scheduler(&self) -> Rc<Scheduler> {
        self.scheduler.clone()
    }
}

impl Drop for SimulatedRuntime {
    fn drop(&mut self) {
        let groups: Vec<u64> = self.scheduler.groups.borrow().keys().copied().collect();
        for group in groups {
            self.scheduler.kill(group);
        }
        // Alarms own what they will call, and that owns the scheduler.
        let alarms = std::mem::take(&mut *self.scheduler.alarms.borrow_mut());
        drop(alarms);
    }
}

impl fmt::Debug for SimulatedRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedRuntime").field("scheduler", &self.scheduler).finish()
    }
}

impl Runtime for SimulatedRuntime {
    fn spawn(&self, task: LocalFuture<()>) {
        self.scheduler.spawn(ROOT_GROUP, task);
    }

    fn sleep(&self, duration: Duration) -> LocalFuture<()> {
        self.scheduler.clone().sleep(duration)
    }

    fn turn(&self) -> Turn {
        Turn::new(self.scheduler.clone().turn())
    }
}

/// The tasks of one simulated process. `Clone` shares it.
#[derive(Clone, Debug)]
pub struct TaskGroup {
    scheduler: Rc<Scheduler>,
    group: u64,
}

impl TaskGroup {
    /// Drops every task of the group where it stands, and every one spawned on it from now on.
    pub fn kill(&self) {
        self.scheduler.kill(self.group);
    }

    /// Stops running the group's tasks (SIGSTOP): time goes on, their timers ring, nobody answers.
    pub fn pause(&self) {
        if let Some(state) = self.scheduler.groups.borrow_mut().get_mut(&self.group) {
            state.is_paused = true;
        }
    }

    /// Runs the group's tasks again (SIGCONT), those first that were woken meanwhile.
    pub fn resume(&self) {
        let held = match self.scheduler.groups.borrow_mut().get_mut(&self.group) {
            Some(state) => {
                state.is_paused = false;
                std::mem::take(&mut state.held)
            }
            None => return,
        };
        self.scheduler.woken.add(held);
    }

    /// Tells whether [`kill`](Self::kill) has been called.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        !self.scheduler.groups.borrow().contains_key(&self.group)
    }

    /// Counts the tasks that have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.scheduler.tasks.borrow().values().filter(|task| task.group == self.group).count()
    }
}

impl Runtime for TaskGroup {
    fn spawn(&self, task: LocalFuture<()>) {
        self.scheduler.spawn(self.group, task);
    }

    fn sleep(&self, duration: Duration) -> LocalFuture<()> {
        self.scheduler.clone().sleep(duration)
    }

    fn turn(&self) -> Turn {
        Turn::new(self.scheduler.clone().turn())
    }
}

/// Tasks woken and not yet in a round. A set, so that the order of wakes, even from several threads, is no input.
#[derive(Debug, Default)]
struct Woken(Mutex<BTreeSet<u64>>);

impl Woken {
    fn add(&self, tasks: impl IntoIterator<Item = u64>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(tasks);
    }

    fn take(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct TaskWaker {
    task: u64,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.woken.add([self.task]);
    }
}

struct Task {
    group: u64,
    waker: Waker,
    /// `None` while it runs.
    future: Option<LocalFuture<()>>,
}

#[derive(Debug, Default)]
struct GroupState {
    is_paused: bool,
    /// Tasks that became ready during the pause.
    held: BTreeSet<u64>,
}

/// What happens when an instant comes.
enum Alarm {
    Wake(Waker),
    Call(Box<dyn FnOnce()>),
}

/// The state behind a runtime and its groups.
pub(super) struct Scheduler {
    seed: u64,
    now: Arc<VirtualTime>,
    random: RefCell<fastrand::Rng>,
    woken: Arc<Woken>,
    /// What is left of this round: each ready task runs once a round, in an order the seed chooses.
    round: RefCell<Vec<u64>>,
    round_number: Cell<u64>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    /// A killed group is gone from here.
    groups: RefCell<BTreeMap<u64, GroupState>>,
    alarms: RefCell<BTreeMap<(Duration, u64), Alarm>>,
    last_id: Cell<u64>,
    fingerprint: Cell<u64>,
    polls_at_this_instant: Cell<u64>,
    is_running: Cell<bool>,
}

impl Scheduler {
    pub(super) fn virtual_time(&self) -> Arc<VirtualTime> {
        self.now.clone()
    }

    pub(super) fn fork_random(&self) -> fastrand::Rng {
        self.random.borrow_mut().fork()
    }

    pub(super) fn new_group(self: Rc<Self>) -> TaskGroup {
        let group = self.next_id();
        self.groups.borrow_mut().insert(group, GroupState::default());
        TaskGroup { scheduler: self, group }
    }

    /// Calls `call` once `delay` has passed, whatever became of the task that asked for it.
    pub(super) fn call_after(&self, delay: Duration, call: impl FnOnce() + 'static) {
        let key = (self.now.now() + delay, self.next_id());
        self.alarms.borrow_mut().insert(key, Alarm::Call(Box::new(call)));
    }

    fn next_id(&self) -> u64 {
        self.last_id.set(self.last_id.get() + 1);
        self.last_id.get()
    }

    fn enter(&self) -> Running<'_> {
        assert!(!self.is_running.replace(true), "a simulated runtime does not run inside itself");
        Running(self)
    }

    fn waker_of(&self, task: u64) -> Waker {
        Waker::from(Arc::new(TaskWaker { task, woken: self.woken.clone() }))
    }

    fn spawn(&self, group: u64, future: LocalFuture<()>) {
        if !self.groups.borrow().contains_key(&group) {
            return;
        }
        let id = self.next_id();
        let waker = self.waker_of(id);
        self.tasks.borrow_mut().insert(id, Task { group, waker, future: Some(future) });
        self.woken.add([id]);
    }

    pub(super) fn sleep(self: Rc<Self>, duration: Duration) -> LocalFuture<()> {
        let deadline = self.now.now().saturating_add(duration);
        let key = (deadline, self.next_id());
        Box::pin(Sleep { scheduler: self, key })
    }

    fn turn(self: Rc<Self>) -> LocalFuture<()> {
        // What is ready now runs in this round or, if it was woken in it, in the next one.
        let round_end = self.round_number.get() + 2;
        Box::pin(std::future::poll_fn(move |context| {
            if self.round_number.get() >= round_end {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }))
    }

    fn kill(&self, group: u64) {
        self.groups.borrow_mut().remove(&group);
        let killed: Vec<Task> = {
            let mut tasks = self.tasks.borrow_mut();
            let ids: Vec<u64> =
                tasks.iter().filter(|(_, task)| task.group == group).map(|(id, _)| *id).collect();
            ids.iter().filter_map(|id| tasks.remove(id)).collect()
        };
        // Dropping a future runs code that may come back here, so no borrow is held.
        drop(killed);
    }

    fn next_ready(&self) -> Option<u64> {
        let mut round = self.round.borrow_mut();
        if round.is_empty() {
            round.extend(self.woken.take());
            self.round_number.set(self.round_number.get() + 1);
        }
        if round.is_empty() {
            return None;
        }
        let chosen = self.random.borrow_mut().usize(..round.len());
        Some(round.swap_remove(chosen))
    }

    fn poll(&self, id: u64) {
        let (mut future, waker) = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(task) = tasks.get_mut(&id) else { return };
            let mut groups = self.groups.borrow_mut();
            let group = groups.get_mut(&task.group).expect("killed groups have no tasks");
            if group.is_paused {
                group.held.insert(id);
                return;
            }
            (task.future.take().expect("a task runs once at a time"), task.waker.clone())
        };
        self.record_poll(id);
        let is_done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut tasks = self.tasks.borrow_mut();
        if is_done {
            tasks.remove(&id);
        } else if let Some(task) = tasks.get_mut(&id) {
            task.future = Some(future);
            return;
        }
        // Ended, or killed while it ran.
        drop(tasks);
        drop(future);
    }

    fn record_poll(&self, id: u64) {
        let polls = self.polls_at_this_instant.get() + 1;
        self.polls_at_this_instant.set(polls);
        assert!(
            polls <= POLLS_PER_INSTANT_MAX,
            "seed {}: spinning at {:?}: time never moves",
            self.seed,
            self.now.now()
        );
        let mut mixed = self.fingerprint.get() ^ id;
        mixed ^= self.now.0.load(Ordering::Relaxed).rotate_left(32);
        self.fingerprint.set(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
    }

    /// Moves time to the next alarm at or before `limit` and lets it and its contemporaries ring.
    fn advance(&self, limit: Duration) -> bool {
        let instant = match self.alarms.borrow().first_key_value() {
            Some((&(instant, _), _)) if instant <= limit => instant,
            _ => return false,
        };
        // An alarm set for the past (a saturated sum never is) would move time backwards.
        self.now.set(instant.max(self.now.now()));
        self.polls_at_this_instant.set(0);
        loop {
            let due = {
                let mut alarms = self.alarms.borrow_mut();
                match alarms.first_key_value() {
                    Some((&key, _)) if key.0 <= instant => alarms.remove(&key),
                    _ => None,
                }
            };
            match due {
                Some(Alarm::Wake(waker)) => waker.wake(),
                Some(Alarm::Call(call)) => call(),
                None => return true,
            }
        }
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("seed", &self.seed)
            .field("now", &self.now.now())
            .finish_non_exhaustive()
    }
}

/// Marks the scheduler as running, and names the seed when a panic passes through.
struct Running<'a>(&'a Scheduler);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.is_running.set(false);
        if std::thread::panicking() {
            eprintln!("simulation failed with seed {} at {:?}", self.0.seed, self.0.now.now());
        }
    }
}

struct Sleep {
    scheduler: Rc<Scheduler>,
    key: (Duration, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.scheduler.now.now() >= self.key.0 {
            return Poll::Ready(());
        }
        let alarm = Alarm::Wake(context.waker().clone());
        self.scheduler.alarms.borrow_mut().insert(self.key, alarm);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let alarm = self.scheduler.alarms.borrow_mut().remove(&self.key);
        drop(alarm);
    }
}

#[cfg(test)]
#[path = "runtime_tests.rs"]
mod tests;
