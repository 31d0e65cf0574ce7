//! Connections to the other voters: opened with a handshake, pooled, one question at a time.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use openraft::error::{
    InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Timeout, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::frame::{FRAME_BYTES_MAX, FrameError, read_frame, write_frame};
use super::message::{
    Hello, HelloAnswer, HelloRefusal, PROTOCOL_VERSION, Request, Response, VOTER_MAGIC,
};
use super::state_machine::StateMachine;
use super::types::{RaftId, TypeConfig, VoterNode};
use crate::state::StorageId;

/// How long an answer to a hello may be.
const HELLO_BYTES_MAX: usize = 4096;
/// How many idle connections to one voter are kept.
const IDLE_MAX: usize = 4;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Nothing was sent.
    #[error("{name} at {address} cannot be reached: {source}")]
    Connect { name: String, address: String, source: io::Error },
    /// Nothing was sent.
    #[error("{name} does not talk to this voter: {source}")]
    Refused { name: String, source: HelloRefusal },
    /// Nothing was sent.
    #[error("no address of voter {name:?} is known")]
    NoAddress { name: String },
    /// The question may have arrived.
    #[error("the connection to {name} was lost: {source}")]
    Lost { name: String, source: FrameError },
    /// The question may have arrived.
    #[error("{name} did not answer in {after:?}")]
    TimedOut { name: String, after: Duration },
    /// An answer to another question; the connection is dropped.
    #[error("{name} gave an answer that does not fit")]
    Unfitting { name: String },
}

impl CallError {
    /// Whether the question may have arrived.
    pub(crate) fn may_have_arrived(&self) -> bool {
        match self {
            CallError::Connect { .. } | CallError::Refused { .. } | CallError::NoAddress { .. } => {
                false
            }
            CallError::Lost { .. } | CallError::TimedOut { .. } | CallError::Unfitting { .. } => {
                true
            }
        }
    }
}

/// One open connection to a voter.
#[derive(Debug)]
pub(crate) struct Connection {
    name: String,
    stream: TcpStream,
    /// What the voter told about itself.
    pub(crate) cluster: Option<uuid::Uuid>,
    pub(crate) storage: StorageId,
}

impl Connection {
    /// Asks one question. On an error the connection is of no more use.
    pub(crate) async fn call(&mut self, request: &Request) -> Result<Response, CallError> {
        let answered = async {
            write_frame(&mut self.stream, request).await?;
            read_frame(&mut self.stream, FRAME_BYTES_MAX).await
        };
        answered.await.map_err(|source| CallError::Lost { name: self.name.clone(), source })
    }

    /// Waits until the other side closes the connection (nothing is ever said unasked).
    pub(crate) async fn closed(&self) {
        while self.stream.readable().await.is_ok() && !self.is_spent() {}
    }

    /// Whether the other side has closed it (or said something unasked).
    fn is_spent(&self) -> bool {
        let mut byte = [0];
        !matches!(self.stream.try_read(&mut byte), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }
}

/// The other voters, as this one reaches them. Clones share the pool.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    storage: StorageId,
    machine: StateMachine,
    addresses: BTreeMap<String, SocketAddr>,
    connect_timeout: Duration,
    backoff: Duration,
    idle: Mutex<BTreeMap<String, Vec<Connection>>>,
}

impl Peers {
    /// `addresses` are those of `--peers`; they go before what the membership remembers.
    pub(crate) fn new(
        name: String,
        storage: StorageId,
        machine: StateMachine,
        addresses: BTreeMap<String, SocketAddr>,
        connect_timeout: Duration,
        backoff: Duration,
    ) -> Peers {
        let idle = Mutex::default();
        let shared = Shared { name, storage, machine, addresses, connect_timeout, backoff, idle };
        Peers { shared: Arc::new(shared) }
    }

    /// Opens a connection of its own, outside the pool.
    pub(crate) async fn connect(&self, name: &str, address: &str) -> Result<Connection, CallError> {
        let after = self.shared.connect_timeout;
        match timeout(after, self.handshake(name, address)).await {
            Ok(connected) => connected,
            Err(elapsed) => Err(CallError::Connect {
                name: name.to_owned(),
                address: address.to_owned(),
                source: io::Error::new(io::ErrorKind::TimedOut, elapsed),
            }),
        }
    }

    async fn handshake(&self, name: &str, address: &str) -> Result<Connection, CallError> {
        let name = name.to_owned();
        let unreachable =
            |source| CallError::Connect { name: name.clone(), address: address.to_owned(), source };
        let connected = match self.shared.addresses.get(&name) {
            Some(address) => TcpStream::connect(address).await,
            None if address.is_empty() => return Err(CallError::NoAddress { name }),
            None => TcpStream::connect(address).await,
        };
        let mut stream = connected.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        stream.write_all(&VOTER_MAGIC).await.map_err(unreachable)?;
        let view = self.shared.machine.view();
        let hello = Hello {
            version: PROTOCOL_VERSION,
            cluster: view.cluster,
            from: self.shared.name.clone(),
            to: name.clone(),
            storage: self.shared.storage,
        };
        let not_greeted = |error: FrameError| unreachable(io::Error::other(error));
        write_frame(&mut stream, &hello).await.map_err(not_greeted)?;
        match read_frame(&mut stream, HELLO_BYTES_MAX).await.map_err(not_greeted)? {
            HelloAnswer::Refused(source) => Err(CallError::Refused { name, source }),
            HelloAnswer::Welcome { cluster, storage } => {
                check_identity(&view, &name, cluster, storage)
                    .map_err(|source| CallError::Refused { name: name.clone(), source })?;
                Ok(Connection { name, stream, cluster, storage })
            }
        }
    }

    /// Asks one question over a pooled connection.
    pub(crate) async fn call(
        &self,
        name: &str,
        address: &str,
        request: &Request,
        after: Duration,
    ) -> Result<Response, CallError> {
        let asked = async {
            let mut connection = match self.take_idle(name) {
                Some(connection) => connection,
                None => self.connect(name, address).await?,
            };
            let response = connection.call(request).await?;
            self.put_idle(connection);
            Ok(response)
        };
        match timeout(after, asked).await {
            Ok(answered) => answered,
            Err(_elapsed) => Err(CallError::TimedOut { name: name.to_owned(), after }),
        }
    }

    /// Drops all idle connections.
    pub(crate) fn close(&self) {
        self.idle().clear();
    }

    fn take_idle(&self, name: &str) -> Option<Connection> {
        let mut idle = self.idle();
        let connections = idle.get_mut(name)?;
        std::iter::from_fn(|| connections.pop()).find(|connection| !connection.is_spent())
    }

    fn put_idle(&self, connection: Connection) {
        let mut idle = self.idle();
        let connections = idle.entry(connection.name.clone()).or_default();
        if connections.len() < IDLE_MAX {
            connections.push(connection);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<Connection>>> {
        self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells whether what a voter says of itself fits what the metadata knows of it.
pub(crate) fn check_identity(
    view: &crate::state::View,
    name: &str,
    cluster: Option<uuid::Uuid>,
    storage: StorageId,
) -> Result<(), HelloRefusal> {
    if let (Some(ours), Some(theirs)) = (view.cluster, cluster)
        && ours != theirs
    {
        return Err(HelloRefusal::OtherCluster { cluster: ours });
    }
    match view.voter_storage(name) {
        Some(known) if known != storage => {
            Err(HelloRefusal::OtherStorage { name: name.to_owned() })
        }
        _ => Ok(()),
    }
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = VoterNetwork;

    async fn new_client(&mut self, target: RaftId, node: &VoterNode) -> VoterNetwork {
        VoterNetwork { peers: self.clone(), target, node: node.clone() }
    }
}

/// What openraft sends to one voter through.
#[derive(Debug)]
pub(crate) struct VoterNetwork {
    peers: Peers,
    target: RaftId,
    node: VoterNode,
}

type RpcError<E> = RPCError<RaftId, VoterNode, E>;

impl VoterNetwork {
    async fn call<E: std::error::Error>(
        &self,
        request: Request,
        action: openraft::RPCTypes,
        option: &RPCOption,
    ) -> Result<Response, RpcError<E>> {
        let after = option.hard_ttl();
        let called = self.peers.call(&self.node.name, &self.node.address, &request, after).await;
        called.map_err(|error| match error {
            CallError::TimedOut { .. } => {
                let (id, target) = (self.target, self.target);
                RPCError::Timeout(Timeout { action, id, target, timeout: after })
            }
            // openraft asks again at once after a network error; it waits only for an unreachable one.
            error => RPCError::Unreachable(Unreachable::new(&error)),
        })
    }

    fn remote<E: std::error::Error>(&self, source: E) -> RpcError<E> {
        RPCError::RemoteError(RemoteError::new(self.target, source))
    }

    fn unfitting<E: std::error::Error>(&self) -> RpcError<E> {
        let error = CallError::Unfitting { name: self.node.name.clone() };
        RPCError::Network(NetworkError::new(&error))
    }
}

impl RaftNetwork<TypeConfig> for VoterNetwork {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<RaftId>, RpcError<RaftError<RaftId>>> {
        let action = openraft::RPCTypes::AppendEntries;
        match self.call(Request::Append(rpc), action, &option).await? {
            Response::Append(answer) => answer.map_err(|error| self.remote(error)),
            _ => Err(self.unfitting()),
        }
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<InstallSnapshotResponse<RaftId>, RpcError<RaftError<RaftId, InstallSnapshotError>>>
    {
        let action = openraft::RPCTypes::InstallSnapshot;
        match self.call(Request::Snapshot(rpc), action, &option).await? {
            Response::Snapshot(answer) => answer.map_err(|error| self.remote(error)),
            _ => Err(self.unfitting()),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<RaftId>,
        option: RPCOption,
    ) -> Result<VoteResponse<RaftId>, RpcError<RaftError<RaftId>>> {
        match self.call(Request::Vote(rpc), openraft::RPCTypes::Vote, &option).await? {
            Response::Vote(answer) => answer.map_err(|error| self.remote(error)),
            _ => Err(self.unfitting()),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.peers.shared.backoff))
    }
}
