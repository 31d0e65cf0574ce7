//! Prints the figures of the last `cargo bench -p palisade-benches` as the Markdown of `docs/BENCHMARKS.md`.
//!
//! Reads `target/palisade-benches/*.jsonl`, or the directory given as an argument. `--goals` leaves out what has no goal.
//! Measures nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use palisade_benches::figure::{Figure, Line, load, write_table};

/// The order of the table: that of the goals in `docs/BENCHMARKS.md`.
const ORDER: [&str; 5] = ["append", "partitions", "read", "gate", "recovery"];

fn main() -> anyhow::Result<()> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let given = arguments.len();
    arguments.retain(|argument| argument != "--goals");
    let goals_only = arguments.len() < given;
    let directory = arguments.pop().map_or_else(default_directory, PathBuf::from);
    let entries = std::fs::read_dir(&directory).with_context(|| {
        format!("{}: run `cargo bench -p palisade-benches` first", directory.display())
    })?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<PathBuf>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort_by_key(|path| place_of(path));

    let (mut machine, mut figures, mut notes) = (None, Vec::new(), Vec::new());
    for path in &paths {
        for line in load(path).with_context(|| path.display().to_string())? {
            match line {
                Line::Machine(found) => machine = Some(found),
                Line::Figure(figure) => figures.push(figure),
                Line::Note(note) => notes.push(note),
            }
        }
    }
    if goals_only {
        figures.retain(|figure: &Figure| figure.goal.is_some());
    }
    if let Some(machine) = machine {
        println!("```text\n{machine}\n```\n");
    }
    write_table(&figures, &mut std::io::stdout())?;
    println!();
    for note in notes {
        println!("- {note}");
    }
    Ok(())
}

/// Known benches first, in their order; then the others by name.
fn place_of(path: &Path) -> (usize, PathBuf) {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let place = ORDER.iter().position(|bench| *bench == stem).unwrap_or(ORDER.len());
    (place, path.to_owned())
}

fn default_directory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    PathBuf::from(target).join("palisade-benches")
}
