//! Samples by work and system: as a Markdown table with ratios taken round by round, and as JSON.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Result;
use palisade_benches::figure::Spread;
use palisade_benches::machine::Machine;
use serde::Serialize;

use crate::gauge::{Limits, Sample};
use crate::systems::System;
use crate::work::Work;

/// How one try ended.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With a figure.
    Measured(Sample),
    /// Not tried: the system has no such thing.
    Excused(String),
    /// Without a figure.
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Measured(sample) => write!(
                f,
                "{:.0} records/s (ready after {:.1} s)",
                sample.records_per_s, sample.setup_s
            ),
            Outcome::Excused(why) => write!(f, "no: {why}"),
            Outcome::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

/// The rounds of one system at one work.
#[derive(Clone, Debug, Serialize)]
struct Row {
    work: &'static str,
    description: String,
    system: &'static str,
    outcomes: Vec<Outcome>,
}

/// Everything measured so far.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    machine: Machine,
    seconds: f64,
    rows: Vec<Row>,
}

impl Report {
    /// An empty one; prints the machine.
    pub fn new(machine: Machine, limits: Limits) -> Report {
        println!("{machine}\n");
        println!(
            "| work | system | records/s | MB/s | ack p50 us | p99 us | of raw | of Palisade | others' CPU |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        Report { machine, seconds: limits.span.as_secs_f64(), rows: Vec::new() }
    }

    /// Adds the outcome of a round.
    pub fn push(&mut self, work: &Work, system: System, outcome: Outcome) {
        match self.row_mut(work.name, system.name()) {
            Some(row) => row.outcomes.push(outcome),
            None => self.rows.push(Row {
                work: work.name,
                description: work.describe(),
                system: system.name(),
                outcomes: vec![outcome],
            }),
        }
    }

    fn row_mut(&mut self, work: &str, system: &str) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.work == work && row.system == system)
    }

    fn row(&self, work: &str, system: System) -> Option<&Row> {
        self.rows.iter().find(|row| row.work == work && row.system == system.name())
    }

    /// Prints the lines of one work.
    pub fn print(&self, work: &Work) {
        for row in self.rows.iter().filter(|row| row.work == work.name) {
            println!("{}", self.line(row));
        }
    }

    fn line(&self, row: &Row) -> String {
        let head = format!("| {} | {} |", row.description, row.system);
        let Some(records) = row.spread(|sample| Some(sample.records_per_s)) else {
            let why = row.outcomes.last().map(ToString::to_string).unwrap_or_default();
            return format!("{head} {why} | | | | | | |");
        };
        let exact = |of: fn(&Sample) -> Option<f64>| {
            row.spread(of).map_or("–".into(), |spread| spread.to_string())
        };
        let median = |of: fn(&Sample) -> Option<f64>| {
            row.spread(of).map_or("–".into(), |spread| format!("{:.0}", spread.median))
        };
        let ratio = |beside| match self.row(row.work, beside).and_then(|other| row.ratio_to(other))
        {
            Some(spread) => shown(spread),
            None => "–".into(),
        };
        format!(
            "{head} {} | {} | {} | {} | {} | {} | {} % |",
            shown(records),
            exact(|sample| Some(sample.mb_per_s)),
            median(|sample| sample.ack_p50_us),
            median(|sample| sample.ack_p99_us),
            ratio(System::Raw),
            ratio(System::Palisade),
            median(|sample| Some(sample.used_by_others * 100.0)),
        )
    }

    /// Writes everything as JSON.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn save(&self, path: &Path) -> Result<()> {
        Ok(fs::write(path, serde_json::to_string_pretty(self)?)?)
    }
}

impl Row {
    fn samples(&self) -> impl Iterator<Item = Option<&Sample>> {
        self.outcomes.iter().map(|outcome| match outcome {
            Outcome::Measured(sample) => Some(sample),
            Outcome::Excused(_) | Outcome::Failed(_) => None,
        })
    }

    /// Of what has a figure: a read has no acknowledgements.
    fn spread(&self, of: fn(&Sample) -> Option<f64>) -> Option<Spread> {
        let values: Vec<f64> = self.samples().flatten().filter_map(of).collect();
        Spread::of(&values)
    }

    /// Records a second beside another system's in the same round.
    fn ratio_to(&self, other: &Row) -> Option<Spread> {
        let pairs = self.samples().zip(other.samples());
        let ratios: Vec<f64> = pairs
            .filter_map(|(own, other)| Some(own?.records_per_s / other?.records_per_s))
            .collect();
        Spread::of(&ratios)
    }
}

/// Three digits or so, with `k` and `M` for what is large.
fn shown(spread: Spread) -> String {
    let (divisor, unit) = match spread.median {
        median if median >= 1e6 => (1e6, " M"),
        median if median >= 1e3 => (1e3, " k"),
        _ => (1.0, ""),
    };
    let scaled = Spread {
        median: spread.median / divisor,
        least: spread.least / divisor,
        greatest: spread.greatest / divisor,
    };
    format!("{scaled}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(records_per_s: f64) -> Outcome {
        Outcome::Measured(Sample {
            records_per_s,
            mb_per_s: 1.0,
            ack_p50_us: None,
            ack_p99_us: None,
            setup_s: 0.0,
            used_by_others: 0.0,
        })
    }

    fn row(outcomes: Vec<Outcome>) -> Row {
        Row { work: "w", description: "w".into(), system: "s", outcomes }
    }

    #[test]
    fn ratios_pair_rounds_and_leave_out_failed_ones() {
        let own = row(vec![outcome(10.0), Outcome::Failed("no".into()), outcome(90.0)]);
        let other = row(vec![outcome(5.0), outcome(1.0), outcome(30.0)]);

        let ratio = own.ratio_to(&other);

        assert_eq!(ratio, Some(Spread { median: 2.5, least: 2.0, greatest: 3.0 }));
    }

    #[test]
    fn what_no_sample_has_is_left_open() {
        assert!(row(vec![outcome(1.0)]).spread(|sample| sample.ack_p50_us).is_none());
    }

    #[test]
    fn large_figures_are_shortened() {
        let spread = Spread { median: 2_500_000.0, least: 2_000_000.0, greatest: 3_000_000.0 };

        assert_eq!(shown(spread), "2.50 (2.00–3.00) M");
    }
}
