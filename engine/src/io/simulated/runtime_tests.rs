//! Tests of the simulated runtime.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Runs eight tasks that log who ran when, and returns the log with the runtime's fingerprint.
fn trace(seed: u64) -> (Vec<(u32, Duration)>, u64) {
    let runtime = SimulatedRuntime::new(seed);
    let log = Rc::new(RefCell::new(Vec::new()));
    let random = Rc::new(RefCell::new(runtime.fork_random()));
    for name in 0..8 {
        let (group, log, random) = (runtime.group(), log.clone(), random.clone());
        runtime.spawn(Box::pin(async move {
            for _ in 0..4 {
                log.borrow_mut().push((name, group.scheduler.now.now()));
                let pause = MILLISECOND * random.borrow_mut().u32(0..3);
                group.sleep(pause).await;
            }
        }));
    }
    runtime.run_for(Duration::from_secs(1));
    let log = log.take();
    (log, runtime.fingerprint())
}

#[test]
fn same_seed_gives_the_same_trace_and_another_seed_another() {
    let first = trace(7);

    assert_eq!(first.0.len(), 32);
    assert_eq!(first, trace(7));
    assert_ne!(first, trace(8));
}

#[test]
fn time_moves_only_when_nothing_is_ready() {
    let runtime = SimulatedRuntime::new(1);
    let group = runtime.group();

    let times = runtime.block_on(async {
        let before = runtime.now();
        for _ in 0..100 {
            group.turn().await;
        }
        let after_turns = runtime.now();
        group.sleep(Duration::from_secs(3600)).await;
        (before, after_turns, runtime.now())
    });

    assert_eq!(times, (Duration::ZERO, Duration::ZERO, Duration::from_secs(3600)));
}

#[test]
fn turn_lets_everything_ready_run_first() {
    for seed in 0..50 {
        let runtime = SimulatedRuntime::new(seed);
        let group = runtime.group();
        let ran = Rc::new(Cell::new(0));
        runtime.block_on(async {
            for _ in 0..5 {
                let ran = ran.clone();
                group.spawn(Box::pin(async move { ran.set(ran.get() + 1) }));
            }
            group.turn().await;
            assert_eq!(ran.get(), 5, "seed {seed}");
        });
    }
}

#[test]
fn deadlock_panics_with_the_seed() {
    let runtime = SimulatedRuntime::new(4711);

    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(std::future::pending::<()>())));

    let message = outcome.unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    assert!(message.contains("seed 4711: deadlock"), "{message}");
}

#[test]
fn killed_group_drops_its_tasks_and_takes_no_more() {
    struct CountsDrops(Rc<Cell<u32>>);
    impl Drop for CountsDrops {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let runtime = SimulatedRuntime::new(3);
    let (victim, other) = (runtime.group(), runtime.group());
    let dropped = Rc::new(Cell::new(0));
    for group in [&victim, &victim, &other] {
        let held = CountsDrops(dropped.clone());
        group.spawn(Box::pin(async move {
            std::future::pending::<()>().await;
            drop(held);
        }));
    }
    runtime.run_for(MILLISECOND);

    victim.kill();
    let late = CountsDrops(dropped.clone());
    victim.spawn(Box::pin(async move { drop(late) }));

    assert_eq!(dropped.get(), 3);
    assert!(victim.is_killed());
    assert_eq!((victim.tasks(), other.tasks()), (0, 1));
    drop(runtime);
    assert_eq!(dropped.get(), 4, "a dropped runtime drops every task");
}

#[test]
fn task_may_kill_its_own_group() {
    let runtime = SimulatedRuntime::new(3);
    let group = runtime.group();
    let went_on = Rc::new(Cell::new(false));
    let (killer, after) = (group.clone(), went_on.clone());
    group.spawn(Box::pin(async move {
        killer.kill();
        killer.turn().await;
        after.set(true);
    }));

    runtime.run_for(MILLISECOND);

    assert!(group.is_killed());
    assert!(!went_on.get());
}

#[test]
fn paused_group_sleeps_through_its_timers_and_resumes_late() {
    let runtime = SimulatedRuntime::new(5);
    let group = runtime.group();
    let woke_at = Rc::new(Cell::new(Duration::ZERO));
    let (sleeper, seen) = (group.clone(), woke_at.clone());
    group.spawn(Box::pin(async move {
        sleeper.sleep(MILLISECOND).await;
        seen.set(sleeper.scheduler.now.now());
    }));
    runtime.run_until(Duration::from_micros(10));

    group.pause();
    runtime.run_until(MILLISECOND * 50);
    let during = woke_at.get();
    group.resume();
    runtime.run_for(Duration::ZERO);

    assert_eq!(during, Duration::ZERO);
    assert_eq!(woke_at.get(), MILLISECOND * 50);
}

#[test]
fn wakers_work_from_another_thread() {
    let runtime = SimulatedRuntime::new(6);
    let mut is_woken = false;

    runtime.block_on(std::future::poll_fn(|context| {
        if is_woken {
            return Poll::Ready(());
        }
        is_woken = true;
        let waker = context.waker().clone();
        std::thread::spawn(move || waker.wake()).join().unwrap();
        Poll::Pending
    }));
}

#[test]
fn calls_happen_even_when_their_task_is_gone() {
    let runtime = SimulatedRuntime::new(9);
    let called = Rc::new(Cell::new(false));
    let seen = called.clone();
    let group = runtime.group();
    let scheduler = runtime.scheduler();
    group.spawn(Box::pin(async move {
        scheduler.call_after(MILLISECOND, move || seen.set(true));
    }));
    runtime.run_for(Duration::ZERO);

    group.kill();
    runtime.run_for(MILLISECOND);

    assert!(called.get());
}
