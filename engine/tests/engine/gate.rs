//! The lease gate, driven by hand.

use std::time::Duration;

use palisade_engine::Partition;
use palisade_engine::engine::{Coordinator, Engine, IoChoice, Lease};
use palisade_engine::format::{Descriptor, Member, Policy, ReplicaSet};
use palisade_engine::id::{Epoch, NodeId, Offset, PartitionId, PartitionIndex, StreamId};
use palisade_engine::partition::{
    AppendError, AppendOptions, Grant, GrantError, PartitionSettings, PartitionSpec, Read,
    ReadError, Renewal,
};

use crate::support::{batch, config, name, read_all, scratch, wait};

const LONG: Duration = Duration::from_secs(3_600);

fn node() -> NodeId {
    NodeId::new(3).unwrap()
}

fn open(directory: &std::path::Path) -> Engine {
    let mut config = config(directory, IoChoice::Auto);
    config.coordinator = Some(Coordinator { node: node(), cluster: 77 });
    Engine::open(config).unwrap()
}

fn create(engine: &Engine) -> Partition {
    let id = PartitionId { stream: StreamId(9), index: PartitionIndex(0) };
    let settings = PartitionSettings::default();
    wait(engine.create_partition(PartitionSpec { id, name: name("orders/0"), settings })).unwrap()
}

fn grant(engine: &Engine, term: u32, policy: Policy, index: u64) -> Grant {
    let set = ReplicaSet {
        members: vec![Member { node: node(), storage: engine.storage() }],
        ack_quorum: 1,
    };
    Grant {
        partition: PartitionId { stream: StreamId(9), index: PartitionIndex(0) },
        epoch: Epoch::named(term, node()),
        descriptor: Descriptor {
            term,
            set,
            seal_sets: Vec::new(),
            policy,
            loss_generation: 0,
            successors: Vec::new(),
        },
        policy,
        lineage: 1,
        index,
    }
}

fn renew(engine: &Engine, duration: Duration) {
    let gate = engine.gate();
    let applied = gate.status().applied.index;
    let sent = engine.clock().now();
    let renewal = gate.renew(Lease { sent, duration, lineage: 1, index: applied });
    assert_eq!(renewal, Renewal::InUse);
}

fn append(log: &Partition) -> Result<Offset, AppendError> {
    wait(log.append(batch(&["x"]), AppendOptions::default())).map(|appended| appended.base_offset)
}

#[test]
fn nothing_is_served_without_a_grant() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = create(&engine);

    assert!(matches!(append(&log), Err(AppendError::NotOwner)));
    assert_eq!(log.watermarks().log_end, Offset(0));
}

#[test]
fn fail_closed_stops_when_the_lease_ends() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = create(&engine);
    engine.gate().applied(1, 5);

    wait(engine.gate().grant(grant(&engine, 1, Policy::FailClosed, 5))).unwrap();
    assert!(matches!(append(&log), Err(AppendError::LeaseExpired { .. })));
    renew(&engine, LONG);
    assert_eq!(append(&log).unwrap(), Offset(0));
    engine.gate().drop_lease();

    assert!(matches!(append(&log), Err(AppendError::LeaseExpired { .. })));
    assert!(matches!(wait(log.read(Read::from(Offset(0)))), Err(ReadError::LeaseExpired)));
    renew(&engine, LONG);
    assert_eq!(append(&log).unwrap(), Offset(1));
    assert_eq!(read_all(&log, 0).len(), 2);
}

#[test]
fn settled_owner_goes_on_without_a_lease() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = create(&engine);

    let outcome = wait(engine.gate().grant(grant(&engine, 1, Policy::ServeSettled, 5))).unwrap();

    assert_eq!((outcome.start, outcome.repeated), (Offset(0), false));
    assert_eq!(append(&log).unwrap(), Offset(0));
}

#[test]
fn revoked_epoch_serves_nothing_more() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = create(&engine);
    let first = grant(&engine, 1, Policy::ServeSettled, 5);
    wait(engine.gate().grant(first.clone())).unwrap();
    assert_eq!(append(&log).unwrap(), Offset(0));

    assert_eq!(wait(engine.gate().revoke(first.partition, first.epoch)).unwrap(), Offset(1));

    assert!(matches!(append(&log), Err(AppendError::NotOwner)));
    assert!(matches!(
        wait(engine.gate().revoke(first.partition, first.epoch)),
        Err(GrantError::NotOwner { .. })
    ));
    assert!(matches!(wait(engine.gate().grant(first)), Err(GrantError::Fenced { .. })));
    wait(engine.gate().grant(grant(&engine, 2, Policy::ServeSettled, 6))).unwrap();
    assert_eq!(append(&log).unwrap(), Offset(1));
}

#[test]
fn older_push_is_dropped_and_counted() {
    let directory = scratch();
    let engine = open(directory.path());
    create(&engine);
    wait(engine.gate().grant(grant(&engine, 2, Policy::ServeSettled, 6))).unwrap();

    let older = wait(engine.gate().grant(grant(&engine, 3, Policy::ServeSettled, 5)));

    assert!(matches!(older, Err(GrantError::Older { .. })), "{older:?}");
    assert_eq!(engine.gate().status().dropped, 1);
}

#[test]
fn epoch_of_an_earlier_run_is_never_resumed() {
    let directory = scratch();
    let engine = open(directory.path());
    let log = create(&engine);
    let first = grant(&engine, 4, Policy::ServeSettled, 5);
    wait(engine.gate().grant(first.clone())).unwrap();
    append(&log).unwrap();
    wait(engine.close()).unwrap();
    drop((engine, log));

    let engine = open(directory.path());
    let log = create(&engine);

    assert!(matches!(append(&log), Err(AppendError::NotOwner)));
    assert!(matches!(wait(engine.gate().grant(first)), Err(GrantError::Fenced { .. })));
    let repeated = grant(&engine, 5, Policy::ServeSettled, 9);
    assert!(!wait(engine.gate().grant(repeated.clone())).unwrap().repeated);
    assert!(wait(engine.gate().grant(repeated)).unwrap().repeated);
    assert_eq!(append(&log).unwrap(), Offset(1));
    assert_eq!(read_all(&log, 0).len(), 2);
}

#[test]
fn grants_of_other_sets_and_nodes_are_refused() {
    let directory = scratch();
    let engine = open(directory.path());
    create(&engine);
    let good = grant(&engine, 1, Policy::ServeSettled, 1);

    let mut other_node = good.clone();
    other_node.epoch = Epoch::named(1, NodeId::new(4).unwrap());
    assert!(matches!(wait(engine.gate().grant(other_node)), Err(GrantError::OtherNode { .. })));
    let mut larger = good.clone();
    larger
        .descriptor
        .set
        .members
        .push(Member { node: NodeId::new(4).unwrap(), storage: engine.storage() });
    assert!(matches!(
        wait(engine.gate().grant(larger)),
        Err(GrantError::ReplicasUnsupported { .. })
    ));
    let mut unknown = good;
    unknown.partition.stream = StreamId(10);
    assert!(matches!(wait(engine.gate().grant(unknown)), Err(GrantError::UnknownPartition { .. })));
}
