//! Nodes over real sockets and disks, beside three voters: records flow, leases end, majorities are lost.

#![allow(clippy::unwrap_used, reason = "part of tests only")]

mod harness;
#[path = "harness/losing_proxy.rs"]
mod losing_proxy;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use harness::{PATIENCE, TWO_SECONDS, Voters, admit, create, timings, until};
use losing_proxy::LosingProxy;
use palisade_engine::engine::IoChoice;
use palisade_sidecar::admin::{AdminAnswer, AdminClient, AdminServer, CreateStreamRequest};
use palisade_sidecar::agent::{NodeAgent, NodeConfig, NodeError};
use palisade_sidecar::client::{
    AppendOptions, ClientError, DataClient, DataClientConfig, DataError, Producer, ProducerClient,
    RecordBatch,
};
use palisade_sidecar::role::Answer;
use palisade_sidecar::session::SessionServer;
use palisade_sidecar::state::{Command, CreateStream, Policy, Refusal, StreamKind, StreamSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

/// Voters with their session servers, and nodes.
struct Cluster {
    voters: Voters,
    servers: Vec<Option<SessionServer>>,
    nodes: Vec<NodeAgent>,
}

impl Cluster {
    async fn formed(nodes: usize) -> Cluster {
        let voters = Voters::formed(3).await;
        let servers =
            voters.live().map(|voter| Some(SessionServer::start(voter.clone()))).collect();
        let mut cluster = Cluster { voters, servers, nodes: Vec::new() };
        for place in 0..nodes {
            cluster.nodes.push(cluster.start_node(place).await);
        }
        cluster
    }

    fn node_directory(&self, place: usize) -> PathBuf {
        self.voters.directory.path().join(format!("n{place}"))
    }

    fn node_config(&self, place: usize) -> NodeConfig {
        let sidecars = self.voters.configs.iter().map(|config| config.listen.to_string()).collect();
        let mut config =
            NodeConfig::new(&format!("n{place}"), self.node_directory(place), sidecars);
        config.timings = timings();
        config.arena_bytes = 16 << 20;
        // Three nodes are of three kinds: one shard, two shards, and without a ring.
        config.shards = 1 + place % 2;
        config.io = if place == 2 { IoChoice::Blocking } else { IoChoice::Auto };
        config
    }

    async fn start_node(&self, place: usize) -> NodeAgent {
        let node = NodeAgent::start(self.node_config(place)).await.unwrap();
        node.ready(PATIENCE).await.unwrap();
        node
    }

    async fn stop_voter(&mut self, place: usize) {
        self.servers[place].take().unwrap().stop().await;
        self.voters.stop(place).await;
    }

    async fn start_voter(&mut self, place: usize) {
        self.voters.start(place).await;
        let server = SessionServer::start(self.voters.voter(place).clone());
        self.servers[place] = Some(server);
    }

    fn client(&self) -> DataClient {
        let nodes = self.nodes.iter().map(|node| node.data_address().unwrap().to_string());
        DataClient::new(DataClientConfig::new(nodes.collect()))
    }

    async fn create(&self, name: &str, partitions: u32, policy: Policy) {
        let command = Command::CreateStream(CreateStream {
            name: name.into(),
            kind: StreamKind::Log,
            partitions,
            replicas: 1,
            ack_quorum: 1,
            policy,
            settings: StreamSettings::default(),
        });
        admit(self.voters.live().next().unwrap(), command).await;
    }

    async fn stop(self) {
        for node in self.nodes {
            node.stop().await.unwrap();
        }
    }
}

fn batch(records: &[&[u8]]) -> RecordBatch {
    let mut builder = RecordBatch::builder(64);
    for record in records {
        builder.push(record).unwrap();
    }
    builder.finish()
}

async fn append(client: &DataClient, stream: &str, partition: u32, record: &str) -> u64 {
    let batch = batch(&[record.as_bytes()]);
    let appended = client.append(stream, partition, batch, AppendOptions::default()).await;
    appended.unwrap().base_offset
}

/// Appends until it is acknowledged: a stream that was just created has owners a moment later.
async fn append_soon(client: &DataClient, stream: &str, partition: u32, record: &str) -> u64 {
    let started = Instant::now();
    loop {
        let batch = batch(&[record.as_bytes()]);
        match client.append(stream, partition, batch, AppendOptions::default()).await {
            Ok(appended) => return appended.base_offset,
            Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
        }
    }
}

async fn read_all(client: &DataClient, stream: &str, partition: u32) -> Vec<String> {
    let mut records = Vec::new();
    let mut from = 0;
    loop {
        let read = client.read(stream, partition, from, 1 << 20, Duration::ZERO).await.unwrap();
        for batch in &read.batches {
            let text = batch.records().map(|(_, record)| String::from_utf8(record.to_vec()));
            records.extend(text.map(Result::unwrap));
        }
        if read.next_offset >= read.watermarks.committed {
            return records;
        }
        from = read.next_offset;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_flow_over_the_loss_of_the_majority_and_everything_comes_back() {
    let mut cluster = Cluster::formed(3).await;
    cluster.create("orders", 6, Policy::ServeSettled).await;
    let client = cluster.client();
    let mut expected: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for number in 0..60u32 {
        let (partition, record) = (number % 6, format!("record {number}"));
        append_soon(&client, "orders", partition, &record).await;
        expected.entry(partition).or_default().push(record);
    }
    let owners = client.owners("orders").await.unwrap();
    assert_eq!((owners.partitions, owners.owners.len()), (6, 6));

    cluster.stop_voter(0).await;
    cluster.stop_voter(1).await;
    let lease = timings().lease;
    let lost = Instant::now();
    let mut number = 60;
    while lost.elapsed() < lease * 2 || number < 120 {
        let (partition, record) = (number % 6, format!("record {number}"));
        append(&client, "orders", partition, &record).await;
        expected.entry(partition).or_default().push(record);
        number += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let asked = Instant::now();
    let refused = cluster.voters.voter(2).propose(create("later", 1), TWO_SECONDS).await;
    assert!(asked.elapsed() < TWO_SECONDS, "{:?}", asked.elapsed());
    let Answer::Refused { reason, live, needed, .. } = refused else { panic!("{refused:?}") };
    assert_eq!((reason, live, needed), (Refusal::NoMajority, 1, 2));
    let fresh = cluster.client();
    for (partition, expected) in &expected {
        assert_eq!(&read_all(&fresh, "orders", *partition).await, expected);
    }
    let read = fresh.read("orders", 0, 0, 1, Duration::ZERO).await.unwrap();
    assert!(read.metadata_age >= lease, "{:?}", read.metadata_age);

    cluster.start_voter(0).await;
    cluster.start_voter(1).await;
    cluster.voters.leader().await;
    admit(cluster.voters.voter(2), create("later", 1)).await;
    for node in &cluster.nodes {
        node.ready(PATIENCE).await.unwrap();
    }
    append_soon(&client, "later", 0, "first").await;
    append(&client, "orders", 0, "last").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_fail_closed_ends_with_the_lease_and_serve_settled_goes_on() {
    let mut cluster = Cluster::formed(1).await;
    cluster.create("closed", 1, Policy::FailClosed).await;
    cluster.create("settled", 1, Policy::ServeSettled).await;
    let client = cluster.client();
    append_soon(&client, "closed", 0, "before").await;
    append_soon(&client, "settled", 0, "before").await;

    cluster.stop_voter(0).await;
    cluster.stop_voter(1).await;
    let node = cluster.nodes[0].clone();
    until("the lease has ended", || !node.status().lease.is_usable).await;

    let refused = client.append("closed", 0, batch(&[b"after"]), AppendOptions::default()).await;
    assert!(matches!(refused, Err(ClientError::Data(DataError::LeaseExpired))), "{refused:?}");
    let refused = client.read("closed", 0, 0, 1, Duration::ZERO).await;
    assert!(matches!(refused, Err(ClientError::Data(DataError::LeaseExpired))), "{refused:?}");
    append(&client, "settled", 0, "after").await;
    assert_eq!(read_all(&client, "settled", 0).await, ["before", "after"]);

    cluster.start_voter(0).await;
    cluster.voters.leader().await;
    cluster.nodes[0].ready(PATIENCE).await.unwrap();
    append_soon(&client, "closed", 0, "again").await;
    assert_eq!(read_all(&client, "closed", 0).await, ["before", "again"]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_node_is_a_new_run_with_new_epochs_and_all_its_records() {
    let mut cluster = Cluster::formed(1).await;
    cluster.create("orders", 2, Policy::ServeSettled).await;
    let client = cluster.client();
    append_soon(&client, "orders", 0, "one").await;
    append_soon(&client, "orders", 1, "other").await;
    let before = cluster.nodes[0].status();
    let epoch = client.owners("orders").await.unwrap().owners[0].epoch;

    let report = cluster.nodes.remove(0).stop().await.unwrap();
    assert_eq!(report.released, 2);
    assert_eq!(report.closed.unwrap().clean, 2);
    let node = cluster.start_node(0).await;
    cluster.nodes.push(node);

    let after = cluster.nodes[0].status();
    assert_eq!((after.node, after.cluster), (before.node, before.cluster));
    assert_eq!(after.incarnation, before.incarnation + 1);
    let client = cluster.client();
    let appended =
        client.append("orders", 0, batch(&[b"two"]), AppendOptions::default()).await.unwrap();
    assert!(appended.epoch > epoch, "{} after {epoch}", appended.epoch);
    assert_eq!(read_all(&client, "orders", 0).await, ["one", "two"]);
    assert_eq!(read_all(&client, "orders", 1).await, ["other"]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_requests_get_typed_answers_and_harm_nobody() {
    let cluster = Cluster::formed(1).await;
    cluster.create("orders", 1, Policy::ServeSettled).await;
    let client = cluster.client();
    append_soon(&client, "orders", 0, "one").await;
    let options = AppendOptions::default();

    let answer = client.append("nothing", 0, batch(&[b"x"]), options).await;
    assert!(matches!(answer, Err(ClientError::UnknownStream { .. })), "{answer:?}");
    let answer = client.append("orders", 1, batch(&[b"x"]), options).await;
    assert!(matches!(answer, Err(ClientError::UnknownPartition { .. })), "{answer:?}");
    let answer = client.append("orders", 0, batch(&[]), options).await;
    assert!(matches!(answer, Err(ClientError::Data(DataError::EmptyBatch))), "{answer:?}");
    let expecting = AppendOptions { expected_offset: Some(7), ..options };
    let answer = client.append("orders", 0, batch(&[b"x"]), expecting).await;
    let mismatch = DataError::OffsetMismatch { expected: 7, log_end: 1 };
    assert!(matches!(&answer, Err(ClientError::Data(error)) if *error == mismatch), "{answer:?}");
    let answer = client.read("orders", 0, 9, 1, Duration::ZERO).await;
    let beyond = DataError::BeyondEnd { committed: 1 };
    assert!(matches!(&answer, Err(ClientError::Data(error)) if *error == beyond), "{answer:?}");
    assert_eq!(append(&client, "orders", 0, "").await, 1);

    let address = cluster.nodes[0].data_address().unwrap();
    for garbage in [[0xff; 64].as_slice(), &[0; 64], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        // Closed or reset: nothing of use comes back and nothing is kept.
        let _ = timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.unwrap();
    }
    let mut config = DataClientConfig::new(vec![address.to_string()]);
    config.cluster = Some(1);
    config.deadline = Duration::from_secs(1);
    let answer = DataClient::new(config).owners("orders").await;
    assert!(matches!(answer, Err(ClientError::Refused { .. })), "{answer:?}");

    assert_eq!(read_all(&client, "orders", 0).await, ["one", ""]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_read_waits_and_many_appends_are_in_flight_in_order() {
    let cluster = Cluster::formed(1).await;
    cluster.create("orders", 1, Policy::ServeSettled).await;
    let client = cluster.client();
    append_soon(&client, "orders", 0, "0").await;

    let waiting = client.clone();
    let tail = tokio::spawn(async move { waiting.read("orders", 0, 1, 1, PATIENCE).await });
    let mut pending = Vec::new();
    for number in 1..500 {
        let batch = batch(&[number.to_string().as_bytes()]);
        pending.push(client.submit("orders", 0, batch, AppendOptions::default()));
    }
    for (offset, submitting) in (1..).zip(pending) {
        let appended = submitting.await.unwrap().acknowledged().await.unwrap();
        assert_eq!(appended.base_offset, offset);
    }

    let read = tail.await.unwrap().unwrap();
    assert_eq!(read.batches[0].records().next().unwrap(), (1, b"1".as_slice()));
    let expected: Vec<_> = (0..500).map(|number| number.to_string()).collect();
    assert_eq!(read_all(&client, "orders", 0).await, expected);
    cluster.stop().await;
}

/// The connection breaks each time between the append and its answer, and once for a client that does not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_whose_answer_was_lost_is_sent_again_and_is_in_the_log_once() {
    let cluster = Cluster::formed(1).await;
    cluster.create("orders", 1, Policy::ServeSettled).await;
    append_soon(&cluster.client(), "orders", 0, "0").await;
    let proxy = LosingProxy::start(cluster.nodes[0].data_address().unwrap()).await;
    let client = DataClient::new(DataClientConfig::new(vec![proxy.address.to_string()]));
    let options = AppendOptions::default();

    let mut producer = ProducerClient::new(client.clone(), "orders", 0);
    for number in 1..6u64 {
        proxy.lose_next(number % 3);
        let batch = batch(&[number.to_string().as_bytes()]);
        assert_eq!(producer.append(batch, options).await.unwrap().base_offset, number);
    }
    assert_eq!(proxy.lost(), 6);

    proxy.lose_next(1);
    let answer = client.append("orders", 0, batch(&[b"6"]), options).await;
    assert!(matches!(answer, Err(ClientError::Unknown { .. })), "{answer:?}");
    let all: Vec<_> = (0..7).map(|number| number.to_string()).collect();
    assert_eq!(read_all(&client, "orders", 0).await, all);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_out_of_its_turn_is_refused_over_the_wire_and_a_new_run_goes_on() {
    let cluster = Cluster::formed(1).await;
    cluster.create("orders", 1, Policy::ServeSettled).await;
    let client = cluster.client();
    append_soon(&client, "orders", 0, "0").await;
    let send = async |epoch, sequence| {
        let producer = Some(Producer { id: 9, epoch, sequence });
        let options = AppendOptions { producer, ..AppendOptions::default() };
        match client.append("orders", 0, batch(&[b"x"]), options).await {
            Err(ClientError::Data(error)) => Err(error),
            other => Ok(other.unwrap().base_offset),
        }
    };

    assert_eq!(send(1, 3).await, Err(DataError::OutOfOrder { expected: 0, got: 3 }));
    for sequence in 0..7 {
        assert_eq!(send(1, sequence).await, Ok(1 + sequence));
    }
    assert_eq!(send(1, 5).await, Ok(6));
    assert_eq!(send(1, 0).await, Err(DataError::AlreadyAppended { oldest: 2, got: 0 }));
    assert_eq!(send(2, 0).await, Ok(8));
    assert_eq!(send(1, 7).await, Err(DataError::ProducerFenced { epoch: 2 }));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_needs_its_own_directory_and_waits_for_voters_that_are_not_there() {
    let cluster = Cluster::formed(1).await;

    let second = NodeAgent::start(cluster.node_config(0)).await;
    assert!(matches!(second, Err(NodeError::Identity(_))), "{second:?}");

    let mut lonely = cluster.node_config(7);
    lonely.sidecars = vec!["127.0.0.1:1".to_owned(), "no-such-host.invalid:1".to_owned()];
    let lonely = NodeAgent::start(lonely).await.unwrap();
    let answer = lonely.ready(Duration::from_millis(300)).await;
    assert!(matches!(answer, Err(NodeError::NotReady { .. })), "{answer:?}");
    assert!(lonely.status().reason.is_some());
    lonely.stop().await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_shows_the_majority_without_asking_it_and_passes_changes_on() {
    let mut cluster = Cluster::formed(1).await;
    // These voters run no admin API of their own; one of them gets one here.
    let address = cluster.voters.configs[2].admin_listen;
    let source = std::sync::Arc::new(cluster.voters.voter(2).clone());
    let voter_admin = AdminServer::start(address, source).await.unwrap();
    let node = cluster.nodes[0].clone();
    let admin = AdminClient::new(vec![format!("http://{}", node.admin_address())]);
    let request = CreateStreamRequest { name: "orders".to_owned(), ..Default::default() };
    let started = Instant::now();
    loop {
        match admin.create_stream(&request, PATIENCE).await.unwrap() {
            AdminAnswer::Admitted { .. } => break,
            // The voter whose admin API runs is not known to be live yet.
            other => assert!(started.elapsed() < PATIENCE, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    append_soon(&cluster.client(), "orders", 0, "one").await;

    cluster.stop_voter(0).await;
    cluster.stop_voter(1).await;
    let lost = async |live| {
        let started = Instant::now();
        loop {
            let status = admin.status(PATIENCE).await.unwrap();
            let majority = &status.majority;
            if (majority.held, majority.live, majority.needed) == (false, live, 2) {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "{majority:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let status = lost(1).await;
    assert_eq!(status.majority.missing, ["v1", "v2"]);
    assert_eq!(status.nodes[0].partitions_owned, 1);
    let refused = admin
        .create_stream(&CreateStreamRequest { name: "later".to_owned(), ..request }, TWO_SECONDS)
        .await
        .unwrap();
    let AdminAnswer::Refused { reason, live, needed, .. } = refused else { panic!("{refused:?}") };
    assert_eq!((reason.as_str(), live, needed), ("no_majority", 1, 2));

    voter_admin.stop().await;
    cluster.stop_voter(2).await;
    let status = lost(0).await;
    assert_eq!(status.majority.missing, ["v1", "v2", "v3"]);
    assert!(!status.stops.is_empty() && status.age_ms > 0);
    append(&cluster.client(), "orders", 0, "two").await;
    cluster.stop().await;
}
