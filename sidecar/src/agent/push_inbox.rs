//! Puts pushes in order and says what they change. Pure.
//!
//! A session's pushes describe one set; it takes effect only at a point not older than the last one taken
//! up, whichever voter sent it. Older ones are dropped and counted (I8).

use std::collections::BTreeMap;

use crate::wire::session::{
    GrantChange, GrantFrame, MetadataPoint, PartitionKey, Push, Revocation,
};

/// The grants of this node: as told in this session, and as taken up.
#[derive(Debug, Default)]
pub(super) struct PushInbox {
    applied: MetadataPoint,
    dropped: u64,
    /// What the current session says, complete once a push without `more` is in.
    told: Told,
    /// What has been handed on to be taken up.
    held: BTreeMap<PartitionKey, GrantFrame>,
}

#[derive(Debug, Default)]
struct Told {
    grants: BTreeMap<PartitionKey, GrantFrame>,
    is_started: bool,
    is_within_full: bool,
}

/// What to take up, in order: revocations, then grants, then the point is reached.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Effect {
    pub(super) at: MetadataPoint,
    pub(super) revoked: Vec<Revocation>,
    pub(super) granted: Vec<GrantFrame>,
}

/// A push that no session sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfSequence;

impl PushInbox {
    /// A new session begins: it starts with the full set.
    pub(super) fn begin_session(&mut self) {
        self.told = Told::default();
    }

    /// Takes in one push and returns what it changes, once it is whole. `None`: more is to come, or the push
    /// was dropped because a newer state is held.
    pub(super) fn take(&mut self, push: Push) -> Result<Option<Effect>, OutOfSequence> {
        self.told.take(push.change, push.more)?;
        if push.more {
            return Ok(None);
        }
        if push.at < self.applied {
            self.dropped += 1;
            return Ok(None);
        }
        Ok(Some(self.effect_of(push.at)))
    }

    /// The last point handed on.
    #[cfg(test)]
    pub(super) fn applied(&self) -> MetadataPoint {
        self.applied
    }

    /// Pushes dropped since the start.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The grants handed on.
    pub(super) fn held(&self) -> impl Iterator<Item = &GrantFrame> {
        self.held.values()
    }

    /// A grant could not be taken up: the next push offers it again.
    pub(super) fn give_back(&mut self, partition: PartitionKey) {
        self.held.remove(&partition);
    }

    fn effect_of(&mut self, at: MetadataPoint) -> Effect {
        let told = &self.told.grants;
        let revoked = self
            .held
            .values()
            .filter(|held| !told.contains_key(&held.partition))
            .map(|held| Revocation { partition: held.partition, epoch: held.epoch })
            .collect();
        let granted = told
            .values()
            .filter(|grant| self.held.get(&grant.partition) != Some(*grant))
            .cloned()
            .collect();
        self.held.clone_from(told);
        self.applied = at;
        Effect { at, revoked, granted }
    }
}

impl Told {
    fn take(&mut self, change: GrantChange, more: bool) -> Result<(), OutOfSequence> {
        match change {
            GrantChange::Full(grants) => {
                if self.is_started && !self.is_within_full {
                    self.grants.clear();
                }
                self.is_started = true;
                self.is_within_full = more;
                self.grants.extend(grants.into_iter().map(|grant| (grant.partition, grant)));
            }
            GrantChange::Delta { granted, revoked } => {
                if !self.is_started || self.is_within_full {
                    return Err(OutOfSequence);
                }
                for revocation in revoked {
                    self.grants.remove(&revocation.partition);
                }
                self.grants.extend(granted.into_iter().map(|grant| (grant.partition, grant)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::session::{Policy, Replica, Retention};

    fn at(index: u64) -> MetadataPoint {
        MetadataPoint { lineage: 1, index }
    }

    fn grant(index: u32, epoch: u64) -> GrantFrame {
        GrantFrame {
            partition: PartitionKey { stream: 1, index },
            stream_name: "s".to_owned(),
            epoch,
            replicas: vec![Replica { node: 1, storage_id: 9 }],
            ack_quorum: 1,
            policy: Policy::ServeSettled,
            loss_generation: 0,
            seal_sets: vec![],
            successors: vec![],
            retention: Retention::default(),
        }
    }

    fn full(index: u64, grants: Vec<GrantFrame>) -> Push {
        Push { at: at(index), change: GrantChange::Full(grants), more: false }
    }

    fn delta(index: u64, granted: Vec<GrantFrame>, revoked: Vec<Revocation>) -> Push {
        Push { at: at(index), change: GrantChange::Delta { granted, revoked }, more: false }
    }

    fn revocation(index: u32, epoch: u64) -> Revocation {
        Revocation { partition: PartitionKey { stream: 1, index }, epoch }
    }

    #[test]
    fn a_full_set_revokes_what_it_does_not_name() {
        let mut inbox = PushInbox::default();
        inbox.take(full(5, vec![grant(0, 1), grant(1, 1)])).unwrap();
        inbox.begin_session();

        let effect = inbox.take(full(6, vec![grant(1, 1), grant(2, 1)])).unwrap().unwrap();

        assert_eq!(effect.revoked, [revocation(0, 1)]);
        assert_eq!(effect.granted, [grant(2, 1)]);
        assert_eq!(inbox.applied(), at(6));
    }

    #[test]
    fn pushes_of_a_deposed_leader_are_dropped_and_counted() {
        let mut inbox = PushInbox::default();
        inbox.take(full(9, vec![grant(0, 2)])).unwrap();
        inbox.begin_session();

        assert_eq!(inbox.take(full(7, vec![grant(0, 1)])), Ok(None));
        assert_eq!(inbox.take(delta(8, vec![grant(1, 1)], vec![])), Ok(None));

        assert_eq!(inbox.dropped(), 2);
        assert_eq!(inbox.applied(), at(9));
        assert_eq!(inbox.held().cloned().collect::<Vec<_>>(), [grant(0, 2)]);
    }

    #[test]
    fn a_voter_that_lagged_behind_is_followed_once_it_has_caught_up() {
        let mut inbox = PushInbox::default();
        inbox.take(full(9, vec![grant(0, 2), grant(1, 1)])).unwrap();
        inbox.begin_session();
        inbox.take(full(7, vec![grant(0, 1)])).unwrap();

        let change = delta(10, vec![grant(0, 2), grant(2, 1)], vec![]);
        let effect = inbox.take(change).unwrap().unwrap();

        assert_eq!(effect.granted, [grant(2, 1)]);
        assert_eq!(effect.revoked, [revocation(1, 1)]);
    }

    #[test]
    fn a_newer_lineage_wins_over_any_index() {
        let mut inbox = PushInbox::default();
        inbox.take(full(900, vec![grant(0, 2)])).unwrap();
        inbox.begin_session();

        let at = MetadataPoint { lineage: 2, index: 3 };
        let push = Push { at, change: GrantChange::Full(vec![]), more: false };

        assert_eq!(inbox.take(push).unwrap().unwrap().revoked, [revocation(0, 2)]);
    }

    #[test]
    fn parts_of_one_state_take_effect_together() {
        let mut inbox = PushInbox::default();

        let first = Push { more: true, ..full(5, vec![grant(0, 1)]) };
        assert_eq!(inbox.take(first), Ok(None));
        let effect = inbox.take(full(5, vec![grant(1, 1)])).unwrap().unwrap();

        assert_eq!(effect.granted, [grant(0, 1), grant(1, 1)]);
    }

    #[test]
    fn a_difference_without_a_full_set_is_refused() {
        let mut inbox = PushInbox::default();

        assert_eq!(inbox.take(delta(5, vec![], vec![])), Err(OutOfSequence));
        inbox.take(Push { more: true, ..full(5, vec![]) }).unwrap();
        assert_eq!(inbox.take(delta(5, vec![], vec![])), Err(OutOfSequence));
    }

    #[test]
    fn what_could_not_be_taken_up_is_offered_again() {
        let mut inbox = PushInbox::default();
        inbox.take(full(5, vec![grant(0, 1)])).unwrap();
        inbox.give_back(grant(0, 1).partition);

        let effect = inbox.take(delta(6, vec![], vec![])).unwrap().unwrap();

        assert_eq!(effect.granted, [grant(0, 1)]);
    }
}
