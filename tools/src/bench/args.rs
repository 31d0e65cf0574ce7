//! The flags of `palisade bench`, named after fio's where there is one. Decides nothing.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use palisade_engine::Durability;

use super::quantity::{parse_bytes, parse_count, parse_time};
use crate::cli::Io;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Append batches and time their acknowledgements.
    Append(AppendArgs),
    /// Scan what lies on disk and in no memory.
    Read(ReadArgs),
    /// Read what was just appended, out of memory, again and again.
    Tail(TailArgs),
    /// The load of `append` over many partitions, in alternation with one.
    Partitions(PartitionsArgs),
}

/// What every bench takes.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Where to put a scratch directory, which is removed at the end.
    #[arg(long, value_name = "D", default_value = ".")]
    pub(crate) data_dir: PathBuf,
    /// How long to measure, all rounds of one side together.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_time)]
    pub(crate) runtime: Duration,
    /// How long to run before measuring, each round.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_time)]
    pub(crate) ramp: Duration,
    /// Calls in flight: batches being appended, or reads.
    #[arg(long, value_name = "N", default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) depth: u32,
    /// Bytes of one record; k, m and g are powers of 1024.
    #[arg(long, value_name = "BYTES", default_value = "1k", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Threads the calls are spread over.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: u16,
    /// Shards of the engine.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) shards: u16,
    /// Memory of each shard.
    #[arg(long, value_name = "BYTES", default_value = "64m", value_parser = parse_bytes)]
    pub(crate) arena: u64,
    /// How to do I/O.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) io: Io,
    /// Write a page with plots of throughput and latency over time.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// No line each second.
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// How often the sides of a comparison take turns.
#[derive(Debug, Args)]
pub(crate) struct RawArgs {
    /// Run the same bytes on a raw ring in alternation, and add the ratio of the medians.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Turns of each side when there are several.
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
}

/// What is appended.
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// Records a batch.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count)]
    pub(crate) batch: u64,
    /// What an acknowledgement waits for.
    #[arg(long, value_enum, default_value = "committed")]
    pub(crate) durability: Promise,
    /// Records a second, started by the clock whether or not earlier ones are done; latency counts from the
    /// intended start. By default as many as `--depth` gives.
    #[arg(long, value_name = "N", conflicts_with = "raw",
        value_parser = parse_count)]
    pub(crate) rate: Option<u64>,
    /// Log kept on disk while it runs, about; older records are trimmed.
    #[arg(long, value_name = "BYTES", default_value = "512m", value_parser = parse_bytes)]
    pub(crate) keep: u64,
}

#[derive(Debug, Args)]
pub(crate) struct AppendArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
    #[command(flatten)]
    pub(crate) raw: RawArgs,
    /// Partitions the batches go round.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count)]
    pub(crate) partitions: u64,
}

#[derive(Debug, Args)]
pub(crate) struct PartitionsArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
    #[command(flatten)]
    pub(crate) raw: RawArgs,
    /// Partitions the batches go round.
    #[arg(long, value_name = "N", default_value = "1k", value_parser = parse_count)]
    pub(crate) partitions: u64,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) raw: RawArgs,
    /// Records a batch.
    #[arg(long, value_name = "N", default_value = "60", value_parser = parse_count)]
    pub(crate) batch: u64,
    /// Bytes of one read.
    #[arg(long, value_name = "BYTES", default_value = "1m", value_parser = parse_bytes)]
    pub(crate) read_size: u64,
    /// Bytes of the log that is scanned.
    #[arg(long, value_name = "BYTES", default_value = "256m", value_parser = parse_bytes)]
    pub(crate) data: u64,
}

#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Records a batch.
    #[arg(long, value_name = "N", default_value = "60", value_parser = parse_count)]
    pub(crate) batch: u64,
    /// Bytes of one read.
    #[arg(long, value_name = "BYTES", default_value = "1m", value_parser = parse_bytes)]
    pub(crate) read_size: u64,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Promise {
    /// In memory.
    Accepted,
    /// Synced on this machine.
    Local,
    /// Synced on the ack quorum; with one replica the same as local.
    Committed,
}

impl From<Promise> for Durability {
    fn from(promise: Promise) -> Durability {
        match promise {
            Promise::Accepted => Durability::Accepted,
            Promise::Local => Durability::Local,
            Promise::Committed => Durability::Committed,
        }
    }
}
