//! Directories for one bench, on the disk that is measured, gone when it ends.

use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

/// Where a bench keeps its files. Removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    /// Makes a fresh directory within `parent`: benches pass `env!("CARGO_TARGET_TMPDIR")`, which lies under
    /// the target directory, never on a tmpfs of the system. `PALISADE_BENCH_DIR` overrides it.
    ///
    /// # Panics
    ///
    /// If it cannot be made: there is nothing to measure then.
    #[must_use]
    pub fn new(parent: &str) -> Scratch {
        let parent = std::env::var_os("PALISADE_BENCH_DIR").unwrap_or_else(|| parent.into());
        let directory =
            tempfile::Builder::new().prefix("palisade-bench-").tempdir_in(&parent).unwrap_or_else(
                |error| panic!("no scratch directory in {}: {error}", parent.display()),
            );
        Scratch { directory }
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the path of `name` in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Lists the files below `directory` with their lengths, in the order of their paths.
///
/// # Panics
///
/// If a directory cannot be read.
#[must_use]
pub fn files_below(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in std::fs::read_dir(&next).expect("a directory of this bench") {
            let entry = entry.expect("an entry of a directory of this bench");
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                pending.push(entry.path());
            } else {
                files.push((entry.path(), metadata.len()));
            }
        }
    }
    files.sort();
    files
}

/// Copies a directory with all below it: what a crash at this moment would leave behind. The copy is on the device and
/// not in the page cache.
///
/// # Panics
///
/// If a file cannot be copied.
pub fn copy_directory(from: &Path, to: &Path) {
    for (path, _) in files_below(from) {
        let target = to.join(path.strip_prefix(from).expect("listed below it"));
        let parent = target.parent().expect("a file has a directory");
        std::fs::create_dir_all(parent).expect("a directory for the copy");
        std::fs::copy(&path, &target).expect("a copy of a file of this bench");
        let copy = std::fs::File::open(&target).expect("a file that was just made");
        copy.sync_all().expect("a file is synced");
        fadvise(&copy, 0, None, Advice::DontNeed).expect("the page cache takes advice");
    }
}
