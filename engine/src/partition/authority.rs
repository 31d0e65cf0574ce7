//! Who may append, acknowledge and read, from the promise, the epoch owned and the lease.
//!
//! Pure: the caller reads the clock, once before an offset is assigned and again, freshly, before a
//! completed group becomes acknowledgements. Source: DESIGN 5.2 and 6.

use super::lease::LeaseState;
use crate::format::Policy;
use crate::id::Epoch;

/// What bounds the authority of an owner in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRule {
    /// Nothing: a standalone engine under its directory lock, or a policy whose epochs fence by promises.
    Unbounded,
    /// The node's lease: nothing is served past its deadline.
    UntilDeadline,
}

impl LeaseRule {
    /// The rule of a policy. Only `fail-closed` stops serving when the lease ends; the others are safe
    /// because a replaced owner can no longer gather `w`.
    #[must_use]
    pub fn of(policy: Policy) -> LeaseRule {
        match policy {
            Policy::FailClosed => LeaseRule::UntilDeadline,
            Policy::ServeSettled | Policy::SelfElect => LeaseRule::Unbounded,
        }
    }
}

/// An epoch this run has taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The epoch.
    pub epoch: Epoch,
    /// What bounds it in time.
    pub rule: LeaseRule,
}

/// What a replica has promised and what it owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The highest epoch durably promised.
    pub promised: Epoch,
    /// The epoch this run owns, if any.
    pub owned: Option<Ownership>,
}

/// Why the gate is shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shut {
    /// No epoch is owned.
    NotOwner,
    /// A higher epoch has been promised.
    Fenced {
        /// It.
        promised: Epoch,
    },
    /// The lease has run out, or its clocks cannot be trusted.
    LeaseExpired {
        /// The epoch that would be served.
        epoch: Epoch,
    },
}

impl Standing {
    /// Decides whether an append may be admitted, and in which epoch.
    ///
    /// `lease` is asked only if the answer depends on it.
    ///
    /// # Errors
    ///
    /// [`Shut`] says why not.
    pub fn admit(self, lease: impl FnOnce() -> LeaseState) -> Result<Epoch, Shut> {
        let owned = self.owned.ok_or(Shut::NotOwner)?;
        if self.promised > owned.epoch {
            return Err(Shut::Fenced { promised: self.promised });
        }
        check_rule(owned, lease)?;
        Ok(owned.epoch)
    }

    /// Decides whether what was admitted in `epoch` and is durable now may be acknowledged.
    ///
    /// # Errors
    ///
    /// [`Shut`]: it is in the log, but this node has lost the right to say so.
    pub fn acknowledge(self, epoch: Epoch, lease: impl FnOnce() -> LeaseState) -> Result<(), Shut> {
        let owned = self.owned.filter(|owned| owned.epoch == epoch);
        let Some(owned) = owned else {
            return Err(Shut::Fenced { promised: self.promised });
        };
        if self.promised > epoch {
            return Err(Shut::Fenced { promised: self.promised });
        }
        check_rule(owned, lease)
    }

    /// Decides whether committed records may be read here.
    ///
    /// A copy that owns nothing may still be read: what is committed never changes. Only `fail-closed`
    /// owners stop with their lease.
    ///
    /// # Errors
    ///
    /// [`Shut::LeaseExpired`].
    pub fn read(self, lease: impl FnOnce() -> LeaseState) -> Result<(), Shut> {
        match self.owned {
            Some(owned) => check_rule(owned, lease),
            None => Ok(()),
        }
    }
}

fn check_rule(owned: Ownership, lease: impl FnOnce() -> LeaseState) -> Result<(), Shut> {
    if owned.rule == LeaseRule::Unbounded {
        return Ok(());
    }
    match lease() {
        LeaseState::Usable { .. } => Ok(()),
        LeaseState::Expired | LeaseState::ClocksParted => {
            Err(Shut::LeaseExpired { epoch: owned.epoch })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::NodeId;
    use std::time::Duration;

    fn epoch(term: u32) -> Epoch {
        Epoch::named(term, NodeId::STANDALONE)
    }

    fn standing(promised: u32, policy: Policy) -> Standing {
        let owned = Ownership { epoch: epoch(4), rule: LeaseRule::of(policy) };
        Standing { promised: epoch(promised), owned: Some(owned) }
    }

    const USABLE: LeaseState = LeaseState::Usable { left: Duration::from_secs(1) };

    #[test]
    fn fail_closed_serves_until_the_lease_ends() {
        let standing = standing(4, Policy::FailClosed);

        assert_eq!(standing.admit(|| USABLE), Ok(epoch(4)));
        assert_eq!(
            standing.admit(|| LeaseState::Expired),
            Err(Shut::LeaseExpired { epoch: epoch(4) })
        );
        assert_eq!(
            standing.read(|| LeaseState::ClocksParted),
            Err(Shut::LeaseExpired { epoch: epoch(4) })
        );
    }

    #[test]
    fn settled_owner_goes_on_without_a_lease() {
        let standing = standing(4, Policy::ServeSettled);

        assert_eq!(standing.admit(|| LeaseState::Expired), Ok(epoch(4)));
        assert_eq!(standing.acknowledge(epoch(4), || LeaseState::Expired), Ok(()));
    }

    #[test]
    fn lease_that_ended_in_flight_withholds_the_acknowledgement() {
        let standing = standing(4, Policy::FailClosed);

        assert_eq!(
            standing.acknowledge(epoch(4), || LeaseState::Expired),
            Err(Shut::LeaseExpired { epoch: epoch(4) })
        );
    }

    #[test]
    fn higher_promise_shuts_admission_and_acknowledgement() {
        let standing = standing(5, Policy::ServeSettled);
        let fenced = Shut::Fenced { promised: epoch(5) };

        assert_eq!(standing.admit(|| USABLE), Err(fenced));
        assert_eq!(standing.acknowledge(epoch(4), || USABLE), Err(fenced));
    }

    #[test]
    fn nobody_owns_after_release() {
        let standing = Standing { promised: epoch(4), owned: None };

        assert_eq!(standing.admit(|| USABLE), Err(Shut::NotOwner));
        assert_eq!(
            standing.acknowledge(epoch(4), || USABLE),
            Err(Shut::Fenced { promised: epoch(4) })
        );
        assert_eq!(standing.read(|| LeaseState::Expired), Ok(()));
    }

    #[test]
    fn write_of_an_earlier_epoch_is_not_acknowledged_in_the_next() {
        let standing = standing(4, Policy::ServeSettled);

        assert!(standing.acknowledge(epoch(3), || USABLE).is_err());
    }
}
