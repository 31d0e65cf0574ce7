//! Three voters and three nodes of one process that share nothing but loopback sockets.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use palisade_engine::io::SystemClock;
use palisade_engine::io::clock::Clock;
use palisade_sidecar::admin::AdminClient;
use palisade_sidecar::agent::{NodeAgent, NodeConfig};
use palisade_sidecar::client::{DataClient, DataClientConfig};
use palisade_sidecar::role::{Timings, VoterConfig};
use palisade_sidecar::voter::Voter;

use crate::cli::Io;

const VOTERS: usize = 3;
/// How many nodes take records.
pub(crate) const NODES: usize = 3;

/// How long a node may take to register and open its directory.
const NODE_READY: Duration = Duration::from_secs(30);

/// Every voter and node, running or stopped.
pub(crate) struct Cluster {
    voters: Vec<VoterSlot>,
    nodes: Vec<NodeAgent>,
    admin: AdminClient,
}

struct VoterSlot {
    config: VoterConfig,
    running: Option<Voter>,
}

impl Cluster {
    /// Starts everything below `directory` and waits until the nodes serve.
    pub(crate) async fn start(directory: &Path, io: Io) -> anyhow::Result<Cluster> {
        let ports = free_addresses(2 * VOTERS)?;
        let (listen, admin_listen) = ports.split_at(VOTERS);
        let peers: Vec<(String, SocketAddr)> =
            (1..).zip(listen).map(|(number, address)| (format!("v{number}"), *address)).collect();
        let urls = admin_listen.iter().map(|address| format!("http://{address}")).collect();
        let mut cluster = Cluster {
            voters: peers
                .iter()
                .zip(admin_listen)
                .map(|((name, listen), admin_listen)| VoterSlot {
                    config: VoterConfig {
                        name: name.clone(),
                        data_directory: directory.join(name),
                        listen: *listen,
                        admin_listen: *admin_listen,
                        peers: peers.clone(),
                        timings: Timings::default(),
                    },
                    running: None,
                })
                .collect(),
            nodes: Vec::new(),
            admin: AdminClient::new(urls),
        };
        cluster.start_voters(&[0, 1, 2]).await?;
        let sidecars: Vec<String> = listen.iter().map(ToString::to_string).collect();
        let nodes = (1..=NODES).map(|number| {
            let name = format!("n{number}");
            let directory = directory.join(&name);
            start_node(name, directory, sidecars.clone(), io)
        });
        cluster.nodes = futures_util::future::try_join_all(nodes).await?;
        Ok(cluster)
    }

    /// Starts the voters at these places.
    pub(crate) async fn start_voters(&mut self, places: &[usize]) -> anyhow::Result<()> {
        for place in places {
            let slot = &mut self.voters[*place];
            ensure!(slot.running.is_none(), "voter {} runs already", slot.config.name);
            let voter = Voter::start(slot.config.clone())
                .await
                .with_context(|| format!("starting voter {}", slot.config.name))?;
            slot.running = Some(voter);
        }
        Ok(())
    }

    /// Stops the voters at these places, as if their processes ended.
    pub(crate) async fn stop_voters(&mut self, places: &[usize]) -> anyhow::Result<()> {
        for place in places {
            let slot = &mut self.voters[*place];
            let Some(voter) = slot.running.take() else {
                bail!("voter {} is stopped already", slot.config.name);
            };
            voter.stop().await;
        }
        Ok(())
    }

    /// Stops the nodes, which drain, and then the voters.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        for node in self.nodes {
            node.stop().await.context("stopping a node")?;
        }
        for voter in self.voters.into_iter().filter_map(|slot| slot.running) {
            voter.stop().await;
        }
        Ok(())
    }

    /// The client that speaks to the admin addresses of all voters.
    pub(crate) fn admin(&self) -> &AdminClient {
        &self.admin
    }

    /// The admin addresses of the voters, by name.
    pub(crate) fn admin_urls(&self) -> impl Iterator<Item = (&str, String)> {
        self.voters
            .iter()
            .map(|slot| (slot.config.name.as_str(), format!("http://{}", slot.config.admin_listen)))
    }

    /// A client that knows all nodes' data addresses.
    pub(crate) fn data_client(&self) -> DataClient {
        let addresses = self.nodes.iter().filter_map(NodeAgent::data_address);
        let nodes = addresses.map(|address| address.to_string()).collect();
        DataClient::new(DataClientConfig::new(nodes))
    }

    /// Bytes of a group on disk, over all groups of all nodes so far.
    pub(crate) fn group_bytes_mean(&self) -> f64 {
        let (mut bytes, mut groups) = (0, 0);
        for shard in self.nodes.iter().flat_map(|node| node.metrics().shards) {
            bytes += shard.group_bytes;
            groups += shard.groups;
        }
        bytes as f64 / (groups as f64).max(1.0)
    }
}

async fn start_node(
    name: String,
    directory: PathBuf,
    sidecars: Vec<String>,
    io: Io,
) -> anyhow::Result<NodeAgent> {
    let mut config = NodeConfig::new(&name, directory, sidecars);
    config.io = io.into();
    let started = SystemClock.now();
    let agent = NodeAgent::start(config).await.with_context(|| format!("starting node {name}"))?;
    agent.ready(NODE_READY).await.with_context(|| {
        format!("node {name} after {:?}", SystemClock.now().elapsed_for_holder(started))
    })?;
    Ok(agent)
}

/// Chooses loopback ports that nobody listens on now, outside the range the system takes ports for outgoing
/// connections from: a stopped voter must find its own port free again.
fn free_addresses(count: usize) -> anyhow::Result<Vec<SocketAddr>> {
    const FIRST: u16 = 20_000;
    const LAST: u16 = 32_000;
    const TRIES_MAX: usize = 1000;
    let mut taken: Vec<TcpListener> = Vec::new();
    for _ in 0..TRIES_MAX {
        if taken.len() == count {
            break;
        }
        // A port in use is no error; the next try is another one.
        taken.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, fastrand::u16(FIRST..LAST))));
    }
    ensure!(taken.len() == count, "no {count} free loopback ports from {FIRST} to {LAST}");
    taken
        .iter()
        .map(|listener| listener.local_addr().context("asking for a loopback port"))
        .collect()
}
