//! L19, L20 for callers: a batch sent again is in the log once and gets the first answer, whatever came between.

use futures_util::future::join_all;
use palisade_engine::engine::Partition;
use palisade_engine::format::{Producer, RecordBatch};
use palisade_engine::id::Offset;
use palisade_engine::partition::producers::BATCHES_KEPT;
use palisade_engine::partition::{AppendError, AppendOptions, Appended, Durability};
use palisade_tests::{Crash, RealWorld, SimulatedWorld, World, read_log};

use crate::TARGET;

fn options(epoch: u32, sequence: u64) -> AppendOptions {
    AppendOptions { producer: Producer { id: 5, epoch, sequence }, ..AppendOptions::default() }
}

fn record(sequence: u64) -> RecordBatch {
    RecordBatch::single(&sequence.to_le_bytes()).expect("a record fits")
}

async fn send(log: &Partition, epoch: u32, sequence: u64) -> Result<Appended, AppendError> {
    log.append(record(sequence), options(epoch, sequence)).await
}

/// Each sequence lies at the offset of the same number.
async fn assert_each_once(log: &Partition, count: u64) {
    let found = read_log(log).await.expect("it is readable").whole();
    let expected: Vec<_> = (0..count).map(|sequence| sequence.to_le_bytes().to_vec()).collect();
    assert_eq!(found, expected);
}

fn sent_again(world: &impl World) {
    let engine = world.open();
    let log = world.partition(&engine);
    // Two tries of each before the log has even started: they wait, and none is appended twice.
    let first = world.run(async {
        let tries = (0..4u64).flat_map(|sequence| [sequence, sequence]);
        let tries = tries.map(|sequence| log.append(record(sequence), options(1, sequence)));
        let answers = join_all(tries.collect::<Vec<_>>()).await;
        let answers: Vec<_> =
            answers.into_iter().map(|answer| answer.expect("nothing is wrong")).collect();
        for pair in answers.chunks(2) {
            assert_eq!(pair[0], pair[1]);
        }
        assert_each_once(&log, 4).await;
        answers[6]
    });
    assert_eq!(first.base_offset, Offset(3));

    world.close(engine);
    let engine = world.open();
    let log = world.partition(&engine);
    world.run(async {
        assert_eq!(send(&log, 1, 3).await.expect("it was appended"), first);
        assert_eq!(send(&log, 1, 4).await.expect("it is due").base_offset, Offset(4));
    });
    world.kill(engine);
    let engine = world.open();
    let log = world.partition(&engine);
    world.run(async {
        assert_eq!(send(&log, 1, 3).await.expect("it was appended"), first);
        assert_eq!(send(&log, 1, 4).await.expect("it was appended").base_offset, Offset(4));
        // The batch itself is gone; that it was there is not forgotten.
        log.roll().await.expect("it rolls");
        log.trim(Offset(5)).await.expect("it is trimmed");
        assert_eq!(send(&log, 1, 3).await.expect("it was appended"), first);
        assert_eq!(log.watermarks().log_end, Offset(5));
    });
    world.close(engine);
}

#[test]
fn l20_batch_sent_again_gets_the_first_answer_in_flight_and_after_any_restart() {
    sent_again(&SimulatedWorld::new(81));
    sent_again(&RealWorld::new(TARGET));
}

#[test]
fn batch_out_of_its_turn_is_refused_with_what_is_due_and_leaves_the_log_unchanged() {
    let world = SimulatedWorld::new(82);
    let engine = world.open();
    let log = world.partition(&engine);
    world.run(async {
        let unknown = send(&log, 1, 7).await;
        assert!(matches!(unknown, Err(AppendError::OutOfOrder { expected: 0, got: 7 })));
        for sequence in 0..7 {
            send(&log, 1, sequence).await.expect("it is due");
        }
        let gap = send(&log, 1, 9).await;
        assert!(matches!(gap, Err(AppendError::OutOfOrder { expected: 7, got: 9 })), "{gap:?}");
        let oldest = 7 - BATCHES_KEPT as u64;
        let forgotten = send(&log, 1, oldest - 1).await;
        let Err(AppendError::AlreadyAppended { oldest: named, got }) = forgotten else {
            panic!("{forgotten:?}");
        };
        assert_eq!((named, got), (oldest, oldest - 1));
        let fenced = send(&log, 0, 7).await;
        assert!(matches!(fenced, Err(AppendError::ProducerFenced { epoch: 1 })), "{fenced:?}");
        assert_each_once(&log, 7).await;
        // A new run begins at 0, and the old one is over.
        assert_eq!(send(&log, 2, 0).await.expect("a new run").base_offset, Offset(7));
        let fenced = send(&log, 1, 7).await;
        assert!(matches!(fenced, Err(AppendError::ProducerFenced { epoch: 2 })), "{fenced:?}");
        assert_eq!(log.watermarks().log_end, Offset(8));
    });
    world.close(engine);
}

#[test]
fn cut_forgets_what_it_cut_off_and_nothing_before() {
    let world = SimulatedWorld::new(83);
    let engine = world.open();
    let log = world.partition(&engine);
    world.run(async {
        for sequence in 0..4 {
            send(&log, 1, sequence).await.expect("it is due");
        }
        log.truncate(Offset(2)).await.expect("it is cut");
        assert_eq!(send(&log, 1, 1).await.expect("it was appended").base_offset, Offset(1));
        assert_eq!(send(&log, 1, 2).await.expect("it is due again").base_offset, Offset(2));
        assert_each_once(&log, 3).await;
    });
    world.close(engine);
}

/// The append that was already done meets its own condition, however the log has grown since.
#[test]
fn repeated_conditional_append_gets_the_first_answer() {
    let world = SimulatedWorld::new(84);
    let engine = world.open();
    let log = world.partition(&engine);
    world.run(async {
        // All wait for the log to start: one of each pair of strangers meets its condition.
        let strangers = [0, 0, 1, 1].map(|at| {
            let expected_offset = Some(Offset(at));
            log.append(record(at), AppendOptions { expected_offset, ..AppendOptions::default() })
        });
        let met = join_all(strangers).await;
        let met: Vec<_> = met.iter().map(Result::is_ok).collect();
        assert_eq!(met, [true, false, true, false]);

        let first = AppendOptions { expected_offset: Some(Offset(2)), ..options(1, 0) };
        let answer = log.append(record(2), first).await.expect("the condition holds");
        send(&log, 1, 1).await.expect("it is due");
        let again = log.append(record(2), first).await.expect("it was appended");
        assert_eq!(again, answer);
        let other =
            log.append(record(2), AppendOptions { producer: Producer::default(), ..first }).await;
        assert!(matches!(other, Err(AppendError::OffsetMismatch { .. })), "{other:?}");
    });
    world.close(engine);
}

/// An answer for a batch sent again says no more than is true: with every crash of the device between the first
/// try and the answer of the second, what was answered is there afterwards.
#[test]
fn second_try_is_answered_no_earlier_than_the_first() {
    for crash_at in 0..40 {
        let world = SimulatedWorld::new(85);
        let engine = world.open();
        let log = world.partition(&engine);
        world.run(send(&log, 1, 0)).expect("nothing is wrong");
        let storage = world.storage();
        storage.crash_at(storage.operations() + crash_at);
        let answered = std::cell::Cell::new(false);
        world.run_to_crash(async {
            let first = log.append(record(1), options(1, 1));
            let accepted = AppendOptions { durability: Durability::Accepted, ..options(1, 1) };
            log.append(record(1), accepted).await.expect("accepted at once");
            let again = log.append(record(1), options(1, 1));
            drop(first);
            answered.set(again.await.is_ok());
        });
        world.crash(Crash::LoseUnsynced);
        drop(engine);
        let engine = world.open();
        let log = world.partition(&engine);
        world.run(async {
            let end = log.watermarks().log_end;
            assert!(!answered.get() || end == Offset(2), "crash {crash_at}: {end}");
            // Whichever way it went, the third try brings it to where it belongs.
            assert_eq!(send(&log, 1, 1).await.expect("it is due").base_offset, Offset(1));
            assert_each_once(&log, 2).await;
        });
        world.close(engine);
    }
}
