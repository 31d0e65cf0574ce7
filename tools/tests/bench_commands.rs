//! `palisade bench` as scripts use it: keys, exit codes, and what is left behind. Nothing timed is asserted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn bench(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_palisade"))
        .arg("bench")
        .args(arguments)
        .args(["--runtime", "300ms", "--ramp", "20ms", "--quiet", "--json", "--data-dir"])
        .arg(directory)
        .output()
        .unwrap()
}

/// Runs a bench that must work, and returns its one line of JSON.
fn figures(directory: &Path, arguments: &[&str]) -> Value {
    let output = bench(directory, arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["outcome"], "done");
    value
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no number {key} in {value}"))
}

fn assert_rates(value: &Value) {
    for key in ["records_per_s", "mb_per_s"] {
        assert!(number(value, key) > 0.0, "{key} in {value}");
    }
    let at = |quantile| number(&value["ack_us"], quantile);
    assert!(at("p50") > 0.0 && at("p50") <= at("p99"), "{value}");
    assert!(at("p99") <= at("p999") && at("p999") <= at("max"), "{value}");
}

fn assert_empty(directory: &Path) {
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0, "something was left behind");
}

#[test]
fn append_has_the_keys_that_scripts_rely_on() {
    let scratch = scratch();

    let value =
        figures(scratch.path(), &["append", "--size", "2k", "--batch", "4", "--io", "auto"]);

    assert_rates(&value);
    assert!(number(&value, "cpu_s_per_gb") > 0.0);
    assert_eq!(value["size"], 2_048);
    let bytes = number(&value, "records_per_s") * 2_048.0 / 1e6;
    assert!((bytes - number(&value, "mb_per_s")).abs() < 1e-6 * bytes);
    assert!(value.get("raw").is_none() && value.get("ratio_to_one").is_none());
    assert!(value["kernel"].as_str().unwrap().starts_with("Linux"));
    assert!(value["device"].is_string() && value["file_system"].is_string());
    assert_empty(scratch.path());
}

#[test]
fn every_durability_and_several_partitions_shards_and_threads_work() {
    let scratch = scratch();

    for durability in ["accepted", "local", "committed"] {
        let more =
            ["--durability", durability, "--partitions", "6", "--shards", "2", "--threads", "2"];
        let value =
            figures(scratch.path(), &[&["append", "--size", "100"], more.as_slice()].concat());
        assert_rates(&value);
    }
}

#[test]
fn open_loop_does_not_exceed_its_rate() {
    let scratch = scratch();

    let value = figures(scratch.path(), &["append", "--rate", "1k", "--depth", "64"]);

    // 300 ms at 1,000 records a second, and what the ramp left over.
    assert!(number(&value, "records") <= 400.0, "{value}");
    assert_rates(&value);
}

#[test]
fn raw_side_does_the_same_bytes_and_gives_a_ratio() {
    let scratch = scratch();
    let arguments = ["append", "--raw", "--rounds", "2", "--batch", "16", "--io", "uring"];

    let output = bench(scratch.path(), &arguments);

    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(1) && (said.contains("io_uring") || said.contains("ring")) {
        eprintln!("no io_uring here: {said}");
        return;
    }
    let value = figures(scratch.path(), &arguments);
    assert_rates(&value["raw"]);
    let ratio = number(&value, "records_per_s") / number(&value["raw"], "records_per_s");
    assert!((ratio - number(&value, "raw_ratio")).abs() < 1e-9, "{value}");
    assert_eq!(value["raw"]["operation_bytes"], 20_480);
}

#[test]
fn partitions_are_compared_with_one() {
    let scratch = scratch();

    let value = figures(
        scratch.path(),
        &["partitions", "--partitions", "20", "--size", "100", "--rounds", "2"],
    );

    assert_rates(&value);
    let ratio = number(&value, "records_per_s") / number(&value, "one_partition_records_per_s");
    assert!((ratio - number(&value, "ratio_to_one")).abs() < 1e-9, "{value}");
}

#[test]
fn reads_come_from_the_disk_and_the_tail_from_memory() {
    let scratch = scratch();

    let cold =
        figures(scratch.path(), &["read", "--data", "8m", "--read-size", "256k", "--depth", "4"]);
    let tail = figures(scratch.path(), &["tail", "--read-size", "256k", "--depth", "2"]);

    assert_rates(&cold);
    assert!(number(&cold, "cold_reads") > 0.0, "{cold}");
    assert_rates(&tail);
    assert_eq!(number(&tail, "cold_reads"), 0.0, "{tail}");
    assert_empty(scratch.path());
}

#[test]
fn page_of_plots_is_well_formed_and_needs_nothing_else() {
    let scratch = scratch();
    let page = scratch.path().join("page.html");
    let data = scratch.path().join("data");

    figures(&data, &["append", "--html", page.to_str().unwrap()]);

    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert_eq!(page.matches("<svg").count(), 3);
    for external in ["src=", "href=", "@import", "url("] {
        assert!(!page.contains(external), "{external}");
    }
    assert_balanced(&page);
}

/// Every element that is opened is closed, in order: the page is written so that this holds.
fn assert_balanced(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap();
        let name = tag.trim_start_matches('/').split_whitespace().next().unwrap();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed));
        } else if !tag.starts_with('!') && !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    let scratch = scratch();

    for arguments in [
        ["append", "--size", "1x"].as_slice(),
        &["append", "--depth", "0"],
        &["append", "--size", "0"],
        &["append", "--size", "1m", "--batch", "8"],
        &["append", "--batch", "0"],
        &["append", "--size", "99999g"],
        &["append", "--partitions", "0"],
        &["append", "--rate", "0"],
        &["append", "--rate", "1k", "--raw"],
        &["append", "--durability", "maybe"],
        &["append", "--threads", "4", "--depth", "2"],
        &["read", "--data", "1"],
        &["tail", "--raw"],
        &["bogus"],
    ] {
        let output = bench(scratch.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
    assert_empty(scratch.path());
}

#[test]
fn bench_larger_than_the_disk_is_refused() {
    let scratch = scratch();

    let output = bench(scratch.path(), &["append", "--keep", "900000g"]);

    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("--keep"), "{output:?}");
    assert_empty(scratch.path());
}
