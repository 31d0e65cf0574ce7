//! What each system acknowledged as durable comes back, to the byte, in another process after one that closed nothing.
//!
//! It guards the adapters: a batch written to the wrong place, or one that a system drops in silence, would make it fast.

use std::path::Path;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_palisade-compare");

fn part(part: &str, system: &str, directory: &Path, work: &str) -> String {
    let output = Command::new(PROGRAM)
        .args([part, system])
        .arg(directory)
        .arg(work)
        .env("WALRUS_DATA_DIR", directory)
        .env("WALRUS_QUIET", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().lines().last().unwrap().to_owned()
}

fn everything_comes_back(system: &str, work: &str, records: u64) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();

    let written = part("write", system, directory.path(), work);
    let read = part("read", system, directory.path(), work);

    assert!(written.contains(&format!("\"records\":{records},")), "{written}");
    assert_eq!(read, written);
}

/// Batches of one record and of many, one partition and a hundred.
fn works_for(system: &str) {
    everything_comes_back(system, "1k-x1-c4", 3 * 4);
    everything_comes_back(system, "100b-x1000-c4", 3 * 4 * 1_000);
    everything_comes_back(system, "100b-p100", 3 * 64);
}

#[test]
fn palisade_gives_back_what_it_acknowledged() {
    works_for("palisade");
}

#[test]
fn raft_engine_gives_back_what_it_acknowledged() {
    works_for("raft-engine");
}

#[test]
fn okaywal_gives_back_what_it_acknowledged() {
    works_for("okaywal");
}

#[test]
fn walrus_gives_back_what_it_acknowledged() {
    works_for("walrus");
}

#[test]
fn rocksdb_gives_back_what_it_acknowledged() {
    works_for("rocksdb");
}

#[test]
fn every_system_gives_a_sample_at_every_kind_of_work() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let json = directory.path().join("compare.json");

    let output = Command::new(PROGRAM)
        .args(["--work", "1k-x1-c4,64k-unsynced,read-back", "--rounds", "1"])
        .args(["--seconds", "0.1", "--warm-up", "0.05", "--mib-max", "32"])
        .arg("--directory")
        .arg(directory.path())
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();

    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(!table.contains("failed"), "{table}");
    assert_eq!(table.matches("| palisade |").count(), 3);
    assert!(std::fs::read_to_string(&json).unwrap().contains("measured"));
}
