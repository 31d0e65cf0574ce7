//! A sample as a process of its own, and the two halves of the check that what was acknowledged comes back.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use palisade_benches::stopwatch::{Stopwatch, pause};
use serde::{Deserialize, Serialize};

use crate::gauge::{Limits, Sample};
use crate::report::Outcome;
use crate::systems::{System, WALRUS_DIRECTORY_VARIABLE, WALRUS_QUIET_VARIABLE};
use crate::work::{Batch, Work};

const POLL: Duration = Duration::from_millis(10);
/// Batches each caller appends in the check.
const CHECKED_BATCHES: u64 = 3;

/// How this program starts itself.
#[derive(Clone, Copy, Debug)]
pub struct Child<'a> {
    /// Itself.
    pub program: &'a Path,
    /// When a sample is given up.
    pub give_up: Duration,
}

impl Child<'_> {
    /// Takes one sample; whatever goes wrong is the sample's outcome, so that the other systems go on.
    pub fn sample(&self, system: System, directory: &Path, work: &Work, limits: Limits) -> Outcome {
        match self.run(system, directory, work, limits) {
            Ok(sample) => Outcome::Measured(sample),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    }

    fn run(&self, system: System, directory: &Path, work: &Work, limits: Limits) -> Result<Sample> {
        let mut child = Command::new(self.program)
            .args(["--seconds", &limits.span.as_secs_f64().to_string()])
            .args(["--warm-up", &limits.warm_up.as_secs_f64().to_string()])
            .args(["--mib-max", &(limits.bytes_max >> 20).to_string()])
            .args(["sample", system.name()])
            .arg(directory)
            .arg(work.name)
            .env(WALRUS_DIRECTORY_VARIABLE, directory)
            .env(WALRUS_QUIET_VARIABLE, "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let clock = Stopwatch::start();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if clock.elapsed() > self.give_up {
                child.kill()?;
                child.wait()?;
                bail!("given up after {:?}", self.give_up);
            }
            pause(POLL);
        };
        let (mut out, mut errors) = (String::new(), String::new());
        child.stdout.take().context("a piped output")?.read_to_string(&mut out)?;
        child.stderr.take().context("a piped output")?.read_to_string(&mut errors)?;
        ensure!(status.success(), "{}", errors.trim().lines().last().unwrap_or("no message"));
        let line = out.trim().lines().last().context("no sample")?;
        Ok(serde_json::from_str(line)?)
    }
}

/// Records written or read, told apart by their checksums whatever their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// How many.
    pub records: u64,
    /// Sum of the checksums.
    pub checksums: u64,
}

impl Content {
    fn add(&mut self, record: &[u8]) {
        self.records += 1;
        self.checksums = self.checksums.wrapping_add(u64::from(crc32fast::hash(record)));
    }
}

/// Appends different batches from every caller and returns what was acknowledged. The log is left open.
///
/// # Errors
///
/// The system's.
pub fn write(system: System, directory: &Path, work: &Work) -> Result<Content> {
    let log = system.open(directory, work)?;
    let mut content = Content::default();
    for seed in 0..CHECKED_BATCHES {
        for caller in 0..work.callers {
            let batch = Batch::of(work, seed * work.callers as u64 + caller as u64);
            log.append(caller, caller % work.partitions, &batch)?;
            batch.records().iter().for_each(|record| content.add(record));
        }
    }
    std::mem::forget(log);
    Ok(content)
}

/// Reads everything back.
///
/// # Errors
///
/// The system's.
pub fn read(system: System, directory: &Path, work: &Work) -> Result<Content> {
    let mut content = Content::default();
    system.read_back(directory, work, &mut |record| content.add(record))?;
    Ok(content)
}
