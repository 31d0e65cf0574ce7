//! The voter's `--listen` socket: tells voters from nodes by their first bytes, greets voters, answers their questions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::metadata_role::{SESSION_MAGIC, SessionConnection};
use super::voter::Voter;
use crate::raft::{
    FRAME_BYTES_MAX, FrameError, Hello, HelloAnswer, HelloRefusal, PROTOCOL_VERSION, Request,
    Response, VOTER_MAGIC, check_identity, read_frame, write_frame,
};

/// How many connections of voters, and of callers not yet known, are served at once.
const CONNECTIONS_MAX: usize = 512;
/// How long a hello may be.
const HELLO_BYTES_MAX: usize = 4096;
/// How long a caller may take to say who it is.
const HELLO_WITHIN: Duration = Duration::from_secs(2);
/// How long to wait when the system has no more descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Accepts for ever.
pub(super) async fn run_listener(voter: Arc<Voter>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let voter = Arc::clone(&voter);
        connections.spawn(async move {
            let _place = place;
            if let Err(error) = serve(&voter, stream, from).await {
                tracing::debug!(%from, %error, "a connection ended");
            }
        });
    }
}

async fn serve(voter: &Voter, mut stream: TcpStream, from: SocketAddr) -> Result<(), FrameError> {
    stream.set_nodelay(true)?;
    let mut magic = [0; 8];
    let Ok(read) = timeout(HELLO_WITHIN, stream.read_exact(&mut magic)).await else {
        return Ok(());
    };
    read?;
    match magic {
        SESSION_MAGIC => {
            // A full queue closes the connection; the node comes again.
            let _ = voter.sessions.try_send(SessionConnection { stream, from });
            Ok(())
        }
        VOTER_MAGIC => serve_voter(voter, stream).await,
        _ => Ok(()),
    }
}

async fn serve_voter(voter: &Voter, mut stream: TcpStream) -> Result<(), FrameError> {
    let hello = timeout(HELLO_WITHIN, read_frame(&mut stream, HELLO_BYTES_MAX)).await;
    let Ok(hello) = hello else { return Ok(()) };
    let answer = greet(voter, &hello?);
    write_frame(&mut stream, &answer).await?;
    if matches!(answer, HelloAnswer::Refused(_)) {
        return Ok(());
    }
    loop {
        let request = read_frame(&mut stream, FRAME_BYTES_MAX).await?;
        let response = answer_to(voter, request).await;
        write_frame(&mut stream, &response).await?;
    }
}

/// Checks version, names, cluster and directory of a caller.
fn greet(voter: &Voter, hello: &Hello) -> HelloAnswer {
    if hello.version != PROTOCOL_VERSION {
        let supported = PROTOCOL_VERSION;
        return HelloAnswer::Refused(HelloRefusal::OtherVersion { supported });
    }
    if hello.to != voter.name() {
        let name = voter.name().to_owned();
        return HelloAnswer::Refused(HelloRefusal::OtherVoter { name });
    }
    if !voter.voter_names().contains(&hello.from) {
        let name = crate::state::name::shorten(&hello.from);
        return HelloAnswer::Refused(HelloRefusal::UnknownVoter { name });
    }
    let view = voter.machine.view();
    match check_identity(&view, &hello.from, hello.cluster, hello.storage) {
        Err(refusal) => HelloAnswer::Refused(refusal),
        Ok(()) => HelloAnswer::Welcome { cluster: view.cluster, storage: voter.storage },
    }
}

async fn answer_to(voter: &Voter, request: Request) -> Response {
    match request {
        Request::Append(rpc) => Response::Append(voter.raft.append_entries(rpc).await),
        Request::Vote(rpc) => Response::Vote(voter.raft.vote(rpc).await),
        Request::Snapshot(rpc) => Response::Snapshot(voter.raft.install_snapshot(rpc).await),
        Request::Propose { proposal, deadline_ms } => {
            let deadline = Duration::from_millis(deadline_ms);
            Response::Propose(voter.propose_forwarded(proposal, deadline).await)
        }
        Request::Ping(report) => {
            voter.note_report(&report);
            Response::Ping(voter.report())
        }
    }
}
