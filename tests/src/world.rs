//! What a scenario needs of a machine with one data directory, simulated or real.

use std::future::Future;
use std::path::{Path, PathBuf};

use palisade_engine::engine::{Engine, EngineConfig, OpenError, Partition};
use palisade_engine::id::PartitionName;
use palisade_engine::partition::PartitionSettings;

/// A machine with one data directory.
pub trait World {
    /// Opens the engine after `change` has had its say about the settings.
    ///
    /// # Errors
    ///
    /// As [`Engine::open`].
    fn open_as(&self, change: impl FnOnce(&mut EngineConfig)) -> Result<Engine, OpenError>;

    /// Runs a future to its end, and fails if it takes far too long.
    fn run<F: Future>(&self, work: F) -> F::Output;

    /// Ends the process of `engine` without any goodbye. All that was answered has been written.
    fn kill(&self, engine: Engine);

    /// Every file of the data directory, in order of its path.
    fn files(&self) -> Vec<PathBuf>;

    /// The bytes of a file.
    fn read_file(&self, path: &Path) -> Vec<u8>;

    /// Overwrites bytes of a file behind the engine's back.
    fn overwrite(&self, path: &Path, position: u64, bytes: &[u8]);

    /// Cuts or extends a file behind the engine's back.
    fn set_length(&self, path: &Path, length_bytes: u64);

    /// Opens the engine, which must work.
    fn open(&self) -> Engine {
        self.open_as(|_| {}).expect("the engine opens")
    }

    /// Opens the partition `s/0`, which every scenario uses.
    fn partition(&self, engine: &Engine) -> Partition {
        self.run(engine.open_partition(&name("s/0"))).expect("the partition opens")
    }

    /// Flips bits of one byte of a file behind the engine's back.
    fn flip(&self, path: &Path, position: u64, mask: u8) {
        let at = usize::try_from(position).expect("test files are small");
        let byte = self.read_file(path)[at];
        self.overwrite(path, position, &[byte ^ mask]);
    }

    /// Closes the engine in order.
    fn close(&self, engine: Engine) {
        let report = self.run(engine.close()).expect("the engine closes");
        assert_eq!(report.unclean, Vec::new(), "partitions that could not be marked clean");
    }
}

/// A partition's name.
#[must_use]
pub fn name(text: &str) -> PartitionName {
    text.parse().expect("tests use valid names")
}

/// Segments small enough that a few appends fill one.
#[must_use]
pub fn small_segments() -> PartitionSettings {
    PartitionSettings {
        first_segment_bytes: 64 << 10,
        segment_bytes: 256 << 10,
        ..PartitionSettings::default()
    }
}
