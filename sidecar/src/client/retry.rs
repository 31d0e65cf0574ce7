//! Decides what a failed attempt means: repeat it, look for the owner again, or give up. Pure.
//!
//! An append is repeated if nothing of the attempt before can be in the log, or if the log would know it again.

use std::time::Duration;

use super::error::ClientError;
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

/// What it does to repeat a request that may have been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Nothing: a question, or a batch that the log knows again.
    Harmless,
    /// It is done twice.
    Doubles,
}

/// Judges a node's refusal.
pub(super) fn after(error: &DataError, repeat: Repeat) -> Next {
    match error {
        DataError::Busy { retry_after_ms } => {
            Next::Pause(Duration::from_millis(*retry_after_ms).clamp(PAUSE_MIN, PAUSE_MAX))
        }
        DataError::NotOwner | DataError::Fenced { .. } | DataError::Stopping => Next::FindOwner,
        DataError::Unavailable { .. } => Next::FindOwner,
        DataError::Unknown if repeat == Repeat::Harmless => Next::FindOwner,
        _ => Next::GiveUp,
    }
}

/// Tells whether the request of an attempt that came to this may have been done.
pub(super) fn may_be_done(error: &ClientError) -> bool {
    match error {
        ClientError::Unknown { .. } | ClientError::Wire(_) => true,
        ClientError::Data(error) => {
            matches!(error, DataError::Unknown | DataError::Stopped { .. })
        }
        _ => false,
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
        assert_eq!(after(&DataError::Unknown, Repeat::Doubles), Next::GiveUp);
        assert_eq!(
            after(&DataError::Stopped { reason: String::new() }, Repeat::Doubles),
            Next::GiveUp
        );
    }

    #[test]
    fn a_batch_that_the_log_knows_again_is_repeated_when_its_fate_is_unknown() {
        assert_eq!(after(&DataError::Unknown, Repeat::Harmless), Next::FindOwner);
        let gap = DataError::OutOfOrder { expected: 0, got: 1 };
        assert_eq!(after(&gap, Repeat::Harmless), Next::GiveUp);
    }

    #[test]
    fn a_refusal_before_any_write_is_repeated_where_that_can_help() {
        assert_eq!(after(&DataError::NotOwner, Repeat::Doubles), Next::FindOwner);
        assert_eq!(
            after(&DataError::Busy { retry_after_ms: 5 }, Repeat::Doubles),
            Next::Pause(Duration::from_millis(5))
        );
        assert_eq!(after(&DataError::LeaseExpired, Repeat::Doubles), Next::GiveUp);
        assert_eq!(after(&DataError::EmptyBatch, Repeat::Doubles), Next::GiveUp);
    }

    #[test]
    fn pauses_grow_to_a_cap() {
        assert!(pause(1, 1.0) < pause(4, 1.0));
        assert_eq!(pause(40, 1.0), PAUSE_MAX);
    }
}
