//! The lease gate driven by hand: what a coordinator of your own has to say, and what the engine answers.
//!
//! cargo run -p palisade-engine --example own_coordinator -- /tmp/coordinated

use std::time::Duration;

use palisade_engine::Partition;
use palisade_engine::engine::{Coordinator, Engine, IoChoice, Lease};
use palisade_engine::format::{Descriptor, Member, Policy, RecordBatch, ReplicaSet};
use palisade_engine::id::{Epoch, NodeId, PartitionId, PartitionIndex, StreamId};
use palisade_engine::partition::{AppendOptions, Grant, PartitionSettings, PartitionSpec};

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let directory = std::env::args().nth(1).ok_or("usage: own_coordinator DIRECTORY")?;
    let node = NodeId::new(1).ok_or("node ids start at 1")?;
    let engine = Engine::builder(directory)
        .shards(1)
        .io(IoChoice::Auto)
        .coordinator(Coordinator { node, cluster: 7 })
        .open()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(coordinate(&engine, node))
}

async fn coordinate(engine: &Engine, node: NodeId) -> Result<(), Error> {
    // Only the coordinator names partitions; their ids are never used again.
    let id = PartitionId { stream: StreamId(1), index: PartitionIndex(0) };
    let settings = PartitionSettings::default();
    let spec = PartitionSpec { id, name: "orders/0".parse()?, settings };
    let log = engine.create_partition(spec).await?;
    say("before any grant", &log).await;

    // A term above every promise this copy has made. A real coordinator commits it before it grants it.
    let term = engine.partitions()[0].promised.term() + 1;
    let epoch = Epoch::named(term, node);
    let policy = Policy::FailClosed;
    let member = Member { node, storage: engine.storage() };
    let descriptor = Descriptor {
        term,
        set: ReplicaSet { members: vec![member], ack_quorum: 1 },
        seal_sets: Vec::new(),
        policy,
        loss_generation: 0,
        successors: Vec::new(),
    };
    let index = u64::from(term);
    let grant = Grant { partition: id, epoch, descriptor, policy, lineage: 1, index };
    let gate = engine.gate();
    let granted = gate.grant(grant).await?;
    println!("granted epoch {epoch}, records from offset {}", granted.start);
    say("granted, but without a lease", &log).await;

    // The clocks are read before the request for the lease is sent: the deadline counts from then.
    let sent = engine.clock().now();
    gate.applied(1, index);
    let renewal = gate.renew(Lease { sent, duration: Duration::from_secs(4), lineage: 1, index });
    println!("renewed: {renewal:?}, {:?}", gate.status().lease);
    say("with a lease", &log).await;

    gate.drop_lease();
    say("lease dropped", &log).await;

    let log_end = gate.revoke(id, epoch).await?;
    println!("released at {log_end}: nothing more is acknowledged in {epoch}");
    say("released", &log).await;
    engine.close().await?;
    Ok(())
}

async fn say(when: &str, log: &Partition) {
    let batch = RecordBatch::single(b"a record").expect("a short record");
    match log.append(batch, AppendOptions::default()).await {
        Ok(appended) => println!("{when}: appended at {}", appended.base_offset),
        Err(refused) => println!("{when}: refused: {refused}"),
    }
}
