//! Which partitions are open, by id and by name. Changed when one is created or deleted, never by appends.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::{PartitionId, PartitionName, StreamId, StreamName};
use crate::shard::{CreateError, PartitionRecord};

/// The open partitions of one engine.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    by_id: BTreeMap<PartitionId, Arc<PartitionRecord>>,
    names: BTreeMap<PartitionName, PartitionId>,
    streams: BTreeMap<StreamName, StreamId>,
}

impl Catalog {
    /// Notes an open partition.
    pub(super) fn insert(&mut self, record: Arc<PartitionRecord>) {
        self.streams.entry(record.name.stream.clone()).or_insert(record.id.stream);
        self.names.insert(record.name.clone(), record.id);
        self.by_id.insert(record.id, record);
    }

    /// Keeps a name for a partition about to be created.
    pub(super) fn reserve(
        &mut self,
        name: &PartitionName,
        id: PartitionId,
    ) -> Result<(), CreateError> {
        match self.names.get(name) {
            Some(other) if *other != id => {
                Err(CreateError::NameTaken { name: name.clone(), id: *other })
            }
            _ => {
                self.names.insert(name.clone(), id);
                Ok(())
            }
        }
    }

    /// Gives up a name whose partition could not be created, or that was deleted.
    pub(super) fn remove(&mut self, id: &PartitionId) {
        self.by_id.remove(id);
        self.names.retain(|_, other| other != id);
    }

    /// The stream of that name, or a new one of the id given.
    pub(super) fn stream(&mut self, name: &StreamName, new: StreamId) -> StreamId {
        *self.streams.entry(name.clone()).or_insert(new)
    }

    pub(super) fn get(&self, id: &PartitionId) -> Option<&Arc<PartitionRecord>> {
        self.by_id.get(id)
    }

    pub(super) fn find(&self, name: &PartitionName) -> Option<&Arc<PartitionRecord>> {
        self.by_id.get(self.names.get(name)?)
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &Arc<PartitionRecord>> {
        self.by_id.values()
    }
}
