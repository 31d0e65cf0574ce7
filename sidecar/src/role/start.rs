//! Starts a voter: checks its configuration, opens its directory, starts the Raft core and the tasks around it.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex};

use openraft::{Config, SnapshotPolicy};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::config::{StartError, VoterConfig};
use super::contacts::{Contacts, run_pings};
use super::voter::{Voter, addresses, millis, supervise};
use super::{confirmer, leadership, listener, proposer};
use crate::raft::{
    DirectoryError, LogStore, Peers, Raft, RaftId, SnapshotError, StateMachine, VoterDirectory,
};
use crate::state::name::check_node_name;

/// How many entries after the last snapshot the next one is written.
const SNAPSHOT_ENTRIES: u64 = 10_000;
/// How many entries in a snapshot stay in the log for voters that lag a little.
const KEPT_ENTRIES: u64 = 2_000;
/// A voter that lags so far gets a snapshot.
const LAG_ENTRIES: u64 = 20_000;
/// How much of a snapshot goes into one frame.
const SNAPSHOT_CHUNK_BYTES: u64 = 1 << 20;
/// How long a voter may take to store a chunk or a whole snapshot, in milliseconds.
const SNAPSHOT_WITHIN_MS: u64 = 10_000;
/// How many entries go into one append; bytes are bounded by the log store.
const APPEND_ENTRIES_MAX: u64 = 256;
/// How many connections of nodes may wait for the session server.
const SESSIONS_WAITING_MAX: usize = 1024;

/// What the tasks receive from.
struct Queues {
    proposals: mpsc::Receiver<proposer::Waiting>,
    confirmations: mpsc::Receiver<confirmer::Waiter>,
}

pub(super) async fn start(
    config: VoterConfig,
    listener: TcpListener,
) -> Result<Arc<Voter>, StartError> {
    let id = check(&config)?;
    let (path, name) = (config.data_directory.clone(), config.name.clone());
    let opened = tokio::task::spawn_blocking(move || open(&path, &name)).await;
    let (directory, log, machine) = opened.map_err(raft_error)??;
    let storage = directory.identity().storage;
    let was_in_cluster = directory.identity().cluster.is_some();
    let peers = Peers::new(
        config.name.clone(),
        storage,
        machine.clone(),
        addresses(&config),
        config.timings.voter_silent / 2,
        config.timings.heartbeat,
    );
    let raft_config = Arc::new(raft_config(&config).validate().map_err(raft_error)?);
    let raft = Raft::new(id, raft_config, peers.clone(), log.clone(), machine.clone());
    let raft = raft.await.map_err(raft_error)?;
    let is_member = raft.is_initialized().await.map_err(raft_error)?;
    let others: Vec<String> =
        config.peers.iter().map(|(peer, _)| peer.clone()).filter(|p| *p != config.name).collect();
    let (proposals, proposals_queue) = mpsc::channel(proposer::WAITING_MAX);
    let (confirmations, confirmations_queue) = mpsc::channel(confirmer::WAITING_MAX);
    let (sessions, session_receiver) = mpsc::channel(SESSIONS_WAITING_MAX);
    let voter = Arc::new(Voter {
        storage,
        raft,
        machine,
        log,
        peers,
        contacts: Contacts::new(others.iter().cloned()),
        directory: Mutex::new(Some(directory)),
        proposals,
        confirmations,
        sessions,
        session_receiver: Mutex::new(Some(session_receiver)),
        barrier: watch::channel(None).0,
        started: Instant::now(),
        ages: Mutex::default(),
        stop: watch::channel(false).0,
        stopped: watch::channel(false).0,
        config,
    });
    let queues = Queues { proposals: proposals_queue, confirmations: confirmations_queue };
    // The lowest-named voter forms the cluster; a directory that has been in one never does.
    let forms = id == 1 && !was_in_cluster && !is_member;
    spawn_tasks(&voter, listener, others, queues, forms);
    Ok(voter)
}

fn spawn_tasks(
    voter: &Arc<Voter>,
    listener: TcpListener,
    others: Vec<String>,
    queues: Queues,
    forms: bool,
) {
    let mut tasks = JoinSet::new();
    let mut run = |task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
        tasks.spawn(task);
    };
    run(Box::pin(listener::run_listener(Arc::clone(voter), listener)));
    run(Box::pin(proposer::run_proposer(Arc::clone(voter), queues.proposals)));
    run(Box::pin(confirmer::run_confirmer(Arc::clone(voter), queues.confirmations)));
    run(Box::pin(leadership::run_leading(Arc::clone(voter))));
    run(Box::pin(leadership::run_fence(Arc::clone(voter))));
    run(Box::pin(leadership::run_joining(Arc::clone(voter))));
    for other in others {
        run(Box::pin(run_pings(Arc::clone(voter), other)));
    }
    if forms {
        run(Box::pin(leadership::run_formation(Arc::clone(voter))));
    }
    tokio::spawn(supervise(Arc::clone(voter), tasks));
}

/// Checks names and peers; returns the voter's Raft id.
fn check(config: &VoterConfig) -> Result<RaftId, StartError> {
    let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    for (name, address) in &config.peers {
        if check_node_name(name).is_err() {
            return Err(StartError::BadName { name: name.clone() });
        }
        if !names.insert(name) || !addresses.insert(address) {
            return Err(StartError::DuplicatePeer { name: name.clone() });
        }
    }
    let members = leadership::first_members(&config.peers);
    let own = members.into_iter().find(|(_, node)| node.name == config.name);
    own.map(|(id, _)| id).ok_or_else(|| StartError::NotAPeer { name: config.name.clone() })
}

fn open(
    path: &std::path::Path,
    name: &str,
) -> Result<(VoterDirectory, LogStore, StateMachine), StartError> {
    let directory = VoterDirectory::open(path, name).map_err(|e| directory_error(e, name))?;
    let machine = StateMachine::open(directory.snapshots_path())
        .map_err(|error| snapshot_error(error, directory.snapshots_path()))?;
    let path = directory.log_path();
    let log = LogStore::open(&path)
        .map_err(|source| StartError::Store { path, source: Box::new(source) })?;
    Ok((directory, log, machine))
}

fn raft_config(config: &VoterConfig) -> Config {
    let timings = config.timings;
    Config {
        cluster_name: "palisade".into(),
        heartbeat_interval: millis(timings.heartbeat),
        election_timeout_min: millis(timings.election_min),
        election_timeout_max: millis(timings.election_max),
        install_snapshot_timeout: SNAPSHOT_WITHIN_MS,
        max_payload_entries: APPEND_ENTRIES_MAX,
        replication_lag_threshold: LAG_ENTRIES,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_ENTRIES),
        snapshot_max_chunk_size: SNAPSHOT_CHUNK_BYTES,
        max_in_snapshot_log_to_keep: KEPT_ENTRIES,
        ..Config::default()
    }
}

fn raft_error(source: impl std::error::Error + Send + Sync + 'static) -> StartError {
    StartError::Raft { source: Box::new(source) }
}

fn directory_error(error: DirectoryError, name: &str) -> StartError {
    match error {
        DirectoryError::Io { path, source } => StartError::Io { path, source },
        DirectoryError::NotADirectory { path } => StartError::NotADirectory { path },
        DirectoryError::Locked { path } => StartError::Locked { path },
        DirectoryError::Damaged { path, what } => StartError::Damaged { path, what },
        DirectoryError::NewerVersion { path, found, supported } => {
            StartError::NewerVersion { path, found, supported }
        }
        DirectoryError::OtherVoter { path, found } => {
            StartError::OtherVoter { path, found, expected: name.to_owned() }
        }
    }
}

fn snapshot_error(error: SnapshotError, directory: std::path::PathBuf) -> StartError {
    match error {
        SnapshotError::Io { path, source } => StartError::Io { path, source },
        SnapshotError::Damaged { path, source } => match *source {
            SnapshotError::NewerVersion { found, supported } => {
                StartError::NewerVersion { path, found, supported }
            }
            source => StartError::Damaged { path, what: source.to_string() },
        },
        other => StartError::Damaged { path: directory, what: other.to_string() },
    }
}
