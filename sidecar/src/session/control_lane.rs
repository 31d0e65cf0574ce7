//! The control lane: a node registers, then takes the pushes of what it may serve, in order.
//!
//! Pushes carry applied metadata only; their point orders them, whichever voter sent them (I8).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use super::grant_set::{GrantSet, frame_of};
use super::lease_lane::micros;
use super::lease_table::Run;
use super::reading::Reading;
use super::server::Shared;
use crate::role::Answer;
use crate::state::{Command, Done, NodeId, Refusal, RegisterNode, StorageId, View};
use crate::wire::WireError;
use crate::wire::frame::{HELLO_BYTES_MAX, MESSAGE_BYTES_MAX, receive, send, within};
use crate::wire::hello::Hello;
use crate::wire::session::{
    FromNode, FromVoter, GrantReportOutcome, MetadataPoint, NotLeading, Push, Registered,
    Registration, RegistrationRefusal,
};

/// Changes admitted within so long of a push go together into the next.
const PUSH_PAUSE: Duration = Duration::from_millis(2);
/// Messages of the node that may wait to be looked at.
const MESSAGES_MAX: usize = 64;

/// Serves one control lane until it ends.
pub(super) async fn serve(
    shared: &Arc<Shared>,
    mut stream: TcpStream,
    hello: &Hello,
) -> Result<(), WireError> {
    let patience = shared.timings.lease;
    let message: FromNode = within(patience, receive(&mut stream, HELLO_BYTES_MAX)).await?;
    let FromNode::Register(registration) = message else {
        return Err(WireError::Unexpected { expected: "a registration" });
    };
    if registration.name != hello.name || registration.incarnation != hello.incarnation {
        return Err(WireError::Unexpected { expected: "the registration of who said hello" });
    }
    let answer = register(shared, &registration).await;
    send(&mut stream, &answer).await?;
    let FromVoter::Registered(registered) = answer else { return Ok(()) };
    let run = Run { node: registered.node, incarnation: registration.incarnation };
    let superseded = shared.take_control(run.node);
    tracing::info!(
        node = run.node,
        name = registration.name,
        incarnation = run.incarnation,
        "session"
    );
    let outcome = converse(shared, stream, run, registered.at, superseded).await;
    shared.leases().disconnect(run);
    outcome
}

async fn converse(
    shared: &Arc<Shared>,
    stream: TcpStream,
    run: Run,
    since: MetadataPoint,
    mut superseded: watch::Receiver<()>,
) -> Result<(), WireError> {
    let (reader, writer) = stream.into_split();
    let (sender, mut messages) = mpsc::channel(MESSAGES_MAX);
    // Receiving is not cancel safe, so it has a task of its own; it ends with the connection or with us.
    let mut listening = tokio::task::JoinSet::new();
    listening.spawn(listen(reader, sender));
    let reports = async {
        while let Some(message) = messages.recv().await {
            note(shared, run, message?);
        }
        Ok(())
    };
    tokio::select! {
        outcome = reports => outcome,
        outcome = push(shared, writer, run, since) => outcome,
        _ = superseded.changed() => Ok(()),
    }
}

async fn listen<R: AsyncRead + Unpin>(
    mut reader: R,
    sender: mpsc::Sender<Result<FromNode, WireError>>,
) {
    loop {
        let message = receive(&mut reader, MESSAGE_BYTES_MAX).await;
        let is_over = message.is_err();
        if sender.send(message).await.is_err() || is_over {
            return;
        }
    }
}

fn note(shared: &Shared, run: Run, message: FromNode) {
    match message {
        FromNode::Applied(point) => shared.note_health(run, |health| health.applied = point),
        FromNode::Report(report) => {
            tracing::debug!(node = run.node, ?report, "a grant was taken up or ended");
            shared.note_health(run, |health| match report.outcome {
                GrantReportOutcome::Ready => health.ready += 1,
                GrantReportOutcome::Released => health.ready = health.ready.saturating_sub(1),
                GrantReportOutcome::Fenced { .. } | GrantReportOutcome::Failed { .. } => {}
            });
        }
        FromNode::Register(_) => {
            tracing::debug!(node = run.node, "a second registration on one lane is ignored");
        }
    }
}

/// Pushes the full set, then every change, for as long as this voter leads.
async fn push<W: AsyncWrite + Unpin>(
    shared: &Arc<Shared>,
    mut writer: W,
    run: Run,
    since: MetadataPoint,
) -> Result<(), WireError> {
    let mut applied = shared.role.applied();
    let mut leading = shared.leading.subscribe();
    let mut grants = GrantSet::default();
    let mut grants_index = None;
    loop {
        applied.borrow_and_update();
        let view = shared.role.view();
        // A state before the registration could lack what the node holds by right.
        if point_of(&view) >= since {
            for push in next_pushes(&view, run, &mut grants, &mut grants_index) {
                send(&mut writer, &FromVoter::Push(push)).await?;
                shared.counters.pushes.fetch_add(1, Ordering::Relaxed);
            }
        }
        tokio::time::sleep(PUSH_PAUSE).await;
        let is_leading = tokio::select! {
            changed = applied.changed() => { changed.is_ok() }
            deposed = leading.wait_for(|leading| !leading) => { drop(deposed); false }
        };
        if !is_leading {
            let answer = FromVoter::NotLeading(NotLeading::default());
            return send(&mut writer, &answer).await;
        }
    }
}

fn next_pushes(
    view: &View,
    run: Run,
    grants: &mut GrantSet,
    grants_index: &mut Option<u64>,
) -> Vec<Push> {
    let at = point_of(view);
    let node = view.node(NodeId(run.node));
    let changed = node.map(|node| node.grants_index);
    if grants.pushed().is_some() && *grants_index == changed {
        return grants.advance(at).into_iter().collect();
    }
    *grants_index = changed;
    let held = view.grants_for(NodeId(run.node)).into_iter();
    // An epoch belongs to one run (`PROTOCOL.md` 3): a grant of another is not this session's.
    let held = held.filter(|grant| grant.incarnation == run.incarnation).map(frame_of);
    grants.bring_to(at, held.collect())
}

fn point_of(view: &View) -> MetadataPoint {
    MetadataPoint { lineage: view.lineage, index: view.index }
}

async fn register(shared: &Arc<Shared>, registration: &Registration) -> FromVoter {
    let confirmed = match shared.confirm().await {
        Ok(confirmed) => confirmed,
        Err(not_leading) => return FromVoter::NotLeading(not_leading),
    };
    let at = MetadataPoint { lineage: confirmed.lineage, index: confirmed.index };
    let view = shared.role.view();
    if let Some((node, cluster)) = registered_already(&view, registration, at) {
        return admit(shared, registration, node, cluster, at);
    }
    let command = Command::RegisterNode(RegisterNode {
        name: registration.name.clone(),
        rack: registration.rack.clone(),
        incarnation: registration.incarnation,
        storage: StorageId(uuid::Uuid::from_u128(registration.storage_id)),
        data_address: registration.data_address.clone(),
        admin_address: registration.admin_address.clone(),
    });
    let timings = shared.timings;
    match shared.role.propose(command, timings.lease / 2).await {
        Answer::Admitted { index, response: Done::NodeRegistered { node, cluster }, .. } => {
            let at = MetadataPoint { index: index.max(at.index), ..at };
            admit(shared, registration, node, cluster.as_u128(), at)
        }
        Answer::Admitted { .. } => refuse_later("an answer of another kind", timings.retry_after),
        Answer::Refused { reason, retry_after, .. } => refuse(reason, retry_after),
        Answer::Unknown { .. } => refuse_later("the answer was lost", timings.renew),
    }
}

fn admit(
    shared: &Arc<Shared>,
    registration: &Registration,
    node: NodeId,
    cluster: u128,
    at: MetadataPoint,
) -> FromVoter {
    let run = Run { node: node.0, incarnation: registration.incarnation };
    shared.leases().register(run, Reading::now());
    FromVoter::Registered(Registered {
        node: node.0,
        cluster,
        at,
        lease_us: micros(shared.timings.lease),
        renew_every_us: micros(shared.timings.renew),
    })
}

/// A run that only changed voters needs no change of the metadata.
fn registered_already(
    view: &View,
    registration: &Registration,
    at: MetadataPoint,
) -> Option<(NodeId, u128)> {
    if point_of(view) < at {
        return None;
    }
    let node = view.node_by_name(&registration.name)?;
    let is_same = !node.gone
        && node.incarnation == registration.incarnation
        && node.storage.0.as_u128() == registration.storage_id
        && node.data_address == registration.data_address
        && node.admin_address == registration.admin_address
        && node.rack == registration.rack;
    is_same.then_some((node.id, view.cluster?.as_u128()))
}

fn refuse(reason: Refusal, retry_after: Duration) -> FromVoter {
    match reason {
        Refusal::StaleIncarnation { found, given } if found == given => {
            FromVoter::Refused(RegistrationRefusal::DeclaredGone)
        }
        Refusal::StaleIncarnation { found, .. } => {
            FromVoter::Refused(RegistrationRefusal::Superseded { current: found })
        }
        reason if retry_after.is_zero() => {
            FromVoter::Refused(RegistrationRefusal::Never { reason: reason.to_string() })
        }
        reason => refuse_later(&reason.to_string(), retry_after),
    }
}

fn refuse_later(reason: &str, retry_after: Duration) -> FromVoter {
    let retry_after_ms = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
    FromVoter::Refused(RegistrationRefusal::Later { reason: reason.to_owned(), retry_after_ms })
}
