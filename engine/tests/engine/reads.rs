//! Reads as a caller sees them: whose memory they come in, scans, maps, checks switched off, slow readers, times.

use std::os::unix::fs::FileExt;
use std::rc::Rc;

use palisade_engine::engine::{Engine, IoChoice};
use palisade_engine::format::{RecordBatch, StoredBatch};
use palisade_engine::id::Offset;
use palisade_engine::io::arena::Arena;
use palisade_engine::io::clock::WallTime;
use palisade_engine::io::disk::Disk;
use palisade_engine::io::runtime::Runtime;
use palisade_engine::io::simulated::{SimulatedMachine, SimulatedRuntime};
use palisade_engine::partition::{AppendError, AppendOptions, Read, ReadError, Verification, Wait};
use palisade_engine::{EngineConfig, Partition};

use crate::support::{batch, config, name, partition, records, scratch, wait};

const RECORD_BYTES: usize = 1_000;
const RECORDS_A_BATCH: u64 = 8;

fn record(number: u64) -> Vec<u8> {
    let mut record = vec![number.to_le_bytes()[0]; RECORD_BYTES];
    record[..8].copy_from_slice(&number.to_le_bytes());
    record
}

fn fill(log: &Partition, batches: u64) {
    let start = log.watermarks().log_end.0;
    for number in 0..batches {
        let first = start + number * RECORDS_A_BATCH;
        let content: Vec<_> = (first..first + RECORDS_A_BATCH).map(record).collect();
        append(log, &batch(&content));
    }
}

/// Appends as a caller must who may meet a limit.
fn append(log: &Partition, batch: &RecordBatch) {
    for _ in 0..1_000 {
        match wait(log.append(batch.clone(), AppendOptions::default())) {
            Ok(_) => return,
            Err(AppendError::Busy { retry_after }) => {
                let end = Read::from(log.watermarks().committed);
                wait(log.read(Read { wait: Wait::UpTo(retry_after), ..end })).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("appends do not go on");
}

/// An engine of one shard over a log that lies on disk alone.
fn reopened(directory: &std::path::Path, batches: u64) -> (Engine, Partition) {
    let mut config = config(directory, IoChoice::Auto);
    config.shards = 1;
    let engine = Engine::open(config.clone()).unwrap();
    fill(&partition(&engine), batches);
    wait(engine.close()).unwrap();
    open(config)
}

fn open(config: EngineConfig) -> (Engine, Partition) {
    let engine = Engine::open(config).unwrap();
    let log = partition(&engine);
    (engine, log)
}

fn assert_records(batches: &[StoredBatch], expected: std::ops::Range<u64>) {
    let found = records(batches);
    assert_eq!(found.iter().map(|(at, _)| *at).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    assert!(found.iter().all(|(at, content)| *content == record(*at)));
}

fn scan(log: &Partition, bytes_max: usize) -> Vec<StoredBatch> {
    let (mut from, mut all) = (Offset(0), Vec::new());
    while from < log.watermarks().committed {
        let read = Read { bytes_max, ..Read::from(from) };
        let answer = wait(log.read(read)).unwrap();
        assert!(answer.next_offset > from);
        // Copies: what is kept must not hold the engine's memory.
        all.extend(answer.batches.iter().map(StoredBatch::copied));
        from = answer.next_offset;
    }
    all
}

/// Flips a byte of the record `number` in whichever segment holds it.
fn damage(directory: &std::path::Path, number: u64) {
    let content = record(number);
    let mut directories = vec![directory.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                directories.push(entry.path());
                continue;
            }
            let bytes = std::fs::read(entry.path()).unwrap();
            if let Some(at) = bytes.windows(content.len()).position(|window| window == content) {
                let file = std::fs::OpenOptions::new().write(true).open(entry.path()).unwrap();
                file.write_all_at(&[!bytes[at + 500]], at as u64 + 500).unwrap();
                return;
            }
        }
    }
    panic!("record {number} is in no file");
}

#[test]
fn scan_is_read_ahead_and_comes_whole_at_any_size_of_reads() {
    let directory = scratch();
    let (engine, log) = reopened(directory.path(), 400);
    let end = 400 * RECORDS_A_BATCH;

    for bytes_max in [1, 20_000, 64 << 10, 1 << 20] {
        assert_records(&scan(&log, bytes_max), 0..end);
    }

    let metrics = engine.metrics().shards[0];
    assert!(metrics.ahead_reads > 400, "{metrics:?}");
    assert_eq!(metrics.copied_reads, 0);
}

#[test]
fn two_scans_and_random_reads_between_them_do_not_disturb_each_other() {
    let directory = scratch();
    let (_engine, log) = reopened(directory.path(), 300);
    let end = 300 * RECORDS_A_BATCH;
    let mut random = fastrand::Rng::with_seed(3);
    let mut at = [Offset(0), Offset(end / 2)];

    while at[0].0 < end / 2 {
        for next in &mut at {
            let read = Read { bytes_max: 30_000, ..Read::from(*next) };
            let answer = wait(log.read(read)).unwrap();
            assert_records(&answer.batches, next.0..answer.next_offset.0);
            *next = answer.next_offset;
        }
        let from = random.u64(0..end);
        let answer = wait(log.read(Read { bytes_max: 1, ..Read::from(Offset(from)) })).unwrap();
        let first = from / RECORDS_A_BATCH * RECORDS_A_BATCH;
        assert_records(&answer.batches, first..first + RECORDS_A_BATCH);
    }

    assert_eq!(at[1], Offset(end));
}

#[test]
fn cut_takes_what_was_read_ahead_along() {
    let directory = scratch();
    let (_engine, log) = reopened(directory.path(), 200);
    let mut from = Offset(0);
    for _ in 0..3 {
        let read = Read { bytes_max: 30_000, ..Read::from(from) };
        from = wait(log.read(read)).unwrap().next_offset;
    }

    wait(log.truncate(from)).unwrap();
    let content: Vec<_> = (0..RECORDS_A_BATCH).map(|_| b"after the cut".to_vec()).collect();
    wait(log.append(batch(&content), AppendOptions::default())).unwrap();

    let answer = wait(log.read(Read::from(from))).unwrap();
    assert_eq!(answer.next_offset, log.watermarks().committed);
    assert!(records(&answer.batches).iter().all(|(_, content)| content == b"after the cut"));
}

// The reader keeps every answer while five times the arena is appended.
#[test]
fn reader_that_never_lets_go_does_not_stop_appends() {
    let directory = scratch();
    let mut config = config(directory.path(), IoChoice::Auto);
    config.shards = 1;
    config.arena_bytes = 4 << 20;
    let (engine, log) = open(config);
    let mut kept = Vec::new();
    let mut from = Offset(0);

    for _ in 0..5 * 4 * 16 {
        fill(&log, 8);
        let answer = wait(log.read(Read::from(from))).unwrap();
        from = answer.next_offset;
        kept.extend(answer.batches);
    }

    assert_records(&kept, 0..from.0);
    assert_eq!(from, log.watermarks().committed);
    let metrics = engine.metrics().shards[0];
    assert!(metrics.copied_reads > 0, "{metrics:?}");
    drop(kept);
    let before = engine.metrics().shards[0].copied_reads;
    fill(&log, 8);
    wait(log.read(Read::from(from))).unwrap();
    assert_eq!(engine.metrics().shards[0].copied_reads, before, "it is lent again");
}

#[test]
fn damaged_payload_is_named_whichever_way_it_is_met() {
    let directory = scratch();
    drop(reopened(directory.path(), 40));
    let damaged = 20 * RECORDS_A_BATCH + 3;
    damage(directory.path(), damaged);
    let (_engine, log) = open(config(directory.path(), IoChoice::Auto));
    let first = Offset(20 * RECORDS_A_BATCH);
    let behind = Offset(first.0 + RECORDS_A_BATCH);
    let assert_named = |error: ReadError| match error {
        ReadError::Corrupt { offsets, .. } => assert_eq!(offsets, first..behind),
        other => panic!("{other}"),
    };

    // In a scan: everything before it, then the damage by name, then everything behind it.
    let mut reader = log.reader(Offset(0));
    let mut before = Vec::new();
    let error = loop {
        match wait(reader.next()).unwrap() {
            Ok(batch) => before.push(batch),
            Err(error) => break error,
        }
    };
    assert_records(&before, 0..first.0);
    assert_named(error);
    reader.seek(behind);
    assert_eq!(wait(reader.next()).unwrap().unwrap().base_offset(), behind);

    // By a map.
    let mapped = wait(log.map_closed(first, Verification::Full)).unwrap();
    if let Some(mapped) = &mapped {
        assert_named(mapped.read(first, 1 << 20).unwrap_err());
        assert_eq!(mapped.read(behind, 1).unwrap().0[0].base_offset(), behind);
    }
    assert!(mapped.is_some());

    // Without verification it is handed out as it is, unless the engine is told otherwise for a read.
    let mut unchecked = config(directory.path(), IoChoice::Auto);
    unchecked.verify_payloads = false;
    drop((log, reader, _engine));
    let (_engine, log) = open(unchecked);
    let answer = wait(log.read(Read::from(first))).unwrap();
    assert_eq!(answer.batches[0].base_offset(), first);
    assert!(answer.batches[0].check_payload().is_err());
    let full = Read { verification: Verification::Full, ..Read::from(first) };
    assert_named(wait(log.read(full)).unwrap_err());
}

#[test]
fn closed_segments_are_read_from_maps_and_the_rest_from_the_shard() {
    let directory = scratch();
    let (engine, log) = reopened(directory.path(), 200);
    fill(&log, 10);
    let end = log.watermarks().committed.0;
    let cold_before = engine.metrics().shards[0].cold_reads;

    let mut reader = log.reader(Offset(0)).mapping_closed();
    let mut all = Vec::new();
    while let Some(batch) = wait(reader.next()) {
        all.push(batch.unwrap());
    }

    assert_records(&all, 0..end);
    let cold = engine.metrics().shards[0].cold_reads - cold_before;
    assert!(cold < 5, "{cold} cold reads beside the maps");
    assert!(wait(log.map_closed(Offset(end), Verification::Full)).unwrap().is_none());
}

#[test]
fn map_outlives_a_trim_and_the_engine() {
    let directory = scratch();
    let (engine, log) = reopened(directory.path(), 200);
    let mapped = wait(log.map_closed(Offset(9), Verification::AsConfigured)).unwrap().unwrap();
    let offsets = mapped.offsets();
    assert_eq!(offsets.start, Offset(0));

    wait(log.trim(log.watermarks().committed)).unwrap();
    let answer = mapped.read(Offset(0), usize::MAX).unwrap();
    assert!(matches!(
        wait(log.map_closed(Offset(9), Verification::Full)),
        Err(ReadError::BelowLogStart { .. })
    ));
    drop((engine, log));

    assert_records(&answer.0, 0..offsets.end.0);
    assert_eq!(answer.1, offsets.end);
    assert!(mapped.read(offsets.end, 1).unwrap().0.is_empty());
    let beyond = Offset(offsets.end.0 + 1);
    assert!(matches!(mapped.read(beyond, 1), Err(ReadError::BeyondEnd { .. })));
}

/// Overwrites the footer of every closed segment.
fn damage_footers(directory: &std::path::Path) -> usize {
    let mut damaged = 0;
    let mut directories = vec![directory.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                directories.push(entry.path());
                continue;
            }
            let bytes = std::fs::read(entry.path()).unwrap();
            let mut blocks = bytes.chunks(4096);
            if let Some(block) = blocks.position(|block| block.starts_with(b"PFTR")) {
                let file = std::fs::OpenOptions::new().write(true).open(entry.path()).unwrap();
                file.write_all_at(&[0xff; 200], block as u64 * 4096 + 4).unwrap();
                damaged += 1;
            }
        }
    }
    damaged
}

#[test]
fn time_look_ups_are_exact_in_memory_and_on_disk() {
    let directory = scratch();
    let (engine, log) = reopened(directory.path(), 60);
    fill(&log, 5);
    assert_time_look_ups(&log);

    let start = wait(log.trim(Offset(17 * RECORDS_A_BATCH))).unwrap();
    assert_eq!(wait(log.offset_at(WallTime::UNKNOWN)).unwrap(), start);
    drop(engine);
}

#[test]
fn time_look_ups_are_exact_when_footers_are_damaged() {
    let directory = scratch();
    drop(reopened(directory.path(), 60));
    assert!(damage_footers(directory.path()) > 0);

    let (_engine, log) = open(config(directory.path(), IoChoice::Auto));

    assert_time_look_ups(&log);
}

// In virtual time, which stands still between appends: several batches of one time.
#[test]
fn first_of_the_batches_of_one_time_is_found() {
    simulated(|log, runtime, _| async move {
        let mut last = WallTime::UNKNOWN;
        for round in 0..40_u64 {
            let appends: Vec<_> = (0..3)
                .map(|_| log.append(batch(&[vec![7; 9_000]]), AppendOptions::default()))
                .collect();
            for append in appends {
                append.await.unwrap();
            }
            let answer = log.read(Read::from(Offset(3 * round))).await.unwrap();
            let times: Vec<_> = answer.batches.iter().map(StoredBatch::append_time).collect();
            assert!(times.iter().all(|time| *time == times[0] && *time > last), "{times:?}");
            last = times[0];
            assert_eq!(log.offset_at(last).await.unwrap(), Offset(3 * round));
            assert_eq!(log.offset_at(WallTime(last.0 + 1)).await.unwrap(), Offset(3 * round + 3));
            runtime.sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

// DESIGN 4, memory: one copy in and none out. The bytes lie in the arena, in one place however often they are
// read, and reading takes no memory of it.
#[test]
fn tail_reads_are_the_very_bytes_of_the_arena() {
    simulated(|log, _, arena| async move {
        for _ in 0..20 {
            log.append(batch(&[vec![7; 100_000]]), AppendOptions::default()).await.unwrap();
        }
        let available = arena.available_bytes();

        let once = log.read(Read::from(Offset(10))).await.unwrap();
        let again = log.read(Read::from(Offset(10))).await.unwrap();

        assert_eq!(once.batches.len(), 10);
        for (once, again) in once.batches.iter().zip(&again.batches) {
            assert!(arena.contains(once.bytes()));
            assert_eq!(once.bytes().as_ptr_range(), again.bytes().as_ptr_range());
        }
        assert_eq!(arena.available_bytes(), available);
    });
}

/// Runs on a simulated machine, where the arena can be looked into.
fn simulated<F: Future<Output = ()>>(work: impl FnOnce(Partition, Rc<dyn Runtime>, Arena) -> F) {
    let runtime = SimulatedRuntime::new(1);
    let machine = SimulatedMachine::alone(&runtime);
    runtime.block_on(async {
        let environment = machine.environment(16 << 20);
        let arena = environment.disk.arena().clone();
        let timer = environment.runtime.clone();
        let mut config = config(std::path::Path::new("/data"), IoChoice::Auto);
        config.shards = 1;
        let engine = Engine::open_on(vec![environment], config).await.unwrap();
        let log = engine.open_partition(&name("orders/0")).await.unwrap();
        work(log, timer, arena).await;
        engine.close().await.unwrap();
    });
}

/// Compares look-ups at, before and after the time of every batch with a plain search.
fn assert_time_look_ups(log: &Partition) {
    let end = log.watermarks().committed;
    let batches = scan(log, 1 << 20);
    let first_at = |time: WallTime| {
        let found = batches.iter().find(|batch| batch.append_time() >= time);
        found.map_or(end, StoredBatch::base_offset)
    };

    let times = batches.iter().flat_map(|batch| {
        let time = batch.append_time().0;
        [WallTime(time - 1), WallTime(time), WallTime(time + 1)]
    });
    for time in times {
        assert_eq!(wait(log.offset_at(time)).unwrap(), first_at(time), "{time:?}");
    }
    assert_eq!(wait(log.offset_at(WallTime::UNKNOWN)).unwrap(), Offset(0));
    assert_eq!(wait(log.offset_at(WallTime(u64::MAX))).unwrap(), end);
}
