//! What can be asked of a shard, each request with the place its answer goes to.

use std::any::Any;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::id::{Epoch, JournalId, Offset, PartitionId};
use crate::io::clock::WallTime;
use crate::io::runtime::LocalFuture;
use crate::partition::{
    AppendBatch, AppendError, AppendOptions, AppendReply, ChangeError, Grant, GrantError,
    GrantOutcome, MapSource, PartitionSpec, Read, ReadError, ReserveReply, UncheckedAnswer,
};
use crate::segment::PayloadCheck;

use super::record::PartitionRecord;
use super::report::CreateError;

/// Where one answer goes.
pub(crate) type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// The number of a partition on its shard, never reused while the engine is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot(pub(crate) usize);

/// A change of a partition other than an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Drop the prefix below the offset.
    Trim(Offset),
    /// Drop the suffix from the offset on.
    Truncate(Offset),
    /// Close the active segment.
    Roll,
    /// Let expired segments go.
    ApplyRetention,
    /// Drain and mark clean; the partition takes nothing more.
    Close,
}

/// Makes a task on the shard's thread, from the shard's `Environment` as [`Any`].
pub(crate) type Task = Box<dyn FnOnce(&dyn Any) -> LocalFuture<()> + Send>;

/// One request to a shard.
pub(crate) enum Request {
    Append {
        slot: Slot,
        batch: AppendBatch,
        options: AppendOptions,
        reply: AppendReply,
    },
    Reserve {
        slot: Slot,
        payload_bytes: usize,
        reply: ReserveReply,
    },
    Read {
        slot: Slot,
        read: Read,
        payloads: PayloadCheck,
        reply: Reply<UncheckedAnswer, ReadError>,
    },
    Map {
        slot: Slot,
        offset: Offset,
        reply: Reply<Option<MapSource>, ReadError>,
    },
    OffsetAt {
        slot: Slot,
        time: WallTime,
        reply: Reply<Offset, ReadError>,
    },
    Change {
        slot: Slot,
        change: Change,
        reply: Reply<Offset, ChangeError>,
    },
    Create {
        spec: Box<PartitionSpec>,
        reply: Reply<Arc<PartitionRecord>, CreateError>,
    },
    Delete {
        id: PartitionId,
        reply: Reply<(), ChangeError>,
    },
    Grant {
        slot: Slot,
        grant: Box<Grant>,
        reply: Reply<GrantOutcome, GrantError>,
    },
    Revoke {
        slot: Slot,
        epoch: Epoch,
        reply: Reply<Offset, GrantError>,
    },
    Spawn(Task),
    /// The journals of earlier runs are not needed any more, or are to be kept aside.
    RetireJournals {
        journals: Vec<JournalId>,
        keep: bool,
    },
}

impl Request {
    /// Answers a request that will not be looked at because the shard is closed.
    pub(crate) fn refuse_closed(self) {
        // A receiver that is gone wanted no answer.
        match self {
            Request::Append { reply, .. } => reply.send(Err(AppendError::Closed)),
            Request::Reserve { reply, .. } => reply.send(Err(AppendError::Closed)),
            Request::Read { reply, .. } => drop(reply.send(Err(ReadError::Closed))),
            Request::Map { reply, .. } => drop(reply.send(Err(ReadError::Closed))),
            Request::OffsetAt { reply, .. } => drop(reply.send(Err(ReadError::Closed))),
            Request::Change { reply, .. } => drop(reply.send(Err(ChangeError::Closed))),
            Request::Create { reply, .. } => drop(reply.send(Err(CreateError::Closed))),
            Request::Delete { reply, .. } => drop(reply.send(Err(ChangeError::Closed))),
            Request::Grant { reply, .. } => drop(reply.send(Err(GrantError::Closed))),
            Request::Revoke { reply, .. } => drop(reply.send(Err(GrantError::Closed))),
            // The next open finds the journals again.
            Request::Spawn(_) | Request::RetireJournals { .. } => {}
        }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Request::Append { .. } => "Append",
            Request::Reserve { .. } => "Reserve",
            Request::Read { .. } => "Read",
            Request::Map { .. } => "Map",
            Request::OffsetAt { .. } => "OffsetAt",
            Request::Change { .. } => "Change",
            Request::Create { .. } => "Create",
            Request::Delete { .. } => "Delete",
            Request::Grant { .. } => "Grant",
            Request::Revoke { .. } => "Revoke",
            Request::Spawn(_) => "Spawn",
            Request::RetireJournals { .. } => "RetireJournals",
        })
    }
}
