//! A full disk: appends are refused before they get an offset, reads and trims go on, and room brings all back.

use std::path::Path;
use std::process::Command;

use palisade_engine::engine::{Coordinator, Engine, EngineConfig, Partition};
use palisade_engine::format::{Descriptor, Member, Policy, ReplicaSet};
use palisade_engine::id::{Epoch, NodeId, Offset, PartitionId, PartitionIndex, StreamId};
use palisade_engine::partition::{AppendError, AppendOptions, Grant, PartitionSpec};
use palisade_tests::real::run_real;
use palisade_tests::world::{name, small_segments};
use palisade_tests::{RealWorld, SimulatedWorld, Workload, World, batch, read_log};

use crate::TARGET;

/// Appends until the disk is full; returns how many records were acknowledged.
async fn fill(partition: &Partition, workload: &mut Workload) -> u64 {
    loop {
        let end = partition.watermarks().log_end;
        let records = [workload.record(50_000)];
        match partition.append(batch(&records), AppendOptions::default()).await {
            Ok(appended) => assert_eq!(appended.base_offset, end),
            Err(AppendError::DiskFull { needed_bytes, .. }) => {
                assert!(needed_bytes > 0);
                assert_eq!(partition.watermarks().log_end, end, "a refused append took an offset");
                return end.0;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn full_simulated_disk_refuses_appends_until_there_is_room() {
    for capacity_kib in [700, 900, 1_100, 1_234, 2_000] {
        let world = SimulatedWorld::new(capacity_kib);
        let engine = world.open();
        let partition = world.partition(&engine);
        world.storage().set_capacity_bytes(capacity_kib << 10);
        let mut workload = Workload::new(17);

        let end = world.run(fill(&partition, &mut workload));

        let log = world.run(read_log(&partition)).expect("reads go on");
        assert_eq!(log.whole().len() as u64, end);
        // What does not fit is refused at a restart, too, and nothing is lost by it.
        world.storage().set_capacity_bytes(1 << 30);
        world.runtime().run_for(std::time::Duration::from_secs(5));
        let append = partition.append(batch(&["room".into()]), AppendOptions::default());
        assert_eq!(world.run(append).expect("there is room again").base_offset, Offset(end));
        drop(partition);
        world.kill(engine);
        let engine = world.open();
        let log = world.run(read_log(&world.partition(&engine))).expect("it is readable");
        assert_eq!(log.whole().len() as u64, end + 1);
        world.close(engine);
    }
}

/// A trim makes room on the very disk that is full.
#[test]
fn trim_on_a_full_disk_makes_room() {
    let world = SimulatedWorld::new(18);
    let engine = world.open();
    let partition = world.partition(&engine);
    world.storage().set_capacity_bytes(2 << 20);
    let end = world.run(fill(&partition, &mut Workload::new(18)));

    let start = world.run(partition.trim(Offset(end / 2))).expect("a trim works on a full disk");

    assert_eq!(start, Offset(end / 2));
    world.runtime().run_for(std::time::Duration::from_secs(5));
    let append = partition.append(batch(&["room".into()]), AppendOptions::default());
    assert_eq!(world.run(append).expect("there is room again").base_offset, Offset(end));
    world.close(engine);
}

/// A restart writes a checkpoint of its own before anything else; the reserve has room for it, and for the trim's.
#[test]
fn trim_after_a_restart_on_a_full_disk_makes_room() {
    for capacity_kib in [700, 900, 1_100, 1_234, 2_000, 5_000] {
        let world = SimulatedWorld::new(capacity_kib);
        let engine = world.open();
        let partition = world.partition(&engine);
        world.storage().set_capacity_bytes(capacity_kib << 10);
        let end = world.run(fill(&partition, &mut Workload::new(capacity_kib)));
        drop(partition);
        world.kill(engine);

        let engine = world.open();
        let partition = world.partition(&engine);
        let log = world.run(read_log(&partition)).expect("reads go on");
        assert_eq!(log.whole().len() as u64, end, "{capacity_kib} KiB");
        let start = world.run(partition.trim(Offset(end)));

        assert_eq!(start.expect("the reserve is there for it"), Offset(end));
        world.runtime().run_for(std::time::Duration::from_secs(5));
        let append = partition.append(batch(&["room".into()]), AppendOptions::default());
        assert_eq!(world.run(append).expect("there is room again").base_offset, Offset(end));
        drop(partition);
        world.close(engine);
    }
}

/// A promise takes its marker with it, which may need a segment of its own; the reserve has room for that.
#[test]
fn grant_on_a_full_disk_is_answered() {
    for capacity_kib in [700, 900, 1_100, 1_234, 2_000] {
        let world = SimulatedWorld::new(capacity_kib);
        let node = NodeId::new(3).expect("a node's number");
        let coordinated = |config: &mut EngineConfig| {
            config.coordinator = Some(Coordinator { node, cluster: 77 });
        };
        let engine = world.open_as(coordinated).expect("the engine opens");
        let id = PartitionId { stream: StreamId(9), index: PartitionIndex(0) };
        let settings = small_segments();
        let spec = PartitionSpec { id, name: name("s/0"), settings };
        let partition = world.run(engine.create_partition(spec)).expect("there is room");
        world.run(engine.gate().grant(grant(&engine, id, node, 1))).expect("there is room");
        world.storage().set_capacity_bytes(capacity_kib << 10);
        let mut workload = Workload::new(capacity_kib);
        let end = world.run(fill(&partition, &mut workload));

        for term in 2..6 {
            let granted = world.run(engine.gate().grant(grant(&engine, id, node, term)));
            let granted = granted.expect("the reserve is there for it");
            assert_eq!((granted.epoch, granted.start), (Epoch::named(term, node), Offset(end)));
        }
        let log = world.run(read_log(&partition)).expect("reads go on");
        assert_eq!(log.whole().len() as u64, end);
        drop(partition);
        world.close(engine);
    }
}

fn grant(engine: &Engine, partition: PartitionId, node: NodeId, term: u32) -> Grant {
    let members = vec![Member { node, storage: engine.storage() }];
    let policy = Policy::ServeSettled;
    let descriptor = Descriptor {
        term,
        set: ReplicaSet { members, ack_quorum: 1 },
        seal_sets: Vec::new(),
        policy,
        loss_generation: 0,
        successors: Vec::new(),
    };
    let (epoch, index) = (Epoch::named(term, node), u64::from(term));
    Grant { partition, epoch, descriptor, policy, lineage: 1, index }
}

/// What is left of a small disk is used by shorter segments before anything is refused.
#[test]
fn segments_become_shorter_before_appends_are_refused() {
    let world = SimulatedWorld::new(21);
    let engine = world.open();
    let partition = world.partition(&engine);
    const CAPACITY: u64 = 1_500 << 10;
    world.storage().set_capacity_bytes(CAPACITY);

    let end = world.run(fill(&partition, &mut Workload::new(21)));

    let shard = engine.metrics().shards[0];
    assert!(shard.shortened_segments > 0 && shard.disk_full > 0, "{shard:?}");
    let lengths = world.files().into_iter().map(|path| world.read_file(&path).len() as u64);
    let left = CAPACITY - lengths.sum::<u64>();
    assert!((CAPACITY / 64..CAPACITY / 8).contains(&left), "{left} bytes left, {end} records");
    drop(partition);
    world.close(engine);
}

/// A small file system in a file, mounted until dropped.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn make(kind: FileSystem, image: &Path, at: &'a Path) -> Option<Mounted<'a>> {
        let file = std::fs::File::create(image).expect("the scratch directory takes files");
        file.set_len(kind.bytes).expect("it can be long");
        let steps = [
            Command::new(kind.make).args(["-q", kind.force]).arg(image).output(),
            Command::new("mount").args(["-o", "loop"]).arg(image).arg(at).output(),
        ];
        for step in steps {
            match step {
                Ok(step) if step.status.success() => {}
                Ok(step) => {
                    eprintln!("skipped: {}", String::from_utf8_lossy(&step.stderr));
                    return None;
                }
                Err(error) => {
                    eprintln!("skipped: a loop mount needs root, {} and mount: {error}", kind.make);
                    return None;
                }
            }
        }
        Some(Mounted(at))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.0).output());
    }
}

/// What is mounted.
#[derive(Clone, Copy)]
struct FileSystem {
    make: &'static str,
    /// Says that it may write over what is there.
    force: &'static str,
    bytes: u64,
    /// Taken by a file of the test's own: XFS is no smaller than 300 MiB.
    ballast_bytes: u64,
}

const EXT4: FileSystem =
    FileSystem { make: "mkfs.ext4", force: "-F", bytes: 16 << 20, ballast_bytes: 0 };
const XFS: FileSystem =
    FileSystem { make: "mkfs.xfs", force: "-f", bytes: 300 << 20, ballast_bytes: 200 << 20 };

#[test]
fn full_ext4_refuses_appends_until_there_is_room() {
    full_real_disk_refuses_appends_until_there_is_room(EXT4);
}

#[test]
fn full_xfs_refuses_appends_until_there_is_room() {
    full_real_disk_refuses_appends_until_there_is_room(XFS);
}

fn full_real_disk_refuses_appends_until_there_is_room(kind: FileSystem) {
    let scratch = tempfile::tempdir_in(TARGET).expect("the target directory takes files");
    let at = scratch.path().join("mounted");
    std::fs::create_dir(&at).expect("it takes directories");
    let image = scratch.path().join("image");
    let Some(_mounted) = Mounted::make(kind, &image, &at) else { return };
    let ballast = std::fs::File::create(at.join("ballast")).expect("it takes files");
    rustix::fs::fallocate(
        &ballast,
        rustix::fs::FallocateFlags::empty(),
        0,
        kind.ballast_bytes.max(1),
    )
    .expect("there is room for it");
    let config = RealWorld::config(&at.join("data"));
    let engine = palisade_engine::Engine::open(config.clone()).expect("the engine opens");
    let partition = run_real(engine.open_partition(&name("s/0"))).expect("there is room");
    let mut workload = Workload::new(19);

    let end = run_real(fill(&partition, &mut workload));

    assert!(end > 20, "{end}");
    let log = run_real(read_log(&partition)).expect("reads go on");
    assert_eq!(log.whole().len() as u64, end);
    run_real(partition.trim(Offset(end / 2))).expect("a trim works on a full disk");
    // Room is looked for once a second; until then the answer is the same.
    let appended = run_real(async {
        loop {
            let append = partition.append(batch(&["room".into()]), AppendOptions::default());
            match append.await {
                Ok(appended) => return appended,
                Err(AppendError::DiskFull { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert_eq!(appended.base_offset, Offset(end));
    drop(partition);
    run_real(engine.close()).expect("it closes");
    drop(engine);
    let engine = palisade_engine::Engine::open(config).expect("it opens again");
    let partition = run_real(engine.open_partition(&name("s/0"))).expect("it is there");
    let log = run_real(read_log(&partition)).expect("it is readable");
    assert_eq!((log.log_start, log.committed), (end / 2, end + 1));
    drop(partition);
    run_real(engine.close()).expect("it closes");
}
