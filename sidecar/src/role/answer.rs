//! What the role answers, always inside the caller's deadline.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::state::{Done, OperationId, Refusal};

/// The answer to every change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// A majority admitted it and it took effect.
    Admitted {
        /// Metadata index of the entry.
        index: u64,
        /// The id of the operation.
        operation_id: OperationId,
        /// What it made.
        response: Done,
    },
    /// It took no effect and never will.
    Refused {
        /// Why.
        reason: Refusal,
        /// Voters this process can reach, itself included.
        live: usize,
        /// Voters a majority needs.
        needed: usize,
        /// Names of the voters that cannot be reached.
        missing: Vec<String>,
        /// When trying again can make sense; zero: not without changing the request.
        retry_after: Duration,
    },
    /// It was sent and the answer was lost: it may take effect, or may have. Ask again by id, or repeat it under
    /// the same id.
    Unknown {
        /// The id to ask with.
        operation_id: OperationId,
    },
}

/// Proof that this voter led, confirmed by a majority in a round that began after the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// The lineage of the log.
    pub lineage: u64,
    /// The committed index as of that round; a lease may be used once it is applied.
    pub index: u64,
    /// The Raft term; never a fencing token.
    pub term: u64,
}

/// Where to ask instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoterHint {
    /// The voter's name.
    pub name: String,
    /// Its `--listen` address.
    pub address: String,
    /// Its `--admin-listen` address, if known.
    pub admin_address: Option<String>,
}

/// This voter could not prove that it leads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this voter does not lead (live {live}, needed {needed})")]
pub struct NotLeading {
    /// The leader as far as known.
    pub leader: Option<VoterHint>,
    /// Voters this process can reach, itself included.
    pub live: usize,
    /// Voters a majority needs.
    pub needed: usize,
}
