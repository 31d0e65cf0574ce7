//! A node as the source of its admin server: what it sees of the quorum, and itself; changes go to a voter.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::node_state::{NodeState, Phase};
use super::node_status::NodeStatus;
use crate::admin::{
    AdminAnswer, AdminChange, AdminClient, AdminSource, BoxFuture, CreateStreamRequest, NodeEntry,
    Readiness, Ready, StatusReport,
};
use crate::role::QuorumStatus;
use crate::state::{OperationId, Refusal, View};

/// What a node shows over HTTP.
#[derive(Debug)]
pub(super) struct NodeAdmin {
    pub(super) state: Arc<NodeState>,
}

impl AdminSource for NodeAdmin {
    fn status(&self) -> StatusReport {
        StatusReport::new(self.quorum(), self.itself().into_iter().collect())
    }

    fn view(&self) -> Option<Arc<View>> {
        None
    }

    fn change(
        &self,
        change: AdminChange,
        operation: OperationId,
        deadline: Duration,
    ) -> BoxFuture<'_, AdminAnswer> {
        Box::pin(self.forward(change, operation, deadline))
    }

    fn readiness(&self) -> Readiness {
        let phase = self.state.phase().borrow().clone();
        let data = match phase {
            Phase::Serving => Ready::Yes,
            Phase::Waiting { reason } => Ready::No { reason },
            Phase::Failed(error) => Ready::No { reason: error.to_string() },
        };
        let majority = self.quorum().majority;
        let admin = match majority.held {
            true => Ready::Yes,
            false => Ready::No {
                reason: format!(
                    "{} of {} voters needed are live; missing {}",
                    majority.live,
                    majority.needed,
                    majority.missing.join(", ")
                ),
            },
        };
        Readiness { data, admin, voter: Ready::NotHere }
    }

    fn metrics(&self) -> String {
        metrics_of(&NodeStatus::of(&self.state))
    }

    fn node(&self) -> Option<NodeStatus> {
        Some(NodeStatus::of(&self.state))
    }
}

impl NodeAdmin {
    fn quorum(&self) -> QuorumStatus {
        let now = self.state.clock.now();
        self.state.quorum().status(now, &self.state.config.sidecars)
    }

    /// This node as an entry of the list of nodes; the others are known to the voters.
    fn itself(&self) -> Option<NodeEntry> {
        let identity = self.state.identity();
        let owned = self.state.engine().map_or(0, |engine| {
            engine.partitions().iter().filter(|partition| partition.owned.is_some()).count()
        });
        Some(NodeEntry {
            id: identity.membership?.node,
            name: identity.name,
            rack: self.state.config.rack.clone(),
            incarnation: identity.incarnation,
            gone: false,
            data_address: self.state.data_address()?.to_string(),
            admin_address: self.state.admin_address.to_string(),
            partitions_owned: owned,
        })
    }

    async fn forward(
        &self,
        change: AdminChange,
        operation: OperationId,
        deadline: Duration,
    ) -> AdminAnswer {
        let quorum = self.quorum();
        let urls: Vec<String> = quorum
            .voters
            .iter()
            .filter(|voter| voter.live)
            .filter_map(|voter| voter.admin_address.as_ref())
            .map(|address| format!("http://{address}"))
            .collect();
        let voters = AdminClient::new(urls);
        // The rest is for the way back.
        let deadline = deadline.mul_f64(0.9);
        let answer = match change {
            AdminChange::CreateStream(request) => {
                let operation_id = request.operation_id.or(Some(operation));
                let request = CreateStreamRequest { operation_id, ..request };
                voters.create_stream(&request, deadline).await
            }
            AdminChange::DeleteStream { name, expected_version } => {
                voters.delete_stream(&name, expected_version, deadline).await
            }
        };
        answer.unwrap_or_else(|error| {
            // Nothing was sent: that no voter answers is what a lost majority looks like from here.
            tracing::debug!(%error, "no voter takes a change");
            let retry_after = self.state.config.timings.retry_after.as_millis();
            let retry_after_ms = u64::try_from(retry_after).unwrap_or(u64::MAX);
            AdminAnswer::refused(&Refusal::NoMajority, &quorum.majority, retry_after_ms)
        })
    }
}

fn metrics_of(status: &NodeStatus) -> String {
    let mut text = String::new();
    let owned = status.partitions.iter().filter(|partition| partition.epoch.is_some()).count();
    let kept = status.partitions.iter().filter(|partition| !partition.is_granted).count();
    let mut line = |kind: &str, name: &str, help: &str, value: u64| {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "# HELP palisade_{name} {help}\n# TYPE palisade_{name} {kind}\npalisade_{name} {value}"
        );
    };
    line("gauge", "lease_usable", "1: the lease may be used", status.lease.is_usable.into());
    line("gauge", "lease_left_milliseconds", "What is left of the lease", status.lease.left_ms);
    line("counter", "lease_renewals_total", "Renewals confirmed", status.lease.renewals);
    line("counter", "sessions_total", "Sessions with a voter", status.sessions);
    line("counter", "pushes_dropped_total", "Pushes that came too late", status.pushes_dropped);
    line("gauge", "partitions_owned", "Partitions this run owns", owned as u64);
    line("gauge", "partitions_kept", "Partitions on disk that are not granted", kept as u64);
    line("gauge", "set_aside", "Files not understood at open", status.set_aside.len() as u64);
    let sum = |of: fn(&super::ShardCounters) -> u64| status.shards.iter().map(of).sum::<u64>();
    line("counter", "append_batches_total", "Batches given an offset", sum(|s| s.appends));
    line("counter", "append_records_total", "Records given an offset", sum(|s| s.records));
    line("counter", "append_bytes_total", "Bytes of batches appended", sum(|s| s.append_bytes));
    line("counter", "acknowledged_total", "Appends acknowledged", sum(|s| s.acknowledged));
    line("counter", "withheld_total", "Acknowledgements the gate withheld", sum(|s| s.withheld));
    line("counter", "busy_total", "Appends refused at a limit", sum(|s| s.busy));
    line("counter", "groups_total", "Groups written", sum(|s| s.groups));
    line("counter", "group_bytes_total", "Bytes of groups written", sum(|s| s.group_bytes));
    line("gauge", "appends_in_flight", "Appends not acknowledged", sum(|s| s.appends_in_flight));
    let preallocated = sum(|s| s.preallocated_bytes);
    line("gauge", "preallocated_bytes", "Bytes taken that hold no record yet", preallocated);
    let recycled = sum(|s| s.recycled_bytes);
    line("gauge", "recycled_bytes", "Bytes of removed segments' files", recycled);
    text
}
