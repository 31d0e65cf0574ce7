//! Comparisons inside one run: both sides in alternation, so that a noisy machine disturbs both alike.

use std::path::{Path, PathBuf};

use crate::figure::{Figure, Goal, Relation, Spread, save, write_table};
use crate::machine::{BusyTime, Machine};

/// How often both sides run. STYLE asks for five at least; odd, so that the median is a sample.
pub const ROUNDS: usize = 7;

/// How much smaller a trial run is, which shows that everything works and whose figures mean nothing.
const TRIAL_DIVISOR: u64 = 32;

/// Tells whether this is a trial run: `PALISADE_BENCH_TRIAL` is set.
#[must_use]
pub fn is_trial() -> bool {
    std::env::var_os("PALISADE_BENCH_TRIAL").is_some()
}

/// Returns how often both sides run: [`ROUNDS`], or twice in a trial.
#[must_use]
pub fn rounds() -> usize {
    if is_trial() { 2 } else { ROUNDS }
}

/// Returns `count`, or a small part of it in a trial.
#[must_use]
pub fn scaled(count: u64) -> u64 {
    if is_trial() { (count / TRIAL_DIVISOR).max(1) } else { count }
}

/// Tells whether criterion's own runs are wanted: not when only the table is (`PALISADE_BENCH_TABLE`).
#[must_use]
pub fn is_tracking() -> bool {
    std::env::var_os("PALISADE_BENCH_TABLE").is_none()
}

/// Tells whether this work is wanted: `PALISADE_BENCH_ONLY` is not set, or a part of its name.
#[must_use]
pub fn is_wanted(work: &str) -> bool {
    std::env::var("PALISADE_BENCH_ONLY").map_or(true, |part| work.contains(&part))
}

/// A comparison to be run.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Which work, in words.
    pub work: String,
    /// The unit of both sides' samples.
    pub unit: &'static str,
    /// What stands beside the engine.
    pub beside: &'static str,
    /// How the two relate.
    pub relation: Relation,
    /// What must be reached, if anything.
    pub goal: Option<Goal>,
}

/// Collects the figures of one bench, prints them at the end and keeps them as JSON lines.
#[derive(Debug)]
pub struct RatioTable {
    bench: &'static str,
    machine: Machine,
    output: PathBuf,
    figures: Vec<Figure>,
    notes: Vec<String>,
}

impl RatioTable {
    /// Starts the table of `bench`, and prints what it will be measured on. `target_tmpdir` is
    /// `env!("CARGO_TARGET_TMPDIR")`; the figures go beside it, into `palisade-benches`.
    #[must_use]
    pub fn new(bench: &'static str, target_tmpdir: &str) -> RatioTable {
        let machine = Machine::of(Path::new(target_tmpdir));
        println!("\n{bench}\n{machine}\n");
        let output = Path::new(target_tmpdir).with_file_name("palisade-benches");
        RatioTable { bench, machine, output, figures: Vec::new(), notes: Vec::new() }
    }

    /// Runs both sides [`rounds`] times in alternation, engine first, after one unmeasured round.
    pub fn alternate(
        &mut self,
        comparison: Comparison,
        mut engine: impl FnMut() -> f64,
        mut other: impl FnMut() -> f64,
    ) {
        if !is_wanted(&comparison.work) {
            return;
        }
        engine();
        other();
        let before = BusyTime::now();
        let (mut own, mut compared) = (Vec::new(), Vec::new());
        for _ in 0..rounds() {
            own.push(engine());
            compared.push(other());
        }
        self.push(comparison, own, compared, BusyTime::now().used_by_others_since(before));
    }

    /// Runs one side [`rounds`] times, where nothing on the machine does the same work, after one unmeasured round.
    pub fn alone(&mut self, comparison: Comparison, mut engine: impl FnMut() -> f64) {
        if !is_wanted(&comparison.work) {
            return;
        }
        engine();
        let before = BusyTime::now();
        let own = (0..rounds()).map(|_| engine()).collect();
        self.push(comparison, own, Vec::new(), BusyTime::now().used_by_others_since(before));
    }

    fn push(
        &mut self,
        comparison: Comparison,
        engine: Vec<f64>,
        compared: Vec<f64>,
        used_by_others: f64,
    ) {
        let Comparison { work, unit, beside, relation, goal } = comparison;
        let figure = Figure {
            bench: self.bench.into(),
            work,
            unit: unit.into(),
            engine,
            beside: beside.into(),
            compared,
            relation,
            goal,
            used_by_others,
        };
        let relation =
            Spread::of(&figure.relations()).map_or_else(String::new, |of| of.to_string());
        let own = Spread::of(&figure.engine).map_or_else(String::new, |of| of.to_string());
        println!("measured: {}: {own} {}; relation {relation}", figure.work, figure.unit);
        self.figures.push(figure);
    }

    /// Keeps a sentence to print below the table: what was seen besides the figures.
    pub fn note(&mut self, text: String) {
        println!("{text}");
        self.notes.push(text);
    }

    /// Prints the table and writes the JSON lines.
    ///
    /// # Panics
    ///
    /// If either cannot be written.
    pub fn finish(self) {
        println!();
        write_table(&self.figures, &mut std::io::stdout())
            .expect("standard output takes the table");
        let path = save(&self.output, self.bench, &self.machine, &self.figures, &self.notes);
        println!(
            "\nwritten to {}\n",
            path.expect("the target directory takes the figures").display()
        );
    }
}

/// Tells whether the table is wanted: `cargo bench` passes `--bench`; a filter for criterion, its test mode, its list and
/// its profiling want criterion alone.
#[must_use]
pub fn is_measuring() -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let is_filtered = arguments.iter().any(|argument| !argument.starts_with('-'));
    has("--bench") && !is_filtered && !has("--test") && !has("--list")
}
