//! A voter's role as the source of its admin server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::messages::{AdminAnswer, NodeEntry, StatusReport, stream_of};
use super::source::{AdminChange, AdminSource, BoxFuture, Readiness, Ready};
use crate::role::{Answer, MetadataRole};
use crate::state::{Command, OperationId, Outcome, Refusal, View};

impl AdminSource for MetadataRole {
    fn status(&self) -> StatusReport {
        StatusReport::new(self.quorum_status(), NodeEntry::all(&MetadataRole::view(self)))
    }

    fn view(&self) -> Option<Arc<View>> {
        Some(MetadataRole::view(self))
    }

    fn change(
        &self,
        change: AdminChange,
        operation: OperationId,
        deadline: Duration,
    ) -> BoxFuture<'_, AdminAnswer> {
        match change {
            AdminChange::CreateStream(request) if request.dry_run => {
                Box::pin(async move { tried(self, &request.command(), operation) })
            }
            AdminChange::CreateStream(request) => Box::pin(async move {
                self.propose_as(operation, request.command(), deadline).await.into()
            }),
            AdminChange::DeleteStream { name, expected_version } => {
                Box::pin(delete_stream(self, name, expected_version, operation, deadline))
            }
        }
    }

    fn readiness(&self) -> Readiness {
        let majority = self.quorum_status().majority;
        let (live, needed) = (majority.live, majority.needed);
        let admin = if majority.held {
            Ready::Yes
        } else if live < needed {
            let missing = majority.missing.join(", ");
            Ready::No {
                reason: format!("{live} of {needed} voters needed are live; missing {missing}"),
            }
        } else {
            Ready::No { reason: "no leader is known".to_owned() }
        };
        Readiness { data: Ready::NotHere, voter: admin.clone(), admin }
    }

    fn metrics(&self) -> String {
        super::metrics::of_view(&MetadataRole::view(self))
    }
}

fn tried(role: &MetadataRole, command: &Command, operation_id: OperationId) -> AdminAnswer {
    match role.dry_run(command) {
        Outcome::Done(done) => AdminAnswer::Admitted {
            index: MetadataRole::view(role).index,
            operation_id,
            stream: stream_of(&done),
            dry_run: true,
        },
        Outcome::Refused(reason) => {
            AdminAnswer::refused(&reason, &role.quorum_status().majority, 0)
        }
    }
}

/// Deletes by name. This voter may lag behind the one that created the stream, so before it says "not found" it
/// applies everything that was admitted before it was asked.
async fn delete_stream(
    role: &MetadataRole,
    name: String,
    expected_version: Option<u64>,
    operation: OperationId,
    deadline: Duration,
) -> AdminAnswer {
    let until = Instant::now() + deadline;
    let left = || until.saturating_duration_since(Instant::now());
    if find(role, &name).is_none() {
        match role.propose(Command::Noop, left()).await {
            Answer::Admitted { index, .. } => {
                let mut applied = role.applied();
                let caught_up = applied.wait_for(|applied| *applied >= index);
                if !matches!(timeout(left(), caught_up).await, Ok(Ok(_))) {
                    return AdminAnswer::Unknown { operation_id: operation };
                }
            }
            // Nothing was asked under this operation yet, so an unknown barrier is a plain refusal.
            Answer::Unknown { .. } => {
                let majority = role.quorum_status().majority;
                return AdminAnswer::refused(&Refusal::NoLeader, &majority, 1000);
            }
            refused => return refused.into(),
        }
    }
    let view = MetadataRole::view(role);
    if let Some(first) = view.operation(operation) {
        return match &first.outcome {
            Outcome::Done(_) => AdminAnswer::Admitted {
                index: first.index,
                operation_id: operation,
                stream: None,
                dry_run: false,
            },
            Outcome::Refused(reason) => {
                AdminAnswer::refused(reason, &role.quorum_status().majority, 0)
            }
        };
    }
    let Some(stream) = find(role, &name) else {
        let reason = Refusal::StreamNotFound { name: crate::state::name::shorten(&name) };
        return AdminAnswer::refused(&reason, &role.quorum_status().majority, 0);
    };
    let command = Command::DeleteStream { stream, expected_version };
    role.propose_as(operation, command, left()).await.into()
}

fn find(role: &MetadataRole, name: &str) -> Option<uuid::Uuid> {
    MetadataRole::view(role).stream_by_name(name).map(|stream| stream.uuid)
}
