//! The JSON of the admin API. Keys are what scripts rely on: add, never rename.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::role::{Answer, Majority, QuorumStatus, VoterStatus};
use crate::state::{
    Command, CreateStream, Done, Node, OperationId, Outcome, Partition, PartitionId, Policy,
    Refusal, Stream, StreamKind, StreamSettings, View,
};

/// The answer to every change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum AdminAnswer {
    /// A majority admitted it.
    Admitted {
        /// Metadata index of the change.
        index: u64,
        /// Its operation.
        operation_id: OperationId,
        /// The uuid of the stream it made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stream: Option<Uuid>,
        /// Whether it was only tried.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dry_run: bool,
    },
    /// It took no effect and never will.
    Refused {
        /// The word for scripts.
        reason: String,
        /// The sentence for people.
        #[serde(default)]
        message: String,
        /// Voters seen live from where it was asked.
        live: usize,
        /// Voters a majority needs.
        needed: usize,
        /// Voters not seen live.
        missing: Vec<String>,
        /// When asking again can make sense; 0: not without changing the request.
        retry_after_ms: u64,
    },
    /// It may take effect; ask again by id.
    Unknown {
        /// The id to ask with, or to repeat the change under.
        operation_id: OperationId,
    },
}

impl AdminAnswer {
    /// A refusal with the counts of `majority`.
    #[must_use]
    pub fn refused(reason: &Refusal, majority: &Majority, retry_after_ms: u64) -> AdminAnswer {
        AdminAnswer::Refused {
            reason: reason.code().to_owned(),
            message: reason.to_string(),
            live: majority.live,
            needed: majority.needed,
            missing: majority.missing.clone(),
            retry_after_ms,
        }
    }
}

impl From<Answer> for AdminAnswer {
    fn from(answer: Answer) -> AdminAnswer {
        match answer {
            Answer::Admitted { index, operation_id, response } => {
                let stream = stream_of(&response);
                AdminAnswer::Admitted { index, operation_id, stream, dry_run: false }
            }
            Answer::Refused { reason, live, needed, missing, retry_after } => {
                AdminAnswer::Refused {
                    reason: reason.code().to_owned(),
                    message: reason.to_string(),
                    live,
                    needed,
                    missing,
                    retry_after_ms: u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX),
                }
            }
            Answer::Unknown { operation_id } => AdminAnswer::Unknown { operation_id },
        }
    }
}

pub(super) fn stream_of(done: &Done) -> Option<Uuid> {
    match done {
        Done::StreamCreated { stream } => Some(*stream),
        _ => None,
    }
}

/// The body of `POST /v1/streams`. What is left out has the default shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateStreamRequest {
    /// The stream's name.
    pub name: String,
    /// `log` (default) or `queue`.
    pub kind: StreamKind,
    /// Default 1.
    pub partitions: u32,
    /// Default 1.
    pub replicas: u8,
    /// Default 1.
    pub ack_quorum: u8,
    /// Default `serve-settled`.
    pub policy: Policy,
    /// Largest segment; 0: the engine's default.
    pub segment_bytes: u64,
    /// Bytes kept a partition; 0: no limit.
    pub retention_bytes: u64,
    /// Milliseconds a record is kept; 0: no limit.
    pub retention_ms: u64,
    /// Only tells what would be answered.
    pub dry_run: bool,
    /// Repeat it to ask for the answer to an earlier try.
    pub operation_id: Option<OperationId>,
}

impl Default for CreateStreamRequest {
    fn default() -> CreateStreamRequest {
        CreateStreamRequest {
            name: String::new(),
            kind: StreamKind::Log,
            partitions: 1,
            replicas: 1,
            ack_quorum: 1,
            policy: Policy::ServeSettled,
            segment_bytes: 0,
            retention_bytes: 0,
            retention_ms: 0,
            dry_run: false,
            operation_id: None,
        }
    }
}

impl CreateStreamRequest {
    /// The command it stands for.
    #[must_use]
    pub fn command(&self) -> Command {
        Command::CreateStream(CreateStream {
            name: self.name.clone(),
            kind: self.kind,
            partitions: self.partitions,
            replicas: self.replicas,
            ack_quorum: self.ack_quorum,
            policy: self.policy,
            settings: StreamSettings {
                segment_bytes: self.segment_bytes,
                retention_bytes: self.retention_bytes,
                retention_ms: self.retention_ms,
            },
        })
    }
}

/// `GET /v1/status`: the quorum as the answering process sees it, and the nodes it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReport {
    /// The majority.
    pub majority: Majority,
    /// What goes on right now.
    pub continues: Vec<String>,
    /// What is refused right now.
    pub stops: Vec<String>,
    /// Each voter as seen from there.
    pub voters: Vec<VoterStatus>,
    /// The nodes.
    pub nodes: Vec<NodeEntry>,
    /// How old what is shown is.
    pub age_ms: u64,
}

impl StatusReport {
    /// Puts the quorum and the nodes together.
    #[must_use]
    pub fn new(quorum: QuorumStatus, nodes: Vec<NodeEntry>) -> StatusReport {
        let QuorumStatus { majority, continues, stops, voters, age_ms } = quorum;
        StatusReport { majority, continues, stops, voters, nodes, age_ms }
    }
}

/// One node of `GET /v1/nodes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its failure domain.
    pub rack: String,
    /// Its latest run.
    pub incarnation: u64,
    /// Whether that run was declared gone.
    pub gone: bool,
    /// Where it serves records.
    pub data_address: String,
    /// Where its admin API listens.
    pub admin_address: String,
    /// How many partitions it owns.
    pub partitions_owned: usize,
}

impl NodeEntry {
    /// All nodes of a view.
    #[must_use]
    pub fn all(view: &View) -> Vec<NodeEntry> {
        view.nodes().map(|node| NodeEntry::of(view, node)).collect()
    }

    fn of(view: &View, node: &Node) -> NodeEntry {
        NodeEntry {
            id: node.id.0,
            name: node.name.clone(),
            rack: node.rack.clone(),
            incarnation: node.incarnation,
            gone: node.gone,
            data_address: node.data_address.clone(),
            admin_address: node.admin_address.clone(),
            partitions_owned: view.owned_count(node.id),
        }
    }
}

/// One stream of `GET /v1/streams`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEntry {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: Uuid,
    /// `log` or `queue`.
    pub kind: StreamKind,
    /// How many partitions.
    pub partitions: usize,
    /// Copies of each.
    pub replicas: u8,
    /// How many acknowledge.
    pub ack_quorum: u8,
    /// What goes on without the majority.
    pub policy: Policy,
    /// Largest segment; 0: the engine's default.
    pub segment_bytes: u64,
    /// Bytes kept a partition; 0: no limit.
    pub retention_bytes: u64,
    /// Milliseconds a record is kept; 0: no limit.
    pub retention_ms: u64,
    /// Index of its last change; what `expected_version` compares.
    pub version: u64,
}

impl From<&Stream> for StreamEntry {
    fn from(stream: &Stream) -> StreamEntry {
        StreamEntry {
            name: stream.name.clone(),
            uuid: stream.uuid,
            kind: stream.kind,
            partitions: stream.partitions.len(),
            replicas: stream.replicas,
            ack_quorum: stream.ack_quorum,
            policy: stream.policy,
            segment_bytes: stream.settings.segment_bytes,
            retention_bytes: stream.settings.retention_bytes,
            retention_ms: stream.settings.retention_ms,
            version: stream.version,
        }
    }
}

/// One partition of `GET /v1/partitions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionEntry {
    /// `STREAM/NUMBER`.
    pub name: String,
    /// The stream's uuid.
    pub stream: Uuid,
    /// Its number.
    pub index: u32,
    /// `TERM.BALLOT.NODE`.
    pub epoch: String,
    /// The owner's name, if there is one.
    pub owner: Option<String>,
    /// Whether the owner's run was declared gone.
    pub owner_gone: bool,
    /// Names of the nodes with a copy.
    pub replicas: Vec<String>,
    /// How many acknowledge.
    pub ack_quorum: u8,
    /// The latest elections, oldest first.
    pub history: Vec<ElectionEntry>,
}

/// One election of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectionEntry {
    /// What it led to.
    pub epoch: String,
    /// Why it was held.
    pub reason: crate::state::Reason,
    /// What decided it.
    pub evidence: String,
    /// The metadata index that recorded it.
    pub index: u64,
}

impl PartitionEntry {
    pub(super) fn of(
        view: &View,
        id: PartitionId,
        stream: &Stream,
        partition: &Partition,
    ) -> PartitionEntry {
        let name_of = |id| view.node(id).map_or_else(|| format!("{id}"), |node| node.name.clone());
        let owner = partition.owner();
        PartitionEntry {
            name: format!("{}/{}", stream.name, id.index),
            stream: id.stream,
            index: id.index,
            epoch: partition.epoch.to_string(),
            owner: owner.map(name_of),
            owner_gone: owner.and_then(|owner| view.node(owner)).is_some_and(|node| node.gone),
            replicas: partition.descriptor.replica_set.iter().map(|(id, _)| name_of(*id)).collect(),
            ack_quorum: partition.descriptor.ack_quorum,
            history: partition
                .history
                .iter()
                .map(|election| ElectionEntry {
                    epoch: election.epoch.to_string(),
                    reason: election.reason.clone(),
                    evidence: election.evidence.clone(),
                    index: election.index,
                })
                .collect(),
        }
    }
}

/// `GET /v1/operations/ID`: what became of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationEntry {
    /// Its id.
    pub operation_id: OperationId,
    /// Index of the first try.
    pub index: u64,
    /// `admitted` or `refused`.
    pub outcome: String,
    /// The word for scripts, if it was refused.
    pub reason: Option<String>,
    /// The sentence for people, if it was refused.
    pub message: Option<String>,
    /// The uuid of the stream it made.
    pub stream: Option<Uuid>,
}

impl From<&crate::state::Operation> for OperationEntry {
    fn from(operation: &crate::state::Operation) -> OperationEntry {
        let (outcome, refusal, stream) = match &operation.outcome {
            Outcome::Done(done) => ("admitted", None, stream_of(done)),
            Outcome::Refused(refusal) => ("refused", Some(refusal), None),
        };
        OperationEntry {
            operation_id: operation.id,
            index: operation.index,
            outcome: outcome.to_owned(),
            reason: refusal.map(|refusal| refusal.code().to_owned()),
            message: refusal.map(ToString::to_string),
            stream,
        }
    }
}
