//! Which voter to try next: the leader another one named, else each of the configured ones in turn. Pure.

/// The voters a node knows.
#[derive(Debug)]
pub(super) struct VoterChoice {
    voters: Vec<String>,
    next: usize,
    hint: Option<String>,
    hints_in_a_row: usize,
}

impl VoterChoice {
    /// Starts at one of the configured voters; `start` spreads many nodes over them.
    pub(super) fn new(voters: Vec<String>, start: usize) -> VoterChoice {
        VoterChoice { voters, next: start, hint: None, hints_in_a_row: 0 }
    }

    /// The voter to try now; `None` if none is configured.
    pub(super) fn next(&mut self) -> Option<String> {
        if let Some(hint) = self.hint.take() {
            return Some(hint);
        }
        let count = self.voters.len();
        let voter = self.voters.get(self.next.checked_rem(count)?)?.clone();
        self.next = (self.next + 1) % count;
        Some(voter)
    }

    /// A voter named the leader. Returns whether it should be tried without a pause: two voters that name
    /// each other must not keep a node running in circles.
    pub(super) fn follow(&mut self, address: String) -> bool {
        self.hint = Some(address);
        self.hints_in_a_row += 1;
        self.hints_in_a_row <= self.voters.len().max(1)
    }

    /// The session at the voter last returned was good: it is the first to go back to.
    pub(super) fn succeeded(&mut self, address: &str) {
        self.hints_in_a_row = 0;
        self.hint = Some(address.to_owned());
    }

    /// The voter last returned was of no use.
    pub(super) fn failed(&mut self) {
        self.hints_in_a_row = 0;
        self.hint = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice() -> VoterChoice {
        VoterChoice::new(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], 4)
    }

    #[test]
    fn every_voter_gets_its_turn() {
        let mut choice = choice();

        let tried: Vec<_> = (0..4).map(|_| choice.next().unwrap()).collect();

        assert_eq!(tried, ["b", "c", "a", "b"]);
        assert_eq!(VoterChoice::new(vec![], 0).next(), None);
    }

    #[test]
    fn a_named_leader_is_tried_first_and_once() {
        let mut choice = choice();
        choice.next();

        assert!(choice.follow("leader".to_owned()));

        assert_eq!(choice.next().unwrap(), "leader");
        assert_eq!(choice.next().unwrap(), "c");
    }

    #[test]
    fn hints_in_circles_end_in_a_pause() {
        let mut choice = choice();

        let followed: Vec<_> = (0..4).map(|_| choice.follow("x".to_owned())).collect();

        assert_eq!(followed, [true, true, true, false]);
    }
}
