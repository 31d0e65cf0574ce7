//! What can be asked of the metadata. Each command names what it expects; a mismatch is refused in
//! `apply`. Encoded with postcard: variants and fields are only ever appended.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::id::{Epoch, NodeId, OperationId, PartitionId, StorageId};
use super::stream::{Policy, Reason, StreamKind, StreamSettings};

/// The most partitions one stream can have.
pub const STREAM_PARTITIONS_MAX: u32 = 100_000;

/// One command under its operation id; many of them make one entry of the Raft log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The id a retry repeats.
    pub operation: OperationId,
    /// What to do.
    pub command: Command,
}

/// One change to the metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Changes nothing: barrier of a new leader, and canary.
    Noop,
    /// The first command of a cluster's life: gives it its identity.
    FormCluster {
        /// Drawn by the voter that initialises the group.
        cluster: Uuid,
        /// The first voters, each with the identity of its directory: a wiped one is recognised.
        voters: Vec<(String, StorageId)>,
    },
    /// A node's run begins, or registers again.
    RegisterNode(RegisterNode),
    /// The lease of that run of the node has run out.
    NodeGone {
        /// The node.
        node: NodeId,
        /// The run that is over; refused if a later one has registered.
        incarnation: u64,
    },
    /// Creates a stream and names the owners of its partitions.
    CreateStream(CreateStream),
    /// Deletes a stream; its uuid stays behind as a tombstone.
    DeleteStream {
        /// The stream's uuid: a name could have been taken again.
        stream: Uuid,
        /// The version the caller saw, or `None` for any.
        expected_version: Option<u64>,
    },
    /// Takes a new term for a partition.
    ElectOwner(ElectOwner),
    /// Records who won the election of a term.
    RecordOwner(RecordOwner),
    /// Sets one key of the cluster's configuration.
    SetConfig {
        /// The key, from the known set.
        key: String,
        /// The value as text.
        value: String,
        /// The version the caller saw, or `None` for any.
        expected_version: Option<u64>,
    },
}

impl Command {
    /// Tells whether its first answer is kept for retries. The others repeat harmlessly, because they name an
    /// incarnation or an epoch.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        matches!(
            self,
            Command::CreateStream(_) | Command::DeleteStream { .. } | Command::SetConfig { .. }
        )
    }
}

impl Proposal {
    /// Tells whether repeating it under the same id can only give the first answer again.
    #[must_use]
    pub fn repeats_safely(&self) -> bool {
        self.command.is_recorded()
            || matches!(self.command, Command::Noop | Command::RegisterNode(_))
    }
}

/// See [`Command::RegisterNode`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterNode {
    /// The node's name; it keeps its id for ever.
    pub name: String,
    /// Its failure domain; may be empty.
    pub rack: String,
    /// One run of the node. Higher than that of every run before; equal when the same run registers again.
    pub incarnation: u64,
    /// The identity of its data directory.
    pub storage: StorageId,
    /// Where records are served, `host:port`; a hint, resolved again at each use.
    pub data_address: String,
    /// Where its admin API listens, `host:port`.
    pub admin_address: String,
}

/// See [`Command::CreateStream`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateStream {
    /// The stream's name: the rule of `palisade_engine::id::StreamName`.
    pub name: String,
    /// `log` or `queue`.
    pub kind: StreamKind,
    /// How many partitions, from 1.
    pub partitions: u32,
    /// Copies of each partition.
    pub replicas: u8,
    /// How many of them must have synced before an acknowledgement.
    pub ack_quorum: u8,
    /// What goes on when the majority is lost.
    pub policy: Policy,
    /// Sizes and retention.
    pub settings: StreamSettings,
}

/// See [`Command::ElectOwner`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectOwner {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch the caller saw.
    pub expected_epoch: Epoch,
    /// Why.
    pub reason: Reason,
}

/// See [`Command::RecordOwner`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordOwner {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch the caller saw: the one of the election.
    pub expected_epoch: Epoch,
    /// The winner's epoch, of the same term.
    pub epoch: Epoch,
    /// The run of the node that won.
    pub incarnation: u64,
    /// The answers that decided, as text for people.
    pub evidence: String,
}
