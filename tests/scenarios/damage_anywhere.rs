//! Any byte flipped, any file cut anywhere, a newer version anywhere: the engine opens or says why not. It never
//! panics, never returns a record that was not appended, and loses none without naming file and range.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use palisade_engine::engine::OpenError;
use palisade_engine::partition::{AppendError, AppendOptions, ReadError};
use palisade_tests::world::name;
use palisade_tests::{SimulatedWorld, Workload, World, batch, read_log, segment_files};

/// A log with closed segments, an active one, and a tail no checkpoint knows, closed or killed.
fn prepared(is_killed: bool) -> (SimulatedWorld, Vec<Bytes>) {
    let world = SimulatedWorld::new(5);
    let mut records = Vec::new();
    let mut workload = Workload::new(5);
    for run in 0..2 {
        let engine = world.open();
        let partition = world.partition(&engine);
        world.run(async {
            for round in 0..4 {
                let more = workload.some();
                let append = partition.append(batch(&more), AppendOptions::default());
                append.await.expect("nothing is wrong");
                records.extend(more);
                if round == 1 {
                    partition.roll().await.expect("nothing is wrong");
                }
            }
        });
        drop(partition);
        match run == 1 && is_killed {
            true => world.kill(engine),
            false => world.close(engine),
        }
    }
    (world, records)
}

/// What reports of the open say about bytes that are gone or kept aside.
fn admits_loss(engine: &palisade_engine::Engine) -> bool {
    let report = engine.report();
    let recoveries = report.partitions.iter().filter_map(|opened| opened.recovery.as_ref());
    let mut recoveries = recoveries.map(|recovery| {
        recovery.torn_bytes > 0 || recovery.quarantined > 0 || recovery.lost_end.is_some()
    });
    !report.set_aside.is_empty() || recoveries.any(|admits| admits)
}

/// Opens and reads what was damaged; everything is there, or its absence is explained.
fn assert_explained(world: &SimulatedWorld, records: &[Bytes]) {
    let engine = match world.open_as(|_| {}) {
        Ok(engine) => engine,
        Err(OpenError::BadIdentity { .. } | OpenError::NewerVersion { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let Some(partition) = engine.find(&name("s/0")) else {
        assert!(!engine.report().set_aside.is_empty(), "a partition is gone without a word");
        return;
    };
    match world.run(read_log(&partition)) {
        Ok(log) => {
            for (offset, record) in log.records() {
                let offset = usize::try_from(offset).expect("a few");
                assert_eq!(records.get(offset), Some(&record), "at {offset}");
            }
            if log.committed < records.len() as u64 {
                assert!(admits_loss(&engine), "{} of {}", log.committed, records.len());
            }
        }
        Err(ReadError::NewerVersion { .. } | ReadError::Disk(_)) => {}
        Err(error) => panic!("{error}"),
    }
    let end = partition.watermarks().log_end;
    let append = partition.append(batch(&["new".into()]), AppendOptions::default());
    match world.run(append) {
        Ok(appended) => assert_eq!(appended.base_offset, end),
        Err(AppendError::Stopped { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// The places of a file worth flipping: all of its first bytes and of every group's head, and a share of the rest.
fn places(world: &SimulatedWorld, path: &Path, share: usize) -> Vec<u64> {
    let length = world.read_file(path).len() as u64;
    let mut places: Vec<u64> = (0..length.min(160)).step_by(5).collect();
    places.extend((0..length).step_by(share));
    for segment in segment_files(world).iter().filter(|segment| segment.path == path) {
        for group in &segment.groups {
            places.extend((group.positions.start..group.filled_end).step_by(67));
        }
        places
            .extend((segment.end_position()..length.min(segment.end_position() + 150)).step_by(17));
    }
    places.sort_unstable();
    places.dedup();
    places
}

fn all_files(is_killed: bool) -> Vec<(PathBuf, Vec<u64>)> {
    let (world, _) = prepared(is_killed);
    let files = world.files().into_iter();
    files.map(|path| (path.clone(), places(&world, &path, 16_411))).collect()
}

#[test]
fn flipped_byte_anywhere_is_harmless_or_reported() {
    for is_killed in [false, true] {
        for (path, places) in all_files(is_killed) {
            for place in places {
                let (world, records) = prepared(is_killed);
                let place_name = format!("{} at {place}, killed: {is_killed}", path.display());
                let _name = palisade_tests::RunName::new(place_name);

                world.flip(&path, place, 1 << (place % 8));

                assert_explained(&world, &records);
            }
        }
    }
}

#[test]
fn file_cut_anywhere_is_harmless_or_reported() {
    for is_killed in [false, true] {
        for (path, places) in all_files(is_killed) {
            for place in places.into_iter().step_by(3) {
                let (world, records) = prepared(is_killed);
                let place_name = format!("{} cut to {place}, killed: {is_killed}", path.display());
                let _name = palisade_tests::RunName::new(place_name);

                world.set_length(&path, place);

                assert_explained(&world, &records);
            }
        }
    }
}

/// Makes the structure at `position` claim a newer version, with a checksum that fits.
fn make_newer(world: &SimulatedWorld, path: &Path, position: u64) {
    let at = usize::try_from(position).expect("small");
    let mut file = world.read_file(path);
    let header_bytes = usize::from(u16::from_le_bytes([file[at + 6], file[at + 7]]));
    let header = &mut file[at..at + header_bytes];
    header[4..6].copy_from_slice(&9u16.to_le_bytes());
    let mut hash = crc32fast::Hasher::new();
    hash.update(&header[..8]);
    hash.update(&header[12..]);
    header[8..12].copy_from_slice(&hash.finalize().to_le_bytes());
    let header = header.to_vec();
    world.overwrite(path, position, &header);
}

#[test]
fn newer_version_of_identity_or_checkpoint_is_refused_with_file_and_versions() {
    for file in ["identity", "checkpoint"] {
        let (world, records) = prepared(false);
        let files = world.files();
        let path = files.iter().find(|path| path.ends_with(file)).expect("it is there");
        let before = world.read_file(path);
        // The slots of a checkpoint are half the file each.
        let mut places = vec![0];
        if file == "checkpoint" {
            places.push(before.len() as u64 / 2);
        }
        for place in places {
            make_newer(&world, path, place);
        }

        let refused = world.open_as(|_| {}).expect_err("it is newer than we are");

        let OpenError::NewerVersion { path: named, .. } = &refused else { panic!("{refused}") };
        assert_eq!(named, path);
        assert!(refused.to_string().contains('9'), "{refused}");
        // Nothing was touched: the newer release finds its own again.
        world.overwrite(path, 0, &before);
        let engine = world.open();
        let log = world.run(read_log(&world.partition(&engine))).expect("it is readable");
        assert!(log.whole() == records);
    }
}

#[test]
fn newer_version_of_a_segment_or_group_is_never_taken_for_damage_or_deleted() {
    for is_killed in [false, true] {
        for is_group in [false, true] {
            for number in 0..segment_files(&prepared(is_killed).0).len() {
                let (world, records) = prepared(is_killed);
                let segment = segment_files(&world).remove(number);
                let place = if is_group { segment.groups[0].positions.start } else { 0 };
                let before = world.read_file(&segment.path);
                make_newer(&world, &segment.path, place);

                match world.open_as(|_| {}) {
                    Err(OpenError::NewerVersion { .. }) => {}
                    Err(error) => panic!("{error}"),
                    Ok(engine) => {
                        if let Some(partition) = engine.find(&name("s/0")) {
                            let read = world.run(read_log(&partition));
                            let is_whole = read.as_ref().is_ok_and(|log| log.whole() == records);
                            let is_named = matches!(read, Err(ReadError::NewerVersion { .. }));
                            assert!(is_whole || is_named, "{read:?}");
                        }
                        drop(engine);
                    }
                }
                assert!(world.files().contains(&segment.path), "it was deleted or moved");
                let end = usize::try_from(segment.end_position()).expect("small");
                let now = world.read_file(&segment.path);
                assert!(
                    now.len() >= end
                        && now[4096 * usize::from(is_group) + 4096..end]
                            == before[4096 * usize::from(is_group) + 4096..end]
                );
            }
        }
    }
}
