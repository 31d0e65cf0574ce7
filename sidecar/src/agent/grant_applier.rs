//! Takes up what pushes change: revocations first, then grants, then the point is reached.
//!
//! Never deletes: a partition that is no longer granted stays where it is, with its promise.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use palisade_engine::engine::{Engine, Gate};
use palisade_engine::format::{Descriptor, Member, Policy, ReplicaSet};
use palisade_engine::id::{
    Epoch, NodeId, PartitionId, PartitionIndex, PartitionName, StorageId, StreamId, StreamName,
};
use palisade_engine::partition::{
    Grant, GrantError, PartitionSettings, PartitionSpec, RetentionLimits,
};

use super::push_inbox::Effect;
use crate::wire::session::{
    self, GrantFrame, GrantReport, GrantReportOutcome, MetadataPoint, PartitionKey, Revocation,
};

/// Grants taken up at a time: each costs a few durable writes, which overlap.
const GRANTS_AT_A_TIME: usize = 64;
/// How often a grant is tried again when the shard is at a limit.
const BUSY_ATTEMPTS_MAX: u32 = 200;

/// Takes up the effect, and returns what became of each part of it. Resolves once everything has.
pub(super) async fn apply(engine: &Engine, effect: Effect) -> Vec<GrantReport> {
    let gate = engine.gate();
    let mut reports = Vec::new();
    for revocation in effect.revoked {
        reports.push(revoke(&gate, revocation).await);
    }
    let at = effect.at;
    let mut running = FuturesUnordered::new();
    let mut waiting = effect.granted.into_iter();
    loop {
        while running.len() < GRANTS_AT_A_TIME {
            let Some(grant) = waiting.next() else { break };
            running.push(take_up(engine, &gate, grant, at));
        }
        match running.next().await {
            Some(report) => reports.push(report),
            None => break,
        }
    }
    gate.applied(at.lineage, at.index);
    reports
}

/// Gives one epoch back; resolves once nothing more is acknowledged in it.
pub(super) async fn revoke(gate: &Gate, revocation: Revocation) -> GrantReport {
    let partition = partition_id(revocation.partition);
    let epoch = Epoch::from_packed(revocation.epoch);
    let mut outcome = gate.revoke(partition, epoch).await.map(|_log_end| ());
    for _ in 0..BUSY_ATTEMPTS_MAX {
        let Err(GrantError::Busy { retry_after }) = outcome else { break };
        tokio::time::sleep(retry_after).await;
        outcome = gate.revoke(partition, epoch).await.map(|_log_end| ());
    }
    let outcome = match outcome {
        // Whoever does not own the epoch acknowledges nothing in it either.
        Ok(()) | Err(GrantError::NotOwner { .. } | GrantError::UnknownPartition { .. }) => {
            GrantReportOutcome::Released
        }
        Err(error) => GrantReportOutcome::Failed { reason: error.to_string() },
    };
    GrantReport { partition: revocation.partition, epoch: revocation.epoch, outcome }
}

async fn take_up(
    engine: &Engine,
    gate: &Gate,
    frame: GrantFrame,
    at: MetadataPoint,
) -> GrantReport {
    let (partition, epoch) = (frame.partition, frame.epoch);
    let mut attempt = 0;
    let outcome = loop {
        match try_take_up(engine, gate, &frame, at).await {
            Err(TakeUpError::Busy(retry_after)) if attempt < BUSY_ATTEMPTS_MAX => {
                attempt += 1;
                tokio::time::sleep(retry_after).await;
            }
            Ok(()) => break GrantReportOutcome::Ready,
            Err(TakeUpError::Fenced(promised)) => {
                break GrantReportOutcome::Fenced { promised: promised.packed() };
            }
            Err(error) => break GrantReportOutcome::Failed { reason: error.to_string() },
        }
    };
    GrantReport { partition, epoch, outcome }
}

#[derive(Debug, thiserror::Error)]
enum TakeUpError {
    #[error("the shard is at a limit; retry in {0:?}")]
    Busy(Duration),
    #[error("epoch {0} has been promised")]
    Fenced(Epoch),
    #[error("the grant makes no sense: {0}")]
    Malformed(&'static str),
    #[error("bad stream name: {0}")]
    Name(#[from] palisade_engine::id::NameError),
    #[error(transparent)]
    Create(palisade_engine::shard::CreateError),
    #[error(transparent)]
    Grant(GrantError),
}

async fn try_take_up(
    engine: &Engine,
    gate: &Gate,
    frame: &GrantFrame,
    at: MetadataPoint,
) -> Result<(), TakeUpError> {
    let id = partition_id(frame.partition);
    if engine.partition(&id).is_none() {
        let name = PartitionName {
            stream: StreamName::new(frame.stream_name.clone())?,
            index: PartitionIndex(frame.partition.index),
        };
        let settings = settings_of(engine.config().settings, frame);
        let created = engine.create_partition(PartitionSpec { id, name, settings }).await;
        created.map_err(TakeUpError::from_create)?;
    }
    let descriptor = descriptor_of(frame)?;
    let grant = Grant {
        partition: id,
        epoch: Epoch::from_packed(frame.epoch),
        policy: descriptor.policy,
        descriptor,
        lineage: at.lineage,
        index: at.index,
    };
    gate.grant(grant).await.map_err(TakeUpError::from_grant)?;
    Ok(())
}

impl TakeUpError {
    fn from_create(error: palisade_engine::shard::CreateError) -> TakeUpError {
        match error {
            palisade_engine::shard::CreateError::Busy { retry_after } => {
                TakeUpError::Busy(retry_after)
            }
            error => TakeUpError::Create(error),
        }
    }

    fn from_grant(error: GrantError) -> TakeUpError {
        match error {
            GrantError::Busy { retry_after } => TakeUpError::Busy(retry_after),
            GrantError::Fenced { promised } => TakeUpError::Fenced(promised),
            error => TakeUpError::Grant(error),
        }
    }
}

fn settings_of(defaults: PartitionSettings, frame: &GrantFrame) -> PartitionSettings {
    let retention = frame.retention;
    let settings = PartitionSettings {
        segment_bytes: retention.segment_bytes.unwrap_or(defaults.segment_bytes),
        retention: RetentionLimits {
            bytes_max: retention.bytes,
            age_max: retention.age_ms.map(Duration::from_millis),
        },
        ..defaults
    };
    settings.bounded()
}

fn descriptor_of(frame: &GrantFrame) -> Result<Descriptor, TakeUpError> {
    let successors: Option<Vec<NodeId>> =
        frame.successors.iter().map(|node| NodeId::new(*node)).collect();
    Ok(Descriptor {
        term: Epoch::from_packed(frame.epoch).term(),
        set: set_of(&frame.replicas, frame.ack_quorum)?,
        seal_sets: frame
            .seal_sets
            .iter()
            .map(|set| set_of(&set.replicas, set.ack_quorum))
            .collect::<Result<_, _>>()?,
        policy: match frame.policy {
            session::Policy::FailClosed => Policy::FailClosed,
            session::Policy::ServeSettled => Policy::ServeSettled,
            session::Policy::SelfElect => Policy::SelfElect,
        },
        loss_generation: u64::from(frame.loss_generation),
        successors: successors.ok_or(TakeUpError::Malformed("a successor without an id"))?,
    })
}

fn set_of(replicas: &[session::Replica], ack_quorum: u8) -> Result<ReplicaSet, TakeUpError> {
    let members: Option<Vec<Member>> = replicas
        .iter()
        .map(|replica| {
            let storage = StorageId(replica.storage_id);
            NodeId::new(replica.node).map(|node| Member { node, storage })
        })
        .collect();
    let members = members.ok_or(TakeUpError::Malformed("a replica without an id"))?;
    if members.is_empty() || members.len() > palisade_engine::format::REPLICAS_MAX {
        return Err(TakeUpError::Malformed("an empty or oversized replica set"));
    }
    if !(1..=members.len()).contains(&usize::from(ack_quorum)) {
        return Err(TakeUpError::Malformed("an ack quorum outside its set"));
    }
    Ok(ReplicaSet { members, ack_quorum })
}

/// The engine's id of a partition.
pub(super) fn partition_id(key: PartitionKey) -> PartitionId {
    PartitionId { stream: StreamId(key.stream), index: PartitionIndex(key.index) }
}
