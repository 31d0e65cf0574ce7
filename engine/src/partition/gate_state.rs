//! The gate's state, shared by the coordinator's thread and every shard.
//!
//! Shards read only the lease's atomics; the lock is for the few calls of the coordinator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::lease::{LeaseTerm, SharedLease};
use super::push_order::PushPoint;

/// What became of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lease is in use.
    InUse,
    /// It will be, once the gate has been told that its index was applied.
    Waiting,
    /// It is older than what the gate has; dropped and counted.
    Dropped,
}

/// One engine's gate.
#[derive(Debug, Default)]
pub(crate) struct GateState {
    pub(crate) lease: SharedLease,
    dropped: AtomicU64,
    leases: Mutex<Leases>,
}

#[derive(Debug, Default)]
struct Leases {
    applied: PushPoint,
    newest: Option<(LeaseTerm, PushPoint)>,
    waiting: Option<(LeaseTerm, PushPoint)>,
}

impl GateState {
    /// Takes a renewal; see [`Renewal`].
    pub(crate) fn renew(&self, term: LeaseTerm, needs: PushPoint) -> Renewal {
        let mut leases = self.leases();
        let is_older = |newest: &(LeaseTerm, PushPoint)| {
            needs.lineage < newest.1.lineage || term.sent.boottime < newest.0.sent.boottime
        };
        if needs.lineage < leases.applied.lineage
            || leases.newest.as_ref().is_some_and(is_older)
            || leases.waiting.as_ref().is_some_and(is_older)
        {
            self.count_dropped();
            return Renewal::Dropped;
        }
        if leases.applied < needs {
            leases.waiting = Some((term, needs));
            return Renewal::Waiting;
        }
        leases.waiting = None;
        leases.newest = Some((term, needs));
        self.lease.set(term);
        Renewal::InUse
    }

    /// Notes that pushes up to `point` have been applied, and puts a lease that waited for it to use.
    pub(crate) fn applied(&self, point: PushPoint) {
        let mut leases = self.leases();
        leases.applied = leases.applied.max(point);
        if let Some((term, needs)) = leases.waiting
            && leases.applied >= needs
        {
            leases.waiting = None;
            leases.newest = Some((term, needs));
            self.lease.set(term);
        }
    }

    /// Drops the lease and what waits; only a renewal sent later counts again.
    pub(crate) fn drop_lease(&self) {
        let mut leases = self.leases();
        if let Some(waiting) = leases.waiting.take() {
            leases.newest = Some(waiting);
        }
        self.lease.clear();
    }

    /// Counts a push that came too late.
    pub(crate) fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Up to where pushes have been applied, and how many came too late.
    pub(crate) fn pushes(&self) -> (PushPoint, u64) {
        (self.leases().applied, self.dropped.load(Ordering::Relaxed))
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        // Every change below the lock is one assignment: a panic elsewhere leaves nothing half done.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::clock::ClockReading;
    use crate::partition::lease::LeaseState;
    use std::time::Duration;

    fn reading(ms: u64) -> ClockReading {
        let at = Duration::from_millis(ms);
        ClockReading { boottime: at, monotonic_raw: at }
    }

    fn term(sent_ms: u64) -> LeaseTerm {
        LeaseTerm { sent: reading(sent_ms), duration: Duration::from_secs(1) }
    }

    fn point(lineage: u64, index: u64) -> PushPoint {
        PushPoint { lineage, index }
    }

    fn is_usable(gate: &GateState, at_ms: u64) -> bool {
        matches!(gate.lease.state_at(reading(at_ms)), LeaseState::Usable { .. })
    }

    #[test]
    fn lease_waits_for_its_index() {
        let gate = GateState::default();
        gate.applied(point(1, 4));

        assert_eq!(gate.renew(term(100), point(1, 5)), Renewal::Waiting);
        assert!(!is_usable(&gate, 200));

        gate.applied(point(1, 5));
        assert!(is_usable(&gate, 200));
    }

    #[test]
    fn lease_of_an_older_lineage_or_request_is_dropped() {
        let gate = GateState::default();
        gate.applied(point(2, 1));
        assert_eq!(gate.renew(term(100), point(2, 1)), Renewal::InUse);

        assert_eq!(gate.renew(term(200), point(1, 900)), Renewal::Dropped);
        assert_eq!(gate.renew(term(50), point(2, 1)), Renewal::Dropped);
        assert_eq!(gate.pushes().1, 2);
    }

    #[test]
    fn dropped_lease_comes_back_only_by_a_later_request() {
        let gate = GateState::default();
        gate.applied(point(1, 1));
        assert_eq!(gate.renew(term(100), point(1, 1)), Renewal::InUse);
        assert_eq!(gate.renew(term(150), point(1, 2)), Renewal::Waiting);

        gate.drop_lease();
        gate.applied(point(1, 2));

        assert!(!is_usable(&gate, 200));
        assert_eq!(gate.renew(term(140), point(1, 2)), Renewal::Dropped);
        assert_eq!(gate.renew(term(160), point(1, 2)), Renewal::InUse);
    }
}
