//! Appends come back: from memory, from disk, and after a reopen.

use palisade_engine::engine::{Engine, IoChoice};
use palisade_engine::id::Offset;
use palisade_engine::partition::{AppendOptions, Durability, Read, Wait};

use crate::support::{batch, config, open, partition, read_all, records, scratch, wait};

fn numbered(range: std::ops::Range<u64>) -> Vec<(u64, Vec<u8>)> {
    range.map(|number| (number, format!("record {number}").into_bytes())).collect()
}

fn appended_comes_back(io: IoChoice) {
    let directory = scratch();
    let engine = Engine::open(config(directory.path(), io)).unwrap();
    let log = partition(&engine);

    for number in 0..500 {
        let appended =
            wait(log.append(batch(&[format!("record {number}")]), AppendOptions::default()))
                .unwrap();
        assert_eq!(appended.base_offset, Offset(number));
    }
    assert_eq!(read_all(&log, 0), numbered(0..500));
    let report = wait(engine.close()).unwrap();

    assert_eq!((report.clean, report.unclean.len()), (1, 0));
    drop((engine, log));
    let engine = Engine::open(config(directory.path(), io)).unwrap();
    assert!(engine.report().partitions[0].recovery.is_none());
    let log = partition(&engine);
    assert_eq!(read_all(&log, 0), numbered(0..500));
    let appended = wait(log.append(batch(&["record 500"]), AppendOptions::default())).unwrap();
    assert_eq!(appended.base_offset, Offset(500));
    assert_eq!(read_all(&log, 490), numbered(490..501));
}

#[test]
fn appended_records_come_back_on_the_ring() {
    appended_comes_back(IoChoice::Uring);
}

#[test]
fn appended_records_come_back_on_blocking_calls() {
    appended_comes_back(IoChoice::Blocking);
}

#[test]
fn order_of_calls_is_the_order_of_offsets() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);

    let appends: Vec<_> = (0..2_000)
        .map(|number| log.append(batch(&[format!("record {number}")]), AppendOptions::default()))
        .collect();
    let offsets: Vec<_> =
        appends.into_iter().map(|append| append.wait().unwrap().base_offset.0).collect();

    assert_eq!(offsets, (0..2_000).collect::<Vec<_>>());
    assert_eq!(read_all(&log, 0), numbered(0..2_000));
}

#[test]
fn every_durability_is_acknowledged() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);

    for durability in [Durability::Accepted, Durability::Local, Durability::Committed] {
        let options = AppendOptions { durability, ..AppendOptions::default() };
        wait(log.append(batch(&["one"]), options)).unwrap();
    }

    assert_eq!(log.watermarks().durable, Offset(3));
    assert_eq!(log.watermarks().committed, Offset(3));
}

#[test]
fn reader_at_the_tail_is_woken_by_an_append() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = partition(&engine);
    let waiting = Read { wait: Wait::Forever, ..Read::from(Offset(0)) };

    let (answer, _) = wait(async {
        let read = log.read(waiting);
        let append =
            async { log.append(batch(&["late"]), AppendOptions::default()).await.unwrap() };
        futures_util::future::join(read, append).await
    });

    assert_eq!(records(&answer.unwrap().batches), vec![(0, b"late".to_vec())]);
}
