//! The `palisade` command: parses, runs, and ends with the exit code scripts rely on.

mod admin;
mod bench;
mod cli;
mod log;
mod outcome;
mod processes;
mod quickstart;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

use cli::{Cli, Command, Io, LogCommand, NodeCommand, SidecarCommand};
use outcome::Outcome;
use palisade_engine::engine::IoChoice;

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_tracing(&cli);
    match run(&cli) {
        Ok(outcome) => outcome.into(),
        Err(error) => outcome::report(&error, cli.json).into(),
    }
}

fn run(cli: &Cli) -> anyhow::Result<Outcome> {
    let json = cli.json;
    match &cli.command {
        Command::Quickstart(args) => on_threads()?.block_on(quickstart::run(args, json)),
        Command::Bench(command) => bench::run(command, json),
        Command::Log(command) => on_this_thread()?.block_on(run_log(command, json)),
        Command::Sidecar(SidecarCommand::Run(args)) => {
            on_threads()?.block_on(processes::sidecar(args))
        }
        Command::Node(NodeCommand::Run(args)) => on_threads()?.block_on(processes::node(args)),
        Command::Status(args) => on_this_thread()?.block_on(admin::status::run(args, json)),
        Command::Stream(command) => on_this_thread()?.block_on(admin::stream::run(command, json)),
    }
}

async fn run_log(command: &LogCommand, json: bool) -> anyhow::Result<Outcome> {
    match command {
        LogCommand::Append(args) => log::append::run(args, json).await,
        LogCommand::Read(args) => log::read::run(args, json),
        LogCommand::Show(args) => log::show::run(args, json),
        LogCommand::Verify(args) => log::verify::run(args, json),
        LogCommand::Repair(args) => log::repair::run(args, json).await,
    }
}

fn on_this_thread() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")
}

fn on_threads() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting a runtime")
}

/// Events go to standard error: warnings by default, more by `PALISADE_LOG`.
///
/// openraft reports each heartbeat that a stopped peer does not answer as an error; what matters of that is
/// in the quorum status. Quickstart stops voters itself and says so.
fn start_tracing(cli: &Cli) {
    let default = match cli.command {
        Command::Quickstart(_) => "error,palisade_engine=warn,openraft=off",
        _ => "warn,openraft=off",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("PALISADE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    let events = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    if cli.json { events.json().init() } else { events.init() }
}

impl From<Io> for IoChoice {
    fn from(io: Io) -> IoChoice {
        match io {
            Io::Uring => IoChoice::Uring,
            Io::Blocking => IoChoice::Blocking,
            Io::Auto => IoChoice::Auto,
        }
    }
}
