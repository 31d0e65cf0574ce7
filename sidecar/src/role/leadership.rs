//! What a voter does of its own accord: form the cluster once, commit barriers, keep the canary, stop being a stale
//! leader.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use openraft::ServerState;
use openraft::error::{InitializeError, RaftError};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::answer::Answer;
use super::voter::Voter;
use crate::raft::{RaftId, VoterNode};
use crate::state::{Command, OperationId, Proposal, StorageId};

/// The members of the first group: ids by the rank of the sorted names.
pub(super) fn first_members(
    peers: &[(String, std::net::SocketAddr)],
) -> BTreeMap<RaftId, VoterNode> {
    let sorted: BTreeMap<_, _> = peers.iter().cloned().collect();
    let nodes =
        sorted.into_iter().map(|(name, address)| VoterNode { name, address: address.to_string() });
    (1..).zip(nodes).collect()
}

/// Forms the group once, on the lowest-named voter, when every voter has been met and none has been in a cluster.
pub(super) async fn run_formation(voter: Arc<Voter>) {
    let mut contacts = voter.contacts.changed();
    let mut told = false;
    loop {
        let met = voter.contacts.all();
        let formed = met.iter().find_map(|(name, contact)| Some((name, contact.greeting?.1?)));
        if let Some((name, cluster)) = formed
            && !told
        {
            told = true;
            tracing::error!(
                peer = %name, %cluster,
                "this directory has been in no cluster, but a peer has: restore the directory or replace this voter"
            );
        }
        if formed.is_none() && met.values().all(|contact| contact.greeting.is_some()) {
            break;
        }
        if contacts.changed().await.is_err() {
            return;
        }
    }
    match voter.raft.initialize(first_members(&voter.config.peers)).await {
        Ok(()) => tracing::info!(voters = voter.config.peers.len(), "the cluster is formed"),
        Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {
            tracing::debug!("already a member");
        }
        Err(error) => tracing::error!(%error, "the cluster was not formed"),
    }
}

/// Notes in the directory which cluster it is in, once that is known.
pub(super) async fn run_joining(voter: Arc<Voter>) {
    let mut applied = voter.machine.applied();
    let Ok(_) = applied.wait_for(|_| voter.machine.view().cluster.is_some()).await else { return };
    let Some(cluster) = voter.machine.view().cluster else { return };
    let noted = tokio::task::spawn_blocking(move || {
        let mut directory = voter.directory.lock().unwrap_or_else(PoisonError::into_inner);
        match directory.as_mut() {
            Some(directory) if directory.identity().cluster.is_none() => directory.join(cluster),
            _ => Ok(()),
        }
    });
    match noted.await {
        Ok(Err(error)) => tracing::error!(%error, "the voter's identity was not written"),
        Err(error) => tracing::debug!(%error, "stopped while joining"),
        Ok(Ok(())) => {}
    }
}

/// As the leader: a barrier at every gain of leadership, the cluster's identity, then the canary.
pub(super) async fn run_leading(voter: Arc<Voter>) {
    let timings = voter.config.timings;
    let mut metrics = voter.raft.metrics();
    loop {
        match voter.leading_term() {
            None => {
                voter.barrier.send_replace(None);
                tokio::select! {
                    _ = metrics.changed() => {}
                    () = sleep(timings.heartbeat) => {}
                }
            }
            Some(term) if *voter.barrier.borrow() != Some(term) => {
                let is_committed = voter.commits_barrier(timings.lease).await;
                // The same term afterwards: the barrier was committed in it, by this process.
                if is_committed && voter.leading_term() == Some(term) {
                    tracing::info!(term, "leads the metadata role");
                    voter.barrier.send_replace(Some(term));
                }
            }
            Some(_) if voter.machine.view().cluster.is_none() => {
                if let Some(voters) = all_storages(&voter) {
                    let command = Command::FormCluster { cluster: Uuid::new_v4(), voters };
                    propose_own(&voter, command, timings.lease).await;
                }
                sleep(timings.heartbeat).await;
            }
            Some(_) => {
                let age = voter.ages().admitted.map(|admitted| admitted.elapsed());
                let interval = canary_interval(&voter);
                match age.and_then(|age| interval.checked_sub(age)) {
                    Some(rest) if !rest.is_zero() => sleep(rest.min(timings.heartbeat)).await,
                    _ => {
                        propose_own(&voter, Command::Noop, interval.max(timings.election_max))
                            .await;
                    }
                }
            }
        }
    }
}

async fn propose_own(voter: &Voter, command: Command, deadline: Duration) -> Answer {
    voter.propose(Proposal { operation: OperationId::random(), command }, deadline).await
}

/// The directories of all voters, once all have been met.
fn all_storages(voter: &Voter) -> Option<Vec<(String, StorageId)>> {
    let storage = |name: String| {
        let storage = if name == voter.name() {
            voter.storage
        } else {
            voter.contacts.get(&name)?.greeting?.0
        };
        Some((name, storage))
    };
    voter.voter_names().into_iter().map(storage).collect()
}

fn canary_interval(voter: &Voter) -> Duration {
    let view = voter.machine.view();
    let set = view.config().find(|(key, _)| *key == "canary.interval");
    set.and_then(|(_, entry)| crate::state::name::parse_duration(&entry.value))
        .unwrap_or(voter.config.timings.canary)
}

/// Switches a stale leader's heartbeats off, lets only voters that see a majority stand, and keeps the ages of
/// leadership.
///
/// openraft's leader never steps down by itself: seen by a follower that still hears it, it would keep the rest from
/// electing another (a bridge partition). And openraft has no pre-vote: a voter that reaches one other only would take
/// that one's vote in term after term, and never win.
pub(super) async fn run_fence(voter: Arc<Voter>) {
    let timings = voter.config.timings;
    let mut acknowledged = Instant::now();
    let mut is_off = false;
    let mut may_stand = true;
    loop {
        let (live, needed, _) = voter.count_live();
        if may_stand != (live >= needed) {
            may_stand = live >= needed;
            voter.raft.runtime_config().elect(may_stand);
        }
        let (leads, age) = {
            let metrics = voter.raft.metrics();
            let metrics = metrics.borrow();
            (metrics.state == ServerState::Leader, metrics.millis_since_quorum_ack)
        };
        let age = age.map(Duration::from_millis);
        if !leads || voter.config.peers.len() == 1 {
            acknowledged = Instant::now();
        } else if let Some(at) = age.and_then(|age| Instant::now().checked_sub(age)) {
            acknowledged = acknowledged.max(at);
        }
        let is_stale = leads && acknowledged.elapsed() > timings.lease * 2;
        if is_stale != is_off {
            is_off = is_stale;
            tracing::warn!(off = is_off, "a leader without a majority stops its heartbeats");
            voter.raft.runtime_config().heartbeat(!is_off);
        }
        note_leader(&voter);
        sleep(timings.heartbeat).await;
    }
}

fn note_leader(voter: &Voter) {
    let leader = voter.leader();
    let now = Instant::now();
    let mut ages = voter.ages();
    if leader.as_deref() == Some(voter.name()) {
        ages.led = Some(now);
    }
    if ages.leader.as_ref().is_none_or(|(known, _)| *known != leader) {
        ages.leader = Some((leader, now));
    }
}
