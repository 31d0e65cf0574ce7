//! The command line: what can be asked, with every flag that scripts rely on. Decides nothing.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// Fenced partition logs, and the metadata role that says who may write them.
///
/// Exit codes: 0 done, 1 failed, 2 usage, 3 refused, 4 outcome unknown.
#[derive(Debug, Parser)]
#[command(name = "palisade", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Answer with JSON on standard output.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a whole cluster in one process: append, read back, lose the majority, get it back.
    Quickstart(QuickstartArgs),
    /// Measure what the log does on this machine, beside a raw ring.
    #[command(subcommand)]
    Bench(crate::bench::args::BenchCommand),
    /// Work on a data directory with no cluster running on it.
    #[command(subcommand)]
    Log(LogCommand),
    /// Run a voter of the metadata role.
    #[command(subcommand)]
    Sidecar(SidecarCommand),
    /// Run a node that serves records.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Show the majority, what continues and what stops.
    Status(AdminArgs),
    /// Create, list and delete streams.
    #[command(subcommand)]
    Stream(StreamCommand),
}

#[derive(Debug, Args)]
pub(crate) struct QuickstartArgs {
    /// Where voters and nodes keep their files; a scratch directory by default, removed at the end.
    #[arg(long, value_name = "D")]
    pub(crate) data_dir: Option<PathBuf>,

    /// Records to append, one a line; `-` is standard input. By default the text files of this
    /// directory, repeated to a million records.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,

    /// Keep the cluster running at the end, until interrupted.
    #[arg(long)]
    pub(crate) hold: bool,

    /// How the nodes do their I/O.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) io: Io,
}

/// The engine's ways of doing I/O.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Io {
    /// io_uring, or an error that names what is missing.
    Uring,
    /// Blocking system calls on a pool of threads.
    Blocking,
    /// io_uring, else one loud line and blocking.
    Auto,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Append standard input to a partition, one record a line, synced before this command ends.
    Append(LogAppendArgs),
    /// Print the records of a partition, one a line.
    Read(LogReadArgs),
    /// Show what a data directory holds.
    Show(LogDirectoryArgs),
    /// Read every byte and name the file and position of each fault.
    Verify(LogDirectoryArgs),
    /// Do what recovery would do: cut torn tails, quarantine damaged ranges. Nothing else.
    Repair(LogDirectoryArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LogAppendArgs {
    /// The data directory; made if missing.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The partition, for example `orders/3`; made if missing.
    pub(crate) partition: String,
    /// Records a batch, at most.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) batch: u32,
    /// How to do I/O.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) io: Io,
}

#[derive(Debug, Args)]
pub(crate) struct LogReadArgs {
    /// The data directory.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// The partition, for example `orders/3`.
    pub(crate) partition: String,
    /// The first offset to print; the log start by default.
    #[arg(long, value_name = "OFFSET")]
    pub(crate) from: Option<u64>,
    /// How many records to print, at most.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct LogDirectoryArgs {
    /// The data directory.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// One partition only, for example `orders/3`.
    pub(crate) partition: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SidecarCommand {
    /// Run one voter until SIGTERM or SIGINT.
    Run(SidecarRunArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SidecarRunArgs {
    /// This voter's name; one of --peers.
    #[arg(long)]
    pub(crate) name: String,
    /// Where it keeps its log, vote and snapshots.
    #[arg(long, value_name = "D")]
    pub(crate) data_dir: PathBuf,
    /// Where voters and nodes reach it.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: SocketAddr,
    /// Where the admin API answers.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) admin_listen: SocketAddr,
    /// All voters, this one included: `v1=IP:PORT,v2=IP:PORT,v3=IP:PORT`.
    #[arg(long, value_delimiter = ',', value_parser = parse_peer, required = true)]
    pub(crate) peers: Vec<(String, SocketAddr)>,
    /// What this voter fails together with: a rack, a zone, a host.
    #[arg(long, value_name = "F")]
    pub(crate) failure_domain: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Run one node until SIGTERM or SIGINT.
    Run(NodeRunArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NodeRunArgs {
    /// This node's name.
    #[arg(long)]
    pub(crate) name: String,
    /// Where it keeps its partitions.
    #[arg(long, value_name = "D")]
    pub(crate) data_dir: PathBuf,
    /// Where clients reach it.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: SocketAddr,
    /// Where its admin API answers.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) admin_listen: SocketAddr,
    /// The voters.
    #[arg(long, value_delimiter = ',', required = true, value_name = "IP:PORT")]
    pub(crate) sidecars: Vec<SocketAddr>,
    /// What this node fails together with.
    #[arg(long, value_name = "R")]
    pub(crate) rack: Option<String>,
    /// Shards; one a core by default.
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<usize>,
    /// How to do I/O.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) io: Io,
}

#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// Admin addresses of voters or nodes, tried in turn.
    #[arg(
        long,
        env = "PALISADE_ADMIN",
        value_delimiter = ',',
        value_name = "URL",
        required = true
    )]
    pub(crate) admin: Vec<String>,
    /// When to give up waiting.
    #[arg(long, default_value = "2s", value_parser = parse_duration, value_name = "TIME")]
    pub(crate) deadline: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StreamCommand {
    /// Create a stream.
    Create(StreamCreateArgs),
    /// List the streams.
    List(AdminArgs),
    /// Delete a stream.
    Delete(StreamDeleteArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StreamCreateArgs {
    /// The stream's name.
    pub(crate) name: String,
    /// Its partitions: the parallelism ceiling.
    #[arg(long, default_value_t = 1)]
    pub(crate) partitions: u32,
    /// Copies of each partition.
    #[arg(long, default_value_t = 1)]
    pub(crate) replicas: u8,
    /// Copies that must be synced before an acknowledgement.
    #[arg(long, default_value_t = 1)]
    pub(crate) ack_quorum: u8,
    /// What happens when the metadata majority is lost: `fail-closed` or `serve-settled`.
    #[arg(long, default_value = "serve-settled")]
    pub(crate) policy: String,
    /// `log` or `queue`.
    #[arg(long, default_value = "log")]
    pub(crate) kind: String,
    /// Bytes each partition keeps; everything by default.
    #[arg(long, value_name = "N")]
    pub(crate) retention_bytes: Option<u64>,
    /// Say what would be answered, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StreamDeleteArgs {
    /// The stream's name.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

fn parse_peer(text: &str) -> Result<(String, SocketAddr), String> {
    let (name, address) = text.split_once('=').ok_or("a peer is written NAME=IP:PORT")?;
    let address = address.parse().map_err(|error| format!("{address:?}: {error}"))?;
    Ok((name.to_owned(), address))
}

/// Parses `250ms`, `2s`, `1m`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|error| format!("{text:?}: {error}"))?;
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => return Err(format!("{text:?}: write a number and ms, s or m, for example 2s")),
    };
    number
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{text:?} is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_take_a_unit() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        assert!(parse_duration("2").is_err());
        assert!(parse_duration("s").is_err());
        assert!(parse_duration("99999999999999999999m").is_err());
    }
}
