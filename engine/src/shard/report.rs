//! What shards report of opening, creating and closing.

use std::sync::Arc;

use crate::id::{Offset, PartitionId, PartitionName};
use crate::io::disk::DiskError;
use crate::partition::Recovery;

/// What one partition looked like when it had been opened.
#[derive(Clone, Debug)]
pub struct PartitionOpened {
    /// The partition.
    pub id: PartitionId,
    /// Its name.
    pub name: PartitionName,
    /// Where it ends.
    pub log_end: Offset,
    /// What had to be recovered; `None` after a clean close.
    pub recovery: Option<Recovery>,
}

/// What one shard did when it closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardReport {
    /// Partitions marked clean.
    pub(crate) clean: usize,
    /// Partitions that could not be marked clean; the next open walks them.
    pub(crate) unclean: Vec<PartitionId>,
}

/// Why a partition could not be created or opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// Another partition has the name.
    #[error("the name {name} belongs to partition {id}")]
    NameTaken {
        /// The name.
        name: PartitionName,
        /// Who has it.
        id: PartitionId,
    },
    /// There is no such partition, and under a coordinator only it creates them.
    #[error("there is no partition {name} on this node")]
    Unknown {
        /// The name.
        name: PartitionName,
    },
    /// The partition exists but was set aside at open.
    #[error("partition {id} was set aside; see the report of the open")]
    SetAside {
        /// The partition.
        id: PartitionId,
    },
    /// The mailbox is full.
    #[error("the shard is at a limit; try again in {retry_after:?}")]
    Busy {
        /// How long to wait before the next attempt.
        retry_after: std::time::Duration,
    },
    /// The device failed or is full.
    #[error("{0}")]
    Disk(Arc<DiskError>),
    /// The engine is closed.
    #[error("the engine is closed")]
    Closed,
}

/// Why an engine did not close in order. Acknowledged data is safe all the same.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// A shard's thread ended before, by a panic.
    #[error("a shard had ended before")]
    ShardEnded,
    /// Somebody else is closing it.
    #[error("the engine is being closed already")]
    AlreadyClosing,
}
