//! What the admin server shows: a voter's role, or what a node knows.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::messages::{AdminAnswer, CreateStreamRequest, StatusReport};
use crate::agent::NodeStatus;
use crate::state::{OperationId, View};

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What stands behind an admin server. A voter's is [`MetadataRole`](crate::role::MetadataRole); a node gives its own.
pub trait AdminSource: Send + Sync + std::fmt::Debug + 'static {
    /// The quorum and the nodes, at once, asking nobody.
    fn status(&self) -> StatusReport;

    /// The metadata as applied here; `None` where there is none, as on a node without a voter.
    fn view(&self) -> Option<Arc<View>>;

    /// Makes a change, inside `deadline`.
    fn change(
        &self,
        change: AdminChange,
        operation: OperationId,
        deadline: Duration,
    ) -> BoxFuture<'_, AdminAnswer>;

    /// The three answers of `/ready/...`.
    fn readiness(&self) -> Readiness;

    /// What a node says of itself; `None` at a voter.
    fn node(&self) -> Option<NodeStatus> {
        None
    }

    /// Lines for `/metrics` beyond those of the status, in the text format of Prometheus.
    fn metrics(&self) -> String {
        String::new()
    }
}

/// A change the admin API takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminChange {
    /// `POST /v1/streams`.
    CreateStream(CreateStreamRequest),
    /// `DELETE /v1/streams/NAME`.
    DeleteStream {
        /// The stream's name.
        name: String,
        /// The version the caller saw.
        expected_version: Option<u64>,
    },
}

/// The three answers of `/ready/...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Records are served here.
    pub data: Ready,
    /// A change would be admitted.
    pub admin: Ready,
    /// This voter takes part in the majority.
    pub voter: Ready,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ready {
    /// 200.
    Yes,
    /// 503, with the reason.
    No {
        /// What is missing.
        reason: String,
    },
    /// 404: this process does not do that job.
    NotHere,
}
