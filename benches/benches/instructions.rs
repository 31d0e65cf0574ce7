//! Question: how many instructions does an append cost the shard, and has that grown?
//!
//! Workload: the whole append path, handle to acknowledgement, on the simulated device (one thread, no system calls), under
//! callgrind. Each case runs twice with different numbers of appends; the difference is what one append costs, without the
//! start and the end. Counts do not depend on how busy the machine is. A good answer: within the tolerance of the baseline
//! in `benches/instructions.json`; `PALISADE_RENEW_BASELINE=1` writes that file anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use palisade_benches::instructions::{Baseline, Verdict, total_of};
use palisade_benches::load::{AppendWork, append_many, batch_of};
use palisade_benches::scratch::Scratch;
use palisade_engine::engine::{Engine, EngineConfig};
use palisade_engine::id::PartitionName;
use palisade_engine::io::runtime::Runtime;
use palisade_engine::io::simulated::{SimulatedMachine, SimulatedRuntime};
use palisade_engine::partition::PartitionSettings;

/// Set for the process that runs under callgrind: `case:appends`.
const CHILD: &str = "PALISADE_INSTRUCTIONS_CHILD";
const RENEW: &str = "PALISADE_RENEW_BASELINE";
const ARENA_BYTES: usize = 64 << 20;
/// What the simulated device does to hold and order what it was given is no part of an append: counting stops on entry and
/// goes on at the exit. Behind `--toggle-collect`, `--collect-atstart` must be said again. Source: the Callgrind manual.
const SIMULATED_DEVICE: &str = "*simulated::disk_state::DiskState::complete*";
/// Larger than everything a case appends, so that no roll is counted.
const SEGMENT_BYTES: u64 = 64 << 20;

struct Case {
    name: &'static str,
    records: u64,
    window: usize,
    /// The two numbers of appends whose costs are compared.
    appends: [u64; 2],
}

const CASES: [Case; 3] = [
    Case { name: "1_record_alone", records: 1, window: 1, appends: [500, 2_500] },
    Case { name: "1_record_64_in_flight", records: 1, window: 64, appends: [640, 6_400] },
    Case { name: "1000_records_16_in_flight", records: 1_000, window: 16, appends: [64, 320] },
];
const RECORD_BYTES: usize = 100;

fn main() -> anyhow::Result<ExitCode> {
    if let Ok(child) = std::env::var(CHILD) {
        run_child(&child)?;
        return Ok(ExitCode::SUCCESS);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let is_filtered = arguments.iter().any(|argument| !argument.starts_with('-'));
    if !is_bench || is_filtered || arguments.iter().any(|argument| argument == "--list") {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(reason) = why_not() {
        println!("instructions: not counted: {reason}");
        return Ok(ExitCode::SUCCESS);
    }
    let scratch = Scratch::new(env!("CARGO_TARGET_TMPDIR"));
    let mut counted = BTreeMap::new();
    for case in &CASES {
        counted.insert(case.name.to_owned(), per_append(case, scratch.path())?);
    }
    judge(counted)
}

/// Why nothing can be counted here, if so.
fn why_not() -> Option<String> {
    let version = Command::new("valgrind").arg("--version").output();
    match version {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("valgrind --version ended with {}", output.status)),
        Err(error) => Some(format!("valgrind does not start ({error}); install valgrind")),
    }
}

fn judge(counted: BTreeMap<String, u64>) -> anyhow::Result<ExitCode> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.json");
    if std::env::var_os(RENEW).is_some() {
        for (case, instructions) in &counted {
            println!("instructions per append: {case}: {instructions}");
        }
        Baseline { per_append: counted }.save(&path).context("writing the baseline")?;
        println!("instructions: baseline written to {}", path.display());
        return Ok(ExitCode::SUCCESS);
    }
    let baseline =
        Baseline::load(&path).with_context(|| format!("{}: set {RENEW}=1", path.display()))?;
    let mut exit = ExitCode::SUCCESS;
    for (case, instructions) in &counted {
        let verdict = baseline.judge(case, *instructions);
        println!("instructions per append: {case}: {instructions} ({verdict})");
        if matches!(verdict, Verdict::More { .. } | Verdict::Unknown) {
            exit = ExitCode::FAILURE;
        }
    }
    if exit == ExitCode::FAILURE {
        println!(
            "instructions: the append path has grown; if that is meant, {RENEW}=1 renews the baseline"
        );
    }
    Ok(exit)
}

fn per_append(case: &Case, directory: &Path) -> anyhow::Result<u64> {
    let [few, many] = case.appends;
    let fixed = count(case.name, few, directory)?;
    let whole = count(case.name, many, directory)?;
    Ok(whole.saturating_sub(fixed) / (many - few))
}

fn count(case: &str, appends: u64, directory: &Path) -> anyhow::Result<u64> {
    let output: PathBuf = directory.join(format!("{case}-{appends}.callgrind"));
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--toggle-collect={SIMULATED_DEVICE}"))
        .arg("--collect-atstart=yes")
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(std::env::current_exe().context("this program's path")?)
        .env(CHILD, format!("{case}:{appends}"))
        .stdin(Stdio::null())
        .output()
        .context("starting valgrind")?;
    if !run.status.success() {
        bail!("under valgrind: {}: {}", run.status, String::from_utf8_lossy(&run.stderr));
    }
    let text = std::fs::read_to_string(&output).context("callgrind's output")?;
    total_of(&text).context("callgrind's output has no total")
}

fn run_child(child: &str) -> anyhow::Result<()> {
    let (name, appends) = child.split_once(':').context("CASE:APPENDS")?;
    let appends: u64 = appends.parse().context("a number of appends")?;
    let case = CASES.iter().find(|case| case.name == name).context("a known case")?;
    let batch = batch_of(case.records, RECORD_BYTES);
    let runtime = SimulatedRuntime::new(1);
    let machine = SimulatedMachine::alone(&runtime);
    let mut config = EngineConfig::new("/data");
    config.seed = Some(1);
    config.settings = PartitionSettings {
        segment_bytes: SEGMENT_BYTES,
        first_segment_bytes: SEGMENT_BYTES,
        ..PartitionSettings::default()
    };
    runtime.block_on(async {
        let engine = Engine::open_on(vec![machine.environment(ARENA_BYTES)], config).await?;
        let partition = engine.open_partition(&"bench/0".parse::<PartitionName>()?).await?;
        let work = AppendWork { count: 1, window: 1 };
        append_many(partition.clone(), batch.clone(), work).await;
        // What is made ahead is made before anything is counted, in both runs alike.
        runtime.sleep(Duration::from_secs(60)).await;
        append_many(partition, batch, AppendWork { count: appends, window: case.window }).await;
        engine.close().await?;
        // Freeing what the simulated device holds would count for each append.
        std::process::exit(0)
    })
}
