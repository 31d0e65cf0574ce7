//! Keeps a node's picture of the metadata majority fresh: any voter's word, or that none can be reached.

use std::sync::Arc;

use palisade_engine::io::clock::ClockReading;

use super::lookup_link::LookupLink;
use super::node_state::NodeState;
use crate::role::{Majority, QuorumStatus, what_goes_on};
use crate::wire::session::{Lookup, LookupAnswer};

/// What is known of the majority.
#[derive(Clone, Debug, Default)]
pub(super) struct QuorumKnown {
    /// The last answer of any voter, and when it came.
    last: Option<(QuorumStatus, ClockReading)>,
    /// Since when no voter has answered.
    silent_since: Option<ClockReading>,
}

/// Asks at every interval until the node stops.
pub(super) async fn run(state: Arc<NodeState>) {
    let mut stopping = state.stopping.subscribe();
    let mut link = LookupLink::new(state.config.sidecars.clone());
    let mut ticks = tokio::time::interval(state.config.timings.renew);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        let answer = link.ask(&state, &Lookup::Quorum).await;
        let now = state.clock.now();
        let mut known = state.quorum();
        match answer {
            Some(LookupAnswer::Quorum(status)) => {
                *known = QuorumKnown { last: Some((*status, now)), silent_since: None };
            }
            _ => {
                known.silent_since.get_or_insert(now);
            }
        }
    }
}

impl QuorumKnown {
    /// The majority as of `now`. Without any voter that answers, nothing can be admitted as far as can be
    /// seen from here: never a green light on old news.
    pub(super) fn status(&self, now: ClockReading, voters: &[String]) -> QuorumStatus {
        let since = |earlier: ClockReading| {
            u64::try_from(now.elapsed_for_holder(earlier).as_millis()).unwrap_or(u64::MAX)
        };
        let (mut status, age_ms) = match &self.last {
            Some((status, at)) => (status.clone(), since(*at)),
            None => (never_heard(voters), 0),
        };
        status.age_ms = status.age_ms.saturating_add(age_ms);
        for voter in &mut status.voters {
            voter.last_contact_ms = voter.last_contact_ms.map(|ms| ms.saturating_add(age_ms));
        }
        let last_admitted = &mut status.majority.last_admitted_age_ms;
        *last_admitted = last_admitted.map(|ms| ms.saturating_add(age_ms));
        let is_silent = self.last.is_none() || self.silent_since.is_some();
        if is_silent {
            let leader_since_ms = self.silent_since.map_or(0, since);
            lose(&mut status, leader_since_ms);
        }
        status
    }
}

fn lose(status: &mut QuorumStatus, leader_since_ms: u64) {
    let needed = status.majority.needed;
    status.majority = Majority {
        held: false,
        live: 0,
        needed,
        margin: i64::try_from(needed).map_or(i64::MIN, |needed| -needed),
        leader: None,
        leader_since_ms,
        missing: status.voters.iter().map(|voter| voter.name.clone()).collect(),
        last_admitted_age_ms: status.majority.last_admitted_age_ms,
    };
    for voter in &mut status.voters {
        voter.live = false;
        voter.leads = false;
    }
    (status.continues, status.stops) = what_goes_on(false, false);
}

/// Before any voter has answered, the configured addresses stand for their names.
fn never_heard(voters: &[String]) -> QuorumStatus {
    let voter = |address: &String| crate::role::VoterStatus {
        name: address.clone(),
        address: address.clone(),
        admin_address: None,
        live: false,
        last_contact_ms: None,
        applied_index: 0,
        leads: false,
    };
    QuorumStatus {
        majority: Majority {
            held: false,
            live: 0,
            needed: voters.len() / 2 + 1,
            margin: 0,
            leader: None,
            leader_since_ms: 0,
            missing: Vec::new(),
            last_admitted_age_ms: None,
        },
        continues: Vec::new(),
        stops: Vec::new(),
        voters: voters.iter().map(voter).collect(),
        age_ms: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(milliseconds: u64) -> ClockReading {
        let now = Duration::from_millis(milliseconds);
        ClockReading { boottime: now, monotonic_raw: now }
    }

    fn voters() -> Vec<String> {
        ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec()
    }

    #[test]
    fn a_node_that_never_heard_a_voter_says_so() {
        let status = QuorumKnown::default().status(at(5), &voters());

        assert!(!status.majority.held);
        assert_eq!((status.majority.live, status.majority.needed), (0, 2));
        assert_eq!(status.majority.missing, voters());
        assert!(!status.stops.is_empty());
    }

    #[test]
    fn old_news_of_a_held_majority_is_no_green_light() {
        let mut held = never_heard(&voters());
        held.majority = Majority { held: true, live: 3, margin: 1, ..held.majority };
        held.age_ms = 10;
        let mut known = QuorumKnown { last: Some((held, at(100))), silent_since: None };

        let fresh = known.status(at(150), &voters());
        assert_eq!((fresh.majority.held, fresh.age_ms), (true, 60));

        known.silent_since = Some(at(200));
        let silent = known.status(at(300), &voters());

        assert_eq!((silent.majority.held, silent.majority.live), (false, 0));
        assert_eq!((silent.majority.margin, silent.age_ms), (-2, 210));
        assert_eq!(silent.majority.missing, voters());
    }
}
