//! A node against voters made of frames: pushes of a deposed leader that arrive late.

#![allow(clippy::unwrap_used, reason = "part of tests only")]

mod harness;

use harness::{PATIENCE, timings, until};
use palisade_sidecar::agent::{NodeAgent, NodeConfig};
use palisade_sidecar::role::SESSION_MAGIC;
use palisade_sidecar::wire::frame::{MESSAGE_BYTES_MAX, receive, send};
use palisade_sidecar::wire::hello::{Hello, HelloAnswer, Lane, Welcome};
use palisade_sidecar::wire::session::{
    FromNode, FromVoter, GrantChange, GrantFrame, MetadataPoint, PartitionKey, Policy, Push,
    Registered, Renewal, RenewalAnswer, RenewalOutcome, Replica, Retention,
};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

const CLUSTER: u128 = 77;

fn at(index: u64) -> MetadataPoint {
    MetadataPoint { lineage: 0, index }
}

fn grant(index: u32, term: u64, storage_id: u128) -> GrantFrame {
    GrantFrame {
        partition: PartitionKey { stream: 5, index },
        stream_name: "orders".to_owned(),
        epoch: term << 32 | 1,
        replicas: vec![Replica { node: 1, storage_id }],
        ack_quorum: 1,
        policy: Policy::ServeSettled,
        loss_generation: 0,
        seal_sets: vec![],
        successors: vec![],
        retention: Retention::default(),
    }
}

/// Accepts whatever the node opens; leases are always renewed, control lanes go to the test.
async fn serve(listener: TcpListener, lanes: mpsc::Sender<(TcpStream, u128)>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let lanes = lanes.clone();
        tokio::spawn(async move {
            let mut magic = [0; 8];
            stream.read_exact(&mut magic).await.unwrap();
            assert_eq!(magic, SESSION_MAGIC);
            let hello: Hello = receive(&mut stream, MESSAGE_BYTES_MAX).await.unwrap();
            let welcome = Welcome::of_voter(CLUSTER, "v1");
            send(&mut stream, &HelloAnswer::Welcome(welcome)).await.unwrap();
            match hello.lane {
                Lane::Control => {
                    let message = receive(&mut stream, MESSAGE_BYTES_MAX).await;
                    let FromNode::Register(registration) = message.unwrap() else { panic!() };
                    let registered = Registered {
                        node: 1,
                        cluster: CLUSTER,
                        at: at(1),
                        lease_us: 1_000_000,
                        renew_every_us: 50_000,
                    };
                    send(&mut stream, &FromVoter::Registered(registered)).await.unwrap();
                    lanes.send((stream, registration.storage_id)).await.unwrap();
                }
                _ => renew_for_ever(stream).await,
            }
        });
    }
}

async fn renew_for_ever(mut stream: TcpStream) {
    while let Ok(renewal) = receive::<Renewal, _>(&mut stream, MESSAGE_BYTES_MAX).await {
        let outcome = RenewalOutcome::Renewed { at: at(1), lease_us: 1_000_000 };
        let answer = RenewalAnswer { sequence: renewal.sequence, outcome };
        if send(&mut stream, &answer).await.is_err() {
            return;
        }
    }
}

async fn push(lane: &mut TcpStream, index: u64, grants: Vec<GrantFrame>) {
    let push = Push { at: at(index), change: GrantChange::Full(grants), more: false };
    send(lane, &FromVoter::Push(push)).await.unwrap();
}

/// The next session in which the node is open: the first contact registers again with the real port.
async fn session(
    lanes: &mut mpsc::Receiver<(TcpStream, u128)>,
    node: &NodeAgent,
) -> (TcpStream, u128) {
    loop {
        let lane = timeout(PATIENCE, lanes.recv()).await.unwrap().unwrap();
        if node.data_address().is_some() {
            return lane;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_of_a_deposed_leader_are_dropped_and_counted() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let sidecars = vec![listener.local_addr().unwrap().to_string()];
    let (sender, mut lanes) = mpsc::channel(8);
    tokio::spawn(serve(listener, sender));
    let mut config = NodeConfig::new("n1", directory.path().join("n1"), sidecars);
    config.timings = timings();
    config.arena_bytes = 16 << 20;
    let node = NodeAgent::start(config).await.unwrap();
    let (mut lane, storage) = session(&mut lanes, &node).await;

    push(&mut lane, 9, vec![grant(0, 3, storage)]).await;
    until("the grant is taken up", || node.status().applied == at(9)).await;
    let epochs = |node: &NodeAgent| -> Vec<_> {
        node.status().partitions.into_iter().map(|p| (p.name, p.epoch)).collect()
    };
    let held = vec![("orders/0".to_owned(), Some("3.0.1".to_owned()))];
    assert_eq!(epochs(&node), held);

    // The old leader's connection comes last, with what it had queued.
    drop(lane);
    let (mut lane, _) = session(&mut lanes, &node).await;
    push(&mut lane, 7, vec![grant(0, 2, storage), grant(1, 2, storage)]).await;
    until("the late push is counted", || node.status().pushes_dropped == 1).await;
    assert_eq!(epochs(&node), held);
    assert_eq!(node.status().applied, at(9));

    // Once that voter has caught up, it is followed.
    push(&mut lane, 10, vec![grant(0, 3, storage), grant(1, 4, storage)]).await;
    until("the new grant is taken up", || node.status().applied == at(10)).await;
    assert_eq!(epochs(&node).len(), 2);
    node.stop().await.unwrap();
}
