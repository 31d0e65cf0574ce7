//! `palisade log repair`: opens the directory, which recovers it, and closes it orderly. Nothing else.

use anyhow::{Context, bail};
use palisade_engine::Engine;
use palisade_engine::engine::{Coordinator, IoChoice};
use palisade_engine::format::DirectoryMode;
use palisade_engine::offline;

use super::{close_engine, open_engine};
use crate::cli::{Io, LogDirectoryArgs};
use crate::outcome::Outcome;

pub(crate) async fn run(args: &LogDirectoryArgs, json: bool) -> anyhow::Result<Outcome> {
    if args.partition.is_some() {
        bail!("repair works on a whole data directory; leave the partition out");
    }
    let identity = offline::inspect(&args.directory)?.identity;
    let engine = match identity.mode {
        DirectoryMode::Standalone => open_engine(&args.directory, Io::Auto)?,
        DirectoryMode::Cluster { cluster } => Engine::builder(&args.directory)
            .shards(1)
            .io(IoChoice::Auto)
            .coordinator(Coordinator { node: identity.node, cluster })
            .open()
            .with_context(|| format!("opening {}", args.directory.display()))?,
    };
    let report = engine.report().clone();
    close_engine(engine).await?;
    if json {
        let set_aside: Vec<String> =
            report.set_aside.iter().map(|set_aside| format!("{set_aside:?}")).collect();
        let partitions: Vec<String> =
            report.partitions.iter().map(|opened| format!("{opened:?}")).collect();
        println!("{}", serde_json::json!({ "partitions": partitions, "set_aside": set_aside }));
    } else {
        for opened in &report.partitions {
            println!("{opened:?}");
        }
        for set_aside in &report.set_aside {
            println!("set aside: {set_aside:?}");
        }
    }
    Ok(Outcome::Done)
}
