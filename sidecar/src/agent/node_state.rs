//! What the threads of one node share: who it is, its session, its engine, and how far it has come.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use palisade_engine::engine::Engine;
use palisade_engine::io::clock::{Clock, ClockReading};
use palisade_engine::partition::Renewal;
use tokio::sync::{Semaphore, mpsc, watch};

use super::config::{NodeConfig, NodeError};
use super::node_identity::{IdentityError, IdentityFile, Membership, NodeIdentity};
use super::owner_lookup::Question;
use super::push_inbox::PushInbox;
use super::quorum_watch::QuorumKnown;
use crate::wire::session::{Leader, MetadataPoint, PartitionOwner, StreamOwners};

/// One node of this process.
#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) config: NodeConfig,
    pub(super) clock: Arc<dyn Clock>,
    identity: Mutex<IdentityFile>,
    engine: OnceLock<Engine>,
    data_address: OnceLock<SocketAddr>,
    inbox: Mutex<PushInbox>,
    applied: Mutex<MetadataPoint>,
    /// When the last confirmed renewal was sent.
    confirmed: Mutex<Option<ClockReading>>,
    /// What is known of the metadata majority.
    quorum: Mutex<QuorumKnown>,
    /// Where the admin port listens.
    pub(super) admin_address: SocketAddr,
    /// Where the lease thread renews.
    pub(super) target: watch::Sender<Option<SessionTarget>>,
    /// The last session that ended, and how.
    pub(super) ended: watch::Sender<(u64, SessionEnd)>,
    /// What the node waits for, for people.
    phase: watch::Sender<Phase>,
    pub(super) stopping: watch::Sender<bool>,
    /// One permit for every connection the data port may have open.
    pub(super) data_connections: Arc<Semaphore>,
    /// Questions of clients that need a voter.
    pub(super) questions: mpsc::Sender<Question>,
    pub(super) renewals: AtomicU64,
    pub(super) renewals_dropped: AtomicU64,
    pub(super) sessions: AtomicU64,
}

/// How far a node has come.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// It goes on trying.
    Waiting {
        /// What for, for people.
        reason: String,
    },
    /// It has a session and has taken up its first full set.
    Serving,
    /// It has given up.
    Failed(NodeError),
}

/// Where and as what the lease is renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionTarget {
    /// Tells sessions of this process apart.
    pub(super) generation: u64,
    pub(super) address: String,
    pub(super) voter: String,
    pub(super) cluster: u128,
    pub(super) node: u32,
    pub(super) incarnation: u64,
    pub(super) lease: Duration,
    pub(super) renew_every: Duration,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// The connection or the voter's memory of the session is gone.
    Lost,
    /// The voter does not lead.
    NotLeading(Option<Leader>),
    /// This run was declared gone: the next one begins.
    DeclaredGone,
    /// The node itself has something new to say: it registers again at once.
    Again,
    /// Not admitted for now.
    Later(Duration),
}

impl NodeState {
    pub(super) fn new(
        config: NodeConfig,
        identity: IdentityFile,
        clock: Arc<dyn Clock>,
        admin_address: SocketAddr,
        questions: mpsc::Sender<Question>,
    ) -> NodeState {
        let phase = Phase::Waiting { reason: "starting".to_owned() };
        NodeState {
            config,
            clock,
            identity: Mutex::new(identity),
            engine: OnceLock::new(),
            data_address: OnceLock::new(),
            inbox: Mutex::default(),
            applied: Mutex::default(),
            confirmed: Mutex::default(),
            quorum: Mutex::default(),
            admin_address,
            target: watch::channel(None).0,
            ended: watch::channel((0, SessionEnd::Lost)).0,
            phase: watch::channel(phase).0,
            stopping: watch::channel(false).0,
            data_connections: Arc::new(Semaphore::new(super::CONNECTIONS_MAX)),
            questions,
            renewals: AtomicU64::new(0),
            renewals_dropped: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
        }
    }

    pub(super) fn identity(&self) -> NodeIdentity {
        lock(&self.identity).identity().clone()
    }

    pub(super) fn join(&self, membership: Membership) -> Result<(), IdentityError> {
        lock(&self.identity).join(membership)
    }

    /// Begins the next run: the one before was declared gone.
    pub(super) fn next_run(&self) -> Result<(), IdentityError> {
        lock(&self.identity).next_run()
    }

    pub(super) fn engine(&self) -> Option<&Engine> {
        self.engine.get()
    }

    /// Takes the opened engine; there is only ever one.
    pub(super) fn set_engine(&self, engine: Engine) {
        let is_first = self.engine.set(engine).is_ok();
        assert!(is_first, "a node opens its engine once");
    }

    pub(super) fn data_address(&self) -> Option<SocketAddr> {
        self.data_address.get().copied()
    }

    pub(super) fn set_data_address(&self, address: SocketAddr) {
        let is_first = self.data_address.set(address).is_ok();
        assert!(is_first, "a node opens its data port once");
    }

    pub(super) fn inbox(&self) -> MutexGuard<'_, PushInbox> {
        lock(&self.inbox)
    }

    pub(super) fn quorum(&self) -> MutexGuard<'_, QuorumKnown> {
        lock(&self.quorum)
    }

    pub(super) fn applied(&self) -> MetadataPoint {
        *lock(&self.applied)
    }

    pub(super) fn set_applied(&self, at: MetadataPoint) {
        *lock(&self.applied) = at;
    }

    pub(super) fn note_confirmed(&self, sent: ClockReading) {
        *lock(&self.confirmed) = Some(sent);
    }

    pub(super) fn note_renewal(&self, renewal: Renewal) {
        let counter = match renewal {
            Renewal::Dropped => &self.renewals_dropped,
            _ => &self.renewals,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// How old the last word from the metadata majority is; `None` before the first.
    pub(super) fn metadata_age(&self) -> Option<Duration> {
        let confirmed = *lock(&self.confirmed);
        Some(self.clock.now().elapsed_for_holder(confirmed?))
    }

    /// Ends the session `generation`, once: what comes first counts.
    pub(super) fn end_session(&self, generation: u64, end: SessionEnd) {
        self.target.send_if_modified(|target| {
            let is_current = target.as_ref().is_some_and(|target| target.generation == generation);
            if is_current {
                *target = None;
            }
            is_current
        });
        self.ended.send_if_modified(|ended| {
            let is_news = ended.0 < generation;
            if is_news {
                *ended = (generation, end);
            }
            is_news
        });
    }

    pub(super) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.send_if_modified(|current| {
            // A failure is final: what runs on after it does not hide it.
            let is_final = matches!(current, Phase::Failed(_));
            if !is_final {
                *current = phase;
            }
            !is_final
        });
    }

    /// What this node itself knows of the owners of a stream: the epochs it owns.
    pub(super) fn own_partitions(&self, stream: &str) -> Option<StreamOwners> {
        let engine = self.engine()?;
        let node = self.identity().membership?.node;
        let address = self.data_address()?.to_string();
        let mut owners = StreamOwners {
            stream: 0,
            at: MetadataPoint::default(),
            partitions: 0,
            owners: Vec::new(),
        };
        for partition in engine.partitions() {
            let Some(epoch) = partition.owned else { continue };
            if partition.name.stream.as_str() != stream {
                continue;
            }
            owners.stream = partition.id.stream.0;
            owners.owners.push(PartitionOwner {
                index: partition.id.index.0,
                epoch: epoch.packed(),
                node,
                address: address.clone(),
            });
        }
        (!owners.owners.is_empty()).then_some(owners)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each critical section leaves its value whole at every step, so a panic elsewhere harms nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
