//! L35: the engine stops with reads and writes in flight; every future resolves.

use std::time::Duration;

use futures_util::future::{join, join_all};
use palisade_engine::Engine;
use palisade_engine::id::Offset;
use palisade_engine::partition::{AppendError, AppendOptions, Read, ReadError, Wait};
use palisade_tests::world::name;
use palisade_tests::{RealWorld, SimulatedWorld, Workload, World, batch, read_log};

use crate::TARGET;

/// Starts appends, reads of old records and waits at the tail, stops the engine under them, and waits for all.
async fn stop_under_load(engine: Engine, is_closed: bool) -> Vec<bytes::Bytes> {
    let partition = engine.open_partition(&name("s/0")).await.expect("nothing is wrong");
    let mut workload = Workload::new(35);
    for _ in 0..5 {
        let records = [workload.record(20_000)];
        let append = partition.append(batch(&records), AppendOptions::default());
        append.await.expect("nothing is wrong");
    }
    let more: Vec<_> = (0..40).map(|_| workload.record(10_000)).collect();
    let appends: Vec<_> = more
        .iter()
        .map(|record| {
            partition.append(batch(std::slice::from_ref(record)), AppendOptions::default())
        })
        .collect();
    let reader = partition.clone();
    let reads = join_all((0..5).map(|offset| reader.read(Read::from(Offset(offset)))));
    let tail = Read { wait: Wait::Forever, ..Read::from(Offset(45)) };
    let waits = join_all((0..3).map(|_| reader.read(tail)));
    let stop = async {
        if is_closed {
            engine.close().await.expect("it closes in order");
        }
        drop((engine, partition));
    };
    let ((answers, reads), (waits, ())) =
        join(join(join_all(appends), reads), join(waits, stop)).await;

    for read in reads {
        match read {
            Ok(answer) => assert!(!answer.batches.is_empty()),
            Err(ReadError::Closed | ReadError::Busy { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    for wait in waits {
        assert!(
            wait.is_ok() || matches!(wait, Err(ReadError::Closed | ReadError::BeyondEnd { .. }))
        );
    }
    let mut kept = Vec::new();
    for (answer, record) in answers.into_iter().zip(more) {
        match answer {
            Ok(appended) => {
                assert_eq!(appended.base_offset.0, 5 + kept.len() as u64);
                kept.push(record);
            }
            Err(AppendError::Closed | AppendError::Busy { .. }) => {}
            Err(error) => panic!("an orderly stop answered {error}"),
        }
    }
    kept
}

fn every_future_resolves(world: &impl World, is_closed: bool) {
    let engine = world.open();
    let kept = world.run(stop_under_load(engine, is_closed));

    let engine = world.open();
    assert!(engine.report().partitions[0].recovery.is_none(), "an orderly stop is clean");
    let log = world.run(read_log(&world.partition(&engine))).expect("it is readable").whole();
    assert!(log[5..] == kept[..], "{} records are left of {}", log.len(), kept.len() + 5);
    world.close(engine);
}

#[test]
fn l35_engine_that_closes_under_load_resolves_every_future() {
    for seed in 0..20 {
        every_future_resolves(&SimulatedWorld::new(seed), true);
    }
    for _ in 0..5 {
        every_future_resolves(&RealWorld::new(TARGET), true);
    }
}

/// The shard is gone without a word: who waits for an append learns that nobody knows.
#[test]
fn l35_process_that_dies_under_load_leaves_no_future_hanging() {
    for seed in 0..20 {
        let world = SimulatedWorld::new(seed);
        let engine = world.open();
        let partition = world.partition(&engine);
        let mut workload = Workload::new(seed);
        let appends: Vec<_> = (0..30)
            .map(|_| {
                let records = [workload.record(10_000)];
                partition.append(batch(&records), AppendOptions::default())
            })
            .collect();
        world.runtime().run_for(Duration::from_micros(seed * 150));

        world.machine().kill_process();

        for answer in world.run(join_all(appends)) {
            assert!(
                matches!(
                    answer,
                    Ok(_) | Err(AppendError::Unknown { .. } | AppendError::Busy { .. })
                ),
                "{answer:?}"
            );
        }
        drop((partition, engine));
        drop(world.open());
    }
}
