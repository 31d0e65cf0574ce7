//! Figures: samples of the engine beside samples of what it is compared with, their spread, and whether a goal is met.
//!
//! Kept as one JSON object a line under `target/palisade-benches`, and printed as a table to paste into the docs.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// Median, least and greatest of some samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

impl Spread {
    /// Summarises samples; `None` when there are none.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Spread> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, greatest) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Some(Spread { median, least, greatest })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value| Rounded(value);
        write!(f, "{} ({}–{})", show(self.median), show(self.least), show(self.greatest))
    }
}

/// A number with three significant digits or so.
struct Rounded(f64);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.0.abs() {
            size if size >= 100.0 => 0,
            size if size >= 10.0 => 1,
            _ => 2,
        };
        write!(f, "{:.digits$}", self.0)
    }
}

/// How a figure relates to what it is compared with, pair by pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// The engine's value divided by the other's.
    Ratio,
    /// The engine's value less the other's, in the figure's unit.
    Difference,
}

/// What a figure must reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// The median of the relation is at least this.
    RelationAtLeast(f64),
    /// The median of the relation is at most this.
    RelationAtMost(f64),
    /// The engine's own median is at least this.
    AtLeast(f64),
    /// The engine's own median is at most this.
    AtMost(f64),
}

/// One line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// Which bench printed it: `append`.
    pub bench: String,
    /// Which work.
    pub work: String,
    /// The unit of every sample.
    pub unit: String,
    /// The engine's samples, in the order of the rounds.
    pub engine: Vec<f64>,
    /// What they are compared with: `raw ring`.
    pub beside: String,
    /// Its samples; sample `i` was taken right beside the engine's sample `i`. Empty where nothing compares.
    pub compared: Vec<f64>,
    /// How the two relate.
    pub relation: Relation,
    /// What must be reached, if anything.
    pub goal: Option<Goal>,
    /// The part of the machine's processor time that others used meanwhile, 0 to 1.
    pub used_by_others: f64,
}

impl Figure {
    /// Returns the relation of each pair.
    #[must_use]
    pub fn relations(&self) -> Vec<f64> {
        let pairs = self.engine.iter().zip(&self.compared);
        pairs
            .map(|(engine, other)| match self.relation {
                Relation::Ratio => engine / other,
                Relation::Difference => engine - other,
            })
            .collect()
    }

    /// Tells whether the goal is met; `None` without a goal or without samples.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let own = Spread::of(&self.engine)?.median;
        let relation = Spread::of(&self.relations()).map(|spread| spread.median);
        match self.goal? {
            Goal::RelationAtLeast(bound) => relation.map(|value| value >= bound),
            Goal::RelationAtMost(bound) => relation.map(|value| value <= bound),
            Goal::AtLeast(bound) => Some(own >= bound),
            Goal::AtMost(bound) => Some(own <= bound),
        }
    }

    fn goal_text(&self) -> String {
        let unit = match self.relation {
            Relation::Ratio => "x",
            Relation::Difference => &self.unit,
        };
        let goal = match self.goal {
            None => return "–".into(),
            Some(Goal::RelationAtLeast(bound)) => format!("≥ {bound} {unit}"),
            Some(Goal::RelationAtMost(bound)) => format!("≤ {bound} {unit}"),
            Some(Goal::AtLeast(bound)) => format!("≥ {bound} {}", self.unit),
            Some(Goal::AtMost(bound)) => format!("≤ {bound} {}", self.unit),
        };
        match self.is_met() {
            Some(true) => format!("{goal}: met"),
            Some(false) => format!("{goal}: **missed**"),
            None => goal,
        }
    }
}

/// Prints `figures` as the Markdown table of `docs/BENCHMARKS.md`.
///
/// # Errors
///
/// The writer's.
pub fn write_table(figures: &[Figure], out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "| bench | work | unit | engine | beside it | relation | goal | others' CPU |")?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    for figure in figures {
        let text = |samples: &[f64]| Spread::of(samples).map_or("–".into(), |s| s.to_string());
        let beside = match Spread::of(&figure.compared) {
            Some(spread) => format!("{}: {spread}", figure.beside),
            None => "–".into(),
        };
        let sign = match figure.relation {
            Relation::Ratio => "x",
            Relation::Difference => "difference",
        };
        let relation = match Spread::of(&figure.relations()) {
            Some(spread) => format!("{spread} {sign}"),
            None => "–".into(),
        };
        writeln!(
            out,
            "| `{}` | {} | {} | {} | {beside} | {relation} | {} | {:.0} % |",
            figure.bench,
            figure.work,
            figure.unit,
            text(&figure.engine),
            figure.goal_text(),
            figure.used_by_others * 100.0,
        )?;
    }
    Ok(())
}

/// One line of a file of figures: the machine first, then the figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// What it was measured on.
    Machine(Machine),
    /// A figure.
    Figure(Figure),
    /// What the run showed besides, in words.
    Note(String),
}

/// Writes `bench`'s figures and notes to `DIRECTORY/bench.jsonl`, replacing those of the run before, and returns the path.
///
/// # Errors
///
/// The file system's.
pub fn save(
    directory: &Path,
    bench: &str,
    machine: &Machine,
    figures: &[Figure],
    notes: &[String],
) -> std::io::Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let path = directory.join(format!("{bench}.jsonl"));
    let mut file = fs::File::create(&path)?;
    let first = std::iter::once(Line::Machine(machine.clone()));
    let rest = figures.iter().cloned().map(Line::Figure);
    for line in first.chain(rest).chain(notes.iter().cloned().map(Line::Note)) {
        serde_json::to_writer(&mut file, &line)?;
        writeln!(file)?;
    }
    Ok(path)
}

/// Reads a file written by [`save`].
///
/// # Errors
///
/// The file system's, or a line that is none of ours.
pub fn load(path: &Path) -> std::io::Result<Vec<Line>> {
    let text = fs::read_to_string(path)?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(relation: Relation, goal: Goal) -> Figure {
        Figure {
            bench: "append".into(),
            work: "one batch".into(),
            unit: "us".into(),
            engine: vec![90.0, 100.0, 400.0],
            beside: "raw ring".into(),
            compared: vec![50.0, 80.0, 100.0],
            relation,
            goal: Some(goal),
            used_by_others: 0.0,
        }
    }

    #[test]
    fn spread_of_an_even_number_of_samples_takes_the_mean_of_the_middle_two() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();

        assert_eq!(spread, Spread { median: 2.5, least: 1.0, greatest: 4.0 });
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn goals_are_judged_by_the_median_of_pairs() {
        assert_eq!(figure(Relation::Difference, Goal::RelationAtMost(40.0)).is_met(), Some(true));
        assert_eq!(figure(Relation::Difference, Goal::RelationAtMost(39.0)).is_met(), Some(false));
        assert_eq!(figure(Relation::Ratio, Goal::RelationAtLeast(1.8)).is_met(), Some(true));
        assert_eq!(figure(Relation::Ratio, Goal::AtMost(99.0)).is_met(), Some(false));
    }

    #[test]
    fn saved_figures_load_again() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine::of(directory.path());
        let figures = [figure(Relation::Ratio, Goal::AtLeast(1.0))];

        let path = save(directory.path(), "append", &machine, &figures, &[]).unwrap();
        let lines = load(&path).unwrap();

        assert!(matches!(&lines[0], Line::Machine(loaded) if loaded.kernel == machine.kernel));
        assert!(matches!(&lines[1], Line::Figure(loaded) if loaded.engine == figures[0].engine));
    }
}
