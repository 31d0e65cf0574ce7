//! The session server of a voter: accepts nodes, confirms leadership, and declares gone who must be.
//!
//! Leadership is never taken from metrics: only a majority round makes this voter renew or declare anything.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use super::lease_table::{LeaseRules, LeaseTable, Run};
use super::reading::Reading;
use super::{control_lane, lease_lane, lookup};
use crate::role::{
    Confirmed, MetadataRole, NotLeading as RoleNotLeading, SessionConnection, Timings,
};
use crate::state::{Command, NodeId, View};
use crate::wire::WireError;
use crate::wire::frame::{HELLO_BYTES_MAX, receive, send, within};
use crate::wire::hello::{Hello, HelloAnswer, HelloRefusal, Lane, Welcome};
use crate::wire::session::{Leader, MetadataPoint, NotLeading};

/// The connections of nodes one voter serves at a time: three lanes for a thousand nodes, and some.
pub const CONNECTIONS_MAX: usize = 4_096;
/// How long a stranger may take to say hello.
const HELLO_WAIT: Duration = Duration::from_secs(5);

/// Serves sessions until it is stopped. Dropping it stops it at once.
#[derive(Debug)]
pub struct SessionServer {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

/// What a session server has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Whether this voter leads, as of its last majority round.
    pub is_leading: bool,
    /// Nodes with a session here.
    pub sessions: usize,
    /// Ids of the nodes that are silent.
    pub suspected: Vec<u32>,
    /// Whether so many nodes lapsed at once that the voter doubts itself.
    pub is_doubting: bool,
    /// Renewals answered with a lease since the start.
    pub renewals: u64,
    /// Renewals refused since the start.
    pub renewals_refused: u64,
    /// Pushes sent since the start.
    pub pushes: u64,
    /// Runs declared gone since the start.
    pub declared_gone: u64,
    /// Each node's health as of its last renewal.
    pub nodes: Vec<NodeHealth>,
}

/// A node as its last renewal told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHealth {
    /// The node's id.
    pub node: u32,
    /// Its run.
    pub incarnation: u64,
    /// The last state it has taken up.
    pub applied: MetadataPoint,
    /// The age of its oldest unfinished I/O, over all shards.
    pub oldest_io_us: u64,
    /// Grants it reported ready and has not released.
    pub ready: usize,
}

/// What the lanes of one voter share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) role: MetadataRole,
    pub(super) timings: Timings,
    leases: Mutex<LeaseTable>,
    /// The control lane of each node: a later one ends the one before.
    control: Mutex<HashMap<u32, watch::Sender<()>>>,
    health: Mutex<HashMap<u32, NodeHealth>>,
    pub(super) leading: watch::Sender<bool>,
    pub(super) counters: Counters,
    is_doubting: std::sync::atomic::AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) renewals: AtomicU64,
    pub(super) renewals_refused: AtomicU64,
    pub(super) pushes: AtomicU64,
    declared_gone: AtomicU64,
}

impl SessionServer {
    /// Starts serving the nodes that connect to `role`'s listener, inside the current tokio runtime.
    ///
    /// # Panics
    ///
    /// If another session server has taken the role's connections already.
    #[must_use]
    pub fn start(role: MetadataRole) -> SessionServer {
        let connections =
            role.session_connections().expect("one session server takes a role's connections");
        let timings = role.timings();
        let rules = LeaseRules {
            lease: timings.lease,
            node_silent: timings.node_silent,
            tick_gap_max: timings.renew * 2 + Duration::from_millis(100),
        };
        let shared = Arc::new(Shared {
            role,
            timings,
            leases: Mutex::new(LeaseTable::new(rules)),
            control: Mutex::default(),
            health: Mutex::default(),
            leading: watch::channel(false).0,
            counters: Counters::default(),
            is_doubting: false.into(),
        });
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(shared.clone(), connections, stopped.clone()));
        tasks.spawn(watch_leases(shared.clone(), stopped));
        SessionServer { shared, stop, tasks }
    }

    /// What it has seen so far.
    #[must_use]
    pub fn status(&self) -> SessionStatus {
        let (is_leading, sessions, suspected) = {
            let leases = self.shared.leases();
            let suspected = leases.suspected().iter().map(|run| run.node).collect();
            (leases.is_leading(), leases.sessions(), suspected)
        };
        let counters = &self.shared.counters;
        let mut nodes: Vec<_> = lock(&self.shared.health).values().cloned().collect();
        nodes.sort_by_key(|health| health.node);
        SessionStatus {
            is_leading,
            sessions,
            suspected,
            is_doubting: self.shared.is_doubting.load(Ordering::Relaxed),
            renewals: counters.renewals.load(Ordering::Relaxed),
            renewals_refused: counters.renewals_refused.load(Ordering::Relaxed),
            pushes: counters.pushes.load(Ordering::Relaxed),
            declared_gone: counters.declared_gone.load(Ordering::Relaxed),
            nodes,
        }
    }

    /// Closes every session. Leases that were granted run out as they would.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Shared {
    pub(super) fn leases(&self) -> MutexGuard<'_, LeaseTable> {
        lock(&self.leases)
    }

    /// Proves by a majority round that begins after this call that this voter leads.
    pub(super) async fn confirm(&self) -> Result<Confirmed, NotLeading> {
        let confirmed = self.role.confirm_leadership(self.timings.lease / 4).await;
        match confirmed {
            Ok(confirmed) => {
                let view = self.role.view();
                self.leases().lead(confirmed.term, Reading::now(), members(&view));
                self.leading.send_if_modified(|leading| !std::mem::replace(leading, true));
                Ok(confirmed)
            }
            Err(not_leading) => Err(hint_of(not_leading)),
        }
    }

    fn depose(&self) {
        self.leases().depose();
        self.leading.send_if_modified(|leading| std::mem::replace(leading, false));
    }

    /// Makes `node`'s new control lane the one that counts, and returns what tells when it no longer is.
    pub(super) fn take_control(&self, node: u32) -> watch::Receiver<()> {
        let (sender, receiver) = watch::channel(());
        lock(&self.control).insert(node, sender);
        receiver
    }

    pub(super) fn note_health(&self, run: Run, change: impl FnOnce(&mut NodeHealth)) {
        let mut health = lock(&self.health);
        let unknown = NodeHealth {
            node: run.node,
            incarnation: run.incarnation,
            applied: MetadataPoint::default(),
            oldest_io_us: 0,
            ready: 0,
        };
        let entry = health.entry(run.node).or_insert_with(|| unknown.clone());
        if entry.incarnation != run.incarnation {
            *entry = unknown;
        }
        change(entry);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each critical section leaves its value whole at every step, so a panic elsewhere harms nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn members(view: &View) -> impl Iterator<Item = Run> {
    let members = view.nodes().filter(|node| !node.gone);
    members.map(|node| Run { node: node.id.0, incarnation: node.incarnation })
}

/// Puts the role's hint into a frame.
fn hint_of(not_leading: RoleNotLeading) -> NotLeading {
    let leader = not_leading.leader;
    NotLeading { leader: leader.map(|hint| Leader { name: hint.name, address: hint.address }) }
}

async fn accept(
    shared: Arc<Shared>,
    mut connections: mpsc::Receiver<SessionConnection>,
    mut stopped: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut lanes = JoinSet::new();
    loop {
        let connection = tokio::select! {
            connection = connections.recv() => connection,
            _ = stopped.wait_for(|stopped| *stopped) => break,
            Some(_ended) = lanes.join_next() => continue,
        };
        let Some(connection) = connection else { break };
        let Ok(slot) = slots.clone().try_acquire_owned() else {
            tracing::warn!(from = %connection.from, "refused a session: too many connections");
            continue;
        };
        let shared = shared.clone();
        lanes.spawn(async move {
            let from = connection.from;
            if let Err(error) = serve(&shared, connection.stream).await {
                tracing::debug!(%from, %error, "a session connection ended");
            }
            drop(slot);
        });
    }
    lanes.shutdown().await;
}

async fn serve(shared: &Arc<Shared>, mut stream: TcpStream) -> Result<(), WireError> {
    stream.set_nodelay(true)?;
    let hello: Hello = within(HELLO_WAIT, receive(&mut stream, HELLO_BYTES_MAX)).await?;
    let view = shared.role.view();
    let Some(cluster) = view.cluster.map(|cluster| cluster.as_u128()) else {
        return send(&mut stream, &HelloAnswer::Refused(HelloRefusal::NotReady)).await;
    };
    if let Err(refusal) = check(&hello, cluster, &view) {
        tracing::warn!(name = ?hello.name, %refusal, "refused a session");
        return send(&mut stream, &HelloAnswer::Refused(refusal)).await;
    }
    let welcome = Welcome::of_voter(cluster, shared.role.name());
    send(&mut stream, &HelloAnswer::Welcome(welcome)).await?;
    match hello.lane {
        Lane::Control => control_lane::serve(shared, stream, &hello).await,
        Lane::Lease => lease_lane::serve(shared, stream, &hello).await,
        Lane::Lookup => lookup::serve(shared, stream).await,
        Lane::Data => Ok(()),
    }
}

fn check(hello: &Hello, cluster: u128, view: &View) -> Result<(), HelloRefusal> {
    hello.check(cluster, &[Lane::Control, Lane::Lease, Lane::Lookup])?;
    let known = hello.node.and_then(|node| view.node(NodeId(node)));
    match known {
        Some(node) if node.name != hello.name || node.incarnation > hello.incarnation => {
            Err(HelloRefusal::Incarnation { incarnation: hello.incarnation })
        }
        _ => Ok(()),
    }
}

/// Confirms leadership at every tick, looks at the leases, and proposes who is gone.
async fn watch_leases(shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(shared.timings.renew);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        let began = Reading::now();
        if shared.confirm().await.is_err() {
            shared.depose();
            continue;
        }
        let decision = {
            let view = shared.role.view();
            let mut leases = shared.leases();
            members(&view).for_each(|run| leases.adopt(run, Reading::now()));
            let decision = leases.tick(Reading::now(), began);
            forget_the_gone(&mut leases, &view);
            decision
        };
        let was_doubting = shared.is_doubting.swap(decision.is_doubting, Ordering::Relaxed);
        if decision.is_doubting && !was_doubting {
            tracing::error!("many leases lapsed at once: holding back, the fault may be here");
        }
        for run in &decision.suspected {
            tracing::warn!(node = run.node, incarnation = run.incarnation, "a node is silent");
        }
        declare_gone(&shared).await;
    }
}

fn forget_the_gone(leases: &mut LeaseTable, view: &View) {
    for run in leases.condemned() {
        let node = view.node(NodeId(run.node));
        if node.is_none_or(|node| node.gone || node.incarnation > run.incarnation) {
            leases.forget(run);
        }
    }
}

/// Proposes every condemned run, again at each tick until the metadata says so: a lost answer costs nothing.
async fn declare_gone(shared: &Arc<Shared>) {
    let condemned = shared.leases().condemned();
    let mut proposals = JoinSet::new();
    for run in condemned {
        let shared = shared.clone();
        proposals.spawn(async move {
            let node = NodeId(run.node);
            let command = Command::NodeGone { node, incarnation: run.incarnation };
            let answer = shared.role.propose(command, shared.timings.renew).await;
            if let crate::role::Answer::Admitted { index, .. } = answer {
                tracing::warn!(
                    node = run.node,
                    incarnation = run.incarnation,
                    index,
                    "a node is gone"
                );
                shared.counters.declared_gone.fetch_add(1, Ordering::Relaxed);
                shared.leases().forget(run);
            }
        });
    }
    while proposals.join_next().await.is_some() {}
}
