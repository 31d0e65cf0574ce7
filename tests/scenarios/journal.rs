//! The shard's journal: what only it holds survives a kill, is read offline, and is missed aloud when damaged.
//! An error on it stops every partition of the shard.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use palisade_engine::Engine;
use palisade_engine::engine::Partition;
use palisade_engine::format::{FIRST_FRAME_POSITION, FRAME_HEADER_BYTES};
use palisade_engine::io::disk::DiskOperation;
use palisade_engine::io::simulated::{Fault, FaultKind};
use palisade_engine::offline;
use palisade_engine::partition::{AppendError, AppendOptions};
use palisade_tests::world::name;
use palisade_tests::{RealWorld, SimulatedWorld, Workload, World, batch, read_log};

use crate::TARGET;

const PARTITIONS: usize = 6;

/// Rounds within which the journal is made and used.
const ROUNDS_MAX: usize = 5_000;

/// A partition and the records that were acknowledged in it.
struct Served {
    partition: Partition,
    acknowledged: Vec<Bytes>,
}

fn serve(world: &impl World, engine: &Engine) -> Vec<Served> {
    let open = |index| {
        let partition = world.run(engine.open_partition(&name(&format!("s/{index}"))));
        Served { partition: partition.expect("it opens"), acknowledged: Vec::new() }
    };
    (0..PARTITIONS).map(open).collect()
}

/// Appends a small record to every partition at once. Returns what was refused.
fn append_everywhere(
    world: &impl World,
    served: &mut [Served],
    workload: &mut Workload,
) -> Vec<AppendError> {
    let appends: Vec<_> = served
        .iter()
        .map(|served| {
            let record = workload.record(100);
            let batch = batch(std::slice::from_ref(&record));
            (served.partition.append(batch, AppendOptions::default()), record)
        })
        .collect();
    let mut refused = Vec::new();
    for (served, (append, record)) in served.iter_mut().zip(appends) {
        match world.run(append) {
            Ok(_) => served.acknowledged.push(record),
            Err(error) => refused.push(error),
        }
    }
    refused
}

/// Appends until the journal has taken so many frames.
fn append_until_journaled(
    world: &impl World,
    engine: &Engine,
    served: &mut [Served],
    workload: &mut Workload,
    frames: u64,
) {
    for _ in 0..ROUNDS_MAX {
        assert_eq!(append_everywhere(world, served, workload).len(), 0);
        if engine.metrics().shards[0].journal_frames >= frames {
            return;
        }
    }
    panic!("the journal was not used: {:?}", engine.metrics());
}

fn read_offline(world: &RealWorld, index: usize) -> Vec<Bytes> {
    let read: Arc<Mutex<Vec<Bytes>>> = Arc::default();
    let taken = read.clone();
    offline::read(&world.directory(), &name(&format!("s/{index}")), None, move |batch| {
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.extend(batch.iter().map(|(_, record)| Bytes::copy_from_slice(record)));
        ControlFlow::Continue(())
    })
    .expect("it can be read");
    std::mem::take(&mut read.lock().unwrap_or_else(PoisonError::into_inner))
}

fn journals(world: &impl World) -> Vec<std::path::PathBuf> {
    let mut files = world.files();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "journal"));
    files
}

#[test]
fn journaled_records_survive_a_kill_and_are_read_offline() {
    let world = RealWorld::new(TARGET);
    let engine = world.open();
    let mut served = serve(&world, &engine);
    let mut workload = Workload::new(40);
    append_until_journaled(&world, &engine, &mut served, &mut workload, 20);
    let acknowledged: Vec<_> = served.into_iter().map(|served| served.acknowledged).collect();
    world.kill(engine);

    for (index, acknowledged) in acknowledged.iter().enumerate() {
        assert!(read_offline(&world, index) == *acknowledged, "s/{index} offline");
    }
    let verified = offline::verify(&world.directory(), None).expect("it can be walked");
    let records: u64 = verified.partitions.iter().map(|partition| partition.records).sum();
    assert_eq!(records, acknowledged.iter().map(|records| records.len() as u64).sum::<u64>());

    for _ in 0..2 {
        let engine = world.open();
        for (served, acknowledged) in serve(&world, &engine).iter().zip(&acknowledged) {
            let log = world.run(read_log(&served.partition)).expect("it is readable");
            assert!(log.whole() == *acknowledged);
        }
        world.close(engine);
        assert_eq!(journals(&world), Vec::<std::path::PathBuf>::new(), "nothing needs them now");
    }
}

#[test]
fn damaged_frame_is_reported_and_the_journal_kept() {
    let world = RealWorld::new(TARGET);
    let engine = world.open();
    let mut served = serve(&world, &engine);
    let mut workload = Workload::new(41);
    append_until_journaled(&world, &engine, &mut served, &mut workload, 20);
    let acknowledged: Vec<_> = served.into_iter().map(|served| served.acknowledged).collect();
    world.kill(engine);
    let journal = journals(&world).remove(0);
    world.flip(&journal, FIRST_FRAME_POSITION.0 + FRAME_HEADER_BYTES as u64 + 120, 0x10);

    let engine = world.open();
    let lost = engine.report().partitions.iter().filter(|opened| {
        opened.recovery.as_ref().is_some_and(|recovery| recovery.lost_end.is_some())
    });
    assert!(lost.count() > 0, "{:?}", engine.report());
    for (served, acknowledged) in serve(&world, &engine).iter().zip(&acknowledged) {
        let found = world.run(read_log(&served.partition)).expect("it is readable").whole();
        assert!(acknowledged.starts_with(&found), "nothing else than what was appended");
    }
    world.close(engine);
    let kept = journals(&world);
    assert!(kept.iter().any(|path| path.to_string_lossy().contains("set-aside")), "{kept:?}");
}

#[test]
fn failed_write_of_the_journal_stops_every_partition_of_the_shard() {
    let world = SimulatedWorld::new(42);
    let engine = world.open();
    let mut served = serve(&world, &engine);
    let mut workload = Workload::new(42);
    append_until_journaled(&world, &engine, &mut served, &mut workload, 5);
    let fault = Fault::new(DiskOperation::Write, FaultKind::Io).with_extension("journal");
    world.storage().inject(fault);
    let mut refused = Vec::new();
    for _ in 0..ROUNDS_MAX {
        refused.extend(append_everywhere(&world, &mut served, &mut workload));
        if !refused.is_empty() {
            break;
        }
    }
    for served in &served {
        let append = served.partition.append(batch(&["late".into()]), AppendOptions::default());
        match world.run(append) {
            Err(AppendError::Stopped { .. }) => {}
            other => panic!("{:?} answered {other:?}", served.partition.name()),
        }
        // What was acknowledged stays readable although no segment has it.
        let log = world.run(read_log(&served.partition)).expect("it is readable");
        assert!(log.whole().starts_with(&served.acknowledged));
    }
    let acknowledged: Vec<_> = served.into_iter().map(|served| served.acknowledged).collect();
    world.kill(engine);

    let engine = world.open();
    for (served, acknowledged) in serve(&world, &engine).iter().zip(&acknowledged) {
        let log = world.run(read_log(&served.partition)).expect("it is readable");
        assert!(log.whole().starts_with(acknowledged));
    }
    world.close(engine);
}

/// Frames stay in memory until their groups are in segments. However many there are, the next one finds room.
#[test]
fn frames_in_memory_leave_room_for_the_next_one() {
    let world = SimulatedWorld::new(43);
    let engine = world.open();
    let mut served = serve(&world, &engine);
    let mut workload = Workload::new(43);
    append_until_journaled(&world, &engine, &mut served, &mut workload, 600);
    world.close(engine);
}

/// A partition that cannot be read at one open finds its journaled records at the next.
#[test]
fn journal_waits_for_a_partition_that_was_set_aside() {
    let world = SimulatedWorld::new(44);
    let engine = world.open();
    let mut served = serve(&world, &engine);
    let mut workload = Workload::new(44);
    append_until_journaled(&world, &engine, &mut served, &mut workload, 20);
    let acknowledged: Vec<_> = served.into_iter().map(|served| served.acknowledged).collect();
    world.kill(engine);

    let fault = Fault::new(DiskOperation::Read, FaultKind::Io).under("/data/streams");
    world.storage().inject(fault);
    let engine = world.open();
    assert_eq!(engine.report().set_aside.len(), 1, "{:?}", engine.report());
    world.close(engine);

    let engine = world.open();
    assert_eq!(engine.report().set_aside.len(), 0, "{:?}", engine.report());
    for (served, acknowledged) in serve(&world, &engine).iter().zip(&acknowledged) {
        let log = world.run(read_log(&served.partition)).expect("it is readable");
        assert!(log.whole() == *acknowledged);
    }
    world.close(engine);
}

/// Made when small groups of several partitions are there already, it would be made while all of these write and sync
/// files of their own.
#[test]
fn journal_is_made_when_the_second_partition_takes_appends() {
    let world = SimulatedWorld::new(71);
    let engine = world.open();
    let mut workload = Workload::new(71);
    let mut served = serve(&world, &engine);
    let journals = || {
        world.runtime().run_for(std::time::Duration::from_secs(5));
        let is_journal =
            |path: &&std::path::PathBuf| path.extension().is_some_and(|e| e == "journal");
        world.files().iter().filter(is_journal).count()
    };

    assert!(append_everywhere(&world, &mut served[..1], &mut workload).is_empty());
    assert_eq!(journals(), 0, "one partition alone needs none");
    assert!(append_everywhere(&world, &mut served[1..2], &mut workload).is_empty());

    assert_eq!(journals(), 1);
    drop(served);
    world.close(engine);
}
