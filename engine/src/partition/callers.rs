//! How many callers a partition has, as far as their appends show, and whether most of them are about to come back.
//!
//! Pure. Callers that wait for one acknowledgement before the next append all come back when a group has completed, on
//! other threads a little later than the shard could submit. Those who are first would make a small write, behind
//! which all the others wait: every second write would be small. Callers that come at their own pace have filled the
//! next group while the last one was on its way, and nobody waits.

use std::time::Duration;

/// Turns of the ring that the first ones wait for the others after a group has completed, whatever the clock says.
const TURNS_MAX: u32 = 64;

/// Fewer than so many gain little by going together.
const CALLERS_MIN: usize = 4;

/// What the last completion tells of the callers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Callers {
    answered: usize,
    until: Duration,
    turns: u32,
}

impl Callers {
    /// Notes that a completion at `now` acknowledged `answered` appends, whose group was on its way for `took`.
    ///
    /// The first to come back wait for the others at most as long: a small write would cost all of them that.
    pub(super) fn note_answered(&mut self, answered: usize, now: Duration, took: Duration) {
        if answered > 0 {
            *self = Callers { answered, until: now + took, turns: 0 };
        }
    }

    /// Notes that those who are here wait for a turn of the ring.
    pub(super) fn note_turn(&mut self) {
        self.turns += 1;
    }

    /// Tells whether more than an eighth of those who were answered last are not among the `waiting`, and may still come.
    pub(super) fn is_expecting(self, waiting: usize, now: impl FnOnce() -> Duration) -> bool {
        self.answered >= CALLERS_MIN
            && waiting < self.answered - self.answered / 8
            && self.turns < TURNS_MAX
            && now() < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_micros(1_000);
    const TOOK: Duration = Duration::from_micros(100);

    fn answered(count: usize) -> Callers {
        let mut callers = Callers::default();
        callers.note_answered(count, NOW, TOOK);
        callers
    }

    #[test]
    fn first_ones_wait_for_the_others() {
        assert!(answered(64).is_expecting(1, || NOW));
        assert!(answered(64).is_expecting(55, || NOW));
        assert!(!answered(64).is_expecting(56, || NOW));
    }

    #[test]
    fn few_callers_wait_for_nobody() {
        assert!(!Callers::default().is_expecting(0, || NOW));
        assert!(!answered(1).is_expecting(0, || NOW));
        assert!(!answered(3).is_expecting(1, || NOW));
    }

    #[test]
    fn nobody_waits_longer_than_a_write() {
        let later = |micros| move || NOW + Duration::from_micros(micros);
        assert!(answered(64).is_expecting(1, later(99)));
        assert!(!answered(64).is_expecting(1, later(100)));
    }

    #[test]
    fn clock_that_stands_still_holds_nobody_up() {
        let mut callers = answered(64);
        for _ in 0..TURNS_MAX {
            assert!(callers.is_expecting(1, || NOW));
            callers.note_turn();
        }
        assert!(!callers.is_expecting(1, || NOW));
    }

    #[test]
    fn completion_that_answers_nobody_changes_nothing() {
        let mut callers = answered(64);
        callers.note_answered(0, NOW + TOOK, TOOK);
        assert!(callers.is_expecting(1, || NOW));
    }
}
