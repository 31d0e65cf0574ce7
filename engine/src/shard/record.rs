//! What every thread may know of a partition without asking its shard.

use std::sync::Arc;

use super::request::Slot;
use crate::id::{PartitionId, PartitionName};
use crate::partition::SharedStatus;

/// A partition that has been opened on a shard.
#[derive(Debug)]
pub(crate) struct PartitionRecord {
    pub(crate) id: PartitionId,
    pub(crate) name: PartitionName,
    pub(crate) slot: Slot,
    pub(crate) status: Arc<SharedStatus>,
}
