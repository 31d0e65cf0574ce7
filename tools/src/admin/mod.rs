//! The commands that ask a running cluster: status, and streams.

pub(crate) mod status;
pub(crate) mod stream;

use palisade_sidecar::admin::AdminAnswer;

use crate::outcome::Outcome;

/// Prints what became of a change, in the keys scripts rely on, and returns how the command ends.
fn print_answer(answer: &AdminAnswer, json: bool) -> anyhow::Result<Outcome> {
    if json {
        println!("{}", serde_json::to_string(answer)?);
    }
    Ok(match answer {
        AdminAnswer::Admitted { index, dry_run, .. } => {
            if !json {
                let word = if *dry_run { "would be admitted" } else { "admitted" };
                println!("{word} at index {index}");
            }
            Outcome::Done
        }
        AdminAnswer::Refused { reason, message, live, needed, missing, retry_after_ms } => {
            if !json {
                eprintln!("refused ({reason}): {message}");
                if live < needed {
                    let missing = missing.join(", ");
                    eprintln!("  live {live}, needed {needed}, missing {missing}");
                    eprintln!("  ask again in {retry_after_ms} ms");
                }
            }
            Outcome::Refused
        }
        AdminAnswer::Unknown { operation_id } => {
            if !json {
                eprintln!(
                    "the outcome is unknown; the same request with operation id {operation_id} \
                     returns the first answer"
                );
            }
            Outcome::Unknown
        }
    })
}
