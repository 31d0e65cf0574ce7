//! Why a command was refused: by the state machine, or before it got there.

use serde::{Deserialize, Serialize};

use super::id::Epoch;

/// Why a command changed nothing. [`code`](Refusal::code) is what scripts read; keep it stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No majority of the voters can be reached; nothing can be admitted until one is back.
    #[error("no majority of the voters is reachable")]
    NoMajority,
    /// A majority is live and has no leader yet; try again.
    #[error("the voters have no leader yet; an election is under way")]
    NoLeader,
    /// As many proposals wait as may wait; try again.
    #[error("too many changes are waiting; try again")]
    Busy,
    /// The command is larger than one entry may be.
    #[error("the change has {bytes} bytes; at most {bytes_max} are allowed")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// This voter is stopping.
    #[error("this voter is stopping")]
    Stopping,
    /// The cluster has its identity already.
    #[error("the cluster is formed already")]
    AlreadyFormed,
    /// A name breaks the rule.
    #[error("the name {name:?} is not allowed: {rule}")]
    BadName {
        /// The name, cut to 200 bytes.
        name: String,
        /// The rule it breaks.
        rule: String,
    },
    /// An address breaks the rule.
    #[error("the address {address:?} is not host:port")]
    BadAddress {
        /// The address, cut to 200 bytes.
        address: String,
    },
    /// A live stream has that name.
    #[error("the stream {name:?} exists already")]
    StreamExists {
        /// Its name.
        name: String,
    },
    /// No live stream is called so.
    #[error("there is no stream {name:?}")]
    StreamNotFound {
        /// Name or uuid.
        name: String,
    },
    /// No such partition.
    #[error("there is no partition {partition}")]
    PartitionNotFound {
        /// Which.
        partition: String,
    },
    /// No such node.
    #[error("there is no node {name:?}")]
    NodeNotFound {
        /// Name or id.
        name: String,
    },
    /// Queues come later.
    #[error("the engine does not serve queues yet")]
    QueueNotServed,
    /// More than one copy comes later.
    #[error("{replicas} replicas were asked for; replicas come with the replica protocol, use 1")]
    ReplicasNotServed {
        /// How many were asked for.
        replicas: u8,
    },
    /// `ack_quorum` must be between 1 and the replicas.
    #[error("ack-quorum {ack_quorum} is not between 1 and {replicas}")]
    BadAckQuorum {
        /// What was asked for.
        ack_quorum: u8,
        /// The copies.
        replicas: u8,
    },
    /// `self-elect` needs enough replicas left after a loss (`PROTOCOL.md` 24).
    #[error("self-elect is not allowed with {replicas} replicas and ack-quorum {ack_quorum}")]
    SelfElectNotAllowed {
        /// The copies.
        replicas: u8,
        /// What was asked for.
        ack_quorum: u8,
    },
    /// Between 1 and the limit.
    #[error("{partitions} partitions were asked for; between 1 and {partitions_max} are allowed")]
    BadPartitionCount {
        /// What was asked for.
        partitions: u32,
        /// The limit.
        partitions_max: u32,
    },
    /// Fewer nodes are live than copies were asked for.
    #[error("{needed} live nodes are needed and {live} are registered")]
    TooFewNodes {
        /// How many are needed.
        needed: u32,
        /// How many are live.
        live: u32,
    },
    /// A newer run of the node has registered.
    #[error("incarnation {given} of the node is over; the latest is {found}")]
    StaleIncarnation {
        /// What the command named.
        given: u64,
        /// What is recorded.
        found: u64,
    },
    /// The node came back with another data directory.
    #[error("the node {name:?} is known with another data directory; register it under a new name")]
    OtherStorage {
        /// The node.
        name: String,
    },
    /// The partition moved on.
    #[error("the partition is in epoch {found}, not {expected}")]
    EpochMismatch {
        /// What the command expected.
        expected: Epoch,
        /// What is recorded.
        found: Epoch,
    },
    /// The record was changed in between.
    #[error("the version is {found}, not {expected}")]
    VersionMismatch {
        /// What the command expected.
        expected: u64,
        /// What is recorded.
        found: u64,
    },
    /// No term can be taken: 2^32 were.
    #[error("the partition has used up its terms")]
    TermsExhausted,
    /// A limit of the metadata.
    #[error("the limit {limit} of {value} is reached")]
    LimitReached {
        /// Its name.
        limit: String,
        /// Its value.
        value: u64,
    },
    /// Not a key of the configuration, or not a value of it.
    #[error("{key:?} = {value:?} is not a known setting")]
    BadConfig {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// The operation id was used for another command.
    #[error("the operation id was used for another change")]
    OperationReused,
    /// The entry came from a newer version of the program.
    #[error("the change has version {found}; this voter knows up to {supported}")]
    NewerVersion {
        /// Its version.
        found: u8,
        /// What is known.
        supported: u8,
    },
}

impl Refusal {
    /// The word scripts read, in `reason` of the JSON answer.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::NoMajority => "no_majority",
            Refusal::NoLeader => "no_leader",
            Refusal::Busy => "busy",
            Refusal::TooLarge { .. } => "too_large",
            Refusal::Stopping => "stopping",
            Refusal::AlreadyFormed => "already_formed",
            Refusal::BadName { .. } => "bad_name",
            Refusal::BadAddress { .. } => "bad_address",
            Refusal::StreamExists { .. } => "stream_exists",
            Refusal::StreamNotFound { .. } => "stream_not_found",
            Refusal::PartitionNotFound { .. } => "partition_not_found",
            Refusal::NodeNotFound { .. } => "node_not_found",
            Refusal::QueueNotServed => "queue_not_served",
            Refusal::ReplicasNotServed { .. } => "replicas_not_served",
            Refusal::BadAckQuorum { .. } => "bad_ack_quorum",
            Refusal::SelfElectNotAllowed { .. } => "self_elect_not_allowed",
            Refusal::BadPartitionCount { .. } => "bad_partition_count",
            Refusal::TooFewNodes { .. } => "too_few_nodes",
            Refusal::StaleIncarnation { .. } => "stale_incarnation",
            Refusal::OtherStorage { .. } => "other_storage",
            Refusal::EpochMismatch { .. } => "epoch_mismatch",
            Refusal::VersionMismatch { .. } => "version_mismatch",
            Refusal::TermsExhausted => "terms_exhausted",
            Refusal::LimitReached { .. } => "limit_reached",
            Refusal::BadConfig { .. } => "bad_config",
            Refusal::OperationReused => "operation_reused",
            Refusal::NewerVersion { .. } => "newer_version",
        }
    }
}
