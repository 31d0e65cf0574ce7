//! The rules of promises: they never fall, and a granted epoch is taken up only above the promise (I4).

use crate::id::Epoch;

/// What a request for a promise, or a grant, meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromiseVerdict {
    /// Above the promise: it must be made durable before anything is said.
    Raise,
    /// Exactly what has been promised: nothing to do, the answer may be repeated.
    Repeat,
    /// Below the promise: refused for ever.
    Refuse {
        /// What has been promised.
        promised: Epoch,
    },
}

/// Judges a request to promise `asked` by a replica that has durably promised `promised`.
#[must_use]
pub fn judge_promise(promised: Epoch, asked: Epoch) -> PromiseVerdict {
    match asked.cmp(&promised) {
        std::cmp::Ordering::Greater => PromiseVerdict::Raise,
        std::cmp::Ordering::Equal => PromiseVerdict::Repeat,
        std::cmp::Ordering::Less => PromiseVerdict::Refuse { promised },
    }
}

/// Judges whether this run may take up the granted epoch `granted`.
///
/// `owned` is the epoch this incarnation has taken up already, if any. An epoch whose promise is durable but
/// that this incarnation did not take up belongs to an earlier run and is never resumed (`PROTOCOL.md` 1.3).
#[must_use]
pub fn judge_take_up(promised: Epoch, owned: Option<Epoch>, granted: Epoch) -> PromiseVerdict {
    match judge_promise(promised, granted) {
        PromiseVerdict::Repeat if owned != Some(granted) => PromiseVerdict::Refuse { promised },
        verdict => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::NodeId;

    fn epoch(term: u32, node: u32) -> Epoch {
        Epoch::named(term, NodeId::new(node).expect("a valid node id"))
    }

    #[test]
    fn promise_rises_and_never_falls() {
        assert_eq!(judge_promise(epoch(3, 1), epoch(4, 1)), PromiseVerdict::Raise);
        assert_eq!(
            judge_promise(epoch(4, 1), epoch(3, 9)),
            PromiseVerdict::Refuse { promised: epoch(4, 1) }
        );
        assert_eq!(judge_promise(epoch(4, 1), epoch(4, 1)), PromiseVerdict::Repeat);
    }

    #[test]
    fn owner_of_a_term_is_above_the_promise_asked_for_it() {
        assert_eq!(judge_promise(Epoch::promise_of(4), epoch(4, 1)), PromiseVerdict::Raise);
    }

    #[test]
    fn epoch_of_an_earlier_run_is_never_resumed() {
        let promised = epoch(4, 1);

        assert_eq!(judge_take_up(promised, None, promised), PromiseVerdict::Refuse { promised });
        assert_eq!(judge_take_up(promised, Some(promised), promised), PromiseVerdict::Repeat);
        assert_eq!(judge_take_up(promised, None, epoch(5, 1)), PromiseVerdict::Raise);
    }
}
