//! What every implementation of a seam must do, as functions that panic where it does not.
//!
//! Real and simulated sides run the same ones: a simulator that is kinder than the machine proves nothing.

mod disk;
mod runtime;
mod transport;

pub use disk::check_disk;
pub use runtime::check_runtime;
pub use transport::check_transport;

/// An empty directory on the file system that holds the build, so that it is a real disk, not `tmpfs`.
#[cfg(test)]
pub(crate) fn scratch_directory() -> tempfile::TempDir {
    let target = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tmp");
    std::fs::create_dir_all(&target).expect("the target directory is writable");
    tempfile::tempdir_in(target).expect("the target directory is writable")
}
