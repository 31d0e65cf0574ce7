//! Runs the same work on Palisade, on other embedded logs and on a raw ring, in alternation, and prints a table.
//!
//! Each sample is a process of its own in an empty directory: no system inherits another's memory, files or threads.

mod child;
mod cold;
mod gauge;
mod report;
mod systems;
mod work;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use palisade_benches::machine::Machine;

use child::Child;
use gauge::Limits;
use report::{Outcome, Report};
use systems::System;
use work::{WORKS, Work};

/// The same appends on Palisade, on other embedded logs and on a raw ring.
#[derive(Debug, Parser)]
struct Arguments {
    /// Systems to run, all by default; ratios need `raw` and `palisade`.
    #[arg(long, value_enum, value_delimiter = ',')]
    system: Vec<System>,
    /// Work to do, by name, all by default.
    #[arg(long, value_delimiter = ',')]
    work: Vec<String>,
    /// Seconds counted of each sample.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Seconds before that.
    #[arg(long, default_value_t = 0.3)]
    warm_up: f64,
    /// Samples of each system at each work; systems alternate within a round.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// MiB of records after which a sample ends early, which bounds the disk space in use.
    #[arg(long, default_value_t = 1_024)]
    mib_max: u64,
    /// Seconds after which a sample that has not ended is given up.
    #[arg(long, default_value_t = 120)]
    give_up: u64,
    /// Where the files go; beside this program by default, which `/tmp` may not be: a tmpfs has no device.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Where the JSON goes; `compare.json` beside this program by default.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Prints the names of the work and ends.
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

/// What this program asks of itself.
#[derive(Debug, Subcommand)]
enum Part {
    /// One sample in an empty directory, as JSON.
    #[command(hide = true)]
    Sample(Target),
    /// Appends some batches, prints what was acknowledged, and leaves without closing anything.
    #[command(hide = true)]
    Write(Target),
    /// Reads all records back and prints what came.
    #[command(hide = true)]
    Read(Target),
}

/// Where a part works.
#[derive(Debug, clap::Args)]
struct Target {
    #[arg(value_enum)]
    system: System,
    directory: PathBuf,
    work: String,
}

impl Arguments {
    fn limits(&self) -> Limits {
        Limits {
            warm_up: Duration::from_secs_f64(self.warm_up),
            span: Duration::from_secs_f64(self.seconds),
            bytes_max: self.mib_max << 20,
        }
    }

    fn systems(&self) -> Vec<System> {
        match self.system.as_slice() {
            [] => <System as clap::ValueEnum>::value_variants().to_vec(),
            chosen => chosen.to_vec(),
        }
    }

    fn works(&self) -> Result<Vec<Work>> {
        match self.work.as_slice() {
            [] => Ok(WORKS.to_vec()),
            chosen => chosen.iter().map(|name| find(name)).collect(),
        }
    }
}

fn find(name: &str) -> Result<Work> {
    Work::named(name).with_context(|| format!("no work is named {name}; --list names all"))
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match &arguments.part {
        Some(Part::Sample(target)) => {
            let work = find(&target.work)?;
            let sample = target.system.sample(&target.directory, &work, arguments.limits())?;
            println!("{}", serde_json::to_string(&sample)?);
            // Some systems' threads do not end; the sample has been taken.
            std::process::exit(0)
        }
        Some(Part::Write(target)) => {
            let written = child::write(target.system, &target.directory, &find(&target.work)?)?;
            println!("{}", serde_json::to_string(&written)?);
            // No destructor runs: what comes back is what had been acknowledged, not what a close saved.
            std::process::exit(0)
        }
        Some(Part::Read(target)) => {
            let read = child::read(target.system, &target.directory, &find(&target.work)?)?;
            println!("{}", serde_json::to_string(&read)?);
            std::process::exit(0)
        }
        None if arguments.list => {
            WORKS.iter().for_each(|work| println!("{:14} {}", work.name, work.describe()));
            Ok(())
        }
        None => compare(&arguments),
    }
}

fn compare(arguments: &Arguments) -> Result<()> {
    let program = std::env::current_exe()?;
    let beside = program.parent().unwrap_or(Path::new("."));
    let directory = arguments.directory.clone().unwrap_or_else(|| beside.to_owned());
    if arguments.rounds == 0 {
        bail!("no round, no figure");
    }
    let child = Child { program: &program, give_up: Duration::from_secs(arguments.give_up) };
    let mut report = Report::new(Machine::of(&directory), arguments.limits());
    for work in arguments.works()? {
        for round in 0..arguments.rounds {
            for system in arguments.systems() {
                let outcome = match system.excuse(&work) {
                    Some(excuse) => Outcome::Excused(excuse.into()),
                    None => one(&child, &directory, arguments, system, &work)?,
                };
                eprintln!("{} round {} {}: {outcome}", work.name, round + 1, system.name());
                report.push(&work, system, outcome);
            }
        }
        report.print(&work);
    }
    let path = arguments.json.clone().unwrap_or_else(|| beside.join("compare.json"));
    report.save(&path)?;
    println!("\nwritten to {}", path.display());
    Ok(())
}

/// One sample in a directory that is gone afterwards.
fn one(
    child: &Child<'_>,
    parent: &Path,
    arguments: &Arguments,
    system: System,
    work: &Work,
) -> Result<Outcome> {
    let scratch = tempfile::Builder::new().prefix("compare-").tempdir_in(parent)?;
    Ok(child.sample(system, scratch.path(), work, arguments.limits()))
}
