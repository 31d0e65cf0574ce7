//! One voter's parts, shared by its tasks: the Raft core, its stores, the contacts, the queues.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use openraft::ServerState;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::answer::{Answer, VoterHint};
use super::config::VoterConfig;
use super::confirmer::Waiter;
use super::contacts::Contacts;
use super::metadata_role::SessionConnection;
use super::proposer::Waiting;
use crate::raft::{LogStore, PeerReport, Peers, Raft, RaftId, StateMachine, VoterDirectory};
use crate::state::{Refusal, StorageId};

/// What the tasks of a voter share.
pub(super) struct Voter {
    pub(super) config: VoterConfig,
    /// The identity of its directory.
    pub(super) storage: StorageId,
    pub(super) raft: Raft,
    pub(super) machine: StateMachine,
    pub(super) log: LogStore,
    pub(super) peers: Peers,
    pub(super) contacts: Contacts,
    /// `None` once stopped: dropping it frees the lock.
    pub(super) directory: Mutex<Option<VoterDirectory>>,
    pub(super) proposals: mpsc::Sender<Waiting>,
    pub(super) confirmations: mpsc::Sender<Waiter>,
    pub(super) sessions: mpsc::Sender<SessionConnection>,
    pub(super) session_receiver: Mutex<Option<mpsc::Receiver<SessionConnection>>>,
    /// The term in which this process has committed its barrier.
    pub(super) barrier: watch::Sender<Option<u64>>,
    pub(super) started: Instant,
    pub(super) ages: Mutex<Ages>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) stopped: watch::Sender<bool>,
}

/// When things were last so, as known here.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// A change was admitted.
    pub(super) admitted: Option<Instant>,
    /// A leader said it leads, with a majority behind it.
    pub(super) led: Option<Instant>,
    /// The leader and since when it has been so.
    pub(super) leader: Option<(Option<String>, Instant)>,
}

/// Where a proposal goes now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    Here,
    To {
        name: String,
    },
    /// A majority is live, nobody leads.
    NoLeader,
    /// Fewer voters are live than a majority needs.
    NoMajority,
    /// This voter is no more.
    Stopped,
}

impl std::fmt::Debug for Voter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The Raft core has no Debug; its metrics are what one wants to see.
        let metrics = self.raft.metrics();
        let state = metrics.borrow().state;
        f.debug_struct("Voter")
            .field("name", &self.config.name)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}

impl Voter {
    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// The names of all voters: of the committed membership, before it of `--peers`.
    pub(super) fn voter_names(&self) -> Vec<String> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        let named =
            membership.voter_ids().filter_map(|id| Some(membership.get_node(&id)?.name.clone()));
        let mut names: Vec<String> = named.collect();
        if names.is_empty() {
            names = self.config.peers.iter().map(|(name, _)| name.clone()).collect();
        }
        names.sort();
        names
    }

    /// The name of a voter by its Raft id.
    pub(super) fn name_of(&self, id: RaftId) -> Option<String> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let node = metrics.membership_config.membership().get_node(&id)?;
        Some(node.name.clone())
    }

    /// Live voters (this one included), those a majority needs, and the names of those not live.
    pub(super) fn count_live(&self) -> (usize, usize, Vec<String>) {
        let silent = self.config.timings.voter_silent;
        let names = self.voter_names();
        let needed = names.len() / 2 + 1;
        let contacts = self.contacts.all();
        let is_live = |name: &String| {
            name == self.name() || contacts.get(name).is_some_and(|c| c.is_live(silent))
        };
        let (live, missing): (Vec<_>, Vec<_>) = names.into_iter().partition(is_live);
        (live.len(), needed, missing)
    }

    /// The Raft term in which this voter leads, if it does and a majority acknowledged it lately.
    ///
    /// Good for routing and for status. Proves nothing: only a round of its own does.
    pub(super) fn leading_term(&self) -> Option<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        if metrics.state != ServerState::Leader || metrics.running_state.is_err() {
            return None;
        }
        let silent = self.config.timings.voter_silent;
        let is_alone = metrics.membership_config.membership().voter_ids().count() == 1;
        let age = metrics.millis_since_quorum_ack.map(Duration::from_millis);
        (is_alone || age.is_some_and(|age| age < silent)).then_some(metrics.current_term)
    }

    /// The leader's name as far as this voter can tell and reach it.
    pub(super) fn leader(&self) -> Option<String> {
        if self.leading_term().is_some() {
            return Some(self.name().to_owned());
        }
        let silent = self.config.timings.voter_silent;
        let contacts = self.contacts.all();
        contacts
            .into_iter()
            .find(|(_, contact)| contact.is_live(silent) && contact.report.leads)
            .map(|(name, _)| name)
    }

    pub(super) fn route(&self) -> Route {
        if *self.stop.borrow() {
            return Route::Stopped;
        }
        let (live, needed, _) = self.count_live();
        if live < needed {
            return Route::NoMajority;
        }
        if self.leading_term().is_some() {
            return Route::Here;
        }
        // openraft knows a new leader before the next ping tells; a ping knows one this voter has no log from.
        let known = self.raft.metrics().borrow().current_leader;
        let known = known.and_then(|id| self.name_of(id));
        let silent = self.config.timings.voter_silent;
        let is_live = |name: &String| self.contacts.get(name).is_some_and(|c| c.is_live(silent));
        match self.leader().or_else(|| known.filter(is_live)) {
            Some(name) if name != self.name() => Route::To { name },
            _ => Route::NoLeader,
        }
    }

    /// Where to reach a voter.
    pub(super) fn hint(&self, name: &str) -> Option<VoterHint> {
        let (_, address) = self.config.peers.iter().find(|(peer, _)| peer == name)?;
        let admin_address = if name == self.name() {
            Some(self.config.admin_listen.to_string())
        } else {
            let told = self.contacts.get(name).map(|contact| contact.report.admin_address);
            told.filter(|told| !told.is_empty())
        };
        Some(VoterHint { name: name.to_owned(), address: address.to_string(), admin_address })
    }

    /// A refusal with the counts of now.
    pub(super) fn refuse(&self, reason: Refusal) -> Answer {
        let (live, needed, missing) = self.count_live();
        let retry_after = match reason {
            Refusal::NoMajority | Refusal::NoLeader | Refusal::Busy => {
                self.config.timings.retry_after
            }
            _ => Duration::ZERO,
        };
        Answer::Refused { reason, live, needed, missing, retry_after }
    }

    /// What this voter tells the others.
    pub(super) fn report(&self) -> PeerReport {
        let leads = self.leading_term().is_some();
        let admitted = self.ages().admitted.filter(|_| leads);
        PeerReport {
            applied_index: self.machine.view().index,
            leads,
            last_admitted_age_ms: admitted.map(|admitted| millis(admitted.elapsed())),
            admin_address: self.config.admin_listen.to_string(),
        }
    }

    /// Takes over what a leader tells of its age.
    pub(super) fn note_report(&self, report: &PeerReport) {
        if !report.leads {
            return;
        }
        let now = Instant::now();
        let mut ages = self.ages();
        ages.led = Some(now);
        let age = report.last_admitted_age_ms.map(Duration::from_millis);
        ages.admitted = ages.admitted.max(age.and_then(|age| now.checked_sub(age)));
    }

    pub(super) fn ages(&self) -> MutexGuard<'_, Ages> {
        self.ages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Runs until told to stop or until the Raft core has failed, then takes everything down in order.
pub(super) async fn supervise(voter: Arc<Voter>, mut tasks: JoinSet<()>) {
    let mut stop = voter.stop.subscribe();
    let mut metrics = voter.raft.metrics();
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => {}
        failed = metrics.wait_for(|metrics| metrics.running_state.is_err()) => {
            // A failed write is never retried as if it had worked: this voter leaves.
            if let Ok(metrics) = failed {
                tracing::error!(error = ?metrics.running_state, "the raft core has failed; this voter stops");
            }
        }
    }
    voter.stop.send_replace(true);
    tasks.shutdown().await;
    if let Err(error) = voter.raft.shutdown().await {
        tracing::error!(%error, "the raft core did not end in order");
    }
    voter.peers.close();
    let log = voter.log.clone();
    if let Err(error) = tokio::task::spawn_blocking(move || log.close()).await {
        tracing::error!(%error, "the log store did not close in order");
    }
    voter.directory.lock().unwrap_or_else(PoisonError::into_inner).take();
    voter.stopped.send_replace(true);
}

/// The addresses of `--peers` by name.
pub(super) fn addresses(config: &VoterConfig) -> BTreeMap<String, std::net::SocketAddr> {
    config.peers.iter().cloned().collect()
}
