//! Streams, their partitions, and the elections of each.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::id::{Epoch, NodeId, StorageId};

/// How many elections of a partition are remembered.
pub const HISTORY_MAX: usize = 16;

/// What a stream is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamKind {
    /// Read by offset, by everybody.
    Log,
    /// Each record to one reader. Refused until the engine serves it.
    Queue,
}

/// What an owner does without the majority (DESIGN 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Stops when the lease ends.
    FailClosed,
    /// Goes on; the default.
    ServeSettled,
    /// Goes on, and a successor may elect itself.
    SelfElect,
}

/// Sizes and retention of a stream. 0 stands for "the engine's default" or "no limit".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSettings {
    /// Largest segment, in bytes; 0: the engine's default.
    pub segment_bytes: u64,
    /// Keep at most so many bytes a partition; 0: no limit.
    pub retention_bytes: u64,
    /// Keep records at most so long, in milliseconds of server append time; 0: no limit.
    pub retention_ms: u64,
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Its uuid; never reused.
    pub uuid: Uuid,
    /// Its name; free again once it is deleted.
    pub name: String,
    /// What it is.
    pub kind: StreamKind,
    /// Copies of each partition.
    pub replicas: u8,
    /// How many of them acknowledge.
    pub ack_quorum: u8,
    /// What goes on without the majority.
    pub policy: Policy,
    /// Sizes and retention.
    pub settings: StreamSettings,
    /// Index of the last change of the stream itself.
    pub version: u64,
    /// Index at which it was created.
    pub created_index: u64,
    /// Its partitions by number.
    pub partitions: Vec<Arc<Partition>>,
}

/// What is fixed when a term is committed (`PROTOCOL.md` 1.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// The term it belongs to.
    pub term: u32,
    /// The replica set.
    pub replica_set: Vec<(NodeId, StorageId)>,
    /// How many of it acknowledge.
    pub ack_quorum: u8,
    /// The sets to seal before this term, each with its own `ack_quorum`.
    pub seal_sets: Vec<(Vec<(NodeId, StorageId)>, u8)>,
    /// What goes on without the majority.
    pub policy: Policy,
    /// Raised by every unclean recovery.
    pub loss_generation: u32,
    /// Who may elect itself, in order.
    pub successors: Vec<NodeId>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// The descriptor of the current term.
    pub descriptor: Descriptor,
    /// `(term, 0, 0)` while electing, then the owner's epoch.
    pub epoch: Epoch,
    /// The run of the owner that the epoch belongs to.
    pub incarnation: u64,
    /// Index of the last change of this record.
    pub version: u64,
    /// The latest elections, oldest first, at most [`HISTORY_MAX`].
    pub history: VecDeque<Election>,
}

impl Partition {
    /// The owner, or `None` while a term is being decided.
    #[must_use]
    pub fn owner(&self) -> Option<NodeId> {
        self.epoch.node()
    }
}

/// Why a term was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The stream was created.
    Created,
    /// The owner came back as a new run.
    NewIncarnation,
    /// The owner was declared gone.
    OwnerGone,
    /// An operator asked.
    Requested,
    /// A successor elected itself while the majority was lost.
    SelfElected,
}

/// One line of a partition's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Election {
    /// The epoch it led to.
    pub epoch: Epoch,
    /// Why the term was taken.
    pub reason: Reason,
    /// What decided it.
    pub evidence: String,
    /// Metadata index at which it was recorded.
    pub index: u64,
}
