//! Tests of the simulated disk: each promise and each fault, shown to happen.
//!
//! Where the seed chooses the outcome, a test runs many seeds and asserts the set of outcomes seen.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::future::{Either, join, select};

use super::*;
use crate::id::BLOCK_BYTES;
use crate::io::arena::SharedExtent;
use crate::io::conformance::check_disk;
use crate::io::disk::{Disk, DiskFile, OpenMode, WriteMode};
use crate::io::runtime::Runtime;
use crate::io::simulated::{SimulatedFile, SimulatedRuntime};

const SEEDS: u64 = 200;
const BLOCK: u64 = BLOCK_BYTES as u64;
const LATER: Duration = Duration::from_secs(1);

struct Bed {
    runtime: SimulatedRuntime,
    storage: SimulatedStorage,
}

impl Bed {
    fn new(seed: u64) -> Bed {
        let runtime = SimulatedRuntime::new(seed);
        let storage = SimulatedStorage::new(&runtime);
        Bed { runtime, storage }
    }

    fn disk(&self) -> SimulatedDisk {
        self.storage.disk(Arena::new(1 << 20))
    }

    /// Makes a file of `blocks` blocks of `stamp`, durable with its name.
    fn durable_file(&self, name: &str, stamp: u8, blocks: usize) -> (SimulatedDisk, SimulatedFile) {
        let disk = self.disk();
        let file = self.runtime.block_on(async {
            let file = disk.open(Path::new(name), OpenMode::CreateNew).await.unwrap();
            if blocks > 0 {
                let bytes = blocks_of(&disk, stamp, blocks);
                file.write(bytes, Position::ZERO, WriteMode::Durable).await.unwrap();
            }
            disk.sync_directory(Path::new("/")).await.unwrap();
            file
        });
        (disk, file)
    }

    /// Starts a write in a task of its own and returns without waiting for it.
    fn start_write(&self, disk: &SimulatedDisk, file: &SimulatedFile, stamp: u8, block: u64) {
        let (file, bytes) = (file.clone(), blocks_of(disk, stamp, 1));
        let position = Position(block * BLOCK);
        self.runtime.spawn(Box::pin(async move {
            let _ = file.write(bytes, position, WriteMode::Durable).await;
        }));
        self.runtime.run_for(Duration::ZERO);
    }

    fn write(&self, disk: &SimulatedDisk, file: &SimulatedFile, stamp: u8, block: u64) {
        let bytes = blocks_of(disk, stamp, 1);
        let position = Position(block * BLOCK);
        self.runtime.block_on(file.write(bytes, position, WriteMode::Written)).unwrap();
    }

    fn first_bytes(&self, name: &str) -> Vec<u8> {
        let bytes = self.storage.read_file(Path::new(name)).unwrap();
        bytes.chunks(BLOCK_BYTES).map(|block| block[0]).collect()
    }
}

fn blocks_of(disk: &SimulatedDisk, stamp: u8, blocks: usize) -> SharedExtent {
    let mut extent = disk.arena().allocate(blocks * BLOCK_BYTES).unwrap();
    extent.as_mut_slice().fill(stamp);
    extent.freeze()
}

/// Runs `outcome` on many seeds and returns every outcome seen.
fn outcomes<T: Ord>(outcome: impl Fn(Bed) -> T) -> BTreeSet<T> {
    (0..SEEDS).map(|seed| outcome(Bed::new(seed))).collect()
}

#[test]
fn simulated_disk_keeps_the_rules_of_disks() {
    for seed in 0..20 {
        let bed = Bed::new(seed);
        let disk = bed.storage.disk(Arena::new(2 << 20));
        bed.runtime.block_on(async {
            disk.create_directory(Path::new("/check")).await.unwrap();
            check_disk(&disk, Path::new("/check")).await;
        });
        assert_eq!(bed.storage.open_files(), 0, "seed {seed}");
    }
}

#[test]
fn unsynced_block_is_lost_kept_or_torn_by_a_power_cut() {
    let seen = outcomes(|bed| {
        let (disk, file) = bed.durable_file("/file", 1, 1);
        bed.write(&disk, &file, 2, 0);
        bed.storage.lose_power(PowerLoss::Random);
        let bytes = bed.storage.read_file(Path::new("/file")).unwrap();
        let new_bytes = bytes.iter().filter(|byte| **byte == 2).count();
        assert_eq!(bytes.len(), BLOCK_BYTES);
        assert_eq!(new_bytes % 512, 0, "sectors stay whole");
        match new_bytes {
            0 => "lost",
            BLOCK_BYTES => "kept",
            _ => "torn",
        }
    });

    assert_eq!(seen, BTreeSet::from(["lost", "kept", "torn"]));
}

#[test]
fn write_in_flight_is_lost_kept_or_torn_block_by_block() {
    let seen = outcomes(|bed| {
        let (disk, file) = bed.durable_file("/file", 1, 2);
        for block in 0..2 {
            bed.start_write(&disk, &file, 2, block);
        }
        bed.storage.lose_power(PowerLoss::Mixed);
        bed.first_bytes("/file")
    });

    let every = [[1, 1], [1, 2], [2, 1], [2, 2]].map(|bytes| bytes.to_vec());
    assert_eq!(seen, BTreeSet::from(every));
}

#[test]
fn durable_write_survives_every_power_cut() {
    let seen = outcomes(|bed| {
        drop(bed.durable_file("/file", 7, 3));
        bed.storage.lose_power(PowerLoss::Random);
        bed.first_bytes("/file")
    });

    assert_eq!(seen, BTreeSet::from([vec![7, 7, 7]]));
}

#[test]
fn sync_keeps_the_writes_that_resolved_before_it_and_their_length() {
    let seen = outcomes(|bed| {
        let (disk, file) = bed.durable_file("/file", 1, 1);
        bed.write(&disk, &file, 2, 0);
        bed.write(&disk, &file, 3, 1);
        bed.runtime.block_on(file.sync()).unwrap();
        bed.write(&disk, &file, 4, 2);
        bed.storage.lose_power(PowerLoss::LoseUnsynced);
        bed.first_bytes("/file")
    });

    assert_eq!(seen, BTreeSet::from([vec![2, 3]]));
}

#[test]
fn write_that_resolves_during_a_sync_is_not_covered_by_it() {
    let seen = outcomes(|bed| {
        let (disk, file) = bed.durable_file("/file", 1, 1);
        let bytes = blocks_of(&disk, 2, 1);
        let sync = file.sync();
        let write = file.write(bytes, Position::ZERO, WriteMode::Written);
        let (synced, written) = bed.runtime.block_on(join(sync, write));
        synced.and(written).unwrap();
        bed.storage.lose_power(PowerLoss::LoseUnsynced);
        bed.first_bytes("/file")
    });

    assert_eq!(seen, BTreeSet::from([vec![1]]));
}

#[test]
fn length_may_be_lost_although_the_blocks_are_not() {
    let seen = outcomes(|bed| {
        let (disk, file) = bed.durable_file("/file", 1, 1);
        bed.write(&disk, &file, 2, 1);
        bed.storage.lose_power(PowerLoss::Random);
        bed.storage.read_file(Path::new("/file")).unwrap().len()
    });

    assert_eq!(seen, BTreeSet::from([BLOCK_BYTES, 2 * BLOCK_BYTES]));
}

#[test]
fn unsynced_cut_may_be_undone() {
    let seen = outcomes(|bed| {
        let (_, file) = bed.durable_file("/file", 1, 2);
        bed.runtime.block_on(file.set_length(BLOCK)).unwrap();
        bed.storage.lose_power(PowerLoss::LoseUnsynced);
        let before = bed.first_bytes("/file");

        let disk = bed.disk();
        bed.runtime.block_on(async {
            let file = disk.open(Path::new("/file"), OpenMode::Write).await.unwrap();
            file.set_length(BLOCK).await.unwrap();
            file.sync().await.unwrap();
        });
        bed.storage.lose_power(PowerLoss::Random);
        (before, bed.first_bytes("/file"))
    });

    assert_eq!(seen, BTreeSet::from([(vec![1, 1], vec![1])]));
}

#[test]
fn name_is_lost_unless_its_directory_was_synced() {
    let seen = outcomes(|bed| {
        drop(bed.durable_file("/named", 1, 1));
        let disk = bed.disk();
        bed.runtime.block_on(async {
            let file = disk.open(Path::new("/unnamed"), OpenMode::CreateNew).await.unwrap();
            let bytes = blocks_of(&disk, 1, 1);
            file.write(bytes, Position::ZERO, WriteMode::Durable).await.unwrap();
            file.sync().await.unwrap();
        });
        bed.storage.lose_power(PowerLoss::Random);
        bed.storage.files(Path::new("/")).len()
    });

    assert_eq!(seen, BTreeSet::from([1, 2]));
}

#[test]
fn rename_replaces_all_or_nothing() {
    let seen = outcomes(|bed| {
        drop(bed.durable_file("/old", 1, 1));
        drop(bed.durable_file("/new", 2, 1));
        let disk = bed.disk();
        bed.runtime.block_on(disk.rename(Path::new("/new"), Path::new("/old"))).unwrap();
        bed.storage.lose_power(PowerLoss::Random);
        let files = bed.storage.files(Path::new("/"));
        (files.len(), bed.first_bytes("/old"))
    });

    assert_eq!(seen, BTreeSet::from([(2, vec![1]), (1, vec![2])]));
}

#[test]
fn removed_name_may_come_back_until_its_directory_is_synced() {
    for is_synced in [false, true] {
        let seen = outcomes(|bed| {
            drop(bed.durable_file("/file", 1, 1));
            let disk = bed.disk();
            bed.runtime.block_on(async {
                disk.remove(Path::new("/file")).await.unwrap();
                if is_synced {
                    disk.sync_directory(Path::new("/")).await.unwrap();
                }
            });
            bed.storage.lose_power(PowerLoss::Random);
            bed.storage.read_file(Path::new("/file")).is_ok()
        });

        let expected: &[bool] = if is_synced { &[false] } else { &[false, true] };
        assert_eq!(seen, expected.iter().copied().collect(), "synced: {is_synced}");
    }
}

#[test]
fn names_are_lost_in_any_order() {
    let seen = outcomes(|bed| {
        let disk = bed.disk();
        bed.runtime.block_on(async {
            for name in ["/first", "/second"] {
                disk.open(Path::new(name), OpenMode::CreateNew).await.unwrap();
            }
        });
        bed.storage.lose_power(PowerLoss::Random);
        ["/first", "/second"].map(|name| bed.storage.read_file(Path::new(name)).is_ok())
    });

    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn failed_sync_loses_blocks_that_no_later_sync_brings_back() {
    let seen = outcomes(|bed| {
        let (disk, file) = bed.durable_file("/file", 1, 1);
        bed.write(&disk, &file, 2, 0);
        bed.storage.fail_sync_once(Path::new("/file"));
        let failed = bed.runtime.block_on(file.sync()).unwrap_err();
        assert_eq!(failed.operation, DiskOperation::Sync);
        bed.runtime.block_on(file.sync()).unwrap();
        let read = bed.first_bytes("/file");
        bed.storage.lose_power(PowerLoss::KeepUnsynced);
        (read, bed.first_bytes("/file"))
    });

    let expected = [(1, 1), (2, 1), (2, 2)].map(|(read, kept)| (vec![read], vec![kept]));
    assert_eq!(seen, BTreeSet::from(expected));
}

#[test]
fn killed_process_leaves_writes_that_land_in_time_late_or_never() {
    let seen = outcomes(|bed| {
        let (disk, file) = bed.durable_file("/file", 1, 1);
        bed.start_write(&disk, &file, 2, 0);
        bed.storage.kill_process();
        let disk = bed.disk();
        let first = bed.runtime.block_on(async {
            let file = disk.open(Path::new("/file"), OpenMode::Read).await.unwrap();
            file.sync().await.unwrap();
            bed.first_bytes("/file")
        });
        bed.runtime.run_for(LATER);
        assert_eq!(bed.storage.in_flight(), 0);
        (first, bed.first_bytes("/file"))
    });

    let expected = [(1, 1), (1, 2), (2, 2)].map(|(first, last)| (vec![first], vec![last]));
    assert_eq!(seen, BTreeSet::from(expected));
}

#[test]
fn killed_process_loses_nothing_it_had_written() {
    let seen = outcomes(|bed| {
        let (disk, file) = bed.durable_file("/file", 1, 1);
        bed.write(&disk, &file, 2, 0);
        bed.storage.kill_process();
        bed.first_bytes("/file")
    });

    assert_eq!(seen, BTreeSet::from([vec![2]]));
}

#[test]
fn operations_of_a_dead_process_never_resolve() {
    let bed = Bed::new(1);
    let (disk, file) = bed.durable_file("/file", 1, 1);
    bed.storage.kill_process();

    let ended = Rc::new(Cell::new(false));
    let seen = ended.clone();
    bed.runtime.spawn(Box::pin(async move {
        let _ = join(file.sync(), disk.list(Path::new("/"))).await;
        seen.set(true);
    }));
    bed.runtime.run_for(LATER);

    assert!(!ended.get());
    assert_eq!(bed.storage.open_files(), 0);
}

#[test]
fn writes_complete_out_of_order() {
    let seen = outcomes(|bed| {
        let (disk, file) = bed.durable_file("/file", 1, 4);
        let order = Rc::new(RefCell::new(Vec::new()));
        for block in 0..4 {
            let (file, order, bytes) = (file.clone(), order.clone(), blocks_of(&disk, 2, 1));
            bed.runtime.spawn(Box::pin(async move {
                file.write(bytes, Position(block * BLOCK), WriteMode::Durable).await.unwrap();
                order.borrow_mut().push(block);
            }));
        }
        bed.runtime.run_for(LATER);
        order.take()
    });

    assert!(seen.len() > 12, "{} orders", seen.len());
}

#[test]
fn crash_point_freezes_the_device_at_that_operation() {
    let count = {
        let bed = Bed::new(3);
        let disk = bed.disk();
        bed.runtime.block_on(three_operations(&disk)).unwrap();
        bed.storage.operations()
    };
    assert_eq!(count, 3);

    for crash_at in 1..=count {
        let bed = Bed::new(3);
        let disk = bed.disk();
        bed.storage.crash_at(crash_at);
        let run = Box::pin(three_operations(&disk));
        match bed.runtime.block_on(select(run, bed.storage.crashed())) {
            Either::Left(_) => panic!("crash point {crash_at} was not reached"),
            Either::Right(_) => assert!(bed.storage.has_crashed()),
        }
        bed.storage.lose_power(PowerLoss::KeepUnsynced);

        assert_eq!(bed.storage.operations(), crash_at);
        let file = bed.storage.read_file(Path::new("/file"));
        assert_eq!(file.unwrap().len(), if crash_at == 1 { 0 } else { BLOCK_BYTES });
    }
}

async fn three_operations(disk: &SimulatedDisk) -> Result<(), DiskError> {
    let file = disk.open(Path::new("/file"), OpenMode::CreateNew).await?;
    file.write(blocks_of(disk, 1, 1), Position::ZERO, WriteMode::Durable).await?;
    disk.sync_directory(Path::new("/")).await
}

#[test]
fn frozen_operations_may_land_after_a_kill() {
    let seen = outcomes(|bed| {
        let (disk, file) = bed.durable_file("/file", 1, 1);
        bed.storage.crash_at(bed.storage.operations() + 1);
        bed.start_write(&disk, &file, 2, 0);
        bed.runtime.block_on(bed.storage.crashed());
        bed.storage.kill_process();
        bed.runtime.run_for(LATER);
        bed.first_bytes("/file")
    });

    assert_eq!(seen, BTreeSet::from([vec![1], vec![2]]));
}

/// L30's disk: of four writes in flight only the third does not arrive.
#[test]
fn hung_write_leaves_a_hole_behind_later_ones() {
    let bed = Bed::new(5);
    let (disk, file) = bed.durable_file("/file", 0, 4);
    bed.storage.inject(Fault::new(DiskOperation::Write, FaultKind::Hang).after(2));
    for block in 0..4 {
        bed.start_write(&disk, &file, 10 + u8::try_from(block).unwrap(), block);
    }
    bed.runtime.run_for(LATER);

    bed.storage.lose_power(PowerLoss::LoseUnsynced);

    assert_eq!(bed.first_bytes("/file"), [10, 11, 0, 13]);
}

#[test]
fn fault_strikes_the_nth_operation_of_its_kind_and_place() {
    let bed = Bed::new(6);
    let (disk, file) = bed.durable_file("/a.segment", 1, 1);
    let (_, other) = bed.durable_file("/a.other", 1, 1);
    let fault = Fault::new(DiskOperation::Write, FaultKind::Io);
    bed.storage.inject(fault.with_extension("segment").after(1));
    let write = |file: &SimulatedFile| {
        let bytes = blocks_of(&disk, 2, 1);
        bed.runtime.block_on(file.write(bytes, Position::ZERO, WriteMode::Durable))
    };

    write(&other).unwrap();
    write(&file).unwrap();
    let error = write(&file).unwrap_err();
    write(&file).unwrap();

    assert_eq!(error.source.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    assert_eq!(error.position, Some(Position::ZERO));
    assert_eq!(error.path, Path::new("/a.segment"));
}

#[test]
fn fault_may_last_until_cleared() {
    let bed = Bed::new(6);
    let (_, file) = bed.durable_file("/dir-file", 1, 1);
    bed.storage.inject(Fault::new(DiskOperation::Sync, FaultKind::NoSpace).under("/").for_ever());

    for _ in 0..3 {
        assert!(bed.runtime.block_on(file.sync()).unwrap_err().is_full());
    }
    bed.storage.clear_faults();

    bed.runtime.block_on(file.sync()).unwrap();
}

#[test]
fn failed_write_leaves_old_new_or_torn_blocks() {
    let seen = outcomes(|bed| {
        let (disk, file) = bed.durable_file("/file", 1, 1);
        bed.storage.inject(Fault::new(DiskOperation::Write, FaultKind::Io));
        let bytes = blocks_of(&disk, 2, 1);
        let write = file.write(bytes, Position::ZERO, WriteMode::Durable);
        assert!(bed.runtime.block_on(write).is_err());
        let bytes = bed.storage.read_file(Path::new("/file")).unwrap();
        match bytes.iter().filter(|byte| **byte == 2).count() {
            0 => "old",
            BLOCK_BYTES => "new",
            _ => "torn",
        }
    });

    assert_eq!(seen, BTreeSet::from(["old", "new", "torn"]));
}

#[test]
fn full_file_system_refuses_new_blocks_and_takes_overwrites() {
    let bed = Bed::new(7);
    bed.storage.set_capacity_bytes(4 * BLOCK);
    let (disk, file) = bed.durable_file("/file", 1, 3);
    let write = |block: u64, blocks: usize| {
        let bytes = blocks_of(&disk, 2, blocks);
        bed.runtime.block_on(file.write(bytes, Position(block * BLOCK), WriteMode::Durable))
    };

    let refused = write(3, 2).unwrap_err();
    write(0, 3).unwrap();
    write(3, 1).unwrap();
    assert!(refused.is_full());
    assert_eq!(bed.storage.space().available_bytes, 0);

    drop(file);
    bed.runtime.block_on(async {
        disk.remove(Path::new("/file")).await.unwrap();
        disk.sync_directory(Path::new("/")).await.unwrap();
        let space = disk.space(Path::new("/")).await.unwrap();
        assert_eq!(space.available_bytes, 4 * BLOCK);
    });
}

#[test]
fn corruption_reaches_the_medium_and_the_cache() {
    let bed = Bed::new(8);
    let (_, file) = bed.durable_file("/file", 4, 2);

    bed.storage.flip_bit(Path::new("/file"), Position(BLOCK)).unwrap();
    let flipped = bed.first_bytes("/file");
    bed.storage.lose_power(PowerLoss::Random);
    let after_power_cut = bed.first_bytes("/file");
    bed.storage.cut(Path::new("/file"), BLOCK + 9).unwrap();

    assert_eq!((flipped, after_power_cut), (vec![4, 5], vec![4, 5]));
    assert_eq!(bed.storage.read_file(Path::new("/file")).unwrap().len(), BLOCK_BYTES + 9);
    assert!(bed.storage.flip_bit(Path::new("/file"), Position(BLOCK + 9)).is_err());
    drop(file);
}

#[test]
fn misuse_panics() {
    let panics = |misuse: &dyn Fn(&Bed, &SimulatedDisk, &SimulatedFile)| {
        let bed = Bed::new(9);
        let (disk, file) = bed.durable_file("/file", 1, 4);
        catch_unwind(AssertUnwindSafe(|| misuse(&bed, &disk, &file))).is_err()
    };

    assert!(panics(&|bed, disk, file| {
        let bytes = blocks_of(disk, 1, 1);
        let _ = bed.runtime.block_on(file.write(bytes, Position(512), WriteMode::Written));
    }));
    assert!(panics(&|bed, disk, file| {
        let mut extent = disk.arena().allocate(BLOCK_BYTES).unwrap();
        extent.truncate(512);
        let write = file.write(extent.freeze(), Position::ZERO, WriteMode::Written);
        let _ = bed.runtime.block_on(write);
    }));
    assert!(panics(&|bed, disk, file| {
        let buffer = disk.arena().allocate(BLOCK_BYTES).unwrap();
        let _ = bed.runtime.block_on(file.read(buffer, Position(1)));
    }));
    assert!(panics(&|bed, disk, file| {
        bed.start_write(disk, file, 2, 1);
        bed.start_write(disk, file, 3, 1);
    }));
    assert!(!panics(&|bed, disk, file| {
        bed.start_write(disk, file, 2, 1);
        bed.start_write(disk, file, 3, 2);
    }));
}

#[test]
fn file_opened_to_read_is_not_written() {
    let bed = Bed::new(9);
    let (disk, _) = bed.durable_file("/file", 1, 1);

    let file = bed.runtime.block_on(disk.open(Path::new("/file"), OpenMode::Read)).unwrap();
    let bytes = blocks_of(&disk, 2, 1);
    let error =
        bed.runtime.block_on(file.write(bytes, Position::ZERO, WriteMode::Written)).unwrap_err();

    assert_eq!(error.source.raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()));
    assert_eq!(bed.first_bytes("/file"), [1]);
}

#[test]
fn same_seed_gives_the_same_disk() {
    let run = |seed| {
        let bed = Bed::new(seed);
        let (disk, file) = bed.durable_file("/file", 1, 8);
        for block in 0..8 {
            bed.start_write(&disk, &file, 2, block);
        }
        bed.runtime.run_for(Duration::from_micros(200));
        bed.storage.lose_power(PowerLoss::Random);
        (bed.runtime.fingerprint(), bed.storage.read_file(Path::new("/file")).unwrap())
    };

    for seed in 0..20 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(1), run(2));
}
