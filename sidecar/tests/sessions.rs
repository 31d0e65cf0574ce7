//! Sessions over real sockets: registration, leases confirmed by a majority, pushes, expiry, strangers.

#![allow(clippy::unwrap_used, reason = "part of tests only")]

mod harness;

use std::time::Duration;

use harness::{PATIENCE, Voters, admit, create, until};
use palisade_sidecar::role::SESSION_MAGIC;
use palisade_sidecar::session::{SessionServer, SessionStatus};
use palisade_sidecar::state::Command;
use palisade_sidecar::wire::frame::{MESSAGE_BYTES_MAX, receive, send};
use palisade_sidecar::wire::hello::{Hello, HelloAnswer, HelloRefusal, Lane};
use palisade_sidecar::wire::session::{
    FromNode, FromVoter, GrantChange, GrantFrame, Lookup, LookupAnswer, Push, Registered,
    Registration, RegistrationRefusal, Renewal, RenewalAnswer, RenewalOutcome,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// Voters, each with its session server.
struct Cluster {
    voters: Voters,
    servers: Vec<Option<SessionServer>>,
}

impl Cluster {
    async fn formed() -> Cluster {
        let voters = Voters::formed(3).await;
        let servers =
            voters.live().map(|voter| Some(SessionServer::start(voter.clone()))).collect();
        Cluster { voters, servers }
    }

    async fn stop_voter(&mut self, place: usize) {
        self.servers[place].take().unwrap().stop().await;
        self.voters.stop(place).await;
    }

    fn status(&self, place: usize) -> SessionStatus {
        self.servers[place].as_ref().unwrap().status()
    }

    fn address(&self, place: usize) -> String {
        self.voters.configs[place].listen.to_string()
    }

    fn cluster(&self) -> u128 {
        self.voters.live().next().unwrap().view().cluster.unwrap().as_u128()
    }

    /// The place of a voter that serves sessions as the leader.
    async fn leader(&self) -> usize {
        self.voters.leader().await
    }

    /// Registers with whoever leads.
    async fn register(&self, node: &FakeNode) -> (TcpStream, Registered, usize) {
        let started = Instant::now();
        loop {
            let place = self.leader().await;
            let mut lane = node.control_lane(&self.address(place)).await;
            match say(&mut lane).await {
                FromVoter::Registered(registered) => return (lane, registered, place),
                other => assert!(started.elapsed() < PATIENCE, "{other:?}"),
            }
        }
    }
}

struct FakeNode {
    name: &'static str,
    incarnation: u64,
}

impl FakeNode {
    fn hello(&self, lane: Lane, cluster: Option<u128>, node: Option<u32>) -> Hello {
        Hello { lane, cluster, name: self.name.to_owned(), node, incarnation: self.incarnation }
    }

    /// Opens a control lane and sends the registration.
    async fn control_lane(&self, address: &str) -> TcpStream {
        let hello = self.hello(Lane::Control, None, None);
        let (mut lane, answer) = open(address, &hello).await;
        assert!(matches!(answer, HelloAnswer::Welcome(_)), "{answer:?}");
        let registration = Registration {
            name: self.name.to_owned(),
            incarnation: self.incarnation,
            storage_id: 7,
            data_address: "127.0.0.1:1".to_owned(),
            admin_address: "127.0.0.1:2".to_owned(),
            rack: String::new(),
        };
        send(&mut lane, &FromNode::Register(registration)).await.unwrap();
        lane
    }

    async fn lease_lane(&self, address: &str, registered: &Registered) -> TcpStream {
        let hello = self.hello(Lane::Lease, Some(registered.cluster), Some(registered.node));
        let (lane, answer) = open(address, &hello).await;
        assert!(matches!(answer, HelloAnswer::Welcome(_)), "{answer:?}");
        lane
    }
}

async fn open(address: &str, hello: &Hello) -> (TcpStream, HelloAnswer) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&SESSION_MAGIC).await.unwrap();
    send(&mut stream, hello).await.unwrap();
    let answer = timeout(PATIENCE, receive(&mut stream, MESSAGE_BYTES_MAX)).await;
    (stream, answer.unwrap().unwrap())
}

async fn say(lane: &mut TcpStream) -> FromVoter {
    timeout(PATIENCE, receive(lane, MESSAGE_BYTES_MAX)).await.unwrap().unwrap()
}

async fn renew(lane: &mut TcpStream, sequence: u64) -> RenewalOutcome {
    let renewal = Renewal { sequence, applied: Default::default(), shards: vec![] };
    send(lane, &renewal).await.unwrap();
    let answer: RenewalAnswer =
        timeout(PATIENCE, receive(lane, MESSAGE_BYTES_MAX)).await.unwrap().unwrap();
    assert_eq!(answer.sequence, sequence);
    answer.outcome
}

/// Follows pushes until the granted set satisfies `wanted`.
async fn follow(
    lane: &mut TcpStream,
    held: &mut Vec<GrantFrame>,
    wanted: impl Fn(&[GrantFrame]) -> bool,
) {
    let mut last = None;
    while !wanted(held) {
        let FromVoter::Push(Push { at, change, .. }) = say(lane).await else { panic!() };
        assert!(last.is_none_or(|last| last <= at), "{last:?} then {at:?}");
        last = Some(at);
        match change {
            GrantChange::Full(grants) => *held = grants,
            GrantChange::Delta { granted, revoked } => {
                held.retain(|grant| {
                    revoked.iter().all(|gone| gone.partition != grant.partition)
                        && granted.iter().all(|new| new.partition != grant.partition)
                });
                held.extend(granted);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_only_while_a_majority_confirms_the_leader() {
    let mut cluster = Cluster::formed().await;
    let node = FakeNode { name: "n1", incarnation: 1 };
    let (_control, registered, leader) = cluster.register(&node).await;
    let mut lane = node.lease_lane(&cluster.address(leader), &registered).await;

    let RenewalOutcome::Renewed { at, lease_us } = renew(&mut lane, 1).await else { panic!() };
    assert!(at >= registered.at);
    assert_eq!(lease_us, registered.lease_us);

    let others: Vec<usize> = (0..3).filter(|place| *place != leader).collect();
    for place in others {
        cluster.stop_voter(place).await;
    }
    let outcome = renew(&mut lane, 2).await;

    assert!(matches!(outcome, RenewalOutcome::NotLeading(_)), "{outcome:?}");
    let status = cluster.status(leader);
    assert_eq!((status.renewals, status.renewals_refused), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_follows_names_the_leader() {
    let cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    let node = FakeNode { name: "n1", incarnation: 1 };

    let mut lane = node.control_lane(&cluster.address(follower)).await;

    let FromVoter::NotLeading(answer) = say(&mut lane).await else { panic!() };
    assert_eq!(answer.leader.unwrap().address, cluster.address(leader));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_are_pushed_whole_then_as_differences_and_a_new_run_gets_new_epochs() {
    let cluster = Cluster::formed().await;
    let node = FakeNode { name: "n1", incarnation: 1 };
    let (mut lane, _, leader) = cluster.register(&node).await;
    let mut held = Vec::new();

    let FromVoter::Push(first) = say(&mut lane).await else { panic!() };
    assert_eq!(first.change, GrantChange::Full(vec![]));
    admit(cluster.voters.voter(leader), create("orders", 6)).await;
    follow(&mut lane, &mut held, |held| held.len() == 6).await;
    let first_epoch = held[0].epoch;

    let next = FakeNode { name: "n1", incarnation: 2 };
    let (mut lane, _, leader) = cluster.register(&next).await;
    held.clear();
    follow(&mut lane, &mut held, |held| held.len() == 6).await;
    assert!(held.iter().all(|grant| grant.epoch > first_epoch), "{held:?}");

    let view = cluster.voters.voter(leader).view();
    let stream = view.stream_by_name("orders").unwrap().uuid;
    let delete = Command::DeleteStream { stream, expected_version: None };
    admit(cluster.voters.voter(leader), delete).await;
    follow(&mut lane, &mut held, <[GrantFrame]>::is_empty).await;

    let old = node.hello(Lane::Control, None, Some(1));
    let (_, answer) = open(&cluster.address(leader), &old).await;
    let refused = HelloRefusal::Incarnation { incarnation: 1 };
    assert_eq!(answer, HelloAnswer::Refused(refused));
    let mut leftover = node.control_lane(&cluster.address(leader)).await;
    let answer = say(&mut leftover).await;
    let superseded = RegistrationRefusal::Superseded { current: 2 };
    assert_eq!(answer, FromVoter::Refused(superseded));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_is_gone_only_after_its_lease_and_its_run_never_comes_back() {
    let cluster = Cluster::formed().await;
    let node = FakeNode { name: "n1", incarnation: 1 };
    let (_control, registered, leader) = cluster.register(&node).await;
    let mut lane = node.lease_lane(&cluster.address(leader), &registered).await;
    let before = Instant::now();
    let renewed = renew(&mut lane, 1).await;
    assert!(matches!(renewed, RenewalOutcome::Renewed { .. }), "{renewed:?}");

    let voter = cluster.voters.voter(leader);
    until("the node is declared gone", || {
        voter.view().node_by_name("n1").is_some_and(|node| node.gone)
    })
    .await;

    let lease = Duration::from_micros(registered.lease_us);
    assert!(before.elapsed() > lease, "{:?}", before.elapsed());
    let outcome = renew(&mut lane, 2).await;
    let is_refused =
        matches!(outcome, RenewalOutcome::DeclaredGone | RenewalOutcome::NotLeading(_));
    assert!(is_refused, "{outcome:?}");
    let (_, again, _) = cluster.register(&FakeNode { name: "n1", incarnation: 2 }).await;
    assert_eq!(again.node, registered.node);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewing_node_is_never_declared_gone_and_keeps_its_lease_over_a_new_leader() {
    let mut cluster = Cluster::formed().await;
    let node = FakeNode { name: "n1", incarnation: 1 };
    let (_control, registered, leader) = cluster.register(&node).await;
    let mut lane = node.lease_lane(&cluster.address(leader), &registered).await;
    assert!(matches!(renew(&mut lane, 1).await, RenewalOutcome::Renewed { .. }));

    cluster.stop_voter(leader).await;
    let (_control, registered, successor) = cluster.register(&node).await;
    let mut lane = node.lease_lane(&cluster.address(successor), &registered).await;

    let lease = Duration::from_micros(registered.lease_us);
    let started = Instant::now();
    for sequence in 1.. {
        let outcome = renew(&mut lane, sequence).await;
        assert!(matches!(outcome, RenewalOutcome::Renewed { .. }), "{outcome:?}");
        if started.elapsed() > lease * 3 {
            break;
        }
        tokio::time::sleep(Duration::from_micros(registered.renew_every_us)).await;
    }
    assert_eq!(cluster.status(successor).declared_gone, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_voter_answers_who_owns_what_and_strangers_harm_nobody() {
    let mut cluster = Cluster::formed().await;
    let node = FakeNode { name: "n1", incarnation: 1 };
    let (_control, _, leader) = cluster.register(&node).await;
    admit(cluster.voters.voter(leader), create("orders", 2)).await;
    let last = (leader + 1) % 3;
    until("the follower has the stream", || {
        cluster.voters.voter(last).view().stream_by_name("orders").is_some()
    })
    .await;
    cluster.stop_voter(leader).await;
    cluster.stop_voter((leader + 2) % 3).await;

    // A frame length of 4 GiB, bytes of no kind, and a client of another cluster.
    for garbage in [[0xff; 64].as_slice(), &[0; 64], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = TcpStream::connect(cluster.address(last)).await.unwrap();
        stream.write_all(&SESSION_MAGIC).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        // Closed or reset, but not answered with anything of use and not kept.
        let _ = timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.unwrap();
    }
    let stranger = node.hello(Lane::Lookup, Some(1), None);
    let (_, answer) = open(&cluster.address(last), &stranger).await;
    assert!(matches!(answer, HelloAnswer::Refused(HelloRefusal::OtherCluster { .. })));

    let hello = node.hello(Lane::Lookup, Some(cluster.cluster()), None);
    let (mut lane, _) = open(&cluster.address(last), &hello).await;
    send(&mut lane, &Lookup::Stream { name: "orders".to_owned() }).await.unwrap();
    let answer: LookupAnswer = receive(&mut lane, MESSAGE_BYTES_MAX).await.unwrap();
    let LookupAnswer::Stream(owners) = answer else { panic!("{answer:?}") };
    assert_eq!((owners.partitions, owners.owners.len()), (2, 2));
    assert!(owners.owners.iter().all(|owner| owner.address == "127.0.0.1:1"));
}
