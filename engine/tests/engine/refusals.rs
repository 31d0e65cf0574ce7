//! What is refused, and that nothing is lost by it.

use palisade_engine::engine::{Coordinator, Engine, IoChoice, OpenError};
use palisade_engine::format::{BATCH_BYTES_MAX, RecordBatch};
use palisade_engine::id::{NodeId, Offset};
use palisade_engine::partition::{AppendError, AppendOptions, Read, ReadError};

use crate::support::{batch, config, open, partition, read_all, scratch, wait};

#[test]
fn refused_batches_leave_the_log_unchanged() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);
    wait(log.append(batch(&["first"]), AppendOptions::default())).unwrap();

    let empty = wait(log.append(RecordBatch::builder().finish(), AppendOptions::default()));
    assert!(matches!(empty, Err(AppendError::EmptyBatch)));
    assert!(RecordBatch::single(&vec![0; BATCH_BYTES_MAX]).is_err());
    let options = AppendOptions { expected_offset: Some(Offset(7)), ..AppendOptions::default() };
    let mismatch = wait(log.append(batch(&["no"]), options));
    assert!(matches!(
        mismatch,
        Err(AppendError::OffsetMismatch { expected: Offset(7), log_end: Offset(1) })
    ));

    let options = AppendOptions { expected_offset: Some(Offset(1)), ..AppendOptions::default() };
    wait(log.append(batch(&["second"]), options)).unwrap();
    assert_eq!(read_all(&log, 0), vec![(0, b"first".to_vec()), (1, b"second".to_vec())]);
}

#[test]
fn records_of_zero_bytes_are_records() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);

    wait(log.append(batch(&["", "x", ""]), AppendOptions::default())).unwrap();

    assert_eq!(read_all(&log, 0), vec![(0, vec![]), (1, b"x".to_vec()), (2, vec![])]);
}

// L27: larger than a segment, and larger than what the arena can hold.
#[test]
fn batch_longer_than_a_segment_is_stored_and_one_longer_than_the_arena_is_refused() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);
    let long = vec![7; 1 << 20];

    wait(log.append(batch(&["small"]), AppendOptions::default())).unwrap();
    for _ in 0..3 {
        wait(log.append(RecordBatch::single(&long).unwrap(), AppendOptions::default())).unwrap();
    }

    assert_eq!(read_all(&log, 1)[0].1, long);
    wait(engine.close()).unwrap();
    drop((engine, log));
    let mut small = config(directory.path(), IoChoice::Auto);
    small.arena_bytes = 2 << 20;
    let engine = Engine::open(small).unwrap();
    let log = partition(&engine);
    let refused = wait(log.append(RecordBatch::single(&long).unwrap(), AppendOptions::default()));
    assert!(matches!(refused, Err(AppendError::BatchTooLarge { .. })), "{refused:?}");
    wait(log.append(batch(&["after"]), AppendOptions::default())).unwrap();
    assert_eq!(read_all(&log, 4), vec![(4, b"after".to_vec())]);
}

#[test]
fn offsets_out_of_range_are_refused() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);
    wait(log.append(batch(&["a"]), AppendOptions::default())).unwrap();

    let beyond = wait(log.read(Read::from(Offset(2)))).unwrap_err();

    assert!(matches!(beyond, ReadError::BeyondEnd { committed: Offset(1), .. }));
    assert!(wait(log.read(Read::from(Offset(1)))).unwrap().batches.is_empty());
}

#[test]
fn full_mailbox_and_limits_answer_busy() {
    let directory = scratch();
    let mut config = config(directory.path(), IoChoice::Auto);
    config.limits.appends_in_flight_max = 8;
    let engine = Engine::open(config).unwrap();
    let log = partition(&engine);

    let appends: Vec<_> =
        (0..5_000).map(|_| log.append(batch(&["x"]), AppendOptions::default())).collect();
    let answers: Vec<_> = appends.into_iter().map(|append| append.wait()).collect();

    assert!(answers.iter().any(Result::is_ok));
    let busy = |answer: &Result<_, AppendError>| matches!(answer, Err(AppendError::Busy { .. }));
    assert!(answers.iter().any(busy));
    assert!(answers.iter().all(|answer| answer.is_ok() || busy(answer)));
    let stored = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(read_all(&log, 0).len(), stored);
}

#[test]
fn second_engine_on_a_directory_is_refused() {
    let directory = scratch();
    let engine = open(directory.path());

    let refused = Engine::open(config(directory.path(), IoChoice::Auto)).unwrap_err();

    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    wait(engine.close()).unwrap();
    Engine::open(config(directory.path(), IoChoice::Auto)).unwrap();
}

#[test]
fn other_mode_and_other_cluster_are_refused() {
    let directory = scratch();
    drop(open(directory.path()));
    let coordinator = Coordinator { node: NodeId::new(3).unwrap(), cluster: 77 };

    let mut cluster = config(directory.path(), IoChoice::Auto);
    cluster.coordinator = Some(coordinator);
    let refused = Engine::open(cluster.clone()).unwrap_err();
    assert!(matches!(refused, OpenError::OtherMode { is_cluster: false, .. }), "{refused}");

    let other = scratch();
    cluster.data_directory = other.path().to_owned();
    drop(Engine::open(cluster.clone()).unwrap());
    cluster.coordinator = Some(Coordinator { cluster: 78, ..coordinator });
    let refused = Engine::open(cluster).unwrap_err();
    assert!(matches!(refused, OpenError::OtherCluster { found_cluster: 77, .. }), "{refused}");
    let refused = Engine::open(config(other.path(), IoChoice::Auto)).unwrap_err();
    assert!(matches!(refused, OpenError::OtherMode { is_cluster: true, .. }), "{refused}");
}

#[test]
fn file_where_a_directory_should_be_is_refused() {
    let directory = scratch();
    let path = directory.path().join("data");
    std::fs::write(&path, "a file").unwrap();

    for path in [path.clone(), path.join("below")] {
        let refused = Engine::open(config(&path, IoChoice::Auto)).unwrap_err();
        assert!(matches!(refused, OpenError::NotADirectory { .. }), "{refused}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"a file");
}

#[test]
fn dropped_engine_closes_in_order() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);
    wait(log.append(batch(&["kept"]), AppendOptions::default())).unwrap();

    drop((engine, log));

    let engine = open(directory.path());
    assert!(engine.report().partitions[0].recovery.is_none());
    assert_eq!(read_all(&partition(&engine), 0), vec![(0, b"kept".to_vec())]);
}
