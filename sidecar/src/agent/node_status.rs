//! What a node says of itself: who it is, its session and lease, and its partitions.

use std::sync::atomic::Ordering;

use palisade_engine::engine::{PartitionStatus, ShardMetrics};
use palisade_engine::partition::LeaseState;
use serde::{Deserialize, Serialize};

use super::node_state::{NodeState, Phase};
use crate::wire::data::Watermarks;
use crate::wire::session::MetadataPoint;

/// A node at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its id, once it has been admitted.
    pub node: Option<u32>,
    /// Its cluster, once it has been admitted.
    pub cluster: Option<String>,
    /// Which run of it this is.
    pub incarnation: u64,
    /// Where clients connect, once the port is open.
    pub data_address: Option<String>,
    /// Where its admin API listens.
    pub admin_address: String,
    /// Whether it has a session and has taken up its grants.
    pub is_serving: bool,
    /// What it waits for, or why it gave up.
    pub reason: Option<String>,
    /// The voter its session is with.
    pub voter: Option<String>,
    /// Sessions since the start.
    pub sessions: u64,
    /// The lease.
    pub lease: LeaseStatus,
    /// How old the last word from the metadata majority is.
    pub metadata_age_ms: Option<u64>,
    /// The last state taken up.
    pub applied: MetadataPoint,
    /// Pushes that came too late and were dropped.
    pub pushes_dropped: u64,
    /// Whether the ring is used; `false` for blocking calls.
    pub is_ring: bool,
    /// Partitions on this node's disk.
    pub partitions: Vec<NodePartition>,
    /// What was found at open and not understood; nothing of it was deleted.
    pub set_aside: Vec<String>,
    /// The counters of each shard.
    pub shards: Vec<ShardCounters>,
}

/// The lease of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseStatus {
    /// Whether it may be used now.
    pub is_usable: bool,
    /// What is left of it.
    pub left_ms: u64,
    /// Renewals confirmed since the start.
    pub renewals: u64,
    /// Renewals and pushes the gate dropped because they were older than what it had.
    pub dropped: u64,
}

/// A partition on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePartition {
    /// `STREAM/NUMBER`.
    pub name: String,
    /// The stream's uuid, in hex.
    pub stream: String,
    /// The epoch this run owns, as `term.ballot.node`; `None`: it owns none.
    pub epoch: Option<String>,
    /// Whether the metadata grants it to this node; what it does not is kept, never deleted.
    pub is_granted: bool,
    /// Its watermarks.
    pub watermarks: Watermarks,
    /// Segments on disk.
    pub segments: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Whether appends are refused for lack of room.
    pub is_disk_full: bool,
    /// The device error that stopped it.
    pub stopped: Option<String>,
}

/// The counters of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardCounters {
    /// Batches given an offset.
    pub appends: u64,
    /// Records in them.
    pub records: u64,
    /// Their bytes.
    pub append_bytes: u64,
    /// Groups handed to the device.
    pub groups: u64,
    /// Their bytes, padding included.
    pub group_bytes: u64,
    /// Appends refused at a limit.
    pub busy: u64,
    /// Appends refused for another reason.
    pub refused: u64,
    /// Appends acknowledged.
    pub acknowledged: u64,
    /// Durable appends whose acknowledgement the gate withheld.
    pub withheld: u64,
    /// Turns of the shard's loop.
    pub turns: u64,
    /// Appends waiting for their acknowledgement.
    pub appends_in_flight: u64,
    /// Bytes taken on the disk that hold no record yet: what is left of segments, next ones, recycled files, the journal.
    #[serde(default)]
    pub preallocated_bytes: u64,
    /// Those of them that are files of removed segments.
    #[serde(default)]
    pub recycled_bytes: u64,
}

impl NodeStatus {
    pub(super) fn of(state: &NodeState) -> NodeStatus {
        let identity = state.identity();
        let membership = identity.membership;
        let phase = state.phase().borrow().clone();
        let (is_serving, reason) = match phase {
            Phase::Serving => (true, None),
            Phase::Waiting { reason } => (false, Some(reason)),
            Phase::Failed(error) => (false, Some(error.to_string())),
        };
        let voter = state.target.borrow().as_ref().map(|target| target.voter.clone());
        // Taken out on its own: a guard inside the literal below would live to its end.
        let pushes_dropped = state.inbox().dropped();
        let report = state.engine().map(palisade_engine::engine::Engine::report);
        NodeStatus {
            name: identity.name,
            node: membership.map(|membership| membership.node),
            cluster: membership.map(|membership| format!("{:032x}", membership.cluster)),
            incarnation: identity.incarnation,
            data_address: state.data_address().map(|address| address.to_string()),
            admin_address: state.admin_address.to_string(),
            is_serving,
            reason,
            voter,
            sessions: state.sessions.load(Ordering::Relaxed),
            lease: lease_of(state),
            metadata_age_ms: state.metadata_age().map(milliseconds),
            applied: state.applied(),
            pushes_dropped,
            is_ring: report.is_some_and(|report| report.is_ring),
            partitions: partitions_of(state),
            set_aside: report.map_or_else(Vec::new, |report| {
                report.set_aside.iter().map(|found| found.path.display().to_string()).collect()
            }),
            shards: state.engine().map_or_else(Vec::new, |engine| {
                engine.metrics().shards.iter().map(counters_of).collect()
            }),
        }
    }
}

fn lease_of(state: &NodeState) -> LeaseStatus {
    let renewals = state.renewals.load(Ordering::Relaxed);
    let Some(engine) = state.engine() else {
        return LeaseStatus { renewals, ..LeaseStatus::default() };
    };
    let gate = engine.gate().status();
    let (is_usable, left_ms) = match gate.lease {
        LeaseState::Usable { left } => (true, milliseconds(left)),
        LeaseState::Expired | LeaseState::ClocksParted => (false, 0),
    };
    LeaseStatus { is_usable, left_ms, renewals, dropped: gate.dropped }
}

fn partitions_of(state: &NodeState) -> Vec<NodePartition> {
    let Some(engine) = state.engine() else { return Vec::new() };
    let granted: std::collections::HashSet<_> = state
        .inbox()
        .held()
        .map(|grant| super::grant_applier::partition_id(grant.partition))
        .collect();
    let partitions = engine.partitions();
    partitions.iter().map(|status| partition_of(status, granted.contains(&status.id))).collect()
}

fn partition_of(status: &PartitionStatus, is_granted: bool) -> NodePartition {
    NodePartition {
        name: status.name.to_string(),
        stream: status.id.stream.to_string(),
        epoch: status.owned.map(|epoch| epoch.to_string()),
        is_granted,
        watermarks: super::data_answers::watermarks(status.watermarks),
        segments: status.segments,
        segment_bytes: status.segment_bytes,
        is_disk_full: status.is_disk_full,
        stopped: status.stopped.as_ref().map(ToString::to_string),
    }
}

fn counters_of(shard: &ShardMetrics) -> ShardCounters {
    ShardCounters {
        appends: shard.appends,
        records: shard.records,
        append_bytes: shard.append_bytes,
        groups: shard.groups,
        group_bytes: shard.group_bytes,
        busy: shard.busy,
        refused: shard.refused,
        acknowledged: shard.acknowledged,
        withheld: shard.withheld,
        turns: shard.turns,
        appends_in_flight: shard.appends_in_flight,
        preallocated_bytes: shard.preallocated_bytes(),
        recycled_bytes: shard.recycled_bytes,
    }
}

fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
