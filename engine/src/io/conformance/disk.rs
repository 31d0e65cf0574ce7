//! The rules of [`Disk`] and [`DiskFile`] that need no fault to be seen.

use std::io::ErrorKind;
use std::path::Path;

use futures_util::future::join_all;

use crate::id::{BLOCK_BYTES, Position};
use crate::io::arena::SharedExtent;
use crate::io::disk::{Disk, DiskError, DiskFile, DiskOperation, OpenMode, WriteMode};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Checks `disk` inside `directory`, which exists and is empty.
///
/// The arena is used by nobody else meanwhile and has at least 2 MiB; more makes the check slower only.
///
/// # Panics
///
/// Where the disk breaks a rule.
pub async fn check_disk<D: Disk>(disk: &D, directory: &Path) {
    let room = disk.arena().available_bytes();
    bytes_come_back_as_written(disk, &directory.join("round-trip")).await;
    writes_land_in_any_order(disk, &directory.join("any-order")).await;
    reads_stop_at_the_end(disk, &directory.join("end")).await;
    sixteen_writes_run_together(disk, &directory.join("together")).await;
    readers_share_bytes_being_written(disk, &directory.join("shared")).await;
    dropped_operation_keeps_its_buffer(disk, &directory.join("dropped")).await;
    lengths_change(disk, &directory.join("length")).await;
    new_files_replace_nothing(disk, &directory.join("new")).await;
    missing_names_are_missing(disk, &directory.join("missing")).await;
    files_and_directories_do_not_mix(disk, &directory.join("kinds")).await;
    names_move_and_go(disk, &directory.join("names")).await;
    let space = disk.space(directory).await.expect("space is known");
    assert!(space.available_bytes <= space.total_bytes);
    assert_eq!(disk.arena().available_bytes(), room, "every buffer came home");
}

/// `blocks` blocks, each filled with its number counted from `stamp`.
fn stamped<D: Disk>(disk: &D, stamp: u8, blocks: u8) -> SharedExtent {
    let bytes = usize::from(blocks) * BLOCK_BYTES;
    let mut extent = disk.arena().allocate(bytes).expect("the arena has room");
    for (number, block) in (0..blocks).zip(extent.as_mut_slice().chunks_mut(BLOCK_BYTES)) {
        block.fill(stamp.wrapping_add(number));
    }
    extent.freeze()
}

async fn read<D: Disk>(disk: &D, file: &D::File, block: u64, bytes: usize) -> Vec<u8> {
    let buffer = disk.arena().allocate(bytes).expect("the arena has room");
    let read = file.read(buffer, Position(block * BLOCK)).await.expect("the read succeeds");
    read.as_slice().to_vec()
}

async fn create<D: Disk>(disk: &D, path: &Path) -> D::File {
    disk.open(path, OpenMode::CreateNew).await.expect("a new file opens")
}

async fn bytes_come_back_as_written<D: Disk>(disk: &D, path: &Path) {
    let file = create(disk, path).await;
    assert_eq!(file.path(), path);
    for (block, mode) in [(0, WriteMode::Written), (2, WriteMode::Durable)] {
        let bytes = stamped(disk, 1 + u8::try_from(block).expect("small"), 2);
        file.write(bytes, Position(block * BLOCK), mode).await.expect("the write succeeds");
    }
    file.sync().await.expect("the sync succeeds");

    let expected = stamped(disk, 1, 4);
    assert_eq!(read(disk, &file, 0, 4 * BLOCK_BYTES).await, expected.as_slice());
    drop(file);
    for mode in [OpenMode::Read, OpenMode::Write] {
        let reopened = disk.open(path, mode).await.expect("an existing file opens");
        assert_eq!(read(disk, &reopened, 0, 4 * BLOCK_BYTES).await, expected.as_slice());
        assert_eq!(reopened.length().await.expect("the length is known"), 4 * BLOCK);
    }
}

async fn writes_land_in_any_order<D: Disk>(disk: &D, path: &Path) {
    let file = create(disk, path).await;
    for block in [3_u8, 0, 2] {
        let position = Position(u64::from(block) * BLOCK);
        let bytes = stamped(disk, 10 + block, 1);
        file.write(bytes, position, WriteMode::Durable).await.expect("the write succeeds");
    }

    let mut expected = stamped(disk, 10, 4).as_slice().to_vec();
    expected[BLOCK_BYTES..2 * BLOCK_BYTES].fill(0);
    assert_eq!(read(disk, &file, 0, 4 * BLOCK_BYTES).await, expected);

    let again = stamped(disk, 99, 1);
    file.write(again, Position(2 * BLOCK), WriteMode::Durable).await.expect("the write succeeds");
    expected[2 * BLOCK_BYTES..3 * BLOCK_BYTES].fill(99);
    assert_eq!(read(disk, &file, 0, 4 * BLOCK_BYTES).await, expected);
}

async fn reads_stop_at_the_end<D: Disk>(disk: &D, path: &Path) {
    let file = create(disk, path).await;
    assert!(read(disk, &file, 0, BLOCK_BYTES).await.is_empty(), "an empty file has no bytes");
    let bytes = stamped(disk, 5, 3);
    file.write(bytes, Position::ZERO, WriteMode::Written).await.expect("the write succeeds");

    assert_eq!(read(disk, &file, 1, 8 * BLOCK_BYTES).await.len(), 2 * BLOCK_BYTES);
    assert!(read(disk, &file, 3, BLOCK_BYTES).await.is_empty());
    assert!(read(disk, &file, 100, BLOCK_BYTES).await.is_empty());
    assert_eq!(read(disk, &file, 1, 100).await, vec![6; 100], "a part of a block may be asked for");

    file.set_length(BLOCK + 100).await.expect("the length changes");
    assert_eq!(read(disk, &file, 0, 2 * BLOCK_BYTES).await.len(), BLOCK_BYTES + 100);
    assert_eq!(read(disk, &file, 1, BLOCK_BYTES).await, vec![6; 100]);
}

async fn sixteen_writes_run_together<D: Disk>(disk: &D, path: &Path) {
    let file = create(disk, path).await;

    let writes = (0..16_u8).rev().map(|number| {
        let position = Position(u64::from(number) * 2 * BLOCK);
        file.write(stamped(disk, 2 * number, 2), position, WriteMode::Durable)
    });
    for answer in join_all(writes).await {
        answer.expect("the write succeeds");
    }

    let expected = stamped(disk, 0, 32);
    assert_eq!(read(disk, &file, 0, 32 * BLOCK_BYTES).await, expected.as_slice());
}

async fn readers_share_bytes_being_written<D: Disk>(disk: &D, path: &Path) {
    let file = create(disk, path).await;
    let shared = stamped(disk, 30, 8);
    let reader = shared.slice(BLOCK_BYTES..3 * BLOCK_BYTES);
    let part = shared.slice(4 * BLOCK_BYTES..6 * BLOCK_BYTES);

    let write = file.write(shared, Position::ZERO, WriteMode::Durable);
    let sum =
        async { reader.clone().into_bytes().iter().map(|byte| u64::from(*byte)).sum::<u64>() };
    let (written, sum) = futures_util::future::join(write, sum).await;
    written.expect("the write succeeds");

    assert_eq!(sum, BLOCK * (31 + 32));
    file.write(part, Position(8 * BLOCK), WriteMode::Durable).await.expect("the write succeeds");
    let copy = read(disk, &file, 8, 2 * BLOCK_BYTES).await;
    assert_eq!(copy[..BLOCK_BYTES], [34; BLOCK_BYTES]);
    assert_eq!(copy[BLOCK_BYTES..], [35; BLOCK_BYTES]);
}

/// Starts a read and a write, drops both futures, and proves by lending everything else that the kernel's
/// buffers are not lent again before it is done with them.
async fn dropped_operation_keeps_its_buffer<D: Disk>(disk: &D, path: &Path) {
    let room = disk.arena().available_bytes();
    let file = create(disk, path).await;
    file.write(stamped(disk, 1, 8), Position::ZERO, WriteMode::Durable).await.expect("it succeeds");

    // The dropped write may still be in flight in the next round, and writes must not overlap.
    for round in 1..=16 {
        let buffer = disk.arena().allocate(8 * BLOCK_BYTES).expect("the arena has room");
        let mut read = Box::pin(file.read(buffer, Position::ZERO));
        let bytes = stamped(disk, 9, 8);
        let position = Position(round * 8 * BLOCK);
        let mut write = Box::pin(file.write(bytes, position, WriteMode::Durable));
        let _ = futures_util::poll!(&mut read);
        let _ = futures_util::poll!(&mut write);
        drop(read);
        drop(write);

        let mut others = Vec::new();
        while let Some(mut extent) = disk.arena().allocate(8 * BLOCK_BYTES) {
            extent.as_mut_slice().fill(0xee);
            others.push(extent);
        }
        file.sync().await.expect("the sync succeeds");
        for other in &others {
            assert!(other.as_slice().iter().all(|byte| *byte == 0xee), "a lent buffer was written");
        }
    }
    // Nothing says when a dropped operation ends; it does while others come and go.
    for _ in 0..10_000 {
        if disk.arena().available_bytes() == room {
            return;
        }
        file.sync().await.expect("the sync succeeds");
    }
    panic!("a dropped operation never gave its buffer back");
}

async fn lengths_change<D: Disk>(disk: &D, path: &Path) {
    let file = create(disk, path).await;
    assert_eq!(file.length().await.expect("the length is known"), 0);
    file.write(stamped(disk, 7, 4), Position::ZERO, WriteMode::Written).await.expect("it succeeds");

    file.set_length(2 * BLOCK).await.expect("the file is cut");
    assert_eq!(file.length().await.expect("the length is known"), 2 * BLOCK);
    file.set_length(4 * BLOCK).await.expect("the file is extended");
    file.sync().await.expect("the sync succeeds");

    let bytes = read(disk, &file, 0, 8 * BLOCK_BYTES).await;
    assert_eq!(bytes.len(), 4 * BLOCK_BYTES);
    assert_eq!(bytes[BLOCK_BYTES..2 * BLOCK_BYTES], [8; BLOCK_BYTES]);
    assert!(bytes[2 * BLOCK_BYTES..].iter().all(|byte| *byte == 0), "a cut hides what was there");
}

fn expect_error<T>(answer: Result<T, DiskError>, operation: DiskOperation, kind: ErrorKind) {
    let Err(error) = answer else { panic!("{operation:?} succeeded instead of {kind}") };
    assert_eq!(error.source.kind(), kind, "{error}");
    assert_eq!(error.operation, operation, "{error}");
    assert_eq!(error.is_missing(), kind == ErrorKind::NotFound);
}

async fn new_files_replace_nothing<D: Disk>(disk: &D, path: &Path) {
    let file = create(disk, path).await;
    file.write(stamped(disk, 3, 1), Position::ZERO, WriteMode::Durable).await.expect("it succeeds");

    let second = disk.open(path, OpenMode::CreateNew).await;

    expect_error(second, DiskOperation::Open, ErrorKind::AlreadyExists);
    assert_eq!(read(disk, &file, 0, BLOCK_BYTES).await, vec![3; BLOCK_BYTES]);
}

async fn missing_names_are_missing<D: Disk>(disk: &D, path: &Path) {
    let missing = ErrorKind::NotFound;
    let child = path.join("child");

    for mode in [OpenMode::Read, OpenMode::Write] {
        expect_error(disk.open(path, mode).await, DiskOperation::Open, missing);
    }
    expect_error(disk.open(&child, OpenMode::CreateNew).await, DiskOperation::Open, missing);
    expect_error(disk.remove(path).await, DiskOperation::Remove, missing);
    expect_error(disk.remove_directory(path).await, DiskOperation::Remove, missing);
    expect_error(disk.rename(path, &child).await, DiskOperation::Rename, missing);
    expect_error(disk.list(path).await, DiskOperation::List, missing);
    expect_error(disk.sync_directory(path).await, DiskOperation::SyncDirectory, missing);
    expect_error(disk.create_directory(&child).await, DiskOperation::CreateDirectory, missing);
}

async fn files_and_directories_do_not_mix<D: Disk>(disk: &D, directory: &Path) {
    disk.create_directory(directory).await.expect("the directory is made");
    disk.create_directory(directory).await.expect("an existing directory is no error");
    let path = directory.join("file");
    drop(create(disk, &path).await);

    for mode in [OpenMode::Read, OpenMode::Write] {
        let opened = disk.open(directory, mode).await;
        expect_error(opened, DiskOperation::Open, ErrorKind::IsADirectory);
        let beneath = disk.open(&path.join("child"), mode).await;
        expect_error(beneath, DiskOperation::Open, ErrorKind::NotADirectory);
    }
    expect_error(disk.list(&path).await, DiskOperation::List, ErrorKind::NotADirectory);
    let made = disk.create_directory(&path).await;
    expect_error(made, DiskOperation::CreateDirectory, ErrorKind::AlreadyExists);
    expect_error(disk.remove(directory).await, DiskOperation::Remove, ErrorKind::IsADirectory);
    let removed = disk.remove_directory(&path).await;
    expect_error(removed, DiskOperation::Remove, ErrorKind::NotADirectory);
    let removed = disk.remove_directory(directory).await;
    expect_error(removed, DiskOperation::Remove, ErrorKind::DirectoryNotEmpty);
}

async fn names_move_and_go<D: Disk>(disk: &D, directory: &Path) {
    disk.create_directory(directory).await.expect("the directory is made");
    disk.create_directory(&directory.join("sub")).await.expect("the directory is made");
    let (old, new) = (directory.join("old"), directory.join("new"));
    let file = create(disk, &old).await;
    file.write(stamped(disk, 8, 1), Position::ZERO, WriteMode::Durable).await.expect("it succeeds");
    drop(create(disk, &new).await);

    disk.rename(&old, &new).await.expect("the new name is taken over");
    disk.sync_directory(directory).await.expect("the names are durable");

    expect_error(disk.open(&old, OpenMode::Read).await, DiskOperation::Open, ErrorKind::NotFound);
    let moved = disk.open(&new, OpenMode::Read).await.expect("the new name opens");
    assert_eq!(read(disk, &moved, 0, BLOCK_BYTES).await, vec![8; BLOCK_BYTES]);
    let mut entries = disk.list(directory).await.expect("the directory lists");
    entries.sort_by(|left, right| left.name.cmp(&right.name));
    let entries: Vec<_> =
        entries.iter().map(|entry| (entry.name.as_str(), entry.is_directory)).collect();
    assert_eq!(entries, [("new", false), ("sub", true)]);

    disk.remove(&new).await.expect("the name goes");
    assert_eq!(read(disk, &moved, 0, BLOCK_BYTES).await.len(), BLOCK_BYTES, "an open file stays");
    disk.remove_directory(&directory.join("sub")).await.expect("the directory goes");
    assert!(disk.list(directory).await.expect("the directory lists").is_empty());
    disk.sync_directory(directory).await.expect("the names are durable");
}
