//! `NodeAgent`: one running node, with a thread for its session and one for its lease.
//!
//! Neither is a shard, and the lease thread does nothing but renew: no load of any kind delays it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use palisade_engine::engine::{CloseReport, Engine, EngineMetrics};
use palisade_engine::io::SystemClock;
use palisade_engine::io::clock::Clock;
use tokio::sync::{mpsc, oneshot};

use super::config::{NodeConfig, NodeError};
use super::node_admin::NodeAdmin;
use super::node_identity::IdentityFile;
use super::node_state::{NodeState, Phase, lock};
use super::node_status::NodeStatus;
use super::{control_session, lease_renewal, opening, owner_lookup, quorum_watch};
use crate::admin::AdminServer;

/// How long a node that stops waits for its clients to take their answers.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// A running node. Cheap to clone; dropping the last clone stops it in the background.
#[derive(Clone, Debug)]
pub struct NodeAgent {
    running: Arc<Running>,
}

#[derive(Debug)]
struct Running {
    state: Arc<NodeState>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    stopped: Mutex<Option<oneshot::Receiver<StopReport>>>,
}

/// What a node did when it stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    /// Epochs given back before the engine closed.
    pub released: usize,
    /// How the engine closed; `None` if it had not been opened, or not in order.
    pub closed: Option<CloseReport>,
}

impl NodeAgent {
    /// Starts a node: takes its data directory, opens the engine if the node has been in a cluster before,
    /// and goes on to find the voters in the background.
    ///
    /// A node that was never admitted opens its engine after its first contact. Neither start needs a
    /// majority: what cannot be reached is tried again for as long as the node runs.
    ///
    /// # Errors
    ///
    /// [`NodeError`]: the directory is in use, another node's or another cluster's, or the engine does not
    /// open. Nothing is left running.
    pub async fn start(config: NodeConfig) -> Result<NodeAgent, NodeError> {
        check(&config)?;
        let (directory, name) = (config.data_directory.clone(), config.name.clone());
        let taking =
            tokio::task::spawn_blocking(move || IdentityFile::begin_run(&directory, &name));
        let Ok(identity) = taking.await else { return Err(NodeError::Stopped) };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let identity = identity?;
        let (admin, admin_address) = bind_admin(config.admin_listen)?;
        let (questions, asked) = mpsc::channel(owner_lookup::QUESTIONS_MAX);
        let state = Arc::new(NodeState::new(config, identity, clock, admin_address, questions));
        let (started, starting) = oneshot::channel();
        let (stopped, stopping) = oneshot::channel();
        let of_session = state.clone();
        let session = spawn("palisade-agent", move || {
            run_session(&of_session, admin, asked, started, stopped);
        })?;
        let running = Running {
            state: state.clone(),
            threads: Mutex::new(vec![session]),
            stopped: Mutex::new(Some(stopping)),
        };
        let agent = NodeAgent { running: Arc::new(running) };
        let lease = spawn("palisade-lease", move || {
            block_on(lease_renewal::run(state));
        })?;
        lock(&agent.running.threads).push(lease);
        match starting.await {
            Ok(Ok(())) => Ok(agent),
            Ok(Err(error)) => Err(error),
            Err(_ended) => Err(NodeError::Stopped),
        }
    }

    /// Waits until the node has a session, has taken up its grants and holds a usable lease.
    ///
    /// # Errors
    ///
    /// [`NodeError::NotReady`] after `deadline`, with what it waits for: it goes on trying. Any other: it has
    /// given up.
    pub async fn ready(&self, deadline: Duration) -> Result<(), NodeError> {
        let mut phase = self.running.state.phase();
        let outcome = tokio::time::timeout(deadline, async {
            loop {
                let now = phase.borrow_and_update().clone();
                match now {
                    Phase::Failed(error) => return Err(error),
                    Phase::Serving if self.status().lease.is_usable => return Ok(()),
                    _ => {}
                }
                // A lease comes without a change of phase, so the look is repeated now and then.
                let pause = self.running.state.config.timings.renew / 4;
                drop(tokio::time::timeout(pause, phase.changed()).await);
            }
        });
        match outcome.await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(NodeError::NotReady {
                waited_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
                reason: self.status().reason.unwrap_or_else(|| "no usable lease yet".to_owned()),
            }),
        }
    }

    /// What the node says of itself now.
    #[must_use]
    pub fn status(&self) -> NodeStatus {
        NodeStatus::of(&self.running.state)
    }

    /// The counters of the node's shards; none before the engine is open.
    #[must_use]
    pub fn metrics(&self) -> EngineMetrics {
        self.running.state.engine().map(Engine::metrics).unwrap_or_default()
    }

    /// Where clients connect, once the port is open.
    #[must_use]
    pub fn data_address(&self) -> Option<SocketAddr> {
        self.running.state.data_address()
    }

    /// Where the admin API listens.
    #[must_use]
    pub fn admin_address(&self) -> SocketAddr {
        self.running.state.admin_address
    }

    /// The node's engine, once it is open: for those who serve its records themselves.
    #[must_use]
    pub fn engine(&self) -> Option<Engine> {
        self.running.state.engine().cloned()
    }

    /// Stops the node in order: takes no more requests, answers those it took, gives back its epochs and its
    /// lease, and closes the engine.
    ///
    /// # Errors
    ///
    /// [`NodeError::Stopped`]: it had been stopped, or its thread had ended.
    pub async fn stop(&self) -> Result<StopReport, NodeError> {
        self.running.state.stopping.send_replace(true);
        let stopped = lock(&self.running.stopped).take().ok_or(NodeError::Stopped)?;
        let report =
            stopped.await.map_err(|_ended: oneshot::error::RecvError| NodeError::Stopped)?;
        let threads = std::mem::take(&mut *lock(&self.running.threads));
        let joining = tokio::task::spawn_blocking(move || {
            threads.into_iter().filter_map(|thread| thread.join().err()).count()
        });
        match joining.await {
            Ok(0) => Ok(report),
            _ => Err(NodeError::Stopped),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.state.stopping.send_replace(true);
    }
}

/// Takes the admin port before anything else starts, so that the node can say from there what it waits for.
fn bind_admin(address: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr), NodeError> {
    let bind = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    bind().map_err(|error: std::io::Error| cannot_listen(address, &error))
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> NodeError {
    NodeError::Listen { address, reason: error.to_string() }
}

fn check(config: &NodeConfig) -> Result<(), NodeError> {
    if config.sidecars.is_empty() {
        let what = "no voter is configured; name at least one".to_owned();
        return Err(NodeError::Config { what });
    }
    if config.name.is_empty() || config.name.len() > crate::wire::hello::NAME_BYTES_MAX {
        let what = format!("the node name {:?} is empty or too long", config.name);
        return Err(NodeError::Config { what });
    }
    Ok(())
}

fn spawn(name: &str, main: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, NodeError> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(main).map_err(|source| NodeError::Thread(Arc::new(source)))
}

fn block_on(main: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(main),
        Err(error) => tracing::error!(%error, "a thread of the node has no runtime"),
    }
}

/// The main of the session thread: opens what is known already, serves until told to stop, closes.
fn run_session(
    state: &Arc<NodeState>,
    admin: std::net::TcpListener,
    asked: mpsc::Receiver<owner_lookup::Question>,
    started: oneshot::Sender<Result<(), NodeError>>,
    stopped: oneshot::Sender<StopReport>,
) {
    block_on(async {
        let source = Arc::new(NodeAdmin { state: state.clone() });
        let admin = tokio::net::TcpListener::from_std(admin)
            .and_then(|listener| AdminServer::start_on(listener, source));
        let opened = match &admin {
            Ok(_serving) => opening::open_once(state).await,
            Err(error) => Err(cannot_listen(state.admin_address, error)),
        };
        let is_open = opened.is_ok();
        let is_wanted = started.send(opened).is_ok();
        if is_open && is_wanted {
            let mut stopping = state.stopping.subscribe();
            let serving = async {
                tokio::join!(
                    control_session::run(state.clone()),
                    owner_lookup::run(state.clone(), asked),
                    quorum_watch::run(state.clone())
                );
            };
            // A node that gave up keeps its threads until it is stopped, to say why.
            serving.await;
            drop(stopping.wait_for(|stopping| *stopping).await);
        }
        state.stopping.send_replace(true);
        let report = close(state).await;
        if let Ok(admin) = admin {
            admin.stop().await;
        }
        // Whoever dropped the node does not ask how it went.
        drop(stopped.send(report));
    });
}

async fn close(state: &NodeState) -> StopReport {
    let released = control_session::release_all(state).await;
    let Some(engine) = state.engine() else { return StopReport::default() };
    let all = u32::try_from(super::CONNECTIONS_MAX).unwrap_or(u32::MAX);
    let answered = tokio::time::timeout(ANSWER_WAIT, state.data_connections.acquire_many(all));
    if answered.await.is_err() {
        tracing::warn!("closing the engine with connections that still wait for answers");
    }
    let closed = match engine.close().await {
        Ok(report) => Some(report),
        Err(error) => {
            tracing::error!(%error, "the engine did not close in order");
            None
        }
    };
    StopReport { released, closed }
}
