//! The typed client of the admin API: asks one address after the other, inside the caller's deadline.
//!
//! Never retries by itself after an answer: a refusal for want of a majority is taken to the other addresses once, and
//! then told.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::messages::{
    AdminAnswer, CreateStreamRequest, NodeEntry, OperationEntry, PartitionEntry, StatusReport,
    StreamEntry,
};
use crate::state::OperationId;

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How long connecting to one address may take while there are others.
const CONNECT_WITHIN: Duration = Duration::from_millis(500);

/// Why there is no answer. Nothing is known to have changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The client was given no address.
    #[error("no admin address was given")]
    NoAddress,
    /// Not `http://HOST:PORT`.
    #[error("{url:?} is not http://HOST:PORT")]
    BadUrl {
        /// The text.
        url: String,
    },
    /// No address could be reached; nothing was sent.
    #[error("no admin address answers: {}", tried.join("; "))]
    Unreachable {
        /// Each address and why.
        tried: Vec<String>,
    },
    /// An address answered with something that is not of this API.
    #[error("{url} answered {status} with something that is not of this API: {body}")]
    NotThisApi {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// What was asked for could not be shown.
    #[error("{url} refused: {message}")]
    Refused {
        /// The address.
        url: String,
        /// The word for scripts.
        reason: String,
        /// The sentence for people.
        message: String,
    },
}

/// One HTTP answer.
struct Reply {
    url: String,
    status: StatusCode,
    body: Bytes,
}

/// Why one address gave no answer.
enum Failure {
    /// Nothing was sent.
    NotSent(String),
    /// The request may have arrived.
    Lost(String),
}

/// A client of the admin API behind any of its addresses.
#[derive(Clone, Debug)]
pub struct AdminClient {
    urls: Vec<String>,
}

impl AdminClient {
    /// A client of the processes at these addresses, each `http://HOST:PORT`. Nothing is connected yet.
    #[must_use]
    pub fn new(urls: Vec<String>) -> AdminClient {
        AdminClient { urls }
    }

    /// The status as the first process that answers sees it.
    ///
    /// # Errors
    ///
    /// [`AdminError`]: no process answered, or not in this API's words.
    pub async fn status(&self, deadline: Duration) -> Result<StatusReport, AdminError> {
        self.show("/v1/status", deadline).await
    }

    /// All streams.
    ///
    /// # Errors
    ///
    /// As [`status`](AdminClient::status).
    pub async fn streams(&self, deadline: Duration) -> Result<Vec<StreamEntry>, AdminError> {
        self.show("/v1/streams", deadline).await
    }

    /// All nodes.
    ///
    /// # Errors
    ///
    /// As [`status`](AdminClient::status).
    pub async fn nodes(&self, deadline: Duration) -> Result<Vec<NodeEntry>, AdminError> {
        self.show("/v1/nodes", deadline).await
    }

    /// All partitions, or those of one stream.
    ///
    /// # Errors
    ///
    /// As [`status`](AdminClient::status).
    pub async fn partitions(
        &self,
        stream: Option<&str>,
        deadline: Duration,
    ) -> Result<Vec<PartitionEntry>, AdminError> {
        let query = stream.map_or_else(String::new, |name| format!("?stream={}", escape(name)));
        self.show(&format!("/v1/partitions{query}"), deadline).await
    }

    /// One stream by name; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`status`](AdminClient::status).
    pub async fn stream(
        &self,
        name: &str,
        deadline: Duration,
    ) -> Result<Option<StreamEntry>, AdminError> {
        found(self.show(&format!("/v1/streams/{}", escape(name)), deadline).await)
    }

    /// What became of an operation; `None` if the process that answers knows nothing of it.
    ///
    /// # Errors
    ///
    /// As [`status`](AdminClient::status).
    pub async fn operation(
        &self,
        id: OperationId,
        deadline: Duration,
    ) -> Result<Option<OperationEntry>, AdminError> {
        found(self.show(&format!("/v1/operations/{id}"), deadline).await)
    }

    /// Creates a stream. Under one operation id it is created once, however often this is repeated.
    ///
    /// # Errors
    ///
    /// [`AdminError`]: nothing was sent, or what answered is not this API.
    pub async fn create_stream(
        &self,
        request: &CreateStreamRequest,
        deadline: Duration,
    ) -> Result<AdminAnswer, AdminError> {
        let operation = request.operation_id.unwrap_or_else(OperationId::random);
        let request = CreateStreamRequest { operation_id: Some(operation), ..request.clone() };
        let body = Bytes::from(serde_json::json!(request).to_string());
        self.change(&Method::POST, "/v1/streams?", body, operation, deadline).await
    }

    /// Deletes a stream by name.
    ///
    /// # Errors
    ///
    /// As [`create_stream`](AdminClient::create_stream).
    pub async fn delete_stream(
        &self,
        name: &str,
        expected_version: Option<u64>,
        deadline: Duration,
    ) -> Result<AdminAnswer, AdminError> {
        let operation = OperationId::random();
        let mut path = format!("/v1/streams/{}?operation_id={operation}&", escape(name));
        if let Some(version) = expected_version {
            path += &format!("expected_version={version}&");
        }
        self.change(&Method::DELETE, &path, Bytes::new(), operation, deadline).await
    }

    async fn show<T: DeserializeOwned>(
        &self,
        path: &str,
        deadline: Duration,
    ) -> Result<T, AdminError> {
        let until = Instant::now() + deadline;
        let mut tried = Vec::new();
        let mut refused = None;
        for (place, url) in self.urls.iter().enumerate() {
            let share = share_until(until, self.urls.len() - place);
            match ask(url, &Method::GET, path, Bytes::new(), share).await? {
                Ok(reply) if reply.status == StatusCode::SERVICE_UNAVAILABLE => {
                    refused = Some(reply);
                }
                Ok(reply) => return read(reply),
                Err(Failure::NotSent(why) | Failure::Lost(why)) => tried.push(why),
            }
        }
        match refused {
            Some(reply) => read(reply),
            None if self.urls.is_empty() => Err(AdminError::NoAddress),
            None => Err(AdminError::Unreachable { tried }),
        }
    }

    async fn change(
        &self,
        method: &Method,
        path: &str,
        body: Bytes,
        operation_id: OperationId,
        deadline: Duration,
    ) -> Result<AdminAnswer, AdminError> {
        let until = Instant::now() + deadline;
        let mut tried = Vec::new();
        let mut refusal = None;
        let mut may_have_arrived = false;
        for url in &self.urls {
            let left = until.saturating_duration_since(Instant::now());
            let path = format!("{path}deadline_ms={}", left.as_millis());
            match ask(url, method, &path, body.clone(), until).await? {
                Ok(reply) => match read::<AdminAnswer>(reply)? {
                    // This process cannot; another one may reach a majority.
                    answer @ AdminAnswer::Refused { retry_after_ms: 1.., .. } => {
                        refusal = Some(clearer(refusal, answer));
                    }
                    AdminAnswer::Refused { reason, .. } if reason == "stopping" => {}
                    answer => return Ok(answer),
                },
                Err(Failure::NotSent(why)) => tried.push(why),
                Err(Failure::Lost(why)) => {
                    may_have_arrived = true;
                    tried.push(why);
                }
            }
        }
        match refusal {
            _ if may_have_arrived => Ok(AdminAnswer::Unknown { operation_id }),
            Some(refusal) => Ok(refusal),
            None if self.urls.is_empty() => Err(AdminError::NoAddress),
            None => Err(AdminError::Unreachable { tried }),
        }
    }
}

/// Of two refusals, the one of the process that sees more voters.
fn clearer(first: Option<AdminAnswer>, second: AdminAnswer) -> AdminAnswer {
    let seen = |answer: &AdminAnswer| match answer {
        AdminAnswer::Refused { live, .. } => *live,
        _ => 0,
    };
    match first {
        Some(first) if seen(&first) >= seen(&second) => first,
        _ => second,
    }
}

/// Divides what is left of the deadline among the addresses that are left.
fn share_until(until: Instant, addresses_left: usize) -> Instant {
    let left = until.saturating_duration_since(Instant::now());
    Instant::now() + left / u32::try_from(addresses_left.max(1)).unwrap_or(u32::MAX)
}

async fn ask(
    url: &str,
    method: &Method,
    path: &str,
    body: Bytes,
    until: Instant,
) -> Result<Result<Reply, Failure>, AdminError> {
    let base = url.trim_end_matches('/');
    let base = if base.contains("://") { base.to_owned() } else { format!("http://{base}") };
    let bad_url = || AdminError::BadUrl { url: url.to_owned() };
    let parsed: Result<Uri, _> = base.parse();
    let Some(authority) = parsed.ok().filter(|uri| uri.scheme_str() == Some("http")) else {
        return Err(bad_url());
    };
    let Some(authority) = authority.authority().cloned() else { return Err(bad_url()) };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", authority.as_str())
        .header("content-type", "application/json")
        .header("connection", "close")
        .body(Full::new(body));
    let Ok(request) = request else { return Err(bad_url()) };
    let address = authority.as_str().to_owned();
    let left = until.saturating_duration_since(Instant::now()).min(CONNECT_WITHIN);
    let stream = match timeout(left, TcpStream::connect(&address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Ok(Err(Failure::NotSent(format!("{base}: {error}")))),
        Err(_) => return Ok(Err(Failure::NotSent(format!("{base}: no answer in {left:?}")))),
    };
    match timeout_at(until, exchange(stream, request)).await {
        Ok(Ok((status, body))) => Ok(Ok(Reply { url: base, status, body })),
        Ok(Err(error)) => Ok(Err(Failure::Lost(format!("{base}: {error}")))),
        Err(_) => Ok(Err(Failure::Lost(format!("{base}: no answer within the deadline")))),
    }
}

async fn exchange(
    stream: TcpStream,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let exchanged = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?;
        Ok((status, body.to_bytes()))
    };
    tokio::pin!(exchanged);
    tokio::select! {
        done = &mut exchanged => done,
        ended = connection => {
            ended?;
            exchanged.await
        }
    }
}

fn read<T: DeserializeOwned>(reply: Reply) -> Result<T, AdminError> {
    if let Ok(value) = serde_json::from_slice(&reply.body) {
        return Ok(value);
    }
    match serde_json::from_slice(&reply.body) {
        Ok(AdminAnswer::Refused { reason, message, .. }) => {
            Err(AdminError::Refused { url: reply.url, reason, message })
        }
        _ => Err(AdminError::NotThisApi {
            url: reply.url,
            status: reply.status.as_u16(),
            body: crate::state::name::shorten(&String::from_utf8_lossy(&reply.body)),
        }),
    }
}

fn found<T>(shown: Result<T, AdminError>) -> Result<Option<T>, AdminError> {
    match shown {
        Ok(value) => Ok(Some(value)),
        Err(AdminError::Refused { reason, .. }) if reason.ends_with("_not_found") => Ok(None),
        Err(error) => Err(error),
    }
}

/// Escapes a name for a path or query; any byte may stand in what a caller types.
fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped += &format!("%{byte:02X}");
        }
    }
    escaped
}
