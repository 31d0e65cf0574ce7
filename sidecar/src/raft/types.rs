//! The types openraft is made of here.

use std::io::Cursor;

use serde::{Deserialize, Serialize};

use crate::state::{Outcome, Proposal};

/// A voter's id in the Raft group: its rank among the sorted names of the first `--peers`, from 1.
pub(crate) type RaftId = u64;

openraft::declare_raft_types!(
    /// openraft as used by the metadata role.
    pub(crate) TypeConfig:
        D = Change,
        R = Applied,
        NodeId = RaftId,
        Node = VoterNode,
        Entry = openraft::Entry<TypeConfig>,
        SnapshotData = Cursor<Vec<u8>>,
        AsyncRuntime = openraft::TokioRuntime,
);

/// One entry of the log: many proposals, applied in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) proposals: Vec<Proposal>,
}

/// The outcomes of one entry, in the order of its proposals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Applied {
    pub(crate) outcomes: Vec<Outcome>,
}

/// What the membership says about a voter. The address is a hint: `--peers` goes first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VoterNode {
    pub(crate) name: String,
    pub(crate) address: String,
}
