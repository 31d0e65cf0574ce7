//! `palisade quickstart`: a whole cluster in one process, and the one story the project is about.
//!
//! Three voters and three nodes share nothing but loopback sockets. Records are appended and read back, the
//! metadata majority is lost, records go on, a structural change is refused with the reason, and admitted
//! once the majority is back.

mod cluster;
mod input;
mod load;
mod raw_device;
pub(crate) mod report;
mod verify;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use palisade_engine::io::SystemClock;
use palisade_engine::io::clock::Clock;
use palisade_sidecar::admin::{AdminAnswer, CreateStreamRequest};
use palisade_sidecar::client::DataClient;

use crate::cli::QuickstartArgs;
use crate::outcome::{Outcome, Refusal};
use cluster::{Cluster, NODES};
use input::Input;
use load::{AppendFigures, Ledger};
use report::{Latency, MajorityBack, MajorityLost, Report, grouped};

const STREAM: &str = "quickstart";
const PARTITIONS: u32 = 6;

/// The stream that is refused while the majority is lost, and admitted afterwards.
const SECOND_STREAM: &str = "created-after-the-majority-is-back";

/// How many records are appended while the majority is lost, as a share of the whole: one in so many.
const LOST_SHARE: usize = 20;

/// How long an admin call may take; DESIGN 6 promises an answer within it, whatever is down.
const ADMIN_DEADLINE: Duration = Duration::from_secs(2);

/// How long a cluster of one machine may take to come up, or back.
const READY_DEADLINE: Duration = Duration::from_secs(30);

/// Runs the story and prints what it came to.
pub(crate) async fn run(args: &QuickstartArgs, json: bool) -> anyhow::Result<Outcome> {
    let input = match &args.input {
        Some(path) => Input::from_path(path)?,
        None => Input::from_directory(&std::env::current_dir().context("where am I")?)?,
    };
    let scratch = Scratch::new(args.data_dir.as_deref())?;
    let say = |text: &str| {
        if !json {
            println!("{text}");
        }
    };

    let raw_ns = raw_device::measure(scratch.path(), &SystemClock)?;
    say("Starting three voters and three nodes, each with its own directory and sockets.");
    let mut cluster = Cluster::start(scratch.path(), args.io).await?;
    let outcome = tell(&mut cluster, &input, &say, Latency::of(&raw_ns)).await;
    match outcome {
        Ok(report) => {
            if json {
                println!("{}", serde_json::to_string(&report)?);
            } else {
                report.print_table();
            }
            if args.hold {
                hold(&cluster, scratch.path()).await?;
            }
            cluster.stop().await?;
            Ok(Outcome::Done)
        }
        Err(error) => {
            // The story's own error says more than whatever stopping runs into.
            if let Err(stopping) = cluster.stop().await {
                tracing::warn!("stopping the cluster: {stopping:#}");
            }
            Err(error)
        }
    }
}

async fn tell(
    cluster: &mut Cluster,
    input: &Input,
    say: &impl Fn(&str),
    raw_write_us: Latency,
) -> anyhow::Result<Report> {
    let client = cluster.data_client();
    create(cluster, STREAM, PARTITIONS, READY_DEADLINE).await?;

    let lost_records = (input.records() / LOST_SHARE).max(1);
    let all = input.records() + lost_records;
    let mut ledger = Ledger::new(PARTITIONS);
    say(&format!(
        "Appending {} records to {PARTITIONS} partitions; a batch is acknowledged when synced.",
        grouped(input.records() as u64)
    ));
    let figures = append(&client, input, 0..input.records(), &mut ledger).await?;
    let group_bytes_mean = cluster.group_bytes_mean();

    say("Stopping two of the three voters.");
    let (majority_lost, lost) = lose_majority(cluster, &client, input, &mut ledger, all).await?;
    say(&format!(
        "The majority is lost. {} more records were appended. Creating a stream was refused: live {}, \
         needed {}, missing {}.",
        grouped(majority_lost.appended),
        majority_lost.live,
        majority_lost.needed,
        majority_lost.missing.join(" and "),
    ));
    for (word, list) in [("continues", &majority_lost.continues), ("stops", &majority_lost.stops)] {
        say(&format!("  {word}:"));
        list.iter().for_each(|line| say(&format!("    {line}")));
    }

    say("Starting them again; the same create is asked for once more.");
    let majority_back = regain_majority(cluster).await?;

    say("Reading everything back and comparing it.");
    let bar = progress(all as u64, "read back");
    let verified = verify::verify(&client, STREAM, input, ledger, &bar).await?;
    bar.finish_and_clear();
    ensure!(
        verified.records == figures.records + lost.records,
        "{} records were acknowledged and {} read back",
        figures.records + lost.records,
        verified.records
    );
    let seconds = figures.elapsed.as_secs_f64();
    Ok(Report {
        records_appended: figures.records + lost.records,
        records_verified: verified.records,
        bytes: figures.bytes + lost.bytes,
        records_per_s: figures.records as f64 / seconds,
        mb_per_s: figures.bytes as f64 / seconds / 1e6,
        read_records_per_s: verified.records as f64 / verified.elapsed.as_secs_f64(),
        ack_us: Latency::of(&figures.ack_ns),
        group_bytes_mean,
        raw_write_us,
        majority_lost,
        majority_back,
        input: input.source.clone(),
    })
}

async fn append(
    client: &DataClient,
    input: &Input,
    numbers: std::ops::Range<usize>,
    ledger: &mut Ledger,
) -> anyhow::Result<AppendFigures> {
    let bar = progress(numbers.len() as u64, "append");
    let figures = load::append(client, STREAM, input, numbers, ledger, &bar).await?;
    bar.finish_and_clear();
    Ok(figures)
}

/// Stops two voters, appends on, and asks for a change that nobody can admit.
async fn lose_majority(
    cluster: &mut Cluster,
    client: &DataClient,
    input: &Input,
    ledger: &mut Ledger,
    all: usize,
) -> anyhow::Result<(MajorityLost, AppendFigures)> {
    cluster.stop_voters(&[1, 2]).await?;
    let asked = SystemClock.now();
    let answer = cluster.admin().create_stream(&request(SECOND_STREAM, 1), ADMIN_DEADLINE).await;
    let create_refused_ms = ms(SystemClock.now().elapsed_for_holder(asked));
    let AdminAnswer::Refused { live, needed, missing, .. } =
        answer.context("asking for a stream")?
    else {
        anyhow::bail!("a stream was not refused although two of three voters are down");
    };
    let status = cluster.admin().status(ADMIN_DEADLINE).await.context("asking for the status")?;
    ensure!(!status.majority.held, "the majority is lost and the status says it is held");
    let figures = append(client, input, input.records()..all, ledger).await?;
    let lost = MajorityLost {
        appended: figures.records,
        create_refused_ms,
        live,
        needed,
        missing,
        continues: status.continues,
        stops: status.stops,
    };
    Ok((lost, figures))
}

/// Starts the voters again and repeats the refused change until it is admitted.
async fn regain_majority(cluster: &mut Cluster) -> anyhow::Result<MajorityBack> {
    let started = SystemClock.now();
    cluster.start_voters(&[1, 2]).await?;
    let index = create(cluster, SECOND_STREAM, 1, READY_DEADLINE).await?;
    let create_admitted_ms = ms(SystemClock.now().elapsed_for_holder(started));
    Ok(MajorityBack { create_admitted_ms, index })
}

/// Asks for a stream until it is admitted: a majority takes a moment to form.
async fn create(
    cluster: &Cluster,
    name: &str,
    partitions: u32,
    deadline: Duration,
) -> anyhow::Result<u64> {
    let started = SystemClock.now();
    loop {
        let answer = cluster
            .admin()
            .create_stream(&request(name, partitions), ADMIN_DEADLINE)
            .await
            .context("asking for a stream")?;
        let reason = match answer {
            AdminAnswer::Admitted { index, .. } => return Ok(index),
            AdminAnswer::Refused { message, .. } => message,
            AdminAnswer::Unknown { operation_id } => format!("operation {operation_id} is unknown"),
        };
        let waited = SystemClock.now().elapsed_for_holder(started);
        ensure!(waited < deadline, "stream {name} was not admitted within {deadline:?}: {reason}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn request(name: &str, partitions: u32) -> CreateStreamRequest {
    CreateStreamRequest { name: name.to_owned(), partitions, ..CreateStreamRequest::default() }
}

/// Stays up until interrupted. Says so on standard error, so that `--json` still prints one object.
async fn hold(cluster: &Cluster, directory: &Path) -> anyhow::Result<()> {
    eprintln!("Holding. Directory: {}.", directory.display());
    for (name, url) in cluster.admin_urls() {
        eprintln!("  {name}: {url}");
    }
    eprintln!("  {NODES} nodes take records; interrupt to stop.");
    tokio::signal::ctrl_c().await.context("waiting for an interrupt")
}

/// Drawn on standard error, and only if that is a terminal.
fn progress(records: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:>9} {bar:40} {human_pos}/{human_len} {per_sec}")
        .expect("the template is well formed");
    ProgressBar::new(records).with_style(style).with_message(what)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// The directory everything is kept in: the caller's, or one that goes at the end.
#[derive(Debug)]
enum Scratch {
    Given(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Scratch {
    fn new(given: Option<&Path>) -> anyhow::Result<Scratch> {
        if let Some(path) = given {
            std::fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))?;
            let mut entries =
                std::fs::read_dir(path).with_context(|| format!("listing {}", path.display()))?;
            if entries.next().is_some() {
                let text = format!(
                    "{} is not empty: the story needs a new cluster; name another directory",
                    path.display()
                );
                anyhow::bail!(Refusal(text));
            }
            return Ok(Scratch::Given(path.to_owned()));
        }
        // A file system in memory would flatter every figure: prefer the build's own disk.
        let beside = ["target", "."].into_iter().map(Path::new).find(|path| path.is_dir());
        let parent = beside.context("no directory to work in; name one with --data-dir")?;
        tempfile::Builder::new()
            .prefix("quickstart-")
            .tempdir_in(parent)
            .map(Scratch::Temporary)
            .with_context(|| {
                format!("making a directory in {}; name one with --data-dir", parent.display())
            })
    }

    fn path(&self) -> &Path {
        match self {
            Scratch::Given(path) => path,
            Scratch::Temporary(directory) => directory.path(),
        }
    }
}
