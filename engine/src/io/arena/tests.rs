//! The arena as its users see it: lengths, room, sharing, and frees from other threads.

use proptest::prelude::*;

use super::*;

fn assert_send_sync<T: Send + Sync>() {}

#[test]
fn extents_may_cross_threads() {
    assert_send_sync::<Extent>();
    assert_send_sync::<SharedExtent>();
}

#[test]
fn extent_is_block_aligned_and_as_long_as_asked() {
    let arena = Arena::new(1 << 20);

    for bytes in [0, 1, 4095, 4096, 4097, 100_000] {
        let extent = arena.allocate(bytes).unwrap();
        assert_eq!(extent.len(), bytes);
        assert_eq!(extent.is_empty(), bytes == 0);
        assert!(extent.as_slice().as_ptr().addr().is_multiple_of(BLOCK_BYTES));
    }
}

#[test]
fn room_returns_when_the_last_sharer_drops() {
    let arena = Arena::new(4 * BLOCK_BYTES);
    let extent = arena.allocate(4 * BLOCK_BYTES).unwrap();
    assert!(arena.allocate(1).is_none());

    let whole = extent.freeze();
    let part = whole.slice(10..20);
    let bytes = part.clone().into_bytes();
    drop(whole);
    drop(part);
    assert_eq!(arena.available_bytes(), 0);
    drop(bytes);

    assert_eq!(arena.available_bytes(), 4 * BLOCK_BYTES);
    assert!(arena.allocate(4 * BLOCK_BYTES).is_some());
}

#[test]
fn truncate_gives_unused_blocks_back_and_keeps_the_rest() {
    let arena = Arena::new(16 * BLOCK_BYTES);
    let mut extent = arena.allocate(16 * BLOCK_BYTES).unwrap();
    extent.as_mut_slice().fill(7);

    extent.truncate(BLOCK_BYTES + 1);

    assert_eq!(extent.as_slice(), vec![7; BLOCK_BYTES + 1]);
    assert_eq!(arena.available_bytes(), 14 * BLOCK_BYTES);
    extent.truncate(usize::MAX);
    assert_eq!(extent.len(), BLOCK_BYTES + 1);
    extent.truncate(0);
    assert!(extent.is_empty());
    assert_eq!(arena.available_bytes(), 15 * BLOCK_BYTES);
    drop(extent);
    assert_eq!(arena.available_bytes(), 16 * BLOCK_BYTES);
}

#[test]
fn frozen_bytes_outlive_the_arena() {
    let arena = Arena::new(BLOCK_BYTES);
    let mut extent = arena.allocate(5).unwrap();
    extent.as_mut_slice().copy_from_slice(b"hello");
    let bytes = extent.freeze().into_bytes();

    drop(arena);

    assert_eq!(bytes.as_ref(), b"hello");
}

#[test]
fn lent_extent_counts_until_nobody_holds_it() {
    let arena = Arena::new(8 * BLOCK_BYTES);
    let kept = arena.allocate(2 * BLOCK_BYTES).unwrap().freeze();
    let given = arena.allocate(3 * BLOCK_BYTES).unwrap().freeze();
    assert_eq!(arena.lent_bytes(), 0);

    given.mark_lent();
    given.mark_lent();
    let reader = given.slice(0..1).into_bytes();
    drop(given);

    assert_eq!(arena.lent_bytes(), 3 * BLOCK_BYTES);
    assert!(arena.contains(&reader));
    assert!(arena.contains(kept.as_slice()));
    assert!(!arena.contains(&[0; 3]));
    std::thread::spawn(move || drop(reader)).join().unwrap();
    assert_eq!(arena.lent_bytes(), 0);
    drop(kept);
    let again = arena.allocate(8 * BLOCK_BYTES).unwrap();
    assert_eq!(again.len(), arena.capacity_bytes());
    assert_eq!(arena.lent_bytes(), 0);
}

#[test]
fn extent_over_the_limit_is_refused() {
    let arena = Arena::new(2 * EXTENT_BYTES_MAX);

    assert!(arena.allocate(EXTENT_BYTES_MAX + 1).is_none());
    assert!(arena.allocate(usize::MAX).is_none());
    assert!(arena.allocate(EXTENT_BYTES_MAX).is_some());
}

// The owner lends and stamps extents while four threads check the stamp, share and free them: a run lent
// twice, or freed before its last reader is done, shows as a foreign stamp or as an assert.
#[test]
fn frees_from_other_threads_never_overlap_and_all_come_home() {
    const THREADS: usize = 4;
    const EXTENTS: u32 = 40_000;
    let arena = Arena::new(256 * BLOCK_BYTES);
    let queues: Vec<_> =
        (0..THREADS).map(|_| crossbeam::channel::bounded::<(u32, SharedExtent)>(64)).collect();
    let workers: Vec<_> = queues
        .iter()
        .map(|(_, receiver)| receiver.clone())
        .map(|receiver| {
            std::thread::spawn(move || {
                for (stamp, shared) in receiver {
                    let twin = shared.slice(0..shared.len());
                    drop(shared);
                    assert!(twin.as_slice().iter().all(|byte| *byte == stamp.to_le_bytes()[0]));
                }
            })
        })
        .collect();

    let mut random = fastrand::Rng::with_seed(7);
    let mut sent = 0;
    while sent < EXTENTS {
        let bytes = random.usize(1..12 * BLOCK_BYTES);
        let Some(mut extent) = arena.allocate(bytes) else {
            std::thread::yield_now();
            continue;
        };
        let stamp = sent.to_le_bytes()[0];
        extent.as_mut_slice().fill(stamp);
        extent.truncate(random.usize(0..=bytes));
        let shared = extent.freeze();
        for (sender, _) in queues.iter().take(random.usize(1..=THREADS)) {
            sender.send((sent, shared.clone())).unwrap();
        }
        sent += 1;
    }
    drop(queues);
    for worker in workers {
        worker.join().unwrap();
    }

    assert_eq!(arena.available_bytes(), arena.capacity_bytes());
    assert!(arena.allocate(256 * BLOCK_BYTES).is_some());
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    Truncate(usize, usize),
    Free(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..20 * BLOCK_BYTES).prop_map(Step::Allocate),
        1 => (any::<usize>(), 0..20 * BLOCK_BYTES).prop_map(|(which, to)| Step::Truncate(which, to)),
        2 => any::<usize>().prop_map(Step::Free),
    ]
}

proptest! {
    // Method: each extent carries its own stamp in every byte; an overlap overwrites somebody's stamp.
    #[test]
    fn extents_never_overlap_and_room_is_counted(
        capacity_blocks in 1_usize..200,
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let arena = Arena::new(capacity_blocks * BLOCK_BYTES);
        let mut lent: Vec<(u8, Extent)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let stamp = number.to_le_bytes()[0];
            match step {
                Step::Allocate(bytes) => {
                    let Some(mut extent) = arena.allocate(bytes) else { continue };
                    extent.as_mut_slice().fill(stamp);
                    lent.push((stamp, extent));
                }
                Step::Truncate(which, to) if !lent.is_empty() => {
                    let at = which % lent.len();
                    lent[at].1.truncate(to);
                }
                Step::Free(which) if !lent.is_empty() => {
                    let at = which % lent.len();
                    drop(lent.swap_remove(at));
                }
                Step::Truncate(..) | Step::Free(_) => {}
            }

            let lent_blocks: usize = lent.iter().map(|(_, extent)| extent.block_bytes()).sum();
            prop_assert_eq!(arena.available_bytes() + lent_blocks, arena.capacity_bytes());
            for (stamp, extent) in &lent {
                prop_assert!(extent.as_slice().iter().all(|byte| byte == stamp));
            }
        }
        lent.clear();
        prop_assert_eq!(arena.available_bytes(), arena.capacity_bytes());
    }
}
