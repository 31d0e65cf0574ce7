//! The records that quickstart appends: lines of a file, of standard input, or of the text files here.

use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// How many records the default input is repeated to.
pub(crate) const RECORDS_DEFAULT: usize = 1_000_000;

/// The most bytes taken from the directory quickstart is run in: enough for any source tree.
const DIRECTORY_BYTES_MAX: usize = 64 << 20;

/// How deep below the directory text files are looked for.
const DIRECTORY_DEPTH_MAX: usize = 8;

/// Lines of text, and how often they are gone through.
#[derive(Debug)]
pub(crate) struct Input {
    text: Vec<u8>,
    lines: Vec<Range<usize>>,
    records: usize,
    /// Where the lines came from, for people.
    pub(crate) source: String,
}

impl Input {
    /// Reads a file, or standard input for `-`; each line is one record, once.
    pub(crate) fn from_path(path: &Path) -> anyhow::Result<Input> {
        let (text, source) = if path == Path::new("-") {
            let mut text = Vec::new();
            std::io::stdin().lock().read_to_end(&mut text).context("reading standard input")?;
            (text, "standard input".to_owned())
        } else {
            let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            (text, path.display().to_string())
        };
        let lines = lines_of(&text);
        if lines.is_empty() {
            bail!("{source} holds no line to append");
        }
        Ok(Input { records: lines.len(), text, lines, source })
    }

    /// Reads the text files of a directory, repeated to [`RECORDS_DEFAULT`] records.
    pub(crate) fn from_directory(directory: &Path) -> anyhow::Result<Input> {
        let mut text = Vec::new();
        let files = collect_text(directory, &mut text)?;
        let lines = lines_of(&text);
        if lines.is_empty() {
            bail!("{} holds no text file; name one with --input", directory.display());
        }
        let source = format!(
            "{} lines of {files} text files in {}, repeated",
            lines.len(),
            directory.display()
        );
        Ok(Input { records: RECORDS_DEFAULT.max(lines.len()), text, lines, source })
    }

    /// How many records there are, repeats counted.
    pub(crate) fn records(&self) -> usize {
        self.records
    }

    /// The bytes of record `number`; numbers go round after the last line.
    pub(crate) fn record(&self, number: usize) -> &[u8] {
        &self.text[self.lines[number % self.lines.len()].clone()]
    }
}

/// Splits at line ends; a last line needs none, and a file's closing line end makes no empty line.
fn lines_of(text: &[u8]) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let mut start = 0;
    for (at, _) in text.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        lines.push(start..at);
        start = at + 1;
    }
    if start < text.len() {
        lines.push(start..text.len());
    }
    lines
}

/// Appends every text file below `directory` to `text`; hidden names and build output are left out.
fn collect_text(directory: &Path, text: &mut Vec<u8>) -> anyhow::Result<usize> {
    let mut files = 0;
    let mut waiting = vec![(directory.to_owned(), 0)];
    while let Some((directory, depth)) = waiting.pop() {
        for path in sorted_entries(&directory)? {
            let kind = fs::symlink_metadata(&path)
                .with_context(|| format!("looking at {}", path.display()))?;
            if kind.is_dir() && depth < DIRECTORY_DEPTH_MAX {
                waiting.push((path, depth + 1));
            } else if kind.is_file() && text.len() + file_bytes(&kind) <= DIRECTORY_BYTES_MAX {
                let bytes =
                    fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
                if std::str::from_utf8(&bytes).is_ok_and(|text| !text.contains('\0')) {
                    files += usize::from(!bytes.is_empty());
                    text.extend_from_slice(&bytes);
                    if text.last().is_some_and(|byte| *byte != b'\n') {
                        text.push(b'\n');
                    }
                }
            }
        }
    }
    Ok(files)
}

fn file_bytes(kind: &fs::Metadata) -> usize {
    usize::try_from(kind.len()).unwrap_or(usize::MAX / 2)
}

fn sorted_entries(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    let entries =
        fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("listing {}", directory.display()))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with('.') && name != "target" && name != "node_modules" {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lines_are_records_and_the_closing_line_end_is_not() {
        let text = b"a\n\nb\n";

        let lines = lines_of(text);

        assert_eq!(lines, [0..1, 2..2, 3..4]);
        assert_eq!(lines_of(b"a\nb"), [0..1, 2..3]);
        assert!(lines_of(b"").is_empty());
    }

    #[test]
    fn directory_input_skips_binary_and_hidden_files_and_goes_round() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("one.txt"), "first\nsecond").unwrap();
        fs::write(directory.path().join("two.bin"), [0, 159, 146, 150]).unwrap();
        fs::write(directory.path().join(".hidden"), "hidden\n").unwrap();

        let input = Input::from_directory(directory.path()).unwrap();

        assert_eq!(input.records(), RECORDS_DEFAULT);
        assert_eq!(input.record(0), b"first");
        assert_eq!(input.record(1), b"second");
        assert_eq!(input.record(2), b"first");
    }

    #[test]
    fn directory_without_text_is_refused_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();

        let error = Input::from_directory(directory.path()).unwrap_err();

        assert!(error.to_string().contains("--input"), "{error}");
    }
}
