//! The rules of [`Runtime`].

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join3;

use crate::io::runtime::Runtime;

/// Checks `runtime` from inside one of its tasks.
///
/// # Panics
///
/// Where the runtime breaks a rule.
pub async fn check_runtime(runtime: &Rc<dyn Runtime>) {
    turn_lets_ready_tasks_run(runtime).await;
    tasks_may_spawn_tasks(runtime).await;
    wakes_are_not_lost(runtime).await;
    sleeps_end_in_order(runtime).await;
}

async fn turn_lets_ready_tasks_run(runtime: &Rc<dyn Runtime>) {
    let ran = Rc::new(Cell::new(0));
    for _ in 0..10 {
        let ran = Rc::clone(&ran);
        runtime.spawn(Box::pin(async move { ran.set(ran.get() + 1) }));
    }
    assert_eq!(ran.get(), 0, "a task does not run inside spawn");

    runtime.turn().await;

    assert_eq!(ran.get(), 10);
}

async fn tasks_may_spawn_tasks(runtime: &Rc<dyn Runtime>) {
    let ran = Rc::new(Cell::new(false));
    let (inner, inner_runtime) = (Rc::clone(&ran), Rc::clone(runtime));
    runtime.spawn(Box::pin(async move {
        let task = Box::pin(async move { inner.set(true) });
        inner_runtime.spawn(task);
    }));

    runtime.turn().await;
    runtime.turn().await;

    assert!(ran.get());
}

/// A task that gives its turn away and wakes itself goes on, a thousand times.
async fn wakes_are_not_lost(runtime: &Rc<dyn Runtime>) {
    let rounds = Rc::new(Cell::new(0));
    let counted = Rc::clone(&rounds);
    runtime.spawn(Box::pin(poll_fn(move |context| {
        counted.set(counted.get() + 1);
        if counted.get() == 1000 {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })));

    for _ in 0..1000 {
        runtime.turn().await;
    }

    assert_eq!(rounds.get(), 1000);
}

async fn sleeps_end_in_order(runtime: &Rc<dyn Runtime>) {
    let ended = Rc::new(Cell::new(0));
    let sleep = |milliseconds, place| {
        let ended = Rc::clone(&ended);
        let sleep = runtime.sleep(Duration::from_millis(milliseconds));
        async move {
            sleep.await;
            assert_eq!(ended.get(), place, "a longer sleep ended before a shorter one");
            ended.set(place + 1);
        }
    };
    drop(runtime.sleep(Duration::from_secs(3600)));

    join3(sleep(40, 2), sleep(20, 1), sleep(0, 0)).await;

    assert_eq!(ended.get(), 3);
}
