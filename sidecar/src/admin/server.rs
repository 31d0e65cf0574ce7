//! The HTTP server of the admin API.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::get;
use bytes::Bytes;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use uuid::Uuid;

use super::messages::{
    AdminAnswer, CreateStreamRequest, OperationEntry, PartitionEntry, StreamEntry,
};
use super::metrics;
use super::source::{AdminChange, AdminSource, Ready};
use crate::state::{OperationId, Refusal, View};

/// The largest body a request may have.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// The deadline of a change that names none.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(2);
/// The longest deadline.
const DEADLINE_MAX: Duration = Duration::from_secs(60);
/// How long requests may take to end when the server stops.
const DRAIN_WITHIN: Duration = Duration::from_millis(500);
/// How many partitions one list shows at most.
const PARTITIONS_LISTED_MAX: usize = 10_000;

type Source = Arc<dyn AdminSource>;

/// A running admin server.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl AdminServer {
    /// Listens and serves in the background.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on.
    pub async fn start(listen: SocketAddr, source: Source) -> std::io::Result<AdminServer> {
        let listener = TcpListener::bind(listen).await?;
        AdminServer::start_on(listener, source)
    }

    /// Serves on a socket bound beforehand.
    ///
    /// # Errors
    ///
    /// The socket has no address.
    pub fn start_on(listener: TcpListener, source: Source) -> std::io::Result<AdminServer> {
        let address = listener.local_addr()?;
        let (stop, mut stopping) = watch::channel(false);
        let task = tokio::spawn(async move {
            let stopped = async move {
                // An error means that the server's handle was dropped: stop as well.
                let _ = stopping.wait_for(|stop| *stop).await;
            };
            let serving = axum::serve(listener, router(source)).with_graceful_shutdown(stopped);
            if let Err(error) = serving.await {
                tracing::error!(%error, "the admin server ended");
            }
        });
        Ok(AdminServer { address, stop, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more requests and waits a moment for those that run.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if timeout(DRAIN_WITHIN, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

fn router(source: Source) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/v1/status", get(status))
        .route("/v1/streams", get(list_streams).post(create_stream))
        .route("/v1/streams/{name}", get(show_stream).delete(delete_stream))
        .route("/v1/nodes", get(list_nodes))
        .route("/v1/node", get(show_node))
        .route("/v1/partitions", get(list_partitions))
        .route("/v1/operations/{id}", get(show_operation))
        .route("/metrics", get(show_metrics))
        .route(
            "/ready/data",
            get(|State(s): State<Source>| async move { ready(s.readiness().data) }),
        )
        .route(
            "/ready/admin",
            get(|State(s): State<Source>| async move { ready(s.readiness().admin) }),
        )
        .route(
            "/ready/voter",
            get(|State(s): State<Source>| async move { ready(s.readiness().voter) }),
        )
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "not_found", "no such page") })
        .method_not_allowed_fallback(|| async {
            problem(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "not that way")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(source)
}

async fn page() -> Html<&'static str> {
    Html(include_str!("page.html"))
}

async fn status(State(source): State<Source>) -> Response {
    Json(source.status()).into_response()
}

async fn list_streams(State(source): State<Source>) -> Response {
    listed(&source, |view| view.streams().map(StreamEntry::from).collect::<Vec<_>>())
}

async fn list_nodes(State(source): State<Source>) -> Response {
    Json(source.status().nodes).into_response()
}

async fn show_node(State(source): State<Source>) -> Response {
    match source.node() {
        Some(node) => Json(node).into_response(),
        None => problem(StatusCode::NOT_FOUND, "not_a_node", "this process serves no records"),
    }
}

/// What `GET /v1/partitions` can be asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PartitionQuery {
    /// Only those of one stream.
    stream: Option<String>,
}

async fn list_partitions(
    State(source): State<Source>,
    query: Result<Query<PartitionQuery>, QueryRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(error) => return bad_request(&error.body_text()),
    };
    listed(&source, |view| {
        let wanted = query.stream.as_deref();
        let partitions = view.partitions();
        let partitions = partitions.filter(|(_, s, _)| wanted.is_none_or(|name| s.name == name));
        let entries = partitions.take(PARTITIONS_LISTED_MAX);
        entries.map(|(id, s, p)| PartitionEntry::of(view, id, s, p)).collect::<Vec<_>>()
    })
}

async fn show_stream(State(source): State<Source>, Path(name): Path<String>) -> Response {
    let Some(view) = source.view() else { return no_metadata() };
    match view.stream_by_name(&name) {
        Some(stream) => Json(StreamEntry::from(stream)).into_response(),
        None => {
            let message = Refusal::StreamNotFound { name: crate::state::name::shorten(&name) };
            problem(StatusCode::NOT_FOUND, "stream_not_found", &message.to_string())
        }
    }
}

async fn show_operation(State(source): State<Source>, Path(id): Path<String>) -> Response {
    let Ok(id) = id.parse::<Uuid>() else { return bad_request("an operation id is a uuid") };
    let Some(view) = source.view() else { return no_metadata() };
    match view.operation(OperationId(id)) {
        Some(operation) => Json(OperationEntry::from(operation)).into_response(),
        None => problem(
            StatusCode::NOT_FOUND,
            "operation_not_found",
            "not known here: it was never admitted or refused by the majority, or it is too long ago",
        ),
    }
}

/// What every change can be asked with.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ChangeQuery {
    deadline_ms: Option<u64>,
    operation_id: Option<Uuid>,
    expected_version: Option<u64>,
}

impl ChangeQuery {
    fn deadline(&self) -> Duration {
        self.deadline_ms.map_or(DEADLINE_DEFAULT, Duration::from_millis).min(DEADLINE_MAX)
    }
}

async fn create_stream(
    State(source): State<Source>,
    query: Result<Query<ChangeQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(error) => return bad_request(&error.body_text()),
    };
    let body = match body {
        Ok(body) => body,
        Err(error) => return problem(error.status(), "too_large", &error.body_text()),
    };
    let request: CreateStreamRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return bad_request(&error.to_string()),
    };
    let operation = request.operation_id.or(query.operation_id.map(OperationId));
    let operation = operation.unwrap_or_else(OperationId::random);
    let change = AdminChange::CreateStream(request);
    answered(source.change(change, operation, query.deadline()).await)
}

async fn delete_stream(
    State(source): State<Source>,
    Path(name): Path<String>,
    query: Result<Query<ChangeQuery>, QueryRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(error) => return bad_request(&error.body_text()),
    };
    let operation = query.operation_id.map_or_else(OperationId::random, OperationId);
    let expected_version = query.expected_version;
    let change = AdminChange::DeleteStream { name, expected_version };
    answered(source.change(change, operation, query.deadline()).await)
}

async fn show_metrics(State(source): State<Source>) -> Response {
    let text = metrics::of_status(&source.status()) + &source.metrics();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

fn listed<T: serde::Serialize>(source: &Source, list: impl FnOnce(&View) -> T) -> Response {
    let Some(view) = source.view() else { return no_metadata() };
    Json(list(&view)).into_response()
}

fn ready(ready: Ready) -> Response {
    match ready {
        Ready::Yes => (StatusCode::OK, "ready\n").into_response(),
        Ready::No { reason } => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response()
        }
        Ready::NotHere => {
            (StatusCode::NOT_FOUND, "this process does not do that\n").into_response()
        }
    }
}

fn answered(answer: AdminAnswer) -> Response {
    let status = match &answer {
        AdminAnswer::Admitted { .. } => StatusCode::OK,
        AdminAnswer::Unknown { .. } => StatusCode::GATEWAY_TIMEOUT,
        AdminAnswer::Refused { retry_after_ms: 1.., .. } => StatusCode::SERVICE_UNAVAILABLE,
        AdminAnswer::Refused { reason, .. } if reason.ends_with("_not_found") => {
            StatusCode::NOT_FOUND
        }
        AdminAnswer::Refused { .. } => StatusCode::CONFLICT,
    };
    (status, Json(answer)).into_response()
}

fn no_metadata() -> Response {
    problem(StatusCode::SERVICE_UNAVAILABLE, "no_metadata", "this process holds none; ask a voter")
}

fn bad_request(message: &str) -> Response {
    problem(StatusCode::BAD_REQUEST, "bad_request", message)
}

/// An answer that is no answer to a change: something is wrong with the question.
fn problem(status: StatusCode, reason: &str, message: &str) -> Response {
    let body = AdminAnswer::Refused {
        reason: reason.to_owned(),
        message: message.to_owned(),
        live: 0,
        needed: 0,
        missing: Vec::new(),
        retry_after_ms: 0,
    };
    (status, Json(body)).into_response()
}
