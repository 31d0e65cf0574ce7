//! The admin API over real sockets: answers, refusals and bad input.

#![allow(clippy::unwrap_used, reason = "the cluster of these tests")]

mod harness;

use std::time::Duration;

use harness::{PATIENCE, TWO_SECONDS, Voters, admit, register, until};
use palisade_sidecar::admin::{AdminAnswer, AdminClient, AdminError, CreateStreamRequest};
use palisade_sidecar::state::{OperationId, Policy, StreamKind};
use palisade_sidecar::voter::Voter;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

/// Three whole voters, with sessions and admin API.
struct Cluster {
    voters: Voters,
    running: Vec<Option<Voter>>,
}

impl Cluster {
    async fn start() -> Cluster {
        let mut cluster =
            Cluster { voters: Voters::new(3), running: (0..3).map(|_| None).collect() };
        for place in 0..3 {
            cluster.start_one(place).await;
        }
        let role = cluster.running[0].as_ref().unwrap().role().clone();
        until("the majority is held", || role.quorum_status().majority.held).await;
        admit(&role, register("n1", 1)).await;
        cluster
    }

    async fn start_one(&mut self, place: usize) {
        let config = self.voters.configs[place].clone();
        self.running[place] = Some(Voter::start(config).await.unwrap());
    }

    async fn stop_one(&mut self, place: usize) {
        self.running[place].take().unwrap().stop().await;
    }

    fn url(&self, place: usize) -> String {
        format!("http://{}", self.voters.configs[place].admin_listen)
    }

    fn client(&self) -> AdminClient {
        AdminClient::new((0..3).map(|place| self.url(place)).collect())
    }

    /// Sends raw text and returns everything that comes back.
    async fn raw(&self, place: usize, text: &[u8]) -> String {
        let address = self.voters.configs[place].admin_listen;
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(text).await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let _ = tokio::time::timeout(PATIENCE, read).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn get(&self, place: usize, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: v\r\nconnection: close\r\n\r\n");
        self.raw(place, request.as_bytes()).await
    }
}

fn request(name: &str) -> CreateStreamRequest {
    CreateStreamRequest { name: name.into(), partitions: 3, ..CreateStreamRequest::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_created_listed_shown_and_deleted_through_any_voter() {
    let cluster = Cluster::start().await;
    let client = cluster.client();

    let operation = OperationId::random();
    let request = CreateStreamRequest { operation_id: Some(operation), ..request("orders") };
    let created = client.create_stream(&request, PATIENCE).await.unwrap();
    let AdminAnswer::Admitted { stream: Some(uuid), .. } = created else { panic!("{created:?}") };
    for place in 0..3 {
        let one = AdminClient::new(vec![cluster.url(place)]);
        let again = one.create_stream(&request, PATIENCE).await.unwrap();
        assert!(matches!(again, AdminAnswer::Admitted { stream, .. } if stream == Some(uuid)));
        let role = cluster.running[place].as_ref().unwrap().role();
        until("it is applied", || role.view().stream_by_name("orders").is_some()).await;
        assert_eq!(one.streams(TWO_SECONDS).await.unwrap()[0].partitions, 3);
        let partitions = one.partitions(Some("orders"), TWO_SECONDS).await.unwrap();
        assert_eq!(partitions.len(), 3);
        assert_eq!(partitions[2].owner.as_deref(), Some("n1"));
        assert_eq!(partitions[2].history.len(), 1);
        let operation = one.operation(operation, TWO_SECONDS).await.unwrap().unwrap();
        assert_eq!((operation.outcome.as_str(), operation.stream), ("admitted", Some(uuid)));
        assert_eq!(one.nodes(TWO_SECONDS).await.unwrap()[0].partitions_owned, 3);
    }

    let shown = client.stream("orders", TWO_SECONDS).await.unwrap().unwrap();
    assert_eq!((shown.kind, shown.policy), (StreamKind::Log, Policy::ServeSettled));
    let stale = client.delete_stream("orders", Some(shown.version + 1), PATIENCE).await.unwrap();
    assert!(matches!(stale, AdminAnswer::Refused { reason, .. } if reason == "version_mismatch"));
    let deleted = client.delete_stream("orders", Some(shown.version), PATIENCE).await.unwrap();
    assert!(matches!(deleted, AdminAnswer::Admitted { .. }), "{deleted:?}");
    let last = AdminClient::new(vec![cluster.url(2)]);
    let gone = last.delete_stream("orders", None, PATIENCE).await.unwrap();
    assert!(matches!(gone, AdminAnswer::Refused { reason, .. } if reason == "stream_not_found"));
    assert_eq!(last.stream("orders", TWO_SECONDS).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_every_call_on_every_process_answers_within_two_seconds() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client();
    let created = client.create_stream(&request("before"), PATIENCE).await.unwrap();
    assert!(matches!(created, AdminAnswer::Admitted { .. }), "{created:?}");
    let role = cluster.running[2].as_ref().unwrap().role().clone();
    until("it is applied", || role.view().stream_by_name("before").is_some()).await;
    cluster.stop_one(0).await;
    cluster.stop_one(1).await;

    let asked = Instant::now();
    let refused = client.create_stream(&request("later"), TWO_SECONDS).await.unwrap();
    assert!(asked.elapsed() < TWO_SECONDS);
    let json = serde_json::to_value(&refused).unwrap();
    assert_eq!(json["outcome"], "refused");
    assert_eq!(json["reason"], "no_majority");
    assert_eq!((json["live"].as_u64(), json["needed"].as_u64()), (Some(1), Some(2)));
    assert_eq!(json["missing"], serde_json::json!(["v1", "v2"]));
    assert!(json["retry_after_ms"].as_u64().unwrap() > 0);
    for name in ["before", "never-was"] {
        let asked = Instant::now();
        let refused = client.delete_stream(name, None, TWO_SECONDS).await.unwrap();
        assert!(asked.elapsed() < TWO_SECONDS);
        assert!(matches!(refused, AdminAnswer::Refused { reason, .. } if reason == "no_majority"));
    }

    let asked = Instant::now();
    let status = client.status(TWO_SECONDS).await.unwrap();
    assert!(!status.majority.held && status.majority.leader.is_none());
    assert_eq!(client.streams(TWO_SECONDS).await.unwrap().len(), 1);
    assert!(cluster.get(2, "/ready/voter").await.starts_with("HTTP/1.1 503"));
    assert!(cluster.get(2, "/ready/admin").await.starts_with("HTTP/1.1 503"));
    assert!(cluster.get(2, "/ready/data").await.starts_with("HTTP/1.1 404"));
    assert!(cluster.get(2, "/metrics").await.contains("palisade_majority_held 0"));
    assert!(asked.elapsed() < TWO_SECONDS, "lists and status need no majority");

    cluster.start_one(0).await;
    cluster.start_one(1).await;
    until("the majority is back", || role.quorum_status().majority.held).await;
    let admitted = client.create_stream(&request("later"), PATIENCE).await.unwrap();
    assert!(matches!(admitted, AdminAnswer::Admitted { .. }), "{admitted:?}");
    assert!(cluster.get(2, "/ready/admin").await.starts_with("HTTP/1.1 200"));
    let page = cluster.get(2, "/").await;
    assert!(page.contains("id=\"majority\"") && !page.contains("src=\"http"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_requests_get_typed_refusals_and_change_nothing() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let refusals = [
        (CreateStreamRequest { name: "a/b".into(), ..request("") }, "bad_name"),
        (CreateStreamRequest { name: "x".repeat(300), ..request("") }, "bad_name"),
        (CreateStreamRequest { name: "日本".into(), ..request("") }, "bad_name"),
        (CreateStreamRequest { partitions: 0, ..request("s") }, "bad_partition_count"),
        (CreateStreamRequest { partitions: 1_000_000, ..request("s") }, "bad_partition_count"),
        (CreateStreamRequest { kind: StreamKind::Queue, ..request("s") }, "queue_not_served"),
        (CreateStreamRequest { replicas: 3, ..request("s") }, "replicas_not_served"),
        (CreateStreamRequest { ack_quorum: 2, ..request("s") }, "bad_ack_quorum"),
        (
            CreateStreamRequest { policy: Policy::SelfElect, ..request("s") },
            "self_elect_not_allowed",
        ),
    ];
    for (request, expected) in refusals {
        for dry_run in [true, false] {
            let request = CreateStreamRequest { dry_run, ..request.clone() };
            let answer = client.create_stream(&request, PATIENCE).await.unwrap();
            let AdminAnswer::Refused { reason, retry_after_ms, .. } = answer else {
                panic!("{request:?}: {answer:?}");
            };
            assert_eq!((reason.as_str(), retry_after_ms), (expected, 0));
        }
    }
    let tried = CreateStreamRequest { dry_run: true, ..request("s") };
    let tried = client.create_stream(&tried, PATIENCE).await.unwrap();
    assert!(matches!(tried, AdminAnswer::Admitted { dry_run: true, .. }), "{tried:?}");
    assert!(client.streams(TWO_SECONDS).await.unwrap().is_empty());

    let post = |body: &str| {
        let bytes = body.len();
        format!(
            "POST /v1/streams HTTP/1.1\r\nhost: v\r\nconnection: close\r\ncontent-length: {bytes}\r\n\r\n{body}"
        )
    };
    for (text, status) in [
        (post("{\"name\":\"s\",\"no_such_setting\":1}"), "400"),
        (post("{\"name\":"), "400"),
        (post(&"[".repeat(60_000)), "400"),
        (post(&"x".repeat(70_000)), "413"),
        ("DELETE /v1/streams/s?deadline_ms=soon HTTP/1.1\r\nhost: v\r\nconnection: close\r\n\r\n".into(), "400"),
        ("GET /v1/operations/7 HTTP/1.1\r\nhost: v\r\nconnection: close\r\n\r\n".into(), "400"),
        ("GET /v1/no-such HTTP/1.1\r\nhost: v\r\nconnection: close\r\n\r\n".into(), "404"),
        ("PUT /v1/streams HTTP/1.1\r\nhost: v\r\nconnection: close\r\n\r\n".into(), "405"),
        ("\u{1}\u{2} nonsense\r\n\r\n".into(), "400"),
    ] {
        let answer = cluster.raw(0, text.as_bytes()).await;
        let wanted = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&wanted), "{:?}: {answer}", &text[..text.len().min(80)]);
    }
    assert!(client.streams(TWO_SECONDS).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_says_why_there_is_no_answer() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();

    let none = AdminClient::new(vec![]).status(TWO_SECONDS).await.unwrap_err();
    let bad = AdminClient::new(vec!["ftp://x:1".into()]).status(TWO_SECONDS).await.unwrap_err();
    let away = AdminClient::new(vec![format!("http://{closed}")]);
    let away = away.create_stream(&request("s"), TWO_SECONDS).await.unwrap_err();

    assert!(matches!(none, AdminError::NoAddress), "{none}");
    assert!(matches!(bad, AdminError::BadUrl { .. }), "{bad}");
    assert!(matches!(&away, AdminError::Unreachable { tried } if tried.len() == 1), "{away}");

    // An address that takes connections and never answers: the outcome is unknown, at the deadline.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = AdminClient::new(vec![format!("http://{}", silent.local_addr().unwrap())]);
    let asked = Instant::now();
    let answer = silent.create_stream(&request("s"), Duration::from_millis(300)).await.unwrap();
    assert!(matches!(answer, AdminAnswer::Unknown { .. }), "{answer:?}");
    assert!(asked.elapsed() < TWO_SECONDS);
}
