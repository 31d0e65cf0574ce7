//! What a node and a voter say in a session: registration, pushes, reports, renewals, look-ups.
//!
//! Every effect carries (lineage, index), the metadata state it belongs to; an older one is dropped (I8).

use serde::{Deserialize, Serialize};

use crate::role::QuorumStatus;

/// The grants one push carries at most; a larger set comes in several pushes of the same state.
pub const GRANTS_PER_PUSH_MAX: usize = 8_192;

/// A point in the history of the metadata: recovery raises the lineage, every admitted change the index.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct MetadataPoint {
    /// Which history; raised by recovery from permanent loss alone.
    pub lineage: u64,
    /// The last change applied in it.
    pub index: u64,
}

/// One partition, by ids that are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionKey {
    /// The stream's uuid.
    pub stream: u128,
    /// The partition's number in it.
    pub index: u32,
}

/// What a node says on the control lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromNode {
    /// Asks to be a member, or says where this run of a member can be reached now.
    Register(Registration),
    /// Everything up to this state has been taken up.
    Applied(MetadataPoint),
    /// What became of a grant.
    Report(GrantReport),
}

/// A node as it wants to be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Which run of it this is; rises with every start.
    pub incarnation: u64,
    /// Its storage; another one under the same name is an empty node.
    pub storage_id: u128,
    /// Where its data port listens.
    pub data_address: String,
    /// Where its admin port listens.
    pub admin_address: String,
    /// Which rack it stands in; empty if unknown.
    pub rack: String,
}

/// What became of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantReport {
    /// The partition.
    pub partition: PartitionKey,
    /// The epoch that was granted, packed.
    pub epoch: u64,
    /// What became of it.
    pub outcome: GrantReportOutcome,
}

/// What became of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrantReportOutcome {
    /// The epoch's marker is durable; appends are admitted while the policy allows.
    Ready,
    /// Nothing of that epoch is acknowledged from here on.
    Released,
    /// The replica's promise is higher.
    Fenced {
        /// The promise, packed.
        promised: u64,
    },
    /// The node could not take it up.
    Failed {
        /// Why, for people.
        reason: String,
    },
}

/// What a voter says on the control lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromVoter {
    /// The registration is admitted; pushes follow.
    Registered(Registered),
    /// Ask the leader.
    NotLeading(NotLeading),
    /// The registration was refused; waiting alone changes nothing unless it says so.
    Refused(RegistrationRefusal),
    /// A change of what the node may serve.
    Push(Push),
}

/// The terms of an admitted registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The node's id.
    pub node: u32,
    /// The cluster.
    pub cluster: u128,
    /// The state that holds the registration.
    pub at: MetadataPoint,
    /// How long one lease lasts, counted from the sending of its renewal.
    pub lease_us: u64,
    /// How often to renew.
    pub renew_every_us: u64,
}

/// This voter does not lead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotLeading {
    /// Who does, if that is known.
    pub leader: Option<Leader>,
}

/// A voter that is thought to lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: String,
}

/// Why a node was not admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationRefusal {
    /// No majority admits it now; come back.
    #[error("not admitted now: {reason}; retry in {retry_after_ms} ms")]
    Later {
        /// Why, for people.
        reason: String,
        /// When to come back.
        retry_after_ms: u64,
    },
    /// A later run of this node is registered: this process is a leftover and must not serve.
    #[error("incarnation {current} of this node is registered")]
    Superseded {
        /// The run that is registered.
        current: u64,
    },
    /// This run was declared gone; register as a new one.
    #[error("this run was declared gone; register a new incarnation")]
    DeclaredGone,
    /// The metadata refuses it for good.
    #[error("refused: {reason}")]
    Never {
        /// Why, for people.
        reason: String,
    },
}

/// What a node may serve, as of a state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Push {
    /// The state this push brings the node to, once its last part is in.
    pub at: MetadataPoint,
    /// The content.
    pub change: GrantChange,
    /// Whether more pushes of the same state follow.
    pub more: bool,
}

/// The content of a push.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GrantChange {
    /// A part of the full set: grants that no part names are no longer held.
    Full(Vec<GrantFrame>),
    /// What changed since the push before.
    Delta {
        /// New grants and new epochs of held ones.
        granted: Vec<GrantFrame>,
        /// No longer held.
        revoked: Vec<Revocation>,
    },
}

/// A grant that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// The partition.
    pub partition: PartitionKey,
    /// The epoch that ended, packed.
    pub epoch: u64,
}

/// A grant: the right to own a partition in an epoch, and all that the epoch's descriptor holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantFrame {
    /// The partition.
    pub partition: PartitionKey,
    /// The stream's name.
    pub stream_name: String,
    /// The epoch, packed.
    pub epoch: u64,
    /// The replica set of the term.
    pub replicas: Vec<Replica>,
    /// How many of them must have an entry for it to be committed.
    pub ack_quorum: u8,
    /// What goes on without a majority.
    pub policy: Policy,
    /// How often records were given up by an operator's command.
    pub loss_generation: u32,
    /// The sets that must be sealed before this term's own.
    pub seal_sets: Vec<SealSet>,
    /// Who elects itself first, by `self-elect`.
    pub successors: Vec<u32>,
    /// How the stream keeps its records.
    pub retention: Retention,
}

/// One replica of a set: a node and its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// The node.
    pub node: u32,
    /// The storage it must answer under.
    pub storage_id: u128,
}

/// A set that could still commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealSet {
    /// Its members.
    pub replicas: Vec<Replica>,
    /// Its `w`.
    pub ack_quorum: u8,
}

/// What a stream does when the metadata majority is lost (DESIGN 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// Serves while the lease lasts.
    FailClosed,
    /// A settled owner goes on.
    ServeSettled,
    /// A successor may take over.
    SelfElect,
}

/// How long a stream's records are kept; `None` is for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// At most this many bytes a partition.
    pub bytes: Option<u64>,
    /// At most this old, by the server's time.
    pub age_ms: Option<u64>,
    /// The bytes of a full segment; `None` takes the node's own setting.
    pub segment_bytes: Option<u64>,
}

/// Asks for another lease, and says how the node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The number of this renewal on its connection.
    pub sequence: u64,
    /// The last state the node has taken up.
    pub applied: MetadataPoint,
    /// How each shard is, by its number.
    pub shards: Vec<ShardProgress>,
}

/// How one shard is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardProgress {
    /// Turns of its loop so far; one that stands still is stuck.
    pub turns: u64,
    /// The age of its oldest unfinished I/O.
    pub oldest_io_us: u64,
}

/// Answers a renewal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalAnswer {
    /// The renewal's number.
    pub sequence: u64,
    /// What was decided.
    pub outcome: RenewalOutcome,
}

/// What was decided about a renewal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenewalOutcome {
    /// A majority confirmed the leader after the renewal came in. The lease may be used once `at` has been
    /// applied, and lasts `lease_us` from the moment the renewal was *sent*.
    Renewed {
        /// The state of the confirming round.
        at: MetadataPoint,
        /// How long.
        lease_us: u64,
    },
    /// Ask the leader.
    NotLeading(NotLeading),
    /// This voter knows no session of that run: register with it first.
    NotRegistered,
    /// The run's lease has run out here and it is being, or was, declared gone: register anew.
    DeclaredGone,
}

/// Asks any voter for what it has applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lookup {
    /// Who owns the partitions of a stream.
    Stream {
        /// The stream's name.
        name: String,
    },
    /// How the majority looks from the voter.
    Quorum,
}

/// Answers a look-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LookupAnswer {
    /// The stream, as of `at`.
    Stream(StreamOwners),
    /// No such stream, as of a state.
    UnknownStream {
        /// The state that has none.
        at: MetadataPoint,
    },
    /// The majority as the voter sees it.
    Quorum(Box<QuorumStatus>),
}

/// Who owns the partitions of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamOwners {
    /// The stream's uuid.
    pub stream: u128,
    /// The state the answer stands for; default (0, 0) if the answer is a node's own knowledge.
    pub at: MetadataPoint,
    /// How many partitions the stream has, its parallelism ceiling. 0 if the speaker does not know.
    pub partitions: u32,
    /// The known owners.
    pub owners: Vec<PartitionOwner>,
}

/// The owner of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionOwner {
    /// The partition's number.
    pub index: u32,
    /// The epoch, packed; compares which of two answers is newer.
    pub epoch: u64,
    /// The owning node.
    pub node: u32,
    /// Its data address.
    pub address: String,
}
