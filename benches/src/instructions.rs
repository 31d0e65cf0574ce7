//! Counts of instructions: what callgrind wrote, and how it compares with the baseline in the repository.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A count this many hundredths above the baseline is a regression; below, the baseline is due to be renewed.
pub const TOLERANCE_PERCENT: u64 = 8;

/// Instructions per append of each case, as they were when somebody looked at them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// By the name of the case.
    pub per_append: BTreeMap<String, u64>,
}

/// How a count compares with the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the tolerance.
    Same {
        /// The baseline.
        baseline: u64,
    },
    /// Fewer: renew the baseline, so that the gain is kept.
    Fewer {
        /// The baseline.
        baseline: u64,
    },
    /// More: a regression.
    More {
        /// The baseline.
        baseline: u64,
    },
    /// The baseline knows no such case.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Same { baseline } => write!(f, "as the baseline {baseline}"),
            Verdict::Fewer { baseline } => write!(f, "fewer than the baseline {baseline}"),
            Verdict::More { baseline } => write!(f, "MORE than the baseline {baseline}"),
            Verdict::Unknown => f.write_str("no baseline"),
        }
    }
}

impl Baseline {
    /// Compares a count of `case`.
    #[must_use]
    pub fn judge(&self, case: &str, instructions: u64) -> Verdict {
        let Some(&baseline) = self.per_append.get(case) else { return Verdict::Unknown };
        let allowed = baseline * TOLERANCE_PERCENT / 100;
        if instructions > baseline + allowed {
            Verdict::More { baseline }
        } else if instructions + allowed < baseline {
            Verdict::Fewer { baseline }
        } else {
            Verdict::Same { baseline }
        }
    }

    /// Reads a baseline.
    ///
    /// # Errors
    ///
    /// The file system's, or that it is none.
    pub fn load(path: &Path) -> std::io::Result<Baseline> {
        Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
    }

    /// Writes it, one case a line.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")
    }
}

/// Returns the sum in a file of callgrind: its `totals:` line, or `summary:` where there is none.
///
/// Source: the Callgrind format specification.
#[must_use]
pub fn total_of(text: &str) -> Option<u64> {
    let of = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse().ok()
    };
    of("totals:").or_else(|| of("summary:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_beyond_the_tolerance_is_a_regression() {
        let baseline = Baseline { per_append: [("a".to_owned(), 1_000)].into() };

        assert_eq!(baseline.judge("a", 1_080), Verdict::Same { baseline: 1_000 });
        assert_eq!(baseline.judge("a", 1_081), Verdict::More { baseline: 1_000 });
        assert_eq!(baseline.judge("a", 919), Verdict::Fewer { baseline: 1_000 });
        assert_eq!(baseline.judge("b", 1), Verdict::Unknown);
    }

    #[test]
    fn total_is_read_from_what_callgrind_writes() {
        assert_eq!(total_of("events: Ir\nfn=(1) a\n1 5\ntotals: 123456\n"), Some(123_456));
        assert_eq!(total_of("events: Ir\nsummary: 77 \n1 2\n"), Some(77));
        assert_eq!(total_of("events: Ir\n"), None);
    }
}
