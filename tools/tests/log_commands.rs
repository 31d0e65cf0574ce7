//! The offline log commands as scripts use them: bytes in and out, exit codes, and what they refuse.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails by panicking")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn palisade(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A command that refuses at once does not read its input; the broken pipe is its right.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    output
}

fn append(directory: &Path, input: &[u8]) -> Output {
    palisade(&["log", "append", directory.to_str().unwrap(), "s/0"], input)
}

fn read(directory: &Path, more: &[&str]) -> Output {
    let directory = directory.to_str().unwrap();
    palisade(&[&["log", "read", directory, "s/0"], more].concat(), b"")
}

#[test]
fn lines_come_back_as_the_bytes_they_were() {
    let scratch = scratch();
    let directory = scratch.path().join("d");
    let input = b"one\n\n\xff\xfe not text\n\ttwo \r\n".as_slice();

    let first = append(&directory, input);
    let second = append(&directory, b"three\n");

    assert_eq!(first.status.code(), Some(0), "{first:?}");
    assert_eq!(second.status.code(), Some(0), "{second:?}");
    let output = read(&directory, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout, [input, b"three\n"].concat());
    assert_eq!(read(&directory, &["--from", "4"]).stdout, b"three\n");
    assert_eq!(read(&directory, &["--from", "1", "--limit", "1"]).stdout, b"\n");
    assert_eq!(read(&directory, &["--from", "5"]).stdout, b"");
}

#[test]
fn reading_outside_the_log_says_where_it_ends() {
    let scratch = scratch();
    let directory = scratch.path().join("d");
    append(&directory, b"one\n");

    let beyond = read(&directory, &["--from", "2"]);
    let unknown = palisade(&["log", "read", directory.to_str().unwrap(), "other/0"], b"");

    assert_eq!(beyond.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&beyond.stderr).contains("ends at offset 1"), "{beyond:?}");
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("other/0"), "{unknown:?}");
}

#[test]
fn flipped_byte_is_named_with_its_file_and_the_rest_stays_readable() {
    let scratch = scratch();
    let directory = scratch.path().join("d");
    let lines: String = (0..20_000).map(|number| format!("record {number}\n")).collect();
    append(&directory, lines.as_bytes());
    let segment = largest_segment(&directory);
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[9000] ^= 0x40;
    std::fs::write(&segment, bytes).unwrap();

    let verified = palisade(&["log", "verify", directory.to_str().unwrap()], b"");

    assert_eq!(verified.status.code(), Some(1), "{verified:?}");
    let report = String::from_utf8_lossy(&verified.stdout).into_owned();
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert!(report.contains(name) && report.contains("DAMAGE"), "{report}");
    let whole = read(&directory, &[]);
    assert_eq!(whole.status.code(), Some(1), "{:?}", whole.stderr);
    assert!(String::from_utf8_lossy(&whole.stderr).contains(name));
    let tail = read(&directory, &["--from", "19999"]);
    assert_eq!(tail.stdout, b"record 19999\n", "{:?}", String::from_utf8_lossy(&tail.stderr));
}

#[test]
fn what_is_no_data_directory_is_refused() {
    let scratch = scratch();
    let file = scratch.path().join("file");
    std::fs::write(&file, b"x").unwrap();

    let of_file = append(&file, b"one\n");
    let of_nothing = palisade(&["log", "verify", scratch.path().to_str().unwrap()], b"");
    let bad_name =
        palisade(&["log", "append", scratch.path().join("d").to_str().unwrap(), "../s"], b"");

    assert_eq!(of_file.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&of_file.stderr).contains("not a directory"), "{of_file:?}");
    assert_eq!(of_nothing.status.code(), Some(1));
    let text = String::from_utf8_lossy(&of_nothing.stderr).into_owned();
    assert!(text.contains("not a data directory"), "{text}");
    assert_eq!(bad_name.status.code(), Some(1));
    assert!(!scratch.path().join("d").exists());
}

#[test]
fn directory_in_use_is_refused_with_its_own_exit_code() {
    let scratch = scratch();
    let directory = scratch.path().join("d");
    append(&directory, b"one\n");
    let engine = palisade_engine::Engine::builder(&directory)
        .shards(1)
        .io(palisade_engine::engine::IoChoice::Auto)
        .open()
        .unwrap();

    let refused = append(&directory, b"two\n");

    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in use"), "{refused:?}");
    drop(engine);
}

#[test]
fn partition_that_lost_its_checkpoint_is_not_hidden_by_a_new_one() {
    let scratch = scratch();
    let directory = scratch.path().join("d");
    append(&directory, b"one\n");
    let partition = largest_segment(&directory).parent().unwrap().to_owned();
    std::fs::rename(partition.join("checkpoint"), scratch.path().join("kept")).unwrap();

    let refused = append(&directory, b"two\n");

    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains(partition.file_name().unwrap().to_str().unwrap()), "{text}");
    std::fs::rename(scratch.path().join("kept"), partition.join("checkpoint")).unwrap();
    assert_eq!(read(&directory, &[]).stdout, b"one\n");
}

#[test]
fn wrong_usage_ends_with_two() {
    let output = palisade(&["log", "append"], b"");

    assert_eq!(output.status.code(), Some(2));
}

fn largest_segment(directory: &Path) -> std::path::PathBuf {
    let mut waiting = vec![directory.to_owned()];
    let mut segments = Vec::new();
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "segment") {
                segments.push(path);
            }
        }
    }
    // Of two segments, the next one is still empty: the one with records was written last.
    segments
        .into_iter()
        .max_by_key(|path| std::fs::read(path).unwrap().iter().filter(|byte| **byte != 0).count())
        .unwrap()
}
