//! Rolls, trims, cuts, retention and closing, each over a reopen.

use std::time::Duration;

use palisade_engine::Partition;
use palisade_engine::engine::Engine;
use palisade_engine::id::Offset;
use palisade_engine::io::clock::WallTime;
use palisade_engine::partition::{
    AppendError, AppendOptions, ChangeError, PartitionSettings, Read, ReadError, RetentionLimits,
};

use crate::support::{batch, config, open, partition, read_all, scratch, wait};

/// Appends batches of 10 records of 1 KiB each, retrying what is refused for the moment.
fn fill(log: &Partition, batches: usize) {
    wait(async {
        for _ in 0..batches {
            let first = log.watermarks().log_end.0;
            let all: Vec<_> = (first..first + 10).map(record).collect();
            loop {
                match log.append(batch(&all), AppendOptions::default()).await {
                    Ok(_) => break,
                    Err(AppendError::Busy { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
}

fn record(number: u64) -> Vec<u8> {
    let mut record = vec![b'.'; 1000];
    record[..20].copy_from_slice(format!("{number:020}").as_bytes());
    record
}

fn numbered(range: std::ops::Range<u64>) -> Vec<(u64, Vec<u8>)> {
    range.map(|number| (number, record(number))).collect()
}

#[test]
fn log_rolls_over_many_segments_and_reads_back() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);

    fill(&log, 200);
    assert!(engine.partitions()[0].segments > 4, "{:?}", engine.partitions());
    assert_eq!(read_all(&log, 0), numbered(0..2_000));
    wait(engine.close()).unwrap();
    drop((engine, log));

    let engine = open(directory.path());
    let log = partition(&engine);
    assert_eq!(read_all(&log, 0), numbered(0..2_000));
    fill(&log, 10);
    assert_eq!(read_all(&log, 1_990), numbered(1_990..2_100));
}

#[test]
fn roll_closes_the_active_segment() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);
    fill(&log, 1);

    assert_eq!(wait(log.roll()).unwrap(), Offset(10));
    assert_eq!(wait(log.roll()).unwrap(), Offset(10));
    fill(&log, 1);

    assert_eq!(engine.partitions()[0].segments, 2);
    assert_eq!(read_all(&log, 0), numbered(0..20));
}

#[test]
fn trim_drops_the_prefix_for_good() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);
    fill(&log, 100);
    let segments = engine.partitions()[0].segments;

    assert_eq!(wait(log.trim(Offset(777))).unwrap(), Offset(777));

    assert!(engine.partitions()[0].segments < segments);
    let below = wait(log.read(Read::from(Offset(776)))).unwrap_err();
    assert!(matches!(below, ReadError::BelowLogStart { log_start: Offset(777), .. }), "{below}");
    assert!(matches!(wait(log.trim(Offset(1_001))), Err(ChangeError::OutOfRange { .. })));
    wait(engine.close()).unwrap();
    drop((engine, log));
    let log = partition(&open(directory.path()));
    assert_eq!(log.watermarks().log_start, Offset(777));
    let answer = wait(log.read(Read::from(Offset(777)))).unwrap();
    assert!(answer.batches[0].base_offset() <= Offset(777));
}

#[test]
fn cut_drops_the_suffix_for_good() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);
    fill(&log, 100);

    assert_eq!(wait(log.truncate(Offset(420))).unwrap(), Offset(420));
    assert_eq!(log.watermarks().log_end, Offset(420));
    assert_eq!(read_all(&log, 0), numbered(0..420));
    fill(&log, 5);
    assert_eq!(read_all(&log, 400), numbered(400..470));
    assert_eq!(wait(log.truncate(Offset(470))).unwrap(), Offset(470));
    wait(engine.close()).unwrap();
    drop((engine, log));

    let log = partition(&open(directory.path()));
    assert_eq!(read_all(&log, 0), numbered(0..470));
    assert_eq!(wait(log.truncate(Offset(0))).unwrap(), Offset(0));
    fill(&log, 1);
    assert_eq!(read_all(&log, 0), numbered(0..10));
}

#[test]
fn cut_through_a_batch_is_refused_with_its_bounds() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);
    fill(&log, 3);

    let refused = wait(log.truncate(Offset(15))).unwrap_err();

    assert!(
        matches!(refused, ChangeError::OutOfRange { start: Offset(10), end: Offset(20), .. }),
        "{refused}"
    );
    assert_eq!(read_all(&log, 0), numbered(0..30));
}

#[test]
fn retention_by_bytes_removes_whole_segments() {
    let directory = scratch();
    let mut config = config(directory.path(), palisade_engine::engine::IoChoice::Auto);
    let retention = RetentionLimits { bytes_max: Some(300 << 10), age_max: None };
    config.settings = PartitionSettings { retention, ..config.settings };
    let engine = Engine::open(config).unwrap();
    let log = partition(&engine);
    fill(&log, 100);

    let start = wait(log.apply_retention()).unwrap();

    assert!(start > Offset(0));
    assert!(engine.partitions()[0].segment_bytes <= 600 << 10, "{:?}", engine.partitions());
    assert_eq!(read_all(&log, start.0), numbered(start.0..1_000));
}

#[test]
fn expired_active_segment_rolls_and_goes() {
    let directory = scratch();
    let mut config = config(directory.path(), palisade_engine::engine::IoChoice::Auto);
    let retention = RetentionLimits { bytes_max: None, age_max: Some(Duration::ZERO) };
    config.settings = PartitionSettings { retention, ..config.settings };
    let engine = Engine::open(config).unwrap();
    let log = partition(&engine);
    fill(&log, 1);

    assert_eq!(wait(log.apply_retention()).unwrap(), Offset(10));
    assert_eq!(engine.partitions()[0].segments, 0);
    fill(&log, 1);
    assert_eq!(log.watermarks().log_end, Offset(20));
}

#[test]
fn offset_is_found_by_time() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);
    fill(&log, 60);
    let time = wait(log.read(Read::from(Offset(300)))).unwrap().batches[0].append_time();

    let found = wait(log.offset_at(time)).unwrap();

    assert!(found <= Offset(300));
    let batches = wait(log.read(Read::from(found))).unwrap().batches;
    assert!(batches[0].append_time() >= time);
    assert_eq!(wait(log.offset_at(WallTime(1))).unwrap(), Offset(0));
    assert_eq!(wait(log.offset_at(WallTime(u64::MAX))).unwrap(), Offset(600));
}

#[test]
fn closed_partition_refuses_everything() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);
    fill(&log, 1);

    assert_eq!(wait(log.close_partition()).unwrap(), Offset(10));

    assert!(matches!(
        wait(log.append(batch(&["x"]), AppendOptions::default())),
        Err(AppendError::Closed)
    ));
    assert!(matches!(wait(log.read(Read::from(Offset(0)))), Err(ReadError::Closed)));
    assert!(matches!(wait(log.trim(Offset(1))), Err(ChangeError::Closed)));
}

#[test]
fn deleted_partition_leaves_no_files() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);
    fill(&log, 1);

    wait(engine.delete_partition(log.id())).unwrap();

    assert!(engine.find(log.name()).is_none());
    let stream = directory.path().join("streams").join(log.id().stream.to_string());
    assert_eq!(std::fs::read_dir(stream).unwrap().count(), 0);
}
