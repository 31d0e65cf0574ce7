//! Files of removed segments become new segments: with crashes at every step, with maps held, with a full disk.

use std::time::Duration;

use bytes::Bytes;
use palisade_engine::engine::{Engine, EngineConfig, ShardMetrics};
use palisade_engine::id::Offset;
use palisade_engine::io::disk::DiskOperation;
use palisade_engine::io::simulated::{Fault, FaultKind};
use palisade_engine::partition::{AppendOptions, Verification};
use palisade_tests::world::name;
use palisade_tests::{
    ReadLog, RealWorld, SimulatedWorld, Workload, World, batch, crash_everywhere, crash_in,
    read_log, segment_files,
};

use crate::TARGET;

const RECORD_BYTES: usize = 30_000;

/// One partition, all that was ever asked of it, and what has been said about it.
struct Kept {
    name: &'static str,
    workload: Workload,
    asked: Vec<Bytes>,
    promised: u64,
    trimmed: u64,
}

impl Kept {
    fn pair() -> [Kept; 2] {
        ["s/0", "t/0"].map(|name| Kept {
            name,
            workload: Workload::new(name.as_bytes()[0].into()),
            asked: Vec::new(),
            promised: 0,
            trimmed: 0,
        })
    }

    /// Appends three records and trims all but the last: the segments before go.
    async fn turn(&mut self, engine: &Engine) {
        let partition = engine.open_partition(&name(self.name)).await.expect("nothing is wrong");
        for _ in 0..3 {
            let record = self.workload.record(RECORD_BYTES);
            self.asked.push(record.clone());
            let append = partition.append(batch(&[record]), AppendOptions::default());
            self.promised = append.await.expect("nothing is wrong").base_offset.0 + 1;
        }
        let to = self.promised - 1;
        partition.trim(Offset(to)).await.expect("nothing is wrong");
        self.trimmed = to;
    }

    /// The log holds its own records, each at its place, and all that were promised.
    fn check(&mut self, log: &ReadLog) {
        assert!(log.committed >= self.promised, "{}: {} are left", self.name, log.committed);
        assert!(log.log_start >= self.trimmed);
        assert!(log.damage.is_empty(), "{:?}", log.damage);
        for (offset, record) in log.records() {
            let asked = usize::try_from(offset).expect("few records");
            assert!(record == self.asked[asked], "{}: another record at {offset}", self.name);
        }
        self.promised = log.committed;
        self.asked.truncate(usize::try_from(log.committed).expect("few records"));
    }
}

fn small(config: &mut EngineConfig) {
    config.settings.first_segment_bytes = 64 << 10;
    config.settings.segment_bytes = 64 << 10;
}

async fn turns(engine: &Engine, logs: &mut [Kept; 2], count: usize) {
    for _ in 0..count {
        for log in logs.iter_mut() {
            log.turn(engine).await;
        }
    }
}

fn check_all(world: &impl World, engine: &Engine, logs: &mut [Kept; 2]) {
    for kept in logs {
        if let Some(partition) = engine.find(&name(kept.name)) {
            kept.check(&world.run(read_log(&partition)).expect("it is readable"));
        } else {
            assert_eq!(kept.promised, 0);
        }
    }
}

fn files_named(world: &impl World, extension: &str) -> usize {
    let is_named = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == extension);
    world.files().iter().filter(|path| is_named(path)).count()
}

fn metrics(engine: &Engine) -> ShardMetrics {
    engine.metrics().shards[0]
}

fn recycle_kill_and_go_on(world: &impl World) {
    let engine = world.open_as(small).expect("the engine opens");
    let mut logs = Kept::pair();
    world.run(turns(&engine, &mut logs, 8));
    assert!(metrics(&engine).recycled_segments >= 6, "{:?}", metrics(&engine));
    check_all(world, &engine, &mut logs);
    world.kill(engine);

    let engine = world.open_as(small).expect("the engine opens");
    assert!(engine.report().set_aside.is_empty(), "{:?}", engine.report().set_aside);
    assert_eq!(files_named(world, "recycled"), 0, "a killed run may still write into them");
    check_all(world, &engine, &mut logs);
    let before = metrics(&engine).recycled_bytes;
    assert_eq!(before, 0);
    world.run(turns(&engine, &mut logs, 4));
    assert!(metrics(&engine).recycled_segments > 0);
    check_all(world, &engine, &mut logs);
    world.close(engine);
    assert_eq!(files_named(world, "recycled"), 0);

    let engine = world.open_as(small).expect("the engine opens");
    check_all(world, &engine, &mut logs);
    world.close(engine);
}

#[test]
fn log_in_recycled_files_is_whole_after_a_kill_and_a_close() {
    recycle_kill_and_go_on(&SimulatedWorld::new(41));
}

#[test]
fn log_in_recycled_files_on_the_real_disk_is_whole_after_a_kill_and_a_close() {
    recycle_kill_and_go_on(&RealWorld::new(TARGET));
}

#[test]
fn crash_at_every_step_of_recycling_loses_nothing_and_leaves_nothing_odd() {
    crash_everywhere(|world, operation, crash| {
        let mut logs = Kept::pair();
        let engine = world.open_as(small).expect("the engine opens");
        world.run(turns(&engine, &mut logs, 2));
        crash_in(world, operation);
        let has_crashed = world.run_to_crash(turns(&engine, &mut logs, 1));
        assert!(has_crashed || metrics(&engine).recycled_segments > 0);
        if !has_crashed {
            return false;
        }
        world.crash(crash);
        drop(engine);

        let engine = world.open_as(small).expect("the engine opens");
        assert!(engine.report().set_aside.is_empty(), "{:?}", engine.report().set_aside);
        assert_eq!(files_named(world, "recycled"), 0);
        check_all(world, &engine, &mut logs);
        world.run(turns(&engine, &mut logs, 1));
        check_all(world, &engine, &mut logs);
        world.close(engine);
        true
    });
}

#[test]
fn map_of_a_removed_segment_keeps_its_bytes_while_others_are_recycled() {
    let world = RealWorld::new(TARGET);
    let engine = world.open_as(small).expect("the engine opens");
    let mut logs = Kept::pair();
    let partition = world.partition(&engine);
    let log = &mut logs[0];
    let first = log.workload.record(RECORD_BYTES);
    let mapped = world.run(async {
        partition
            .append(batch(std::slice::from_ref(&first)), AppendOptions::default())
            .await
            .expect("it works");
        partition.roll().await.expect("it works");
        partition.map_closed(Offset(0), Verification::Full).await.expect("it works")
    });
    let mapped = mapped.expect("it is closed");
    log.asked.push(first.clone());

    world.run(async {
        for _ in 0..8 {
            log.turn(&engine).await;
        }
    });

    assert!(metrics(&engine).recycled_segments >= 3);
    let (batches, _) = mapped.read(Offset(0), 1 << 20).expect("the map holds it");
    let (_, record) = batches[0].iter().next().expect("it has one record");
    assert!(record == &first[..]);
    drop(mapped);
    world.close(engine);
}

#[test]
fn recycled_files_are_kept_up_to_their_limit() {
    let world = SimulatedWorld::new(42);
    for (bytes_max, is_recycled) in [(0, false), (100 << 10, true)] {
        let engine = world.open_as(|config| {
            small(config);
            config.limits.recycled_bytes_max = bytes_max;
        });
        let engine = engine.expect("the engine opens");
        let mut logs = Kept::pair();
        let partition = world.partition(&engine);
        let end = partition.watermarks().log_end;
        world.run(partition.trim(end)).expect("it works");
        for kept in &mut logs {
            let found = engine.find(&name(kept.name)).map(|found| found.watermarks().log_end.0);
            let base = usize::try_from(found.unwrap_or(0)).expect("few records");
            kept.asked = vec![Bytes::new(); base];
            kept.promised = base as u64;
        }
        world.run(async {
            for _ in 0..6 {
                turns(&engine, &mut logs, 1).await;
                assert!(metrics(&engine).recycled_bytes <= bytes_max);
            }
        });
        assert_eq!(metrics(&engine).recycled_segments > 0, is_recycled);
        world.close(engine);
    }
}

#[test]
fn recycled_files_go_when_a_segment_finds_no_room() {
    let world = SimulatedWorld::new(43);
    let engine = world.open_as(small).expect("the engine opens");
    let mut logs = Kept::pair();
    let partition = world.partition(&engine);
    world.run(async {
        logs[0].turn(&engine).await;
        logs[0].turn(&engine).await;
        partition.roll().await.expect("it works");
        partition.trim(partition.watermarks().committed).await.expect("it works");
    });
    assert!(metrics(&engine).recycled_bytes > 0);
    assert!(files_named(&world, "recycled") > 0);

    // The other partition has none of its own.
    let full = Fault::new(DiskOperation::Write, FaultKind::NoSpace);
    world.storage().inject(full.with_extension("segment"));
    let appended = world.run(async {
        let other = engine.open_partition(&name("t/0")).await.expect("nothing is wrong");
        other.append(batch(&["room".into()]), AppendOptions::default()).await
    });

    appended.expect("there was room once they were gone");
    assert_eq!((metrics(&engine).recycled_bytes, files_named(&world, "recycled")), (0, 0));
    world.close(engine);
}

#[test]
fn every_byte_taken_in_advance_is_counted() {
    let world = SimulatedWorld::new(44);
    let engine = world.open_as(small).expect("the engine opens");
    let mut logs = Kept::pair();
    let partition = world.partition(&engine);
    let other = world.run(async {
        logs[0].turn(&engine).await;
        logs[0].turn(&engine).await;
        partition.roll().await.expect("it works");
        partition.trim(partition.watermarks().committed).await.expect("it works");
        let other = engine.open_partition(&name("t/0")).await.expect("nothing is wrong");
        let append = other.append(batch(&["one".into()]), AppendOptions::default());
        append.await.expect("nothing is wrong");
        other
    });
    // The watchdog counts, and the journal is made, meanwhile.
    world.runtime().run_for(Duration::from_secs(2));

    let stream = other.id().stream.to_string();
    let filled = segment_files(&world).into_iter().filter(|file| {
        file.path.components().any(|component| component.as_os_str() == stream.as_str())
    });
    let filled_bytes: u64 = filled.map(|file| file.end_position()).sum();
    let kinds = ["segment", "recycled", "journal"];
    let is_counted = |path: &&std::path::PathBuf| {
        path.extension().is_some_and(|found| kinds.iter().any(|kind| found == *kind))
    };
    let files = world.files();
    let lengths = files.iter().filter(is_counted).map(|path| world.read_file(path).len() as u64);
    let taken_bytes: u64 = lengths.sum();
    let found = metrics(&engine);
    assert!(filled_bytes > 0 && found.recycled_bytes > 0 && found.journal_file_bytes > 0);
    assert!(found.unfilled_bytes > 0 && found.next_segment_bytes > 0);
    assert_eq!(found.preallocated_bytes(), taken_bytes - filled_bytes, "{found:?}");
    let of_partitions: u64 = engine.partitions().iter().map(|one| one.preallocated_bytes).sum();
    assert_eq!(of_partitions, found.unfilled_bytes + found.next_segment_bytes);
    world.close(engine);
}
