//! The node's control session: finds the voter that leads, registers, takes up pushes, reports.
//!
//! One session at a time. Whatever ends it, the next is tried at once or after a short, capped pause.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::backoff::Backoff;
use super::config::NodeError;
use super::grant_applier;
use super::node_identity::Membership;
use super::node_state::{NodeState, Phase, SessionEnd, SessionTarget};
use super::opening;
use super::voter_choice::VoterChoice;
use super::voter_link::{self, LinkError};
use crate::wire::WireError;
use crate::wire::frame::{MESSAGE_BYTES_MAX, receive, send, within};
use crate::wire::hello::{Hello, HelloRefusal, Lane};
use crate::wire::session::{
    FromNode, FromVoter, GrantReportOutcome, Push, Registered, Registration, RegistrationRefusal,
    Revocation,
};

/// Pushes that may wait while one is taken up.
const PUSHES_MAX: usize = 64;

/// Why a session could not go on.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Nothing will get better by itself.
    #[error(transparent)]
    Final(#[from] NodeError),
}

/// Keeps a session until the node stops or fails for good; then gives back what it owns.
pub(super) async fn run(state: Arc<NodeState>) {
    let mut stopping = state.stopping.subscribe();
    let start = fastrand::usize(..state.config.sidecars.len().max(1));
    let mut voters = VoterChoice::new(state.config.sidecars.clone(), start);
    let mut backoff = Backoff::new(state.config.timings.renew);
    loop {
        let Some(voter) = voters.next() else {
            let what = "no voter is configured; name at least one".to_owned();
            state.set_phase(Phase::Failed(NodeError::Config { what }));
            return;
        };
        let sessions_before = state.sessions.load(Ordering::Relaxed);
        let outcome = tokio::select! {
            outcome = session(&state, &voter) => outcome,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        if state.sessions.load(Ordering::Relaxed) > sessions_before {
            backoff.reset();
            voters.succeeded(&voter);
        }
        let pause = match judge(&state, &mut voters, &voter, outcome, &mut backoff) {
            Ok(pause) => pause,
            Err(error) => {
                tracing::error!(%error, "the node gives up");
                state.set_phase(Phase::Failed(error));
                return;
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
    }
}

/// Says how long to pause before the next attempt, or why there is none.
fn judge(
    state: &NodeState,
    voters: &mut VoterChoice,
    voter: &str,
    outcome: Result<SessionEnd, SessionError>,
    backoff: &mut Backoff,
) -> Result<Duration, NodeError> {
    let reason = match &outcome {
        Ok(end) => format!("{voter}: {end:?}"),
        Err(error) => format!("{voter}: {error}"),
    };
    tracing::info!(voter, reason, "a session ended");
    state.set_phase(Phase::Waiting { reason });
    match outcome {
        Ok(SessionEnd::Again) => Ok(Duration::ZERO),
        Ok(SessionEnd::NotLeading(Some(leader))) => match voters.follow(leader.address) {
            true => Ok(Duration::ZERO),
            false => Ok(backoff.next(fastrand::f64())),
        },
        Ok(SessionEnd::DeclaredGone) => {
            state.next_run()?;
            Ok(backoff.next(fastrand::f64()))
        }
        Ok(SessionEnd::Later(pause)) => Ok(pause.max(backoff.next(fastrand::f64()))),
        Ok(SessionEnd::NotLeading(None) | SessionEnd::Lost) => {
            voters.failed();
            Ok(backoff.next(fastrand::f64()))
        }
        Err(SessionError::Final(error)) => Err(error),
        // A later run of this node is registered: this process is a leftover.
        Err(SessionError::Link(LinkError::Refused(refusal @ HelloRefusal::Incarnation { .. }))) => {
            Err(NodeError::Refused { reason: refusal.to_string() })
        }
        Err(error) => {
            tracing::debug!(%error, "trying the next voter");
            voters.failed();
            Ok(backoff.next(fastrand::f64()))
        }
    }
}

async fn session(state: &Arc<NodeState>, voter: &str) -> Result<SessionEnd, SessionError> {
    let identity = state.identity();
    let hello = Hello {
        lane: Lane::Control,
        cluster: identity.membership.map(|membership| membership.cluster),
        name: identity.name.clone(),
        node: identity.membership.map(|membership| membership.node),
        incarnation: identity.incarnation,
    };
    let timings = state.config.timings;
    let (mut stream, welcome) = voter_link::open(voter, &hello, timings.lease / 4).await?;
    let said = registration(state, &identity.name, identity.incarnation, identity.storage_id);
    let data_address = said.data_address.clone();
    send(&mut stream, &FromNode::Register(said)).await?;
    let answer = within(timings.lease, receive(&mut stream, MESSAGE_BYTES_MAX)).await?;
    let registered = match answer {
        FromVoter::Registered(registered) => registered,
        FromVoter::NotLeading(not_leading) => {
            return Ok(SessionEnd::NotLeading(not_leading.leader));
        }
        FromVoter::Refused(refusal) => return refused(refusal),
        FromVoter::Push(_) => {
            return Err(WireError::Unexpected { expected: "an answer to the registration" }.into());
        }
    };
    let membership = Membership { cluster: registered.cluster, node: registered.node };
    state.join(membership).map_err(NodeError::from)?;
    let generation = state.sessions.fetch_add(1, Ordering::Relaxed) + 1;
    publish(state, generation, voter, welcome.name, identity.incarnation, &registered);
    let outcome = serve(state, stream, generation, &data_address).await;
    state.end_session(generation, SessionEnd::Lost);
    outcome
}

fn registration(state: &NodeState, name: &str, incarnation: u64, storage_id: u128) -> Registration {
    // Before the engine is open, the port is the configured one; if that is "any", what it came out as is
    // registered right after.
    let data_address = state.data_address().unwrap_or(state.config.listen);
    Registration {
        name: name.to_owned(),
        incarnation,
        storage_id,
        data_address: data_address.to_string(),
        admin_address: state.admin_address.to_string(),
        rack: state.config.rack.clone(),
    }
}

fn refused(refusal: RegistrationRefusal) -> Result<SessionEnd, SessionError> {
    match refusal {
        RegistrationRefusal::Later { retry_after_ms, .. } => {
            Ok(SessionEnd::Later(Duration::from_millis(retry_after_ms)))
        }
        RegistrationRefusal::DeclaredGone => Ok(SessionEnd::DeclaredGone),
        refusal => Err(NodeError::Refused { reason: refusal.to_string() }.into()),
    }
}

/// Tells the lease thread where to renew.
fn publish(
    state: &NodeState,
    generation: u64,
    address: &str,
    voter: String,
    incarnation: u64,
    registered: &Registered,
) {
    state.target.send_replace(Some(SessionTarget {
        generation,
        address: address.to_owned(),
        voter,
        cluster: registered.cluster,
        node: registered.node,
        incarnation,
        lease: Duration::from_micros(registered.lease_us),
        renew_every: Duration::from_micros(registered.renew_every_us),
    }));
}

async fn serve(
    state: &Arc<NodeState>,
    stream: TcpStream,
    generation: u64,
    said_data_address: &str,
) -> Result<SessionEnd, SessionError> {
    // The lease is renewed meanwhile; pushes wait in the socket.
    opening::open_once(state).await?;
    if state.data_address().is_some_and(|address| address.to_string() != said_data_address) {
        return Ok(SessionEnd::Again);
    }
    state.inbox().begin_session();
    let (reader, mut writer) = stream.into_split();
    let (sender, mut messages) = mpsc::channel(PUSHES_MAX);
    // Receiving is not cancel safe, so it has a task of its own; it ends with the connection or with us.
    let mut listening = tokio::task::JoinSet::new();
    listening.spawn(listen(reader, sender));
    let mut ended = state.ended.subscribe();
    loop {
        let message = tokio::select! {
            message = messages.recv() => message.unwrap_or(Err(WireError::Closed))?,
            ended = ended.wait_for(|(which, _)| *which >= generation) => {
                return Ok(ended.map_or(SessionEnd::Lost, |ended| ended.1.clone()));
            }
        };
        match message {
            FromVoter::Push(push) => take(state, push, &mut writer).await?,
            FromVoter::NotLeading(not_leading) => {
                return Ok(SessionEnd::NotLeading(not_leading.leader));
            }
            FromVoter::Registered(_) | FromVoter::Refused(_) => {
                return Err(WireError::Unexpected { expected: "a push" }.into());
            }
        }
    }
}

async fn listen<R: AsyncRead + Unpin>(
    mut reader: R,
    sender: mpsc::Sender<Result<FromVoter, WireError>>,
) {
    loop {
        let message = receive(&mut reader, MESSAGE_BYTES_MAX).await;
        let is_over = message.is_err();
        if sender.send(message).await.is_err() || is_over {
            return;
        }
    }
}

async fn take<W: tokio::io::AsyncWrite + Unpin>(
    state: &NodeState,
    push: Push,
    writer: &mut W,
) -> Result<(), SessionError> {
    let effect = state.inbox().take(push);
    let effect = effect.map_err(|_out_of_sequence: super::push_inbox::OutOfSequence| {
        WireError::Unexpected { expected: "a full set of grants first" }
    })?;
    let (Some(effect), Some(engine)) = (effect, state.engine()) else { return Ok(()) };
    let at = effect.at;
    let has_change = !(effect.revoked.is_empty() && effect.granted.is_empty());
    let reports = grant_applier::apply(engine, effect).await;
    for report in &reports {
        if let GrantReportOutcome::Failed { reason } = &report.outcome {
            tracing::error!(partition = ?report.partition, reason, "a grant was not taken up");
            state.inbox().give_back(report.partition);
        }
    }
    state.set_applied(at);
    state.set_phase(Phase::Serving);
    for report in reports {
        send(writer, &FromNode::Report(report)).await?;
    }
    // A point without a change is told with the next renewal.
    if has_change {
        send(writer, &FromNode::Applied(at)).await?;
    }
    Ok(())
}

/// Gives back every epoch this node owns: nothing is acknowledged in them afterwards.
pub(super) async fn release_all(state: &NodeState) -> usize {
    let Some(engine) = state.engine() else { return 0 };
    let held: Vec<Revocation> = state
        .inbox()
        .held()
        .map(|grant| Revocation { partition: grant.partition, epoch: grant.epoch })
        .collect();
    let gate = engine.gate();
    let releasing = held.iter().map(|revocation| grant_applier::revoke(&gate, *revocation));
    let reports = futures_util::future::join_all(releasing).await;
    gate.drop_lease();
    reports.iter().filter(|report| report.outcome == GrantReportOutcome::Released).count()
}
