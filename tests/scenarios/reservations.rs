//! Memory lent to be filled and committed: what becomes of it, and of what was wrong with it.

use bytes::{BufMut, Bytes};
use palisade_engine::engine::{Partition, Reservation};
use palisade_engine::format::{BATCH_BYTES_MAX, BatchError, Producer};
use palisade_engine::id::Offset;
use palisade_engine::partition::{AppendError, AppendOptions, Durability, Read};
use palisade_tests::{RealWorld, SimulatedWorld, Workload, World, batch, read_log};

use crate::TARGET;

/// A payload as a client would send it.
fn encoded(records: &[Bytes]) -> Vec<u8> {
    let mut payload = Vec::new();
    for record in records {
        payload.put_u32_le(u32::try_from(record.len()).expect("test records are short"));
        payload.put_slice(record);
    }
    payload
}

/// Reserves room for the records, with some to spare, and fills it.
async fn filled(partition: &Partition, records: &[Bytes]) -> Reservation {
    let payload = encoded(records);
    let mut reservation = partition.reserve(payload.len() + 100).await.expect("there is memory");
    assert_eq!(reservation.len(), payload.len() + 100);
    reservation.as_mut_slice()[..payload.len()].copy_from_slice(&payload);
    reservation.truncate(payload.len());
    assert_eq!(reservation.as_slice(), payload);
    reservation
}

/// Small and large reservations between batches of the caller's, several on their way at once.
fn mixed(world: &impl World) {
    let engine = world.open();
    let partition = world.partition(&engine);
    let mut workload = Workload::new(41);
    let mut expected = Vec::new();
    world.run(async {
        let mut on_their_way = Vec::new();
        for round in 0..40 {
            // 60 kB stay where they are filled in, 200 B are copied behind what gathers.
            let record_bytes = if round % 3 == 0 { 60_000 } else { 200 };
            let reserved = [workload.record(record_bytes), workload.record(100)];
            let callers = [workload.record(300)];
            let reservation = filled(&partition, &reserved).await;
            let payload_crc = reservation.payload_crc();
            let options = AppendOptions::default();
            let append = reservation.commit(2, payload_crc, options).expect("it is well-formed");
            on_their_way.push(append);
            on_their_way.push(partition.append(batch(&callers), AppendOptions::default()));
            expected.extend(reserved);
            expected.extend(callers);
            if round % 8 == 7 {
                for append in on_their_way.drain(..) {
                    append.await.expect("nothing is wrong");
                }
            }
        }
        let log = read_log(&partition).await.expect("it is readable");
        assert!(log.whole() == expected, "read while it was in memory");
    });

    world.kill(engine);
    let engine = world.open();
    let partition = world.partition(&engine);
    assert!(world.run(read_log(&partition)).expect("it is readable").whole() == expected);
    world.close(engine);
}

#[test]
fn reserved_batches_keep_their_place_among_others() {
    mixed(&SimulatedWorld::new(41));
    mixed(&RealWorld::new(TARGET));
}

/// The bytes that a reader at the tail is handed are those that were filled in: not one copy was made.
fn in_place(world: &impl World) {
    let engine = world.open();
    let partition = world.partition(&engine);
    let mut workload = Workload::new(42);
    world.run(async {
        let record = workload.record(40_000);
        let reservation = filled(&partition, std::slice::from_ref(&record)).await;
        let filled_at = reservation.as_slice().as_ptr();
        let payload_crc = reservation.payload_crc();
        let options = AppendOptions { durability: Durability::Local, ..Default::default() };
        let append = reservation.commit(1, payload_crc, options).expect("it is well-formed");
        append.await.expect("nothing is wrong");

        let answer = partition.read(Read::from(Offset::ZERO)).await.expect("it is readable");

        let payload = answer.batches[0].payload();
        assert_eq!(payload[4..], record[..]);
        assert_eq!(payload.as_ptr(), filled_at);
    });
    world.close(engine);
}

#[test]
fn large_reservation_is_written_and_read_where_it_was_filled() {
    in_place(&SimulatedWorld::new(42));
    in_place(&RealWorld::new(TARGET));
}

fn refused(world: &impl World) {
    let engine = world.open();
    let partition = world.partition(&engine);
    let mut workload = Workload::new(43);
    let records = [workload.record(100), workload.record(100)];
    let options = AppendOptions::default();
    world.run(async {
        let over = partition.reserve(BATCH_BYTES_MAX).await.expect_err("it cannot be stored");
        assert!(matches!(over, AppendError::BatchTooLarge { .. }), "{over:?}");

        let miscounted = filled(&partition, &records).await;
        let payload_crc = miscounted.payload_crc();
        let error = miscounted.commit(3, payload_crc, options).expect_err("there are two");
        assert!(matches!(error, BatchError::Malformed { records: 3, .. }), "{error:?}");

        let mut changed = filled(&partition, &records).await;
        let payload_crc = changed.payload_crc();
        changed.as_mut_slice()[20] ^= 1;
        let error = changed.commit(2, payload_crc, options).expect_err("a bit has changed");
        assert!(matches!(error, BatchError::Checksum { .. }), "{error:?}");

        let mut cut = filled(&partition, &records).await;
        cut.truncate(cut.len() - 1);
        let payload_crc = cut.payload_crc();
        let error = cut.commit(2, payload_crc, options).expect_err("it breaks off");
        assert!(matches!(error, BatchError::Malformed { .. }), "{error:?}");

        let mut empty = filled(&partition, &[]).await;
        empty.truncate(0);
        let append = empty.commit(0, 0, options).expect("it holds what it says");
        let error = append.await.expect_err("it holds no record");
        assert!(matches!(error, AppendError::EmptyBatch), "{error:?}");
        assert_eq!(partition.watermarks().log_end, Offset::ZERO);
    });
    world.close(engine);
}

#[test]
fn reservation_that_is_not_what_it_says_changes_nothing() {
    refused(&SimulatedWorld::new(43));
    refused(&RealWorld::new(TARGET));
}

fn repeated(world: &impl World) {
    let engine = world.open();
    let partition = world.partition(&engine);
    let mut workload = Workload::new(44);
    world.run(async {
        for sequence in 0..3 {
            let records = [workload.record(50_000)];
            let options = AppendOptions {
                producer: Producer { id: 7, epoch: 1, sequence },
                ..AppendOptions::default()
            };
            let mut answers = Vec::new();
            for _try in 0..2 {
                let reservation = filled(&partition, &records).await;
                let payload_crc = reservation.payload_crc();
                let append = reservation.commit(1, payload_crc, options).expect("well-formed");
                answers.push(append.await.expect("nothing is wrong"));
            }
            assert_eq!(answers[0], answers[1]);
            assert_eq!(answers[0].base_offset, Offset(sequence));
        }
        assert_eq!(partition.watermarks().log_end, Offset(3));
    });
    world.close(engine);
}

#[test]
fn repeated_reservation_is_answered_like_its_first_try() {
    repeated(&SimulatedWorld::new(44));
    repeated(&RealWorld::new(TARGET));
}

/// Whoever holds many is refused more, and appends go on meanwhile.
fn limited(world: &impl World) {
    let engine = world.open();
    let partition = world.partition(&engine);
    let arena_bytes = engine.config().arena_bytes;
    let share = arena_bytes / 100 * engine.config().limits.reserved_percent_max;
    world.run(async {
        let mut held = Vec::new();
        let refused = loop {
            match partition.reserve(100_000).await {
                Ok(reservation) => held.push(reservation),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, AppendError::Busy { .. }), "{refused:?}");
        assert!(!held.is_empty() && held.len() * 100_000 <= share, "{} are held", held.len());
        let mut workload = Workload::new(45);
        let append = partition.append(batch(&[workload.record(1_000)]), AppendOptions::default());
        append.await.expect("appends have the rest of the memory");

        held.pop();

        let reservation = partition.reserve(100_000).await.expect("one was given back");
        drop(held);
        drop(reservation);
        for _ in 0..1_000 {
            drop(partition.reserve(100_000).await.expect("all were given back"));
        }
    });
    world.close(engine);
}

#[test]
fn reservations_hold_their_share_of_the_memory_at_most() {
    limited(&SimulatedWorld::new(45));
    limited(&RealWorld::new(TARGET));
}

#[test]
fn reservation_outlives_its_engine() {
    let world = RealWorld::new(TARGET);
    let engine = world.open();
    let partition = world.partition(&engine);
    let records = [Bytes::from_static(b"late")];
    let reservation = world.run(filled(&partition, &records));

    let (reservation, outcome) = std::thread::scope(|scope| {
        let holder = scope.spawn(move || reservation);
        let closed = world.run(engine.close());
        (holder.join().expect("it only holds it"), closed)
    });

    outcome.expect("the engine closes");
    let payload_crc = reservation.payload_crc();
    let append = reservation.commit(1, payload_crc, AppendOptions::default());
    let answer = append.expect("it is well-formed").wait();
    assert!(matches!(answer, Err(AppendError::Closed)), "{answer:?}");
}
