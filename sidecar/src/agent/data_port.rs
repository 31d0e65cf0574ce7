//! The data port: takes requests on a shard's own thread and runs them on the engine without a hop.
//!
//! Appends are handed over in the order in which they arrive on a connection; answers come as they are ready.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use palisade_engine::engine::{Append, Engine, Partition};
use palisade_engine::format::RecordBatch;
use palisade_engine::io::disk::Disk;
use palisade_engine::io::runtime::Runtime;
use palisade_engine::io::transport::{Connection, Listener, Transport, TransportError};
use palisade_engine::io::{Environment, ShardMain};
use palisade_engine::partition::{Read, Wait};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::data_answers::{
    append_failed, appended, options_of, read_answer, read_failed, watermarks,
};
use super::grant_applier::partition_id;
use super::node_state::NodeState;
use super::owner_lookup;
use crate::wire::WIRE_VERSION;
use crate::wire::data::{AppendRequest, DataError, ReadRequest, Request, Response, head, split};
use crate::wire::hello::{Hello, HelloAnswer, HelloRefusal, Lane, Welcome};
use crate::wire::session::PartitionKey;

/// Connections of one data port.
pub const CONNECTIONS_MAX: usize = 4_096;
/// Requests of one connection that have no answer yet; beyond them the connection is not read.
pub const REQUESTS_IN_FLIGHT_MAX: usize = 1_024;
/// Reads of one connection that have no answer yet; beyond them a read is refused as busy.
pub const READS_IN_FLIGHT_MAX: usize = 64;
/// The longest answer to one read, in bytes of batches, unless the first batch alone is longer.
pub const READ_BYTES_MAX: usize = 1 << 20;

const HELLO_WAIT: Duration = Duration::from_secs(5);
/// How long to pause after the system refused to accept, for lack of file descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where the port listens, or why it does not.
type Started = oneshot::Sender<Result<std::net::SocketAddr, TransportError>>;

/// The data port of one node.
#[derive(Debug)]
pub(super) struct DataPort {
    served: Arc<Served>,
    started: Started,
}

/// What every connection needs.
#[derive(Debug)]
struct Served {
    state: Arc<NodeState>,
    engine: Engine,
}

/// One connection with its limits.
struct Client<C> {
    served: Arc<Served>,
    connection: C,
    runtime: Rc<dyn Runtime>,
    requests: Arc<Semaphore>,
    reads: Arc<Semaphore>,
}

impl DataPort {
    pub(super) fn new(state: Arc<NodeState>, engine: Engine, started: Started) -> DataPort {
        DataPort { served: Arc::new(Served { state, engine }), started }
    }
}

impl ShardMain for DataPort {
    async fn run<D: Disk, T: Transport>(self, environment: Environment<D, T>) {
        let address = self.served.state.config.listen;
        let listener = match environment.transport.listen(address).await {
            Ok(listener) => listener,
            Err(error) => {
                // Whoever waits for the port learns it; if nobody does, the node is stopping.
                drop(self.started.send(Err(error)));
                return;
            }
        };
        if self.started.send(Ok(listener.local_address())).is_err() {
            return;
        }
        accept(self.served, listener, environment.runtime).await;
    }
}

async fn accept<L: Listener>(served: Arc<Served>, listener: L, runtime: Rc<dyn Runtime>) {
    let slots = served.state.data_connections.clone();
    let mut stopping = served.state.stopping.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        let connection = match accepted {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(%error, "the data port accepted nothing");
                runtime.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(slot) = slots.clone().try_acquire_owned() else {
            tracing::warn!(peer = %connection.peer(), "refused a client: too many connections");
            connection.close();
            continue;
        };
        let client = Client {
            served: served.clone(),
            connection,
            runtime: runtime.clone(),
            requests: Arc::new(Semaphore::new(REQUESTS_IN_FLIGHT_MAX)),
            reads: Arc::new(Semaphore::new(READS_IN_FLIGHT_MAX)),
        };
        runtime.spawn(Box::pin(async move {
            serve(Rc::new(client)).await;
            drop(slot);
        }));
    }
}

async fn serve<C: Connection>(client: Rc<Client<C>>) {
    let peer = client.connection.peer();
    let mut stopping = client.served.state.stopping.subscribe();
    let outcome = tokio::select! {
        outcome = converse(&client) => outcome,
        _ = stopping.wait_for(|stopping| *stopping) => {
            drain(&client).await;
            Ok(())
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%peer, %error, "a data connection ended");
    }
    client.connection.close();
}

/// Waits until every request that was taken has its answer.
async fn drain<C>(client: &Client<C>) {
    let all = u32::try_from(REQUESTS_IN_FLIGHT_MAX).unwrap_or(u32::MAX);
    // Fails only if the semaphore is closed, which nobody does.
    drop(client.requests.acquire_many(all).await);
}

#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Wire(#[from] crate::wire::WireError),
    #[error("refused: {0}")]
    Refused(HelloRefusal),
}

async fn converse<C: Connection>(client: &Rc<Client<C>>) -> Result<(), ConnectionError> {
    if !greet(client).await? {
        return Ok(());
    }
    while let Some(frame) = client.connection.receive().await? {
        let (number, request, payload) = split::<Request>(frame)?;
        let Ok(permit) = client.requests.clone().acquire_owned().await else { return Ok(()) };
        handle(client, number, request, payload, permit);
    }
    Ok(())
}

/// Checks the first message; `false` if the peer left without one.
async fn greet<C: Connection>(client: &Client<C>) -> Result<bool, ConnectionError> {
    let frame = tokio::select! {
        frame = client.connection.receive() => frame?,
        () = client.runtime.sleep(HELLO_WAIT) => return Ok(false),
    };
    let Some(frame) = frame else { return Ok(false) };
    let (number, request, _) = split::<Request>(frame)?;
    let identity = client.served.state.identity();
    let membership = identity.membership;
    let (cluster, node) = membership.map_or((0, 0), |known| (known.cluster, known.node));
    let checked = match &request {
        Request::Hello(hello) => Hello::check(hello, cluster, &[Lane::Data]),
        _ => Err(HelloRefusal::Lane { asked: Lane::Control }),
    };
    let answer = match &checked {
        Ok(()) => HelloAnswer::Welcome(Welcome {
            cluster,
            name: identity.name,
            node,
            incarnation: identity.incarnation,
            version: WIRE_VERSION,
        }),
        Err(refusal) => HelloAnswer::Refused(refusal.clone()),
    };
    client.connection.send(vec![head(number, &Response::Hello(answer))]).await?;
    checked.map(|()| true).map_err(ConnectionError::Refused)
}

/// Starts one request. An append has its place in the log's order when this returns.
fn handle<C: Connection>(
    client: &Rc<Client<C>>,
    number: u64,
    request: Request,
    payload: Bytes,
    permit: OwnedSemaphorePermit,
) {
    let served = client.served.clone();
    match request {
        Request::Append(request) => {
            let started = start_append(&served, &request, payload);
            answer(client, number, permit, async move {
                match started {
                    Ok(append) => (append.await.map_or_else(append_failed, appended), Vec::new()),
                    Err(error) => (Response::Failed(error), Vec::new()),
                }
            });
        }
        Request::Read(request) => match client.reads.clone().try_acquire_owned() {
            Ok(slot) => answer(client, number, permit, async move {
                let outcome = read(&served, request).await;
                drop(slot);
                outcome
            }),
            Err(_full) => answer(client, number, permit, async {
                (Response::Failed(DataError::Busy { retry_after_ms: 10 }), Vec::new())
            }),
        },
        Request::Watermarks(key) => answer(client, number, permit, async move {
            let response = match find(&served, key) {
                Ok(partition) => Response::Watermarks(watermarks(partition.watermarks())),
                Err(error) => Response::Failed(error),
            };
            (response, Vec::new())
        }),
        Request::Owners { stream } => answer(client, number, permit, async move {
            let owners = owner_lookup::ask(&served.state, stream).await;
            (owners.map_or_else(Response::Failed, Response::Owners), Vec::new())
        }),
        Request::Hello(_) => answer(client, number, permit, async {
            let reason = "hello comes once".to_owned();
            (Response::Failed(DataError::Malformed { reason }), Vec::new())
        }),
    }
}

/// Sends what `work` comes to, once it has.
fn answer<C: Connection>(
    client: &Rc<Client<C>>,
    number: u64,
    permit: OwnedSemaphorePermit,
    work: impl Future<Output = (Response, Vec<Bytes>)> + 'static,
) {
    let connection = client.connection.clone();
    client.runtime.spawn(Box::pin(async move {
        let (response, payload) = work.await;
        let mut parts = Vec::with_capacity(1 + payload.len());
        parts.push(head(number, &response));
        parts.extend(payload);
        if let Err(error) = connection.send(parts).await {
            tracing::debug!(%error, "an answer was not sent");
            connection.close();
        }
        drop(permit);
    }));
}

fn find(served: &Served, key: PartitionKey) -> Result<Partition, DataError> {
    served.engine.partition(&partition_id(key)).ok_or(DataError::NotOwner)
}

fn start_append(
    served: &Served,
    request: &AppendRequest,
    payload: Bytes,
) -> Result<Append, DataError> {
    let partition = find(served, request.partition)?;
    let batch = RecordBatch::from_payload(payload, request.records, request.payload_crc)
        .map_err(|error| DataError::Malformed { reason: error.to_string() })?;
    Ok(partition.append(batch, options_of(request)))
}

async fn read(served: &Served, request: ReadRequest) -> (Response, Vec<Bytes>) {
    let partition = match find(served, request.partition) {
        Ok(partition) => partition,
        Err(error) => return (Response::Failed(error), Vec::new()),
    };
    let bytes_max = usize::try_from(request.bytes_max).unwrap_or(usize::MAX).min(READ_BYTES_MAX);
    let wait = match request.wait_ms {
        0 => Wait::No,
        wait_ms => Wait::UpTo(Duration::from_millis(u64::from(wait_ms))),
    };
    let from = palisade_engine::id::Offset(request.from);
    match partition.read(Read { bytes_max, wait, ..Read::from(from) }).await {
        Ok(answer) => read_answer(answer, served.state.metadata_age()),
        Err(error) => (Response::Failed(read_failed(error)), Vec::new()),
    }
}
