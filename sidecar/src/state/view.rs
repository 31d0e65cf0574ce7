//! The metadata as of one index. `apply` makes the next from it; readers hold it as long as they like.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::codec::{self, DecodeError};
use super::id::{Epoch, NodeId, OperationId, PartitionId, StorageId};
use super::node::Node;
use super::outcome::Operation;
use super::stream::{Descriptor, Partition, Policy, Stream, StreamSettings};

/// One value of the cluster's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigEntry {
    /// The value as text.
    pub value: String,
    /// Index at which it was set.
    pub version: u64,
}

/// The whole metadata. Cloning copies pointers, not partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Index of the last applied entry.
    pub index: u64,
    /// Raised by `recover apply` only; orders grants before the index does (I8).
    pub lineage: u64,
    /// The cluster's identity, once formed.
    pub cluster: Option<Uuid>,
    pub(super) voters: BTreeMap<String, StorageId>,
    pub(super) node_id_last: u32,
    pub(super) stream_count: u64,
    pub(super) nodes: BTreeMap<NodeId, Arc<Node>>,
    pub(super) streams: BTreeMap<Uuid, Arc<Stream>>,
    /// Tombstones: uuid and the index of the deletion.
    pub(super) deleted: BTreeMap<Uuid, u64>,
    pub(super) config: BTreeMap<String, ConfigEntry>,
    pub(super) operations: VecDeque<Arc<Operation>>,
    #[serde(skip)]
    pub(super) derived: Derived,
}

/// Look-up tables derived from the rest; rebuilt after loading, never stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Derived {
    pub(super) node_by_name: BTreeMap<String, NodeId>,
    pub(super) stream_by_name: BTreeMap<String, Uuid>,
    pub(super) owned: BTreeMap<NodeId, Arc<BTreeSet<PartitionId>>>,
    pub(super) operation_by_id: BTreeMap<OperationId, u64>,
    pub(super) partition_count: u64,
}

/// What one node is to be granted for one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantView {
    /// The partition.
    pub partition: PartitionId,
    /// Its stream's name.
    pub stream_name: String,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// The run of the node that the epoch belongs to.
    pub incarnation: u64,
    /// The descriptor of the term.
    pub descriptor: Descriptor,
    /// What goes on without the majority.
    pub policy: Policy,
    /// Sizes and retention.
    pub settings: StreamSettings,
    /// Index at which this grant was admitted.
    pub index: u64,
}

impl View {
    /// Encodes the stored part, for a snapshot.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Decodes what [`View::encode`] made and rebuilds what is derived.
    ///
    /// # Errors
    ///
    /// [`DecodeError`]: the bytes are no view of a version this program knows.
    pub fn decode(bytes: &[u8]) -> Result<View, DecodeError> {
        let mut view: View = codec::decode(bytes)?;
        view.derive();
        Ok(view)
    }

    /// The identity of a voter's directory, once the cluster is formed.
    #[must_use]
    pub fn voter_storage(&self, name: &str) -> Option<StorageId> {
        self.voters.get(name).copied()
    }

    /// All nodes ever registered, by id.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().map(Arc::as_ref)
    }

    /// One node by id.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id).map(Arc::as_ref)
    }

    /// One node by name.
    #[must_use]
    pub fn node_by_name(&self, name: &str) -> Option<&Node> {
        self.node(*self.derived.node_by_name.get(name)?)
    }

    /// All live streams.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.streams.values().map(Arc::as_ref)
    }

    /// One live stream by uuid.
    #[must_use]
    pub fn stream(&self, uuid: Uuid) -> Option<&Stream> {
        self.streams.get(&uuid).map(Arc::as_ref)
    }

    /// One live stream by name.
    #[must_use]
    pub fn stream_by_name(&self, name: &str) -> Option<&Stream> {
        self.stream(*self.derived.stream_by_name.get(name)?)
    }

    /// One partition of a live stream.
    #[must_use]
    pub fn partition(&self, id: PartitionId) -> Option<&Partition> {
        let index = usize::try_from(id.index).ok()?;
        self.stream(id.stream)?.partitions.get(index).map(Arc::as_ref)
    }

    /// All partitions of live streams.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Stream, &Partition)> {
        self.streams().flat_map(|stream| {
            (0u32..).zip(&stream.partitions).map(move |(index, partition)| {
                (PartitionId { stream: stream.uuid, index }, stream, partition.as_ref())
            })
        })
    }

    /// What the latest run of `node` owns. Complete: what is not in it, it does not own (which never deletes data).
    #[must_use]
    pub fn grants_for(&self, node: NodeId) -> Vec<GrantView> {
        let Some(owned) = self.derived.owned.get(&node) else { return Vec::new() };
        let Some(run) = self.node(node).map(|node| node.incarnation) else { return Vec::new() };
        let grants = owned.iter().filter_map(|id| self.grant(*id));
        grants.filter(|grant| grant.incarnation == run).collect()
    }

    /// How many partitions a node owns.
    #[must_use]
    pub fn owned_count(&self, node: NodeId) -> usize {
        self.derived.owned.get(&node).map_or(0, |owned| owned.len())
    }

    /// How many partitions the live streams have.
    #[must_use]
    pub fn partition_count(&self) -> u64 {
        self.derived.partition_count
    }

    /// The grant of one partition, or `None` while it has no owner.
    #[must_use]
    pub fn grant(&self, id: PartitionId) -> Option<GrantView> {
        let stream = self.stream(id.stream)?;
        let partition = self.partition(id)?;
        partition.owner()?;
        Some(GrantView {
            partition: id,
            stream_name: stream.name.clone(),
            epoch: partition.epoch,
            incarnation: partition.incarnation,
            descriptor: partition.descriptor.clone(),
            policy: stream.policy,
            settings: stream.settings,
            index: partition.version,
        })
    }

    /// The index at which the stream of that uuid was deleted, if it was.
    #[must_use]
    pub fn tombstone(&self, uuid: Uuid) -> Option<u64> {
        self.deleted.get(&uuid).copied()
    }

    /// The configuration that was set.
    pub fn config(&self) -> impl Iterator<Item = (&str, &ConfigEntry)> {
        self.config.iter().map(|(key, entry)| (key.as_str(), entry))
    }

    /// The kept first answer of an operation.
    #[must_use]
    pub fn operation(&self, id: OperationId) -> Option<&Operation> {
        let sequence = self.derived.operation_by_id.get(&id)?;
        let first = self.operations.front()?.sequence;
        self.operations.get(usize::try_from(sequence - first).ok()?).map(Arc::as_ref)
    }
}
