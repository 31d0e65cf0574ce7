//! Prints the figures of the last `cargo bench -p palisade-benches` as the Markdown of `docs/BENCHMARKS.md`.
//!
//! Reads `target/palisade-benches/*.jsonl`, or the directory given as the one argument. Measures nothing.

use std::path::PathBuf;

use anyhow::Context;
use palisade_benches::figure::{Line, load, write_table};

fn main() -> anyhow::Result<()> {
    let directory = std::env::args_os().nth(1).map_or_else(default_directory, PathBuf::from);
    let entries = std::fs::read_dir(&directory).with_context(|| {
        format!("{}: run `cargo bench -p palisade-benches` first", directory.display())
    })?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<PathBuf>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();

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

fn default_directory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    PathBuf::from(target).join("palisade-benches")
}
