//! How a command ends: its exit code, and its words on standard error or in JSON.

use std::fmt;
use std::process::ExitCode;

/// The exit codes scripts rely on (DESIGN 8; clap itself ends with 2 for usage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// What was asked is done.
    Done,
    /// It failed, or a check found faults.
    Failed,
    /// It was asked in a way that makes no sense, and nothing was begun.
    Usage,
    /// It was refused, and nothing changed.
    Refused,
    /// It may or may not have happened; ask again by operation id.
    Unknown,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        ExitCode::from(match outcome {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::Usage => 2,
            Outcome::Refused => 3,
            Outcome::Unknown => 4,
        })
    }
}

/// An error that is a refusal: nothing was changed, and the text says what to do.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// An error of the command line that only the values together show; nothing was begun.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Says why a command did not do what was asked, and returns how it ends.
pub(crate) fn report(error: &anyhow::Error, json: bool) -> Outcome {
    if reader_is_gone(error) {
        return Outcome::Done;
    }
    let outcome = if error.chain().any(|cause| cause.is::<Refusal>()) {
        Outcome::Refused
    } else if error.chain().any(|cause| cause.is::<UsageError>()) {
        Outcome::Usage
    } else {
        Outcome::Failed
    };
    if json {
        let word = match outcome {
            Outcome::Refused => "refused",
            Outcome::Usage => "usage",
            _ => "failed",
        };
        println!("{}", serde_json::json!({ "outcome": word, "error": words_of(error) }));
    } else {
        eprintln!("palisade: {}", words_of(error));
    }
    outcome
}

/// The error and its causes, each said once: many of our errors say their cause themselves.
fn words_of(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.contains(&cause) {
            words.push_str(": ");
            words.push_str(&cause);
        }
    }
    words
}

/// `palisade log read ... | head` closes our standard output: that is no failure of ours.
fn reader_is_gone(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_that_was_said_already_is_not_said_again() {
        let inner = std::io::Error::other("no such door");
        let error = anyhow::Error::new(inner).context("opening d: no such door").context("start");

        assert_eq!(words_of(&error), "start: opening d: no such door");
    }
}
