//! The lease lane: renewals, each answered only after a majority round that began after it came in.
//!
//! Apart from everything else, so that neither pushes nor admin load can delay a lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::net::TcpStream;

use super::lease_table::{NotRenewed, Run};
use super::reading::Reading;
use super::server::Shared;
use crate::wire::WireError;
use crate::wire::frame::{RENEWAL_BYTES_MAX, receive, send};
use crate::wire::hello::Hello;
use crate::wire::session::{MetadataPoint, NotLeading, Renewal, RenewalAnswer, RenewalOutcome};

/// Answers the renewals of one run until it closes or falls silent.
pub(super) async fn serve(
    shared: &Arc<Shared>,
    mut stream: TcpStream,
    hello: &Hello,
) -> Result<(), WireError> {
    let node = hello.node.ok_or(WireError::Unexpected { expected: "a registered node" })?;
    let run = Run { node, incarnation: hello.incarnation };
    let patience = shared.timings.lease * 2;
    loop {
        let renewal: Renewal =
            crate::wire::frame::within(patience, receive(&mut stream, RENEWAL_BYTES_MAX)).await?;
        let sequence = renewal.sequence;
        note_health(shared, run, &renewal);
        let outcome = decide(shared, run).await;
        let counter = match outcome {
            RenewalOutcome::Renewed { .. } => &shared.counters.renewals,
            _ => &shared.counters.renewals_refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        send(&mut stream, &RenewalAnswer { sequence, outcome }).await?;
    }
}

async fn decide(shared: &Arc<Shared>, run: Run) -> RenewalOutcome {
    let confirmed = match shared.confirm().await {
        Ok(confirmed) => confirmed,
        Err(not_leading) => return RenewalOutcome::NotLeading(not_leading),
    };
    // The table and the metadata must both know the run: the table forgets nothing it still owes a wait,
    // and a newer run of the node may have been admitted through another voter.
    let view = shared.role.view();
    let known = view.node(crate::state::NodeId(run.node));
    match known {
        Some(node) if node.incarnation > run.incarnation || node.gone => {
            return RenewalOutcome::DeclaredGone;
        }
        None => return RenewalOutcome::NotRegistered,
        Some(_) => {}
    }
    match shared.leases().renew(run, Reading::now()) {
        Ok(()) => RenewalOutcome::Renewed {
            at: MetadataPoint { lineage: confirmed.lineage, index: confirmed.index },
            lease_us: micros(shared.timings.lease),
        },
        Err(NotRenewed::NotLeading) => RenewalOutcome::NotLeading(NotLeading::default()),
        Err(NotRenewed::NotRegistered) => RenewalOutcome::NotRegistered,
        Err(NotRenewed::Condemned) => RenewalOutcome::DeclaredGone,
    }
}

fn note_health(shared: &Shared, run: Run, renewal: &Renewal) {
    let oldest_io_us = renewal.shards.iter().map(|shard| shard.oldest_io_us).max().unwrap_or(0);
    shared.note_health(run, |health| {
        health.applied = renewal.applied;
        health.oldest_io_us = oldest_io_us;
    });
}

pub(super) fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
