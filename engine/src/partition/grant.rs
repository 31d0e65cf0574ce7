//! What a coordinator says about ownership, and every answer it can get.

use std::sync::Arc;
use std::time::Duration;

use super::push_order::PushPoint;
use crate::format::{Descriptor, Policy};
use crate::id::{Epoch, NodeId, Offset, PartitionId, StorageId};
use crate::io::disk::DiskError;

/// An epoch of one partition, given to this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch to take up.
    pub epoch: Epoch,
    /// The replica set and quorums of the epoch's term.
    pub descriptor: Descriptor,
    /// What happens when the metadata majority is lost.
    pub policy: Policy,
    /// The lineage of the metadata that decided it.
    pub lineage: u64,
    /// The metadata index that decided it.
    pub index: u64,
}

impl Grant {
    /// Where the grant stands among pushes.
    #[must_use]
    pub fn point(&self) -> PushPoint {
        PushPoint { lineage: self.lineage, index: self.index }
    }
}

/// A granted epoch that is ready: its promise and its marker are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantOutcome {
    /// The epoch.
    pub epoch: Epoch,
    /// Where the epoch's records begin.
    pub start: Offset,
    /// Whether this run owned it already, so that nothing was done.
    pub repeated: bool,
}

/// Why a grant or a revocation took no effect.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// A newer push about the partition has been applied; this one was dropped and counted.
    #[error("push {push:?} is older than {applied:?}, which has been applied")]
    Older {
        /// What was pushed.
        push: PushPoint,
        /// What had been applied.
        applied: PushPoint,
    },
    /// The promise is as high or higher; take a new term.
    #[error("fenced: epoch {promised} has been promised")]
    Fenced {
        /// The promise.
        promised: Epoch,
    },
    /// The partition is not on this node; create it first.
    #[error("partition {id} is not on this node")]
    UnknownPartition {
        /// Which.
        id: PartitionId,
    },
    /// The epoch names another node as its owner.
    #[error("epoch {epoch} belongs to another node than {node}")]
    OtherNode {
        /// The epoch.
        epoch: Epoch,
        /// This node.
        node: NodeId,
    },
    /// The replica set does not name this storage: the grant is meant for another copy.
    #[error("storage {storage} is no member of the replica set")]
    NotMember {
        /// This engine's storage.
        storage: StorageId,
    },
    /// The replica set has other members, and nothing here replicates to them.
    #[error("a set of {replicas} replicas: this release serves partitions of one")]
    ReplicasUnsupported {
        /// How many the descriptor names.
        replicas: usize,
    },
    /// The epoch to revoke is not owned here.
    #[error("this node does not own epoch {epoch}")]
    NotOwner {
        /// Which.
        epoch: Epoch,
    },
    /// The engine was opened without a coordinator and grants itself.
    #[error("the engine was opened without a coordinator")]
    Standalone,
    /// The mailbox is full.
    #[error("the shard is at a limit; try again in {retry_after:?}")]
    Busy {
        /// How long to wait before the next attempt.
        retry_after: Duration,
    },
    /// The file system has no room for the promise; nothing was promised.
    #[error("the disk is full")]
    DiskFull,
    /// The device failed; the partition takes no epoch until it is closed and opened again.
    #[error("the partition has stopped: {error}")]
    Stopped {
        /// The first error.
        error: Arc<DiskError>,
    },
    /// The partition or the engine is closed, or its shard has ended.
    #[error("the partition is closed")]
    Closed,
}
