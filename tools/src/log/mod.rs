//! `palisade log`: a data directory with no cluster on it. One file a command.

pub(crate) mod append;
pub(crate) mod read;
pub(crate) mod repair;
pub(crate) mod show;
pub(crate) mod verify;

use std::path::Path;

use anyhow::{Context, anyhow};
use palisade_engine::Engine;
use palisade_engine::engine::OpenError;
use palisade_engine::id::PartitionName;

use crate::cli::Io;
use crate::outcome::Refusal;

/// Opens a directory as a standalone engine of one shard, recovery included.
fn open_engine(directory: &Path, io: Io) -> anyhow::Result<Engine> {
    let opened = Engine::builder(directory).shards(1).io(io.into()).open();
    opened.map_err(|error| match error {
        OpenError::OtherMode { .. } | OpenError::Locked { .. } => {
            anyhow!(Refusal(error.to_string()))
        }
        error => anyhow!(error).context(format!("opening {}", directory.display())),
    })
}

async fn close_engine(engine: Engine) -> anyhow::Result<()> {
    engine.close().await.map(|_| ()).context("closing the data directory")
}

fn parse_name(text: &str) -> anyhow::Result<PartitionName> {
    text.parse().with_context(|| format!("the partition {text:?}"))
}
