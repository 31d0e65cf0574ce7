//! Decides when a node is suspected and when it is declared gone. Pure: readings come in, decisions go out.
//!
//! Must never declare a run gone while it could hold a usable lease, whoever granted that lease.

use std::collections::BTreeMap;
use std::time::Duration;

use super::reading::Reading;

/// How far the clocks of two machines may part, in thousandths of the time that passes.
///
/// Crystal oscillators are good to 0.1 in a thousand; ten leaves room for slewing and virtual machines.
pub const DRIFT_PER_MILLE: u32 = 10;

/// The durations the table decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRules {
    /// How long a lease lasts on its holder's clock.
    pub lease: Duration,
    /// A node silent for so long is suspected.
    pub node_silent: Duration,
    /// Ticks further apart than this mean that this process itself stood still.
    pub tick_gap_max: Duration,
}

impl LeaseRules {
    /// How long the waiter waits, on its own clock, for a lease to have ended on its holder's:
    /// `lease * (1 + drift) / (1 - drift)`, rounded up.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.lease * (1000 + DRIFT_PER_MILLE) / (1000 - DRIFT_PER_MILLE) + Duration::from_nanos(1)
    }
}

/// One run of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The node's id.
    pub node: u32,
    /// The run.
    pub incarnation: u64,
}

/// What one look at the table decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Runs whose lease has ended for certain, to be declared gone. No renewal of them is answered again.
    pub gone: Vec<Run>,
    /// Runs that have fallen silent since the last look; their lease may still be good.
    pub suspected: Vec<Run>,
    /// Whether the table holds back because too many lapse at once.
    pub is_doubting: bool,
}

/// Why a renewal is not answered with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRenewed {
    /// This voter is not known to lead.
    NotLeading,
    /// The run has no session here.
    NotRegistered,
    /// The run is being declared gone.
    Condemned,
}

/// What a leader knows of the leases in force.
#[derive(Debug)]
pub struct LeaseTable {
    rules: LeaseRules,
    leading_term: Option<u64>,
    nodes: BTreeMap<u32, NodeLease>,
    doubting_since: Option<Reading>,
    last_tick: Option<Reading>,
}

#[derive(Clone, Copy, Debug)]
struct NodeLease {
    incarnation: u64,
    /// From when on the waiter counts: not before the holder sent the last renewal that was answered.
    counted_from: Reading,
    heard: Reading,
    is_registered: bool,
    is_connected: bool,
    is_suspected: bool,
    is_condemned: bool,
}

impl LeaseTable {
    /// Makes the table of a voter that does not lead.
    #[must_use]
    pub fn new(rules: LeaseRules) -> LeaseTable {
        LeaseTable {
            rules,
            leading_term: None,
            nodes: BTreeMap::new(),
            doubting_since: None,
            last_tick: None,
        }
    }

    /// Takes note that a majority confirmed this voter as the leader of `term`.
    ///
    /// On the first confirmation of a term every run in `members` is counted from `now`: the leader before
    /// may have renewed its lease a moment ago.
    pub fn lead(&mut self, term: u64, now: Reading, members: impl Iterator<Item = Run>) {
        if self.leading_term.is_some_and(|leading| term <= leading) {
            return;
        }
        self.leading_term = Some(term);
        self.doubting_since = None;
        self.last_tick = Some(now);
        self.nodes = members.map(|run| (run.node, NodeLease::unregistered(run, now))).collect();
    }

    /// Takes note that this voter may lead no more; it decides nothing until it leads again.
    pub fn depose(&mut self) {
        self.leading_term = None;
        self.nodes.clear();
        self.doubting_since = None;
        self.last_tick = None;
    }

    /// Tells whether this voter leads, as far as it knows.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.leading_term.is_some()
    }

    /// Takes note of an admitted registration of a run, the first of it or another.
    pub fn register(&mut self, run: Run, now: Reading) {
        let lease = self.nodes.entry(run.node).or_insert(NodeLease::unregistered(run, now));
        // A run that is being declared gone stays so: the command may be admitted any moment.
        let is_condemned = lease.is_condemned && lease.incarnation == run.incarnation;
        *lease = NodeLease {
            is_registered: true,
            is_connected: true,
            is_condemned,
            ..NodeLease::unregistered(run, now)
        };
    }

    /// Takes note that the metadata counts a run as a member. One that was not known, because it registered
    /// with the leader before, is counted from `now`: silent or not, it gets a whole lease.
    pub fn adopt(&mut self, run: Run, now: Reading) {
        let known = self.nodes.get(&run.node);
        if self.is_leading() && known.is_none_or(|lease| lease.incarnation < run.incarnation) {
            self.nodes.insert(run.node, NodeLease::unregistered(run, now));
        }
    }

    /// Takes note that the session of a run has ended; its lease goes on.
    pub fn disconnect(&mut self, run: Run) {
        if let Some(lease) = self.lease_of(run) {
            lease.is_connected = false;
        }
    }

    /// Decides whether a renewal may be answered with a lease, and counts from `now` on if so.
    ///
    /// `now` is read after the renewal came in, so it is not before the holder's own starting point. To be
    /// called before the answer is sent.
    ///
    /// # Errors
    ///
    /// [`NotRenewed`]: the old lease, if any, runs out as it would.
    pub fn renew(&mut self, run: Run, now: Reading) -> Result<(), NotRenewed> {
        if !self.is_leading() {
            return Err(NotRenewed::NotLeading);
        }
        let lease = self.lease_of(run).ok_or(NotRenewed::NotRegistered)?;
        if lease.is_condemned {
            return Err(NotRenewed::Condemned);
        }
        if !lease.is_registered {
            return Err(NotRenewed::NotRegistered);
        }
        lease.counted_from = now;
        lease.heard = now;
        lease.is_suspected = false;
        Ok(())
    }

    /// Looks at every lease. `confirmed` is when the latest majority round that confirmed this leader began.
    pub fn tick(&mut self, now: Reading, confirmed: Reading) -> Decision {
        let mut decision = Decision::default();
        if !self.is_leading() {
            return decision;
        }
        self.forgive_own_stall(now);
        decision.suspected = self.suspect(now);
        let wait = self.rules.wait();
        let is_lapsed =
            |lease: &NodeLease| !lease.is_condemned && now.since(lease.counted_from) > wait;
        if !self.nodes.values().any(is_lapsed) {
            self.doubting_since = None;
            return decision;
        }
        if self.is_mass_lapse() && !self.has_doubted_enough(now, confirmed) {
            decision.is_doubting = true;
            return decision;
        }
        for (node, lease) in self.nodes.iter_mut().filter(|(_, lease)| is_lapsed(lease)) {
            lease.is_condemned = true;
            decision.gone.push(Run { node: *node, incarnation: lease.incarnation });
        }
        decision
    }

    /// Takes note that the metadata no longer counts the run as a member: nothing is left to decide.
    pub fn forget(&mut self, run: Run) {
        if self.lease_of(run).is_some() {
            self.nodes.remove(&run.node);
        }
    }

    /// Runs that were condemned and are still members: the command that says so is to be repeated.
    #[must_use]
    pub fn condemned(&self) -> Vec<Run> {
        let condemned = self.nodes.iter().filter(|(_, lease)| lease.is_condemned);
        condemned.map(|(node, lease)| Run { node: *node, incarnation: lease.incarnation }).collect()
    }

    /// Tells how many runs have a session with this leader.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.nodes.values().filter(|lease| lease.is_registered && lease.is_connected).count()
    }

    /// The runs that are silent.
    #[must_use]
    pub fn suspected(&self) -> Vec<Run> {
        let suspected = self.nodes.iter().filter(|(_, lease)| lease.is_suspected);
        suspected.map(|(node, lease)| Run { node: *node, incarnation: lease.incarnation }).collect()
    }

    fn lease_of(&mut self, run: Run) -> Option<&mut NodeLease> {
        self.nodes.get_mut(&run.node).filter(|lease| lease.incarnation == run.incarnation)
    }

    /// While this process stood still, renewals may have come in unread. Everybody gets the time a node may
    /// be silent to be heard again.
    fn forgive_own_stall(&mut self, now: Reading) {
        let gap = self.last_tick.map_or(Duration::ZERO, |last| now.since(last));
        self.last_tick = Some(now);
        if gap <= self.rules.tick_gap_max {
            return;
        }
        let grace = self.rules.wait().saturating_sub(self.rules.node_silent);
        for lease in self.nodes.values_mut() {
            lease.heard = now;
            if now.since(lease.counted_from) > grace {
                // Counting from later than needed is always safe; `now` is simplest.
                lease.counted_from = now;
            }
        }
    }

    fn suspect(&mut self, now: Reading) -> Vec<Run> {
        let mut suspected = Vec::new();
        for (node, lease) in &mut self.nodes {
            let is_silent = now.since(lease.heard) > self.rules.node_silent;
            let is_suspect = is_silent || (lease.is_registered && !lease.is_connected);
            if is_suspect && !lease.is_suspected {
                suspected.push(Run { node: *node, incarnation: lease.incarnation });
            }
            lease.is_suspected = is_suspect;
        }
        suspected
    }

    /// More than one node, and more than a fifth, have lapsed or are about to: it may be us.
    fn is_mass_lapse(&self) -> bool {
        let at_risk = self.nodes.values().filter(|lease| lease.is_suspected).count();
        at_risk > 1 && at_risk * 5 > self.nodes.len()
    }

    /// A majority must have confirmed us in a round that began after the doubt, and everybody must have had
    /// a whole further lease to be heard.
    fn has_doubted_enough(&mut self, now: Reading, confirmed: Reading) -> bool {
        let since = *self.doubting_since.get_or_insert(now);
        let is_confirmed = confirmed.since(since) > Duration::ZERO;
        is_confirmed && now.since(since) > self.rules.lease
    }
}

impl NodeLease {
    fn unregistered(run: Run, now: Reading) -> NodeLease {
        NodeLease {
            incarnation: run.incarnation,
            counted_from: now,
            heard: now,
            is_registered: false,
            is_connected: false,
            is_suspected: false,
            is_condemned: false,
        }
    }
}

#[cfg(test)]
#[path = "lease_table_tests.rs"]
mod tests;
