//! Three voters in one process, each with its own directory and loopback sockets.

#![allow(dead_code, reason = "each test binary uses its own part of the harness")]
#![allow(unreachable_pub, clippy::unwrap_used, reason = "part of tests only")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use palisade_sidecar::role::{Answer, MetadataRole, Timings, VoterConfig};
use palisade_sidecar::state::{
    Command, CreateStream, Policy, RegisterNode, StorageId, StreamKind, StreamSettings,
};
use tokio::time::{Instant, sleep, timeout};

/// How long any condition may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The deadline of DESIGN 6 for an answer without a majority.
pub const TWO_SECONDS: Duration = Duration::from_secs(2);

/// Clock values for tests: small, but for a machine that other tests share.
pub fn timings() -> Timings {
    Timings { heartbeat: Duration::from_millis(60), ..Timings::fast() }
}

/// Some voters by their place, running or not.
pub struct Voters {
    pub directory: tempfile::TempDir,
    pub configs: Vec<VoterConfig>,
    pub running: Vec<Option<MetadataRole>>,
}

impl Voters {
    /// Reserves addresses and directories; starts nothing.
    pub fn new(count: usize) -> Voters {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let addresses: Vec<SocketAddr> = (0..count * 2).map(|_| free_address()).collect();
        let name = |place: usize| format!("v{}", place + 1);
        let peers: Vec<_> = (0..count).map(|place| (name(place), addresses[place])).collect();
        let configs = (0..count)
            .map(|place| VoterConfig {
                name: name(place),
                data_directory: directory.path().join(name(place)),
                listen: addresses[place],
                admin_listen: addresses[count + place],
                peers: peers.clone(),
                timings: timings(),
            })
            .collect();
        Voters { directory, configs, running: (0..count).map(|_| None).collect() }
    }

    /// Starts all and waits until the cluster is formed.
    pub async fn formed(count: usize) -> Voters {
        let mut voters = Voters::new(count);
        for place in 0..count {
            voters.start(place).await;
        }
        voters.leader().await;
        until("the cluster has its identity everywhere", || {
            voters.live().all(|voter| voter.view().cluster.is_some())
        })
        .await;
        voters
    }

    pub async fn start(&mut self, place: usize) {
        self.running[place] = Some(MetadataRole::start(self.configs[place].clone()).await.unwrap());
    }

    pub async fn stop(&mut self, place: usize) {
        self.running[place].take().unwrap().stop().await;
    }

    pub fn voter(&self, place: usize) -> &MetadataRole {
        self.running[place].as_ref().unwrap()
    }

    pub fn live(&self) -> impl Iterator<Item = &MetadataRole> {
        self.running.iter().flatten()
    }

    /// The place of the voter that leads, once all running ones agree that the majority is held.
    pub async fn leader(&self) -> usize {
        let started = Instant::now();
        loop {
            let leaders: Vec<_> = self.live().map(|voter| voter.quorum_status().majority).collect();
            if leaders.iter().all(|m| m.held && m.leader == leaders[0].leader) {
                let name = leaders[0].leader.clone().unwrap();
                let place = self.configs.iter().position(|config| config.name == name).unwrap();
                if self.running[place].is_some() {
                    return place;
                }
            }
            assert!(started.elapsed() < PATIENCE, "no leader: {leaders:#?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    pub fn path(&self, place: usize) -> PathBuf {
        self.configs[place].data_directory.clone()
    }
}

/// Finds a loopback port below those the system gives to connections: a voter that is stopped would otherwise find its
/// port taken by somebody's connection when it comes back.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(10_000 + number % 20_000).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Waits for a condition.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let met = async {
        while !condition() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(timeout(PATIENCE, met).await.is_ok(), "not within {PATIENCE:?}: {what}");
}

/// Proposes until admitted; for what is not the point of a test.
pub async fn admit(voter: &MetadataRole, command: Command) -> u64 {
    match voter.propose(command, PATIENCE).await {
        Answer::Admitted { index, .. } => index,
        other => panic!("not admitted: {other:?}"),
    }
}

pub fn register(name: &str, incarnation: u64) -> Command {
    Command::RegisterNode(RegisterNode {
        name: name.into(),
        rack: String::new(),
        incarnation,
        storage: StorageId(uuid::Uuid::from_u128(name.len() as u128)),
        data_address: "127.0.0.1:1".into(),
        admin_address: "127.0.0.1:2".into(),
    })
}

pub fn create(name: &str, partitions: u32) -> Command {
    Command::CreateStream(CreateStream {
        name: name.into(),
        kind: StreamKind::Log,
        partitions,
        replicas: 1,
        ack_quorum: 1,
        policy: Policy::ServeSettled,
        settings: StreamSettings::default(),
    })
}
