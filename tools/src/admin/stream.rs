//! `palisade stream`: create, list and delete streams.

use anyhow::Context;
use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use palisade_sidecar::admin::{AdminClient, CreateStreamRequest};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::print_answer;
use crate::cli::{AdminArgs, StreamCommand, StreamCreateArgs, StreamDeleteArgs};
use crate::outcome::Outcome;

pub(crate) async fn run(command: &StreamCommand, json: bool) -> anyhow::Result<Outcome> {
    match command {
        StreamCommand::Create(args) => create(args, json).await,
        StreamCommand::List(args) => list(args, json).await,
        StreamCommand::Delete(args) => delete(args, json).await,
    }
}

async fn create(args: &StreamCreateArgs, json: bool) -> anyhow::Result<Outcome> {
    let request = CreateStreamRequest {
        name: args.name.clone(),
        kind: word("kind", &args.kind)?,
        partitions: args.partitions,
        replicas: args.replicas,
        ack_quorum: args.ack_quorum,
        policy: word("policy", &args.policy)?,
        retention_bytes: args.retention_bytes.unwrap_or(0),
        dry_run: args.dry_run,
        ..CreateStreamRequest::default()
    };
    let client = AdminClient::new(args.admin.admin.clone());
    let answer = client
        .create_stream(&request, args.admin.deadline)
        .await
        .with_context(|| format!("creating stream {}", args.name))?;
    print_answer(&answer, json)
}

async fn list(args: &AdminArgs, json: bool) -> anyhow::Result<Outcome> {
    let client = AdminClient::new(args.admin.clone());
    let streams = client.streams(args.deadline).await.context("listing streams")?;
    if json {
        println!("{}", serde_json::to_string(&streams)?);
        return Ok(Outcome::Done);
    }
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(["stream", "partitions", "replicas", "ack quorum", "policy", "uuid"]);
    for stream in streams {
        table.add_row([
            stream.name,
            stream.partitions.to_string(),
            stream.replicas.to_string(),
            stream.ack_quorum.to_string(),
            serde_json::to_string(&stream.policy)?.replace('"', ""),
            stream.uuid.to_string(),
        ]);
    }
    println!("{table}");
    Ok(Outcome::Done)
}

async fn delete(args: &StreamDeleteArgs, json: bool) -> anyhow::Result<Outcome> {
    let client = AdminClient::new(args.admin.admin.clone());
    let answer = client
        .delete_stream(&args.name, None, args.admin.deadline)
        .await
        .with_context(|| format!("deleting stream {}", args.name))?;
    print_answer(&answer, json)
}

/// Reads a word as the admin API writes it.
fn word<'de, T: Deserialize<'de>>(flag: &str, text: &'de str) -> anyhow::Result<T> {
    let deserializer: StrDeserializer<'de, ValueError> = text.into_deserializer();
    T::deserialize(deserializer).with_context(|| format!("--{flag} {text}"))
}
