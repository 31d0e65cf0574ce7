//! `/metrics` in the text format of Prometheus, written by hand: there are few.

use std::fmt::{Display, Write as _};

use super::messages::StatusReport;
use crate::state::View;

/// The figures of the status.
pub(super) fn of_status(status: &StatusReport) -> String {
    let majority = &status.majority;
    let mut text = String::new();
    let mut gauge =
        |name: &str, help: &str, value: &dyn Display| line(&mut text, name, help, value);
    gauge("majority_held", "1: a change would be admitted", &u8::from(majority.held));
    gauge("voters_live", "Voters seen live from here", &majority.live);
    gauge("voters_needed", "Voters a majority needs", &majority.needed);
    gauge("majority_margin", "Failures the metadata role survives", &majority.margin);
    gauge("metadata_age_seconds", "Age of the metadata shown here", &seconds(status.age_ms));
    gauge("nodes", "Nodes ever registered", &status.nodes.len());
    let gone = status.nodes.iter().filter(|node| node.gone).count();
    gauge("nodes_gone", "Nodes declared gone", &gone);
    if let Some(age) = majority.last_admitted_age_ms {
        gauge("last_admitted_age_seconds", "Since a change was admitted", &seconds(age));
    }
    let _ = writeln!(
        text,
        "# HELP palisade_voter_live 1: the voter answered lately\n# TYPE palisade_voter_live gauge"
    );
    for voter in &status.voters {
        let _ = writeln!(
            text,
            "palisade_voter_live{{voter=\"{}\"}} {}",
            voter.name,
            u8::from(voter.live)
        );
    }
    text
}

/// The figures of the metadata.
pub(super) fn of_view(view: &View) -> String {
    let mut text = String::new();
    line(&mut text, "applied_index", "Metadata index applied here", &view.index);
    line(&mut text, "streams", "Live streams", &view.streams().count());
    line(&mut text, "partitions", "Partitions of live streams", &view.partition_count());
    text
}

fn line(text: &mut String, name: &str, help: &str, value: &dyn Display) {
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "# HELP palisade_{name} {help}\n# TYPE palisade_{name} gauge\npalisade_{name} {value}"
    );
}

fn seconds(millis: u64) -> String {
    format!("{}.{:03}", millis / 1000, millis % 1000)
}
