//! `palisade log verify`: reads every byte, names each fault with file and position, changes nothing.

use palisade_engine::offline::{self, Fault, PartitionReport};
use serde_json::{Value, json};

use crate::cli::LogDirectoryArgs;
use crate::outcome::Outcome;
use crate::quickstart::report::grouped;

pub(crate) fn run(args: &LogDirectoryArgs, json: bool) -> anyhow::Result<Outcome> {
    let only = args.partition.as_deref().map(super::parse_name).transpose()?;
    let report = offline::verify(&args.directory, only.as_ref())?;
    let outcome = if report.has_damage() { Outcome::Failed } else { Outcome::Done };
    if json {
        let partitions: Vec<Value> = report.partitions.iter().map(to_json).collect();
        println!("{}", json!({ "damaged": report.has_damage(), "partitions": partitions }));
        return Ok(outcome);
    }
    for partition in &report.partitions {
        let name = match &partition.name {
            Some(name) => name.to_string(),
            None => partition.path.display().to_string(),
        };
        println!(
            "{name}: {} records in {} bytes of {} segments",
            grouped(partition.records),
            grouped(partition.bytes),
            partition.segments
        );
        for fault in &partition.faults {
            let word = if fault.kind.is_damage() { "DAMAGE" } else { "note" };
            println!("  {word}: {fault}");
        }
    }
    println!("{}", if report.has_damage() { "Damage was found." } else { "No damage." });
    Ok(outcome)
}

fn to_json(partition: &PartitionReport) -> Value {
    let faults: Vec<Value> = partition.faults.iter().map(fault_to_json).collect();
    json!({
        "partition": partition.name.as_ref().map(ToString::to_string),
        "path": partition.path.display().to_string(),
        "segments": partition.segments, "bytes": partition.bytes, "records": partition.records,
        "faults": faults,
    })
}

fn fault_to_json(fault: &Fault) -> Value {
    json!({
        "kind": fault.kind.word(), "damage": fault.kind.is_damage(),
        "path": fault.path.display().to_string(),
        "position": fault.positions.as_ref().map(|positions| positions.start.0),
        "position_end": fault.positions.as_ref().map(|positions| positions.end.0),
        "text": fault.to_string(),
    })
}
