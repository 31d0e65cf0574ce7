//! Real files on this machine's ring.

use std::cell::{Cell, RefCell};
use std::fs;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use palisade_engine::engine::{Engine, EngineConfig, IoChoice, OpenError};
use tempfile::TempDir;

use crate::world::{World, small_segments};

/// Time after which something is taken to hang.
pub const PATIENCE: Duration = Duration::from_secs(30);

const ARENA_BYTES: usize = 8 << 20;

/// A data directory of its own on a real file system.
#[derive(Debug)]
pub struct RealWorld {
    scratch: TempDir,
    directory: RefCell<PathBuf>,
    kills: Cell<u32>,
}

impl RealWorld {
    /// Makes one below `target`, which is `CARGO_TARGET_TMPDIR` of the test.
    #[must_use]
    pub fn new(target: &str) -> RealWorld {
        let scratch = tempfile::tempdir_in(target).expect("the target directory takes files");
        let directory = RefCell::new(scratch.path().join("data"));
        RealWorld { scratch, directory, kills: Cell::new(0) }
    }

    /// The data directory as it is now.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.directory.borrow().clone()
    }

    /// The settings every real scenario starts from.
    #[must_use]
    pub fn config(directory: &Path) -> EngineConfig {
        let mut config = EngineConfig::new(directory);
        config.shards = 1;
        config.io = IoChoice::Auto;
        config.arena_bytes = ARENA_BYTES;
        config.settings = small_segments();
        config
    }
}

impl World for RealWorld {
    fn open_as(&self, change: impl FnOnce(&mut EngineConfig)) -> Result<Engine, OpenError> {
        let mut config = RealWorld::config(&self.directory());
        change(&mut config);
        let engine = Engine::open(config)?;
        if !engine.report().is_ring {
            eprintln!("no io_uring here: this scenario ran on blocking calls");
        }
        Ok(engine)
    }

    fn run<F: Future>(&self, work: F) -> F::Output {
        run_real(work)
    }

    /// A process cannot kill a part of itself: what a killed process would leave is copied, and the copy is
    /// the data directory from then on.
    fn kill(&self, engine: Engine) {
        self.kills.set(self.kills.get() + 1);
        let copy = self.scratch.path().join(format!("data-{}", self.kills.get()));
        copy_directory(&self.directory(), &copy);
        drop(engine);
        self.directory.replace(copy);
    }

    fn files(&self) -> Vec<PathBuf> {
        files_below(&self.directory())
    }

    fn read_file(&self, path: &Path) -> Vec<u8> {
        fs::read(path).expect("the file is there")
    }

    fn overwrite(&self, path: &Path, position: u64, bytes: &[u8]) {
        let file = fs::File::options().write(true).open(path).expect("the file is there");
        file.write_all_at(bytes, position).expect("it takes bytes");
    }

    fn set_length(&self, path: &Path, length_bytes: u64) {
        let file = fs::File::options().write(true).open(path).expect("the file is there");
        file.set_len(length_bytes).expect("it can be cut");
    }
}

/// Runs a future on this thread, and fails if it takes far too long.
pub fn run_real<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("the system gives a runtime");
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, work).await.expect("it ends within the deadline")
    })
}

/// Every file below `directory`, in order of its path.
#[must_use]
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut visit = vec![directory.to_path_buf()];
    while let Some(directory) = visit.pop() {
        for entry in fs::read_dir(&directory).expect("the directory is there") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() { visit.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).expect("the scratch directory takes files");
    for entry in fs::read_dir(from).expect("the directory is there") {
        let entry = entry.expect("it can be listed");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_directory(&from, &to);
        } else {
            fs::copy(&from, &to).expect("the file can be copied");
        }
    }
}
