//! `palisade log show`: what a data directory holds, by its checkpoints.

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use palisade_engine::format::{Checkpoint, DirectoryMode};
use palisade_engine::offline::{self, PartitionContents};
use serde_json::{Value, json};

use crate::cli::LogDirectoryArgs;
use crate::outcome::Outcome;

pub(crate) fn run(args: &LogDirectoryArgs, json: bool) -> anyhow::Result<Outcome> {
    let only = args.partition.as_deref().map(super::parse_name).transpose()?;
    let mut contents = offline::inspect(&args.directory)?;
    if let Some(name) = &only {
        contents.partitions.retain(|partition| partition.name().as_ref() == Some(name));
        anyhow::ensure!(
            !contents.partitions.is_empty(),
            "{} holds no partition {name}",
            args.directory.display()
        );
    }
    let mode = match contents.identity.mode {
        DirectoryMode::Standalone => "standalone".to_owned(),
        DirectoryMode::Cluster { cluster } => {
            format!("node {} of cluster {cluster:032x}", contents.identity.node)
        }
    };
    if json {
        let partitions: Vec<Value> = contents.partitions.iter().map(to_json).collect();
        let storage = format!("{:032x}", contents.identity.storage.0);
        println!("{}", json!({ "mode": mode, "storage": storage, "partitions": partitions }));
    } else {
        println!("{}: {mode}", args.directory.display());
        print_table(&contents.partitions);
    }
    let unreadable = contents.partitions.iter().any(|partition| partition.checkpoint.is_err());
    Ok(if unreadable { Outcome::Failed } else { Outcome::Done })
}

fn print_table(partitions: &[PartitionContents]) {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(["partition", "closed", "log start", "log end", "segments", "promise"]);
    for partition in partitions {
        match (&partition.checkpoint, partition.name()) {
            (Ok(believed), Some(name)) => {
                let checkpoint = &believed.checkpoint;
                table.add_row([
                    name.to_string(),
                    if checkpoint.clean { "orderly" } else { "no" }.to_owned(),
                    checkpoint.log_start.to_string(),
                    end_of(checkpoint),
                    segments_of(checkpoint).to_string(),
                    checkpoint.promise.to_string(),
                ]);
            }
            (Err(error), _) => {
                let path = partition.path.display();
                table.add_row([format!("{path}: {error}")]);
            }
            (Ok(_), None) => unreachable!("a checkpoint names its partition"),
        }
    }
    println!("{table}");
}

/// After a crash the checkpoint knows only a lower bound.
fn end_of(checkpoint: &Checkpoint) -> String {
    let bound = if checkpoint.clean { "" } else { ">= " };
    format!("{bound}{}", checkpoint.next_offset)
}

fn segments_of(checkpoint: &Checkpoint) -> usize {
    checkpoint.closed.len() + usize::from(checkpoint.active.is_some())
}

fn to_json(partition: &PartitionContents) -> Value {
    let path = partition.path.display().to_string();
    match (&partition.checkpoint, partition.name()) {
        (Ok(believed), Some(name)) => {
            let checkpoint = &believed.checkpoint;
            let quarantined: Vec<Value> = checkpoint
                .quarantined
                .iter()
                .map(|range| {
                    json!({
                        "segment": range.segment.to_string(),
                        "position": range.positions.start.0,
                        "position_end": range.positions.end.0,
                        "offset": range.offsets.start.0,
                        "offset_end": range.offsets.end.0,
                    })
                })
                .collect();
            let files: Vec<Value> = checkpoint
                .closed
                .iter()
                .map(|closed| {
                    json!({
                        "segment": closed.segment.to_string(),
                        "offset": closed.base_offset.0, "offset_end": closed.end_offset.0,
                        "bytes": closed.end_position.0,
                    })
                })
                .collect();
            json!({
                "partition": name.to_string(), "path": path, "clean": checkpoint.clean,
                "log_start": checkpoint.log_start.0, "log_end": checkpoint.next_offset.0,
                "committed": checkpoint.committed.0, "segments": segments_of(checkpoint),
                "promise": checkpoint.promise.to_string(),
                "loss_generation": checkpoint.loss_generation, "quarantined": quarantined,
                "closed_segments": files,
            })
        }
        (Err(error), _) => json!({ "path": path, "error": error.to_string() }),
        (Ok(_), None) => unreachable!("a checkpoint names its partition"),
    }
}
