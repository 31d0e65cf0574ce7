//! Bad input: data directories that are somebody else's, in use, read-only, or no directories.

use std::fs;
use std::process::Command;

use palisade_engine::Engine;
use palisade_engine::engine::{Coordinator, OpenError};
use palisade_engine::id::NodeId;
use palisade_engine::partition::AppendOptions;
use palisade_tests::{Child, RealWorld, SimulatedWorld, World, batch, read_log};

use crate::TARGET;

fn node(node: u32, cluster: u128) -> Coordinator {
    Coordinator { node: NodeId::new(node).expect("a node id"), cluster }
}

/// Opens, and returns the refusal; the files are as they were.
fn refusal(world: &impl World, coordinator: Option<Coordinator>) -> OpenError {
    let before: Vec<_> = world.files().iter().map(|path| world.read_file(path)).collect();
    let opened = world.open_as(|config| config.coordinator = coordinator);
    let after: Vec<_> = world.files().iter().map(|path| world.read_file(path)).collect();
    assert!(before == after, "a refused open changed something");
    opened.expect_err("it is refused")
}

fn modes_and_clusters(world: &impl World, standalone: &impl World) {
    let engine = world.open_as(|config| config.coordinator = Some(node(3, 7)));
    world.close(engine.expect("it is new"));
    let engine = standalone.open();
    standalone.close(engine);

    let other_cluster = refusal(world, Some(node(3, 8)));
    let other_node = refusal(world, Some(node(4, 7)));
    let no_coordinator = refusal(world, None);
    let coordinator = refusal(standalone, Some(node(3, 7)));

    for refused in [&other_cluster, &other_node] {
        let OpenError::OtherCluster { found_cluster, found_node, .. } = refused else {
            panic!("{refused}");
        };
        assert_eq!((*found_cluster, *found_node), (7, 3));
    }
    assert!(matches!(no_coordinator, OpenError::OtherMode { is_cluster: true, .. }));
    assert!(matches!(coordinator, OpenError::OtherMode { is_cluster: false, .. }));
    assert!(no_coordinator.to_string().contains("open it that way"), "{no_coordinator}");
}

#[test]
fn directory_of_another_mode_cluster_or_node_is_refused() {
    modes_and_clusters(&SimulatedWorld::new(1), &SimulatedWorld::new(2));
    modes_and_clusters(&RealWorld::new(TARGET), &RealWorld::new(TARGET));
}

/// The child's part: holds the directory until it is killed.
#[test]
fn child_holds_its_directory() {
    let Some(directory) = Child::directory() else { return };
    let _engine = Engine::open(RealWorld::config(&directory)).expect("the engine opens");
    Child::say("open");
    loop {
        std::thread::park();
    }
}

#[test]
fn directory_in_use_by_another_process_is_refused_until_that_is_gone() {
    let world = RealWorld::new(TARGET);
    let child = Child::start("directories::child_holds_its_directory", world.directory());
    assert_eq!(child.next(), "open");

    let refused = refusal(&world, None);

    let OpenError::Locked { path } = refused else { panic!("{refused}") };
    assert_eq!(path, world.directory());
    assert!(child.kill().is_empty());
    let engine = world.open();
    world.close(engine);
}

#[test]
fn directory_in_use_by_another_engine_of_the_process_is_refused() {
    let world = RealWorld::new(TARGET);
    let engine = world.open();

    let refused = world.open_as(|_| {}).expect_err("it is in use");

    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    world.close(engine);
    world.close(world.open());
}

#[test]
fn file_where_a_directory_should_be_is_named() {
    let scratch = tempfile::tempdir_in(TARGET).expect("the target directory takes files");
    let file = scratch.path().join("file");
    fs::write(&file, "kept").expect("it takes files");
    for path in [file.clone(), file.join("below")] {
        let refused = Engine::open(RealWorld::config(&path)).expect_err("it is no directory");
        let OpenError::NotADirectory { path: named, .. } = &refused else { panic!("{refused}") };
        assert_eq!(*named, path);
    }
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "kept");

    // Inside the data directory: where the streams should be.
    let world = RealWorld::new(TARGET);
    world.close(world.open());
    fs::write(world.directory().join("streams"), "kept").expect("it takes files");
    match world.open_as(|_| {}) {
        Err(error) => assert!(error.to_string().contains("streams"), "{error}"),
        Ok(engine) => {
            let created = world.run(engine.open_partition(&palisade_tests::world::name("s/0")));
            let error = created.expect_err("there is no place for it");
            assert!(error.to_string().contains("streams"), "{error}");
        }
    }
    assert_eq!(fs::read_to_string(world.directory().join("streams")).expect("kept"), "kept");
}

/// Makes a directory that even root cannot write to, until dropped.
struct ReadOnly<'a>(&'a std::path::Path);

impl<'a> ReadOnly<'a> {
    fn make(path: &'a std::path::Path) -> Option<ReadOnly<'a>> {
        let changed = Command::new("chattr").args(["-R", "+i"]).arg(path).output();
        match changed {
            Ok(changed) if changed.status.success() => Some(ReadOnly(path)),
            _ => {
                eprintln!("skipped: chattr +i needs root and a file system that has it");
                None
            }
        }
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        drop(Command::new("chattr").args(["-R", "-i"]).arg(self.0).output());
    }
}

#[test]
fn read_only_directory_is_refused_and_left_alone() {
    let world = RealWorld::new(TARGET);
    let engine = world.open();
    let partition = world.partition(&engine);
    let append = partition.append(batch(&["kept".into()]), AppendOptions::default());
    world.run(append).expect("nothing is wrong");
    drop(partition);
    world.close(engine);
    let directory = world.directory();
    let Some(read_only) = ReadOnly::make(&directory) else { return };

    let existing = refusal(&world, None);
    let new = Engine::open(RealWorld::config(&directory.join("new"))).expect_err("no place");

    for refused in [existing, new] {
        let OpenError::Disk(error) = &refused else { panic!("{refused}") };
        assert!(error.path.starts_with(&directory));
    }
    drop(read_only);
    let engine = world.open();
    let log = world.run(read_log(&world.partition(&engine))).expect("it is readable");
    assert_eq!(log.whole(), ["kept"]);
    world.close(engine);
}
