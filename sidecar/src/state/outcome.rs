//! What `apply` answers: the same on every voter.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::id::{Epoch, NodeId, OperationId};
use super::refusal::Refusal;

/// The answer of the state machine to one proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The command took effect.
    Done(Done),
    /// It changed nothing.
    Refused(Refusal),
}

/// What a command that took effect made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Done {
    /// Nothing to tell.
    Nothing,
    /// The node has this id; its grants are those of the view at this index.
    NodeRegistered {
        /// Its id.
        node: NodeId,
        /// The cluster it is in.
        cluster: Uuid,
    },
    /// The stream exists.
    StreamCreated {
        /// Its uuid.
        stream: Uuid,
    },
    /// The partition has a new term.
    OwnerElected {
        /// `(term, 0, 0)` while electing, else the owner's.
        epoch: Epoch,
    },
}

/// The kept first answer of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Counts recorded operations.
    pub sequence: u64,
    /// Its id.
    pub id: OperationId,
    /// Checksum of the command, to tell a retry from a reused id.
    pub command_crc: u32,
    /// Index of the first attempt.
    pub index: u64,
    /// The first answer.
    pub outcome: Outcome,
}
