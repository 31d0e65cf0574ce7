//! What voters say to each other. Postcard: variants and fields are only appended; another layout gets another
//! [`PROTOCOL_VERSION`].

use openraft::error::{InstallSnapshotError, RaftError};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::types::{RaftId, TypeConfig};
use crate::role::Answer;
use crate::state::{Proposal, StorageId};

/// The first bytes of a connection between voters.
pub(crate) const VOTER_MAGIC: [u8; 8] = *b"PALVOTE1";
/// The version of everything behind the magic.
pub(crate) const PROTOCOL_VERSION: u16 = 1;

/// Who calls, and whom.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    /// The caller's cluster, once it is in one.
    pub(crate) cluster: Option<Uuid>,
    pub(crate) from: String,
    pub(crate) to: String,
    /// The caller's directory.
    pub(crate) storage: StorageId,
}

/// The answer to a [`Hello`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum HelloAnswer {
    Welcome { cluster: Option<Uuid>, storage: StorageId },
    Refused(HelloRefusal),
}

/// Why a voter does not talk to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum HelloRefusal {
    #[error("protocol version {supported} is spoken there")]
    OtherVersion { supported: u16 },
    #[error("it belongs to cluster {cluster}")]
    OtherCluster { cluster: Uuid },
    #[error("it is voter {name:?}")]
    OtherVoter { name: String },
    #[error("{name:?} is no voter of the cluster")]
    UnknownVoter { name: String },
    #[error(
        "voter {name:?} has another data directory than the one the cluster knows: it was wiped or replaced; \
         restore the old directory or replace the voter"
    )]
    OtherStorage { name: String },
}

/// One question on a connection; each gets one [`Response`], in order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Append(AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<RaftId>),
    Snapshot(InstallSnapshotRequest<TypeConfig>),
    Propose { proposal: Proposal, deadline_ms: u64 },
    Ping(PeerReport),
}

/// One answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    Append(Result<AppendEntriesResponse<RaftId>, RaftError<RaftId>>),
    Vote(Result<VoteResponse<RaftId>, RaftError<RaftId>>),
    Snapshot(Result<InstallSnapshotResponse<RaftId>, RaftError<RaftId, InstallSnapshotError>>),
    Propose(ProposeAnswer),
    Ping(PeerReport),
}

/// The answer to a forwarded proposal.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ProposeAnswer {
    /// The leader's answer.
    Answered(Answer),
    /// Not leading; nothing was proposed.
    NotLeading,
}

/// What a voter tells with each ping and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerReport {
    pub(crate) applied_index: u64,
    /// Whether it leads and a majority acknowledged it lately.
    pub(crate) leads: bool,
    /// As the leader: milliseconds since a change was last admitted.
    pub(crate) last_admitted_age_ms: Option<u64>,
    pub(crate) admin_address: String,
}
