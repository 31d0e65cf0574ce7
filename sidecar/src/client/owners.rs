//! What the client knows of owners: the newest answer for each partition, by epoch. Pure.

use std::collections::HashMap;

use crate::wire::session::{MetadataPoint, PartitionOwner, StreamOwners};

/// The streams the client keeps owners of; the one asked for longest ago goes first.
pub(super) const STREAMS_MAX: usize = 10_000;

/// The owners of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownStream {
    pub(super) stream: u128,
    pub(super) partitions: u32,
    at: MetadataPoint,
    owners: HashMap<u32, PartitionOwner>,
}

impl KnownStream {
    /// Takes in an answer. One about another uuid replaces what was known if it is as new: the name may
    /// have been given to another stream.
    pub(super) fn merge(&mut self, answer: StreamOwners) {
        if self.stream != answer.stream {
            if self.partitions > 0 && answer.at < self.at {
                return;
            }
            *self = KnownStream { stream: answer.stream, ..KnownStream::default() };
        }
        self.at = self.at.max(answer.at);
        // The number of partitions only grows.
        self.partitions = self.partitions.max(answer.partitions);
        for owner in answer.owners {
            let known = self.owners.get(&owner.index);
            if known.is_none_or(|known| known.epoch <= owner.epoch) {
                self.owners.insert(owner.index, owner);
            }
        }
    }

    /// The owner of a partition, if one is known.
    pub(super) fn owner(&self, partition: u32) -> Option<&PartitionOwner> {
        self.owners.get(&partition)
    }

    /// Everything known, in the form of an answer.
    pub(super) fn owners(&self) -> StreamOwners {
        let mut owners: Vec<_> = self.owners.values().cloned().collect();
        owners.sort_by_key(|owner| owner.index);
        StreamOwners { stream: self.stream, at: self.at, partitions: self.partitions, owners }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(stream: u128, index: u64, owners: &[(u32, u64, &str)]) -> StreamOwners {
        StreamOwners {
            stream,
            at: MetadataPoint { lineage: 0, index },
            partitions: 4,
            owners: owners
                .iter()
                .map(|&(index, epoch, address)| PartitionOwner {
                    index,
                    epoch,
                    node: 1,
                    address: address.to_owned(),
                })
                .collect(),
        }
    }

    #[test]
    fn the_higher_epoch_wins_whoever_said_it_last() {
        let mut known = KnownStream::default();

        known.merge(answer(1, 5, &[(0, 3, "a"), (1, 3, "b")]));
        known.merge(answer(1, 4, &[(0, 2, "old"), (1, 4, "c")]));

        assert_eq!(known.owner(0).unwrap().address, "a");
        assert_eq!(known.owner(1).unwrap().address, "c");
        assert!(known.owner(2).is_none());
    }

    #[test]
    fn a_name_given_anew_replaces_the_stream() {
        let mut known = KnownStream::default();
        known.merge(answer(1, 5, &[(0, 9, "a")]));

        known.merge(answer(2, 4, &[(0, 1, "stale")]));
        assert_eq!(known.stream, 1);
        known.merge(answer(2, 6, &[(0, 1, "b")]));

        assert_eq!(known.owner(0).unwrap().address, "b");
    }
}
