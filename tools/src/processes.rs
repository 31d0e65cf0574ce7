//! `palisade sidecar run` and `palisade node run`: one process each, until SIGTERM or SIGINT.

use anyhow::Context;
use palisade_sidecar::agent::{NodeAgent, NodeConfig};
use palisade_sidecar::role::{Timings, VoterConfig};
use palisade_sidecar::voter::Voter;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{NodeRunArgs, SidecarRunArgs};
use crate::outcome::Outcome;

/// Runs a voter.
pub(crate) async fn sidecar(args: &SidecarRunArgs) -> anyhow::Result<Outcome> {
    let config = VoterConfig {
        name: args.name.clone(),
        data_directory: args.data_dir.clone(),
        listen: args.listen,
        admin_listen: args.admin_listen,
        peers: args.peers.clone(),
        timings: Timings::default(),
    };
    let voter =
        Voter::start(config).await.with_context(|| format!("starting voter {}", args.name))?;
    println!("voter {} at {}, admin API at http://{}", args.name, args.listen, args.admin_listen);
    wait_for_stop().await?;
    voter.stop().await;
    Ok(Outcome::Done)
}

/// Runs a node.
pub(crate) async fn node(args: &NodeRunArgs) -> anyhow::Result<Outcome> {
    let sidecars = args.sidecars.iter().map(ToString::to_string).collect();
    let mut config = NodeConfig::new(&args.name, args.data_dir.clone(), sidecars);
    config.listen = args.listen;
    config.admin_listen = args.admin_listen;
    config.rack = args.rack.clone().unwrap_or_default();
    config.shards = match args.shards {
        Some(shards) => shards,
        None => std::thread::available_parallelism().context("counting cores")?.get(),
    };
    config.io = args.io.into();
    let agent =
        NodeAgent::start(config).await.with_context(|| format!("starting node {}", args.name))?;
    println!("node {}, data port {}, admin API {}", args.name, args.listen, args.admin_listen);
    wait_for_stop().await?;
    agent.stop().await.with_context(|| format!("stopping node {}", args.name))?;
    Ok(Outcome::Done)
}

async fn wait_for_stop() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
