//! L12: epochs without data, and the epoch at the very first offset, when the log is cut.

use palisade_engine::Engine;
use palisade_engine::engine::{Coordinator, Lease, Partition};
use palisade_engine::format::{Descriptor, Member, Policy, ReplicaSet, believe_slots};
use palisade_engine::id::{Epoch, NodeId, Offset, PartitionId, PartitionIndex, StreamId};
use palisade_engine::partition::{AppendOptions, Grant, PartitionSpec};
use palisade_tests::world::{name, small_segments};
use palisade_tests::{RealWorld, SimulatedWorld, World, batch, read_log};

use crate::TARGET;

const ID: PartitionId = PartitionId { stream: StreamId(12), index: PartitionIndex(0) };

fn coordinator() -> Coordinator {
    Coordinator { node: NodeId::STANDALONE, cluster: 7 }
}

async fn grant(engine: &Engine, term: u32) {
    let member = Member { node: NodeId::STANDALONE, storage: engine.storage() };
    let descriptor = Descriptor {
        term,
        set: ReplicaSet { members: vec![member], ack_quorum: 1 },
        seal_sets: Vec::new(),
        policy: Policy::ServeSettled,
        loss_generation: 0,
        successors: Vec::new(),
    };
    let grant = Grant {
        partition: ID,
        epoch: Epoch::named(term, NodeId::STANDALONE),
        descriptor,
        policy: Policy::ServeSettled,
        lineage: 1,
        index: u64::from(term),
    };
    engine.gate().grant(grant).await.expect("the grant is the newest");
    let sent = engine.clock().now();
    let duration = std::time::Duration::from_secs(3_600);
    engine.gate().renew(Lease { sent, duration, lineage: 1, index: u64::from(term) });
}

async fn append(partition: &Partition, record: &'static str) -> u64 {
    let appended = partition.append(batch(&[record.into()]), AppendOptions::default()).await;
    appended.expect("nothing is wrong").base_offset.0
}

/// The epoch history on disk, as terms and offsets.
fn stored_epochs(world: &impl World) -> Vec<(u32, u64)> {
    let files = world.files();
    let path = files.iter().find(|path| path.ends_with("checkpoint")).expect("one partition");
    let believed = believe_slots(&world.read_file(path)).expect("a slot is whole");
    let epochs = believed.checkpoint.epochs;
    epochs.iter().map(|entry| (entry.epoch.term(), entry.start.0)).collect()
}

fn epochs_without_data(world: &impl World) {
    let open = || world.open_as(|config| config.coordinator = Some(coordinator()));
    let engine = open().expect("the engine opens");
    let spec = PartitionSpec { id: ID, name: name("s/0"), settings: small_segments() };
    let partition = world.run(async {
        let partition = engine.create_partition(spec).await.expect("nothing is wrong");
        // The very first offset: two epochs begin there.
        grant(&engine, 1).await;
        grant(&engine, 2).await;
        assert_eq!(append(&partition, "a").await, 0);
        assert_eq!(append(&partition, "b").await, 1);
        // Two changes of epoch with no data, then a cut at the log end: it ends, and takes nothing.
        grant(&engine, 3).await;
        grant(&engine, 4).await;
        assert_eq!(partition.truncate(Offset(2)).await.expect("it ends"), Offset(2));
        partition
    });
    let epochs = stored_epochs(world);
    assert_eq!(epochs.first().map(|first| first.1), Some(0), "{epochs:?}");
    assert!(epochs.iter().all(|(_, start)| *start < 2 || *start == 0), "{epochs:?}");
    world.run(async {
        assert_eq!(append(&partition, "c").await, 2);
        grant(&engine, 5).await;
        assert_eq!(append(&partition, "d").await, 3);
    });
    world.kill(engine);

    // After a crash the log, its epochs and its promise are as they were.
    let engine = open().expect("the engine opens");
    let partition = engine.partition(&ID).expect("it is there");
    world.run(async {
        grant(&engine, 6).await;
        let log = read_log(&partition).await.expect("it is readable");
        assert_eq!(log.whole(), ["a", "b", "c", "d"]);
        let terms: Vec<_> = log.batches.iter().map(|batch| batch.epoch().term()).collect();
        assert_eq!(terms, [2, 2, 4, 5]);
        assert_eq!(append(&partition, "e").await, 4);
    });
    world.close(engine);
}

#[test]
fn l12_cut_at_the_log_end_after_epochs_without_data_ends_and_keeps_the_first() {
    epochs_without_data(&SimulatedWorld::new(12));
    epochs_without_data(&RealWorld::new(TARGET));
}

/// A standalone log cut to nothing: the next run still takes a new epoch, and offsets begin at 0 again.
fn cut_of_everything(world: &impl World) {
    let mut terms = Vec::new();
    for _ in 0..3 {
        let engine = world.open();
        let partition = world.partition(&engine);
        world.run(async {
            assert_eq!(append(&partition, "a").await, 0);
            terms.push(partition.epoch().expect("it grants itself").term());
            assert_eq!(partition.truncate(Offset::ZERO).await.expect("it ends"), Offset::ZERO);
            assert_eq!(append(&partition, "b").await, 0);
            let log = read_log(&partition).await.expect("it is readable");
            assert_eq!(log.whole(), ["b"]);
            assert_eq!(partition.truncate(Offset::ZERO).await.expect("it ends"), Offset::ZERO);
        });
        world.close(engine);
        assert_eq!(stored_epochs(world).first().map(|first| first.1), Some(0));
    }
    assert!(terms.is_sorted_by(|earlier, later| earlier < later), "{terms:?}");
}

#[test]
fn l12_epoch_at_the_very_first_offset_survives_a_cut_of_everything() {
    cut_of_everything(&SimulatedWorld::new(13));
    cut_of_everything(&RealWorld::new(TARGET));
}
