//! Proves that an append allocates nothing in steady state, on a real ring, whoever calls.
//!
//! Every allocation of the process counts, so these tests run one at a time, in a process of their own. With
//! `PALISADE_ALLOCATIONS=path` the first case writes there where each allocation was made, for DHAT's viewer.

use std::collections::VecDeque;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use dhat::{HeapStats, Profiler};
use palisade_engine::engine::{Append, Engine, IoChoice, Partition, ShardIndex};
use palisade_engine::format::RecordBatch;
use palisade_engine::id::PartitionName;
use palisade_engine::partition::{AppendOptions, Durability, PartitionSettings};
use palisade_tests::real::{RealWorld, run_real};
use palisade_tests::workload::batch;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Held by the test that counts.
static COUNTING: Mutex<()> = Mutex::new(());

/// Appends before counting starts: queues have their length then, and pools are full.
const WARM_UP: usize = 12_000;

/// Appends counted together, and how often.
const APPENDS: usize = 20;
const WINDOWS: usize = 201;

/// Larger than everything a case appends, so that no segment is made while it counts.
const SEGMENT_BYTES: u64 = 256 << 20;

/// Who appends, and how many appends it keeps on their way, each to the next of some partitions.
#[derive(Clone, Copy)]
struct Case {
    on_shard: bool,
    depth: usize,
    partitions: usize,
    record_bytes: usize,
    durability: Durability,
    arena_bytes: usize,
    /// Whether each batch is filled into memory of the shard's.
    reserves: bool,
}

const LONE: Case = Case {
    on_shard: false,
    depth: 1,
    partitions: 1,
    record_bytes: 100,
    durability: Durability::Committed,
    arena_bytes: 64 << 20,
    reserves: false,
};

/// Appends as the case says, and counts the allocations of each window.
async fn count(case: Case, partitions: Vec<Partition>) -> Vec<u64> {
    let records: [Bytes; 1] = [vec![7; case.record_bytes].into()];
    let batch: RecordBatch = batch(&records);
    let length = u32::try_from(case.record_bytes).expect("records are short");
    let payload = [&length.to_le_bytes()[..], &records[0]].concat();
    let options = AppendOptions { durability: case.durability, ..AppendOptions::default() };
    let mut on_their_way: VecDeque<Append> = VecDeque::with_capacity(case.depth);
    let mut windows = Vec::with_capacity(WINDOWS);
    let mut before = 0;
    for number in 0..WARM_UP + WINDOWS * APPENDS {
        if on_their_way.len() == case.depth {
            let oldest = on_their_way.pop_front().expect("some are on their way");
            oldest.await.expect("it is appended");
        }
        let partition = &partitions[number % partitions.len()];
        on_their_way.push_back(match case.reserves {
            false => partition.append(batch.clone(), options),
            true => {
                let mut reservation = partition.reserve(payload.len()).await.expect("memory");
                reservation.as_mut_slice().copy_from_slice(&payload);
                let payload_crc = reservation.payload_crc();
                reservation.commit(1, payload_crc, options).expect("it is well-formed")
            }
        });
        if number >= WARM_UP && (number - WARM_UP) % APPENDS == APPENDS - 1 {
            let now = HeapStats::get().total_blocks;
            windows.push(now - before);
            before = now;
        } else if number + 1 == WARM_UP {
            before = HeapStats::get().total_blocks;
        }
    }
    for append in on_their_way {
        append.await.expect("it is appended");
    }
    windows
}

/// Runs a case on a log of its own. `None` where there is no ring.
fn counted(case: Case) -> Option<Vec<u64>> {
    let _counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let world = RealWorld::new(env!("CARGO_TARGET_TMPDIR"));
    let mut config = RealWorld::config(&world.directory());
    config.io = IoChoice::Auto;
    config.arena_bytes = case.arena_bytes;
    config.settings = PartitionSettings {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        ..PartitionSettings::default()
    };
    let engine = Engine::open(config).expect("it opens");
    if !engine.report().is_ring {
        eprintln!("skipped: no io_uring here, and blocking calls allocate");
        return None;
    }
    let partitions: Vec<Partition> = (0..case.partitions)
        .map(|number| {
            let name: PartitionName = format!("log/{number}").parse().expect("a valid name");
            run_real(engine.open_partition(&name)).expect("it opens")
        })
        .collect();
    let path = std::env::var_os("PALISADE_ALLOCATIONS");
    let profiler = match path {
        Some(path) => Profiler::builder().trim_backtraces(None).file_name(path).build(),
        None => Profiler::builder().testing().build(),
    };
    let windows = match case.on_shard {
        false => run_real(count(case, partitions)),
        true => {
            let (sender, receiver) = sync_channel(1);
            let task = move || async move {
                sender.send(count(case, partitions).await).expect("somebody waits");
            };
            engine.spawn_on(ShardIndex(0), task).expect("a shard that takes tasks");
            receiver.recv().expect("it ends")
        }
    };
    drop(profiler);
    run_real(engine.close()).expect("it closes");
    Some(windows)
}

/// Checks that most windows have no allocation at all. What goes on beside appends has some: the watchdog ten times a
/// second, the making of the next segment once a megabyte, and lists that grow to their length.
fn assert_none(case: Case) {
    let Some(windows) = counted(case) else { return };
    let mut sorted = windows.clone();
    sorted.sort_unstable();
    assert_eq!(sorted[WINDOWS / 2], 0, "allocations in each {APPENDS} appends: {windows:?}");
}

#[test]
fn lone_append_from_another_thread_allocates_nothing() {
    assert_none(LONE);
}

#[test]
fn many_appends_from_another_thread_allocate_nothing() {
    assert_none(Case { depth: 16, ..LONE });
}

#[test]
fn lone_append_on_the_shard_allocates_nothing() {
    assert_none(Case { on_shard: true, ..LONE });
}

#[test]
fn many_appends_on_the_shard_allocate_nothing() {
    assert_none(Case { on_shard: true, depth: 16, ..LONE });
}

#[test]
fn large_appends_allocate_nothing() {
    assert_none(Case { on_shard: true, depth: 16, record_bytes: 20_000, ..LONE });
}

#[test]
fn appends_that_nobody_waits_for_allocate_nothing() {
    assert_none(Case { depth: 16, durability: Durability::Accepted, ..LONE });
}

#[test]
fn appends_through_the_journal_allocate_nothing() {
    // Little memory, so that frames have gone to segments, and their memory is used again, before counting starts.
    assert_none(Case { depth: 16, partitions: 8, arena_bytes: 4 << 20, ..LONE });
}

#[test]
fn small_reservations_allocate_nothing() {
    assert_none(Case { depth: 16, reserves: true, ..LONE });
}

#[test]
fn large_reservations_allocate_nothing() {
    assert_none(Case { on_shard: true, depth: 4, record_bytes: 40_000, reserves: true, ..LONE });
}
