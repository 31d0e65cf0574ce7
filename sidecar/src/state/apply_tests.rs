//! Properties of the metadata: the same on every voter, ids never reused, one owner an epoch, terms that rise.

use std::collections::BTreeMap;

use proptest::prelude::*;
use uuid::Uuid;

use super::{
    Command, CreateStream, Done, ElectOwner, Epoch, NodeId, OPERATIONS_MAX, OperationId, Outcome,
    PartitionId, Policy, Proposal, Reason, RecordOwner, Refusal, RegisterNode, StorageId,
    StreamKind, StreamSettings, View, decode, encode,
};

fn register(name: &str, incarnation: u64, storage: u128) -> Command {
    Command::RegisterNode(RegisterNode {
        name: name.into(),
        rack: "r1".into(),
        incarnation,
        storage: StorageId(Uuid::from_u128(storage)),
        data_address: "127.0.0.1:1".into(),
        admin_address: "127.0.0.1:2".into(),
    })
}

fn create(name: &str, partitions: u32) -> CreateStream {
    CreateStream {
        name: name.into(),
        kind: StreamKind::Log,
        partitions,
        replicas: 1,
        ack_quorum: 1,
        policy: Policy::ServeSettled,
        settings: StreamSettings::default(),
    }
}

fn proposal(operation: u128, command: Command) -> Proposal {
    Proposal { operation: OperationId(Uuid::from_u128(operation)), command }
}

/// A view that counts its entries by itself.
#[derive(Default)]
struct Log {
    view: View,
    operation: u128,
}

impl Log {
    fn formed() -> Log {
        let mut log = Log::default();
        let voters = vec![("v1".to_owned(), StorageId(Uuid::from_u128(1)))];
        log.apply(Command::FormCluster { cluster: Uuid::from_u128(99), voters });
        log
    }

    fn apply(&mut self, command: Command) -> Outcome {
        self.operation += 1;
        let proposal = proposal(self.operation, command);
        self.view.apply(self.view.index + 1, &[proposal]).remove(0)
    }

    fn done(&mut self, command: Command) -> Done {
        match self.apply(command) {
            Outcome::Done(done) => done,
            Outcome::Refused(refusal) => panic!("{refusal}"),
        }
    }

    fn refused(&mut self, command: Command) -> Refusal {
        match self.apply(command) {
            Outcome::Refused(refusal) => refusal,
            Outcome::Done(done) => panic!("{done:?}"),
        }
    }

    fn create(&mut self, name: &str, partitions: u32) -> Uuid {
        match self.done(Command::CreateStream(create(name, partitions))) {
            Done::StreamCreated { stream } => stream,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_new_run_of_a_node_gets_new_terms_and_the_same_run_keeps_its_epochs() {
    let mut log = Log::formed();
    log.done(register("n1", 10, 1));
    let stream = log.create("s", 2);
    let id = PartitionId { stream, index: 1 };
    let node = NodeId(1);
    assert_eq!(log.view.partition(id).unwrap().epoch, Epoch::named(1, node));

    log.done(Command::NodeGone { node, incarnation: 10 });
    assert!(log.view.node(node).unwrap().gone);
    assert_eq!(log.view.partition(id).unwrap().owner(), Some(node), "it waits for its owner");
    log.done(register("n1", 10, 1));
    assert_eq!(log.view.partition(id).unwrap().epoch, Epoch::named(1, node));

    log.done(register("n1", 11, 1));
    let partition = log.view.partition(id).unwrap();
    assert_eq!(partition.epoch, Epoch::named(2, node));
    assert_eq!((partition.incarnation, partition.descriptor.term), (11, 2));
    assert_eq!(partition.history.back().unwrap().reason, Reason::NewIncarnation);
    assert_eq!(log.view.grants_for(node).len(), 2);
    assert_eq!(log.view.node(node).unwrap().grants_index, log.view.index);

    let stale = log.refused(register("n1", 10, 1));
    assert_eq!(stale, Refusal::StaleIncarnation { given: 10, found: 11 });
    let stale = log.refused(Command::NodeGone { node, incarnation: 10 });
    assert_eq!(stale, Refusal::StaleIncarnation { given: 10, found: 11 });
    let wiped = log.refused(register("n1", 12, 2));
    assert_eq!(wiped, Refusal::OtherStorage { name: "n1".into() });
}

#[test]
fn a_deleted_stream_leaves_a_tombstone_and_its_name_comes_back_under_another_uuid() {
    let mut log = Log::formed();
    log.done(register("n1", 1, 1));
    let first = log.create("s", 3);
    let twice = log.refused(Command::CreateStream(create("s", 1)));
    assert_eq!(twice, Refusal::StreamExists { name: "s".into() });

    let mismatch =
        log.refused(Command::DeleteStream { stream: first, expected_version: Some(1000) });
    assert!(matches!(mismatch, Refusal::VersionMismatch { expected: 1000, .. }));
    log.done(Command::DeleteStream { stream: first, expected_version: None });
    let second = log.create("s", 3);

    assert_ne!(first, second);
    assert!(log.view.tombstone(first).is_some());
    assert_eq!(log.view.tombstone(second), None);
    assert_eq!(log.view.partition_count(), 3);
    assert!(log.view.grants_for(NodeId(1)).iter().all(|grant| grant.partition.stream == second));
}

#[test]
fn an_election_names_the_epoch_it_saw_and_a_term_has_one_owner_at_ballot_zero() {
    let mut log = Log::formed();
    log.done(register("n1", 1, 1));
    log.done(register("n2", 1, 2));
    let partition = PartitionId { stream: log.create("s", 1), index: 0 };
    let owner = log.view.partition(partition).unwrap().owner().unwrap();
    let elect = |expected_epoch| {
        Command::ElectOwner(ElectOwner { partition, expected_epoch, reason: Reason::Requested })
    };

    log.done(elect(Epoch::named(1, owner)));
    let late = log.refused(elect(Epoch::named(1, owner)));
    let found = Epoch::named(2, owner);
    assert_eq!(late, Refusal::EpochMismatch { expected: Epoch::named(1, owner), found });

    let second = Command::RecordOwner(RecordOwner {
        partition,
        expected_epoch: found,
        epoch: Epoch::named(2, NodeId(3 - owner.0)),
        incarnation: 1,
        evidence: "none".into(),
    });
    assert!(matches!(log.refused(second), Refusal::EpochMismatch { .. }));
    assert_eq!(log.view.partition(partition).unwrap().epoch, found);

    log.done(Command::NodeGone { node: owner, incarnation: 1 });
    let nobody = log.refused(elect(found));
    assert_eq!(nobody, Refusal::TooFewNodes { needed: 1, live: 0 });
}

#[test]
fn a_retry_gets_the_first_answer_and_the_table_of_answers_is_bounded() {
    let mut log = Log::formed();
    log.done(register("n1", 1, 1));
    let one = proposal(1 << 100, Command::CreateStream(create("s", 1)));
    let next = log.view.index + 1;
    let first = log.view.apply(next, &[one.clone(), one.clone()]);
    assert_eq!(first[0], first[1]);
    let other = proposal(1 << 100, Command::CreateStream(create("t", 1)));
    let reused = log.view.apply(next + 1, &[other]);
    assert_eq!(reused, [Outcome::Refused(Refusal::OperationReused)]);

    for _ in 0..OPERATIONS_MAX + 5 {
        log.refused(Command::CreateStream(create("s", 1)));
    }

    assert_eq!(log.view.operations.len(), OPERATIONS_MAX);
    assert_eq!(log.view.derived.operation_by_id.len(), OPERATIONS_MAX);
    assert!(log.view.operation(one.operation).is_none(), "the oldest went");
    let last = OperationId(Uuid::from_u128(log.operation));
    assert_eq!(log.view.operation(last).unwrap().id, last);
}

#[test]
fn a_dry_run_changes_nothing_and_answers_the_same() {
    let mut log = Log::formed();
    log.done(register("n1", 1, 1));
    let before = log.view.clone();

    let tried = log.view.dry_run(&Command::CreateStream(create("s", 4)));

    assert_eq!(log.view, before);
    assert_eq!(tried, log.apply(Command::CreateStream(create("s", 4))));
}

#[test]
fn bytes_of_another_version_or_cut_short_are_refused() {
    let mut log = Log::formed();
    log.done(register("n1", 1, 1));
    let mut bytes = log.view.encode();

    for cut in 0..bytes.len() {
        assert!(View::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    bytes[0] += 1;
    assert!(View::decode(&bytes).is_err());
    let command = encode(&proposal(7, Command::Noop));
    assert_eq!(decode::<Proposal>(&command).unwrap(), proposal(7, Command::Noop));
}

/// Any command, most of them about few things, so that they meet.
fn command() -> impl Strategy<Value = Command> {
    let partition = || {
        (0u64..6, 0u32..4).prop_map(|(counter, index)| PartitionId {
            stream: super::apply::derive_uuid(Uuid::from_u128(99), counter),
            index,
        })
    };
    let epoch = || (1u32..4, 0u32..4).prop_map(|(term, node)| Epoch::named(term, NodeId(node)));
    prop_oneof![
        (1u64..5, 0usize..4).prop_map(|(run, n)| register(["a", "b", "c", "d"][n], run, n as u128)),
        (0u32..5, 1u64..5)
            .prop_map(|(node, incarnation)| Command::NodeGone { node: NodeId(node), incarnation }),
        (0usize..3, 0u32..5)
            .prop_map(|(n, count)| Command::CreateStream(create(["s", "t", "u/"][n], count))),
        partition()
            .prop_map(|id| Command::DeleteStream { stream: id.stream, expected_version: None }),
        (partition(), epoch()).prop_map(|(partition, expected_epoch)| {
            let reason = Reason::OwnerGone;
            Command::ElectOwner(ElectOwner { partition, expected_epoch, reason })
        }),
        (partition(), epoch(), epoch(), 1u64..5).prop_map(|(partition, expected, won, run)| {
            Command::RecordOwner(RecordOwner {
                partition,
                expected_epoch: expected,
                epoch: Epoch(won.packed() | u64::from(run % 2 == 0) << 24),
                incarnation: run,
                evidence: "told".into(),
            })
        }),
        Just(Command::Noop),
    ]
}

proptest! {
    #[test]
    fn views_are_deterministic_survive_a_snapshot_and_keep_one_owner_an_epoch(
        commands in prop::collection::vec(command(), 1..120),
        snapshot_at in 0usize..120,
    ) {
        let mut log = Log::formed();
        let mut other = Log::formed();
        // Who owned each epoch of each partition, ever: node and run (I1).
        let mut owners: BTreeMap<(PartitionId, Epoch), u64> = BTreeMap::new();
        let mut last: BTreeMap<PartitionId, Epoch> = BTreeMap::new();

        for (place, command) in commands.into_iter().enumerate() {
            if place == snapshot_at {
                other.view = View::decode(&other.view.encode()).unwrap();
            }
            let outcome = log.apply(command.clone());
            prop_assert_eq!(&outcome, &other.apply(command));
            prop_assert_eq!(&log.view, &other.view);
            for (id, _, partition) in log.view.partitions() {
                let before = last.insert(id, partition.epoch).unwrap_or(Epoch::NONE);
                prop_assert!(partition.epoch >= before, "an epoch fell");
                prop_assert_eq!(partition.epoch.term(), partition.descriptor.term);
                if partition.owner().is_some() {
                    let run = *owners.entry((id, partition.epoch)).or_insert(partition.incarnation);
                    prop_assert_eq!(run, partition.incarnation, "an epoch changed its run");
                }
                prop_assert!(log.view.tombstone(id.stream).is_none(), "a deleted uuid lives");
            }
        }
        let mut rebuilt = log.view.clone();
        rebuilt.derive();
        prop_assert_eq!(rebuilt, log.view, "what is derived drifted from what is stored");
    }
}
