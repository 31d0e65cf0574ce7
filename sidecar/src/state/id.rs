//! The numbers and names of the metadata. Assigned in `apply` only, never reused.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A node, from 1; fits the 24 bits it has in an [`Epoch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The highest node id.
    pub const MAX: NodeId = NodeId((1 << 24) - 1);
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// The identity of one data directory: a wiped disk gets another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StorageId(pub Uuid);

/// Names one change for good, so that a retry gets the first answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperationId(pub Uuid);

impl OperationId {
    /// Makes a fresh id. For callers only: nothing in `apply` draws random numbers.
    #[must_use]
    pub fn random() -> OperationId {
        OperationId(Uuid::new_v4())
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One partition of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionId {
    /// The stream's uuid.
    pub stream: Uuid,
    /// The partition's number in it, from 0.
    pub index: u32,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stream, self.index)
    }
}

/// `(term, ballot, node)` in that order, packed in a `u64` exactly as the engine packs it
/// (32/8/24 bits; `PROTOCOL.md` 1). Node 0: nobody yet.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Below every epoch that was ever granted.
    pub const NONE: Epoch = Epoch(0);

    /// The epoch in which the sidecar names `node` the owner of `term`.
    ///
    /// # Panics
    ///
    /// Above [`NodeId::MAX`], which `apply` never assigns.
    #[must_use]
    pub fn named(term: u32, node: NodeId) -> Epoch {
        assert!(node <= NodeId::MAX, "node ids fit 24 bits");
        Epoch(u64::from(term) << 32 | u64::from(node.0))
    }

    /// The promise asked for in `term`, below every owner of that term.
    #[must_use]
    pub fn promise_of(term: u32) -> Epoch {
        Epoch(u64::from(term) << 32)
    }

    /// Returns the packed form; its order is the order of epochs.
    #[must_use]
    pub fn packed(self) -> u64 {
        self.0
    }

    /// Returns the term.
    #[must_use]
    pub fn term(self) -> u32 {
        let [a, b, c, d, ..] = self.0.to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the ballot: 0 for an owner the sidecar named.
    #[must_use]
    pub fn ballot(self) -> u8 {
        self.0.to_be_bytes()[4]
    }

    /// Returns the node, or `None` in `(term, ballot, 0)`.
    #[must_use]
    pub fn node(self) -> Option<NodeId> {
        let [.., a, b, c] = self.0.to_be_bytes();
        let id = u32::from_be_bytes([0, a, b, c]);
        (id != 0).then_some(NodeId(id))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.term(), self.ballot(), self.0 & 0xff_ffff)
    }
}
