//! Decides what a failed attempt means: repeat it, look for the owner again, or give up. Pure.
//!
//! An append is repeated only if nothing of the attempt before can be in the log.

use std::time::Duration;

use crate::wire::data::DataError;

/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(250);
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Try the same owner again after a pause.
    Pause(Duration),
    /// Ask who owns the partition, then try again.
    FindOwner,
    /// Tell the caller.
    GiveUp,
}

/// Judges a node's refusal.
pub(super) fn after(error: &DataError, is_append: bool) -> Next {
    match error {
        DataError::Busy { retry_after_ms } => {
            Next::Pause(Duration::from_millis(*retry_after_ms).clamp(PAUSE_MIN, PAUSE_MAX))
        }
        DataError::NotOwner | DataError::Fenced { .. } | DataError::Stopping => Next::FindOwner,
        DataError::Unavailable { .. } => Next::FindOwner,
        DataError::Unknown if !is_append => Next::FindOwner,
        _ => Next::GiveUp,
    }
}

/// How long to pause before attempt number `attempt` (from 1), with jitter; `random` is uniform in 0..1.
pub(super) fn pause(attempt: u32, random: f64) -> Duration {
    let doubled = PAUSE_MIN.saturating_mul(1 << attempt.min(10)).min(PAUSE_MAX);
    doubled.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_of_unknown_outcome_is_never_repeated() {
        assert_eq!(after(&DataError::Unknown, true), Next::GiveUp);
        assert_eq!(after(&DataError::Stopped { reason: String::new() }, true), Next::GiveUp);
    }

    #[test]
    fn a_refusal_before_any_write_is_repeated_where_that_can_help() {
        assert_eq!(after(&DataError::NotOwner, true), Next::FindOwner);
        assert_eq!(
            after(&DataError::Busy { retry_after_ms: 5 }, true),
            Next::Pause(Duration::from_millis(5))
        );
        assert_eq!(after(&DataError::LeaseExpired, true), Next::GiveUp);
        assert_eq!(after(&DataError::EmptyBatch, true), Next::GiveUp);
    }

    #[test]
    fn pauses_grow_to_a_cap() {
        assert!(pause(1, 1.0) < pause(4, 1.0));
        assert_eq!(pause(40, 1.0), PAUSE_MAX);
    }
}
