//! Renews the node's lease, on a thread of its own that is never a shard.
//!
//! The clocks are read before a renewal is sent: the lease counts from there (DESIGN 5.2).

use std::sync::Arc;
use std::time::Duration;

use palisade_engine::engine::Lease;
use palisade_engine::io::clock::ClockReading;
use tokio::net::TcpStream;

use super::backoff::Backoff;
use super::node_state::{NodeState, SessionEnd, SessionTarget};
use super::voter_link;
use crate::wire::WireError;
use crate::wire::frame::{RENEWAL_BYTES_MAX, receive, send, within};
use crate::wire::hello::{Hello, Lane};
use crate::wire::session::{
    MetadataPoint, NotLeading, Renewal, RenewalAnswer, RenewalOutcome, ShardProgress,
};

/// Renews for as long as the node runs. Each session has its own lane; without one nothing is renewed.
pub(super) async fn run(state: Arc<NodeState>) {
    let mut targets = state.target.subscribe();
    let mut stopping = state.stopping.subscribe();
    let mut backoff = Backoff::new(state.config.timings.renew);
    loop {
        let target = targets.borrow_and_update().clone();
        let Some(target) = target else {
            tokio::select! {
                changed = targets.changed() => if changed.is_err() { return },
                _ = stopping.changed() => return,
            }
            continue;
        };
        let outcome = tokio::select! {
            outcome = renew_at(&state, &target, &mut backoff) => outcome,
            changed = targets.changed() => if changed.is_ok() { continue } else { return },
            _ = stopping.changed() => return,
        };
        let end = match outcome {
            Ok(end) => end,
            Err(error) => {
                tracing::info!(voter = target.address, %error, "the lease lane ended");
                SessionEnd::Lost
            }
        };
        // The control session decides where to go on; it publishes another target then.
        state.end_session(target.generation, end);
        tokio::time::sleep(backoff.next(fastrand::f64())).await;
    }
}

async fn renew_at(
    state: &NodeState,
    target: &SessionTarget,
    backoff: &mut Backoff,
) -> Result<SessionEnd, voter_link::LinkError> {
    let hello = Hello {
        lane: Lane::Lease,
        cluster: Some(target.cluster),
        name: state.config.name.clone(),
        node: Some(target.node),
        incarnation: target.incarnation,
    };
    let patience = patience_of(target);
    let (mut stream, _welcome) = voter_link::open(&target.address, &hello, patience).await?;
    for sequence in 1.. {
        let sent = state.clock.now();
        let answer = ask(state, &mut stream, sequence, patience).await?;
        match answer.outcome {
            RenewalOutcome::Renewed { at, lease_us } => {
                backoff.reset();
                use_lease(state, target, sent, at, Duration::from_micros(lease_us));
            }
            RenewalOutcome::NotLeading(NotLeading { leader }) => {
                return Ok(SessionEnd::NotLeading(leader));
            }
            RenewalOutcome::NotRegistered => return Ok(SessionEnd::Lost),
            RenewalOutcome::DeclaredGone => return Ok(SessionEnd::DeclaredGone),
        }
        let spent = state.clock.now().elapsed_for_holder(sent);
        tokio::time::sleep(target.renew_every.saturating_sub(spent)).await;
    }
    Ok(SessionEnd::Lost)
}

async fn ask(
    state: &NodeState,
    stream: &mut TcpStream,
    sequence: u64,
    patience: Duration,
) -> Result<RenewalAnswer, WireError> {
    let renewal = Renewal { sequence, applied: state.applied(), shards: shard_progress(state) };
    let asking = async {
        send(stream, &renewal).await?;
        let answer: RenewalAnswer = receive(stream, RENEWAL_BYTES_MAX).await?;
        Ok(answer)
    };
    let answer = within(patience, asking).await?;
    if answer.sequence != sequence {
        return Err(WireError::Unexpected { expected: "the answer to this renewal" });
    }
    Ok(answer)
}

/// A voter that does not answer within half a lease is of no use: the rest is for finding another.
fn patience_of(target: &SessionTarget) -> Duration {
    (target.lease / 4).max(target.renew_every)
}

fn use_lease(
    state: &NodeState,
    target: &SessionTarget,
    sent: ClockReading,
    at: MetadataPoint,
    duration: Duration,
) {
    state.note_confirmed(sent);
    // Not longer than what was agreed at registration: the voters count on that.
    let duration = duration.min(target.lease);
    if let Some(engine) = state.engine() {
        let lease = Lease { sent, duration, lineage: at.lineage, index: at.index };
        let renewal = engine.gate().renew(lease);
        state.note_renewal(renewal);
    }
}

fn shard_progress(state: &NodeState) -> Vec<ShardProgress> {
    let Some(engine) = state.engine() else { return Vec::new() };
    let now = state.clock.now().boottime;
    let progress = |shard: &palisade_engine::engine::ShardMetrics| ShardProgress {
        turns: shard.turns,
        oldest_io_us: shard.oldest_write.map_or(0, |since| {
            u64::try_from(now.saturating_sub(since).as_micros()).unwrap_or(u64::MAX)
        }),
    };
    engine.metrics().shards.iter().map(progress).collect()
}
