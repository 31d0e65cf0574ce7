//! The gate: how a coordinator grants, renews and revokes the right to serve.
//!
//! Promises fence writes and are durable; the lease fences time and lives in atomics. Nothing here is on the
//! append path but a few atomic loads (I11).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::EngineShared;
use super::partition::MAILBOX_RETRY_AFTER;
use crate::id::{Epoch, Offset, PartitionId};
use crate::io::clock::ClockReading;
use crate::partition::{
    Grant, GrantError, GrantOutcome, LeaseState, LeaseTerm, PushPoint, Renewal,
};
use crate::shard::{Request, Sent};

/// The node's session lease as the coordinator confirmed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// This machine's clocks, read *before* the request was sent.
    pub sent: ClockReading,
    /// How long it lasts from then.
    pub duration: Duration,
    /// The lineage of the metadata that confirmed it.
    pub lineage: u64,
    /// The metadata index that must have been applied before it may be used.
    pub index: u64,
}

/// The gate as seen at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateStatus {
    /// What is left of the lease.
    pub lease: LeaseState,
    /// Up to where pushes have been applied.
    pub applied: PushPoint,
    /// Renewals and pushes that came too late.
    pub dropped: u64,
}

/// Grants, renews and revokes. `Clone` counts a reference; any thread may use it.
#[derive(Clone, Debug)]
pub struct Gate {
    pub(super) engine: Arc<EngineShared>,
}

impl Gate {
    /// Takes up a granted epoch: its promise and descriptor are durable, then its marker is, then this
    /// resolves. Until then nothing is acknowledged in it. Granting the same epoch again changes nothing.
    ///
    /// # Errors
    ///
    /// [`GrantError`]: the epoch is not taken up; see each variant.
    pub async fn grant(&self, grant: Grant) -> Result<GrantOutcome, GrantError> {
        let Some(coordinator) = self.engine.config.coordinator else {
            return Err(GrantError::Standalone);
        };
        if grant.epoch.node() != Some(coordinator.node) {
            return Err(GrantError::OtherNode { epoch: grant.epoch, node: coordinator.node });
        }
        let id = grant.partition;
        let (record, shard) = self.engine.locate(&id).ok_or(GrantError::UnknownPartition { id })?;
        let (reply, answer) = oneshot::channel();
        let request = Request::Grant { slot: record.slot, grant: Box::new(grant), reply };
        match shard.send(request) {
            Sent::Taken => answer.await.unwrap_or(Err(GrantError::Closed)),
            Sent::Full => Err(GrantError::Busy { retry_after: MAILBOX_RETRY_AFTER }),
        }
    }

    /// Gives an epoch back: admits nothing more, drains, and resolves with the log end once nothing more will
    /// be acknowledged in it.
    ///
    /// # Errors
    ///
    /// [`GrantError::NotOwner`]: the epoch is not owned here, so nothing is acknowledged in it either.
    pub async fn revoke(&self, partition: PartitionId, epoch: Epoch) -> Result<Offset, GrantError> {
        let id = partition;
        let (record, shard) = self.engine.locate(&id).ok_or(GrantError::UnknownPartition { id })?;
        let (reply, answer) = oneshot::channel();
        match shard.send(Request::Revoke { slot: record.slot, epoch, reply }) {
            Sent::Taken => answer.await.unwrap_or(Err(GrantError::Closed)),
            Sent::Full => Err(GrantError::Busy { retry_after: MAILBOX_RETRY_AFTER }),
        }
    }

    /// Extends the lease of this node. Called by a thread that is never a shard.
    pub fn renew(&self, lease: Lease) -> Renewal {
        let term = LeaseTerm { sent: lease.sent, duration: lease.duration };
        let needs = PushPoint { lineage: lease.lineage, index: lease.index };
        self.engine.gate.renew(term, needs)
    }

    /// Says that every push up to (lineage, index) has been applied: all grants and revocations up to there
    /// have resolved. Leases that named an index wait for this.
    pub fn applied(&self, lineage: u64, index: u64) {
        self.engine.gate.applied(PushPoint { lineage, index });
    }

    /// Drops the lease at once: `fail-closed` partitions serve nothing until the next renewal.
    pub fn drop_lease(&self) {
        self.engine.gate.drop_lease();
    }

    /// Looks at the lease with a fresh clock.
    #[must_use]
    pub fn status(&self) -> GateStatus {
        let (applied, dropped) = self.engine.gate.pushes();
        let lease = self.engine.gate.lease.state_at(self.engine.clock.now());
        GateStatus { lease, applied, dropped }
    }
}
