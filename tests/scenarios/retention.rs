//! L14: what a client says about time expires nothing and keeps nothing.

use std::time::Duration;

use palisade_engine::engine::Partition;
use palisade_engine::id::Offset;
use palisade_engine::io::clock::WallTime;
use palisade_engine::partition::AppendOptions;
use palisade_tests::{RealWorld, SimulatedWorld, Workload, World, batch, read_log};

use crate::TARGET;

const TEN_YEARS_US: u64 = 10 * 365 * 24 * 3_600 * 1_000_000;

async fn append_from_the_future(partition: &Partition, now: WallTime, workload: &mut Workload) {
    let options =
        AppendOptions { client_time: WallTime(now.0 + TEN_YEARS_US), ..AppendOptions::default() };
    let records = [workload.record(200)];
    partition.append(batch(&records), options).await.expect("nothing is wrong");
}

/// For rising times the offsets found never fall, and the client's time plays no part.
async fn assert_seeks_rise(partition: &Partition) {
    let log = read_log(partition).await.expect("it is readable");
    let times: Vec<_> = log.batches.iter().map(|batch| batch.append_time()).collect();
    assert!(times.is_sorted());
    let around = |time: &WallTime| [time.0 - 1, time.0, time.0 + 1];
    let mut probes: Vec<u64> = times.iter().flat_map(around).collect();
    probes.sort_unstable();
    let mut last = Offset::ZERO;
    for probe in probes {
        let found = partition.offset_at(WallTime(probe)).await.expect("nothing is wrong");
        assert!(found >= last, "{found} after {last}");
        last = found;
    }
    for (time, batch) in times.iter().zip(&log.batches) {
        let found = partition.offset_at(*time).await.expect("nothing is wrong");
        assert!(found <= batch.base_offset(), "{found} for {}", batch.base_offset());
    }
    let beyond = WallTime(times.last().map_or(0, |time| time.0) + TEN_YEARS_US / 2);
    let end = partition.offset_at(beyond).await.expect("nothing is wrong");
    assert_eq!(end.0, log.committed);
}

#[test]
fn l14_old_segments_expire_by_server_time() {
    let world = SimulatedWorld::new(14);
    let engine = world
        .open_as(|config| config.settings.retention.age_max = Some(Duration::from_secs(3_600)))
        .expect("the engine opens");
    let partition = world.partition(&engine);
    let mut workload = Workload::new(14);
    let clock = engine.clock();
    world.run(async {
        for _ in 0..3 {
            append_from_the_future(&partition, clock.wall(), &mut workload).await;
            partition.roll().await.expect("nothing is wrong");
        }
        append_from_the_future(&partition, clock.wall(), &mut workload).await;
        assert_seeks_rise(&partition).await;
        assert_eq!(partition.apply_retention().await.expect("it works"), Offset::ZERO);
    });

    world.runtime().run_for(Duration::from_secs(1_800));
    world.run(append_from_the_future(&partition, clock.wall(), &mut workload));
    world.runtime().run_for(Duration::from_secs(1_801));

    // An hour and a second: the three closed segments are gone, the one with the younger record stays.
    let start = world.run(partition.apply_retention()).expect("it works");
    assert_eq!(start, Offset(3));
    world.run(assert_seeks_rise(&partition));
    world.close(engine);
    let engine = world.open();
    let partition = world.partition(&engine);
    let log = world.run(read_log(&partition)).expect("it is readable");
    assert_eq!((log.log_start, log.committed), (3, 5));
    world.run(assert_seeks_rise(&partition));
    world.close(engine);
}

/// The server's clock jumps back: times along the log stay in order all the same.
#[test]
fn l14_seek_by_time_stays_monotone_when_the_clock_jumps() {
    let world = SimulatedWorld::new(15);
    let engine = world.open();
    let partition = world.partition(&engine);
    let mut workload = Workload::new(15);
    let clock = engine.clock();
    for round in 0..6 {
        world.run(append_from_the_future(&partition, clock.wall(), &mut workload));
        if round % 2 == 0 {
            world.machine().clock().jump_wall_back(Duration::from_secs(600));
        }
        world.runtime().run_for(Duration::from_secs(60));
        if round == 3 {
            world.run(partition.roll()).expect("nothing is wrong");
        }
    }

    world.run(assert_seeks_rise(&partition));
    world.close(engine);
}

#[test]
fn l14_segments_on_real_files_expire_by_server_time() {
    let world = RealWorld::new(TARGET);
    let engine = world
        .open_as(|config| config.settings.retention.age_max = Some(Duration::from_micros(1)))
        .expect("the engine opens");
    let partition = world.partition(&engine);
    let mut workload = Workload::new(16);
    let clock = engine.clock();
    world.run(async {
        for _ in 0..3 {
            append_from_the_future(&partition, clock.wall(), &mut workload).await;
            assert_seeks_rise(&partition).await;
            partition.roll().await.expect("nothing is wrong");
        }
        // A microsecond passes; the deadline of the run is the only other limit.
        while partition.apply_retention().await.expect("it works") < Offset(3) {}
        append_from_the_future(&partition, clock.wall(), &mut workload).await;
    });
    let log = world.run(read_log(&partition)).expect("it is readable");
    assert_eq!((log.log_start, log.committed), (3, 4));
    world.close(engine);
}
