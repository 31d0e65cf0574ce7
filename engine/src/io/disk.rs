//! The disk seam: files, directories, and the three ways their bytes become durable.
//!
//! Holds no policy: it does not retry, does not choose, and never reports more durability than it reached.

use std::future::Future;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::arena::{Arena, Extent, SharedExtent};
use crate::id::Position;

/// How far a write has to come before it resolves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Handed to the kernel; lost in a power cut until a [`DiskFile::sync`] that began later succeeds.
    Written,
    /// On the medium, with what is needed to find it again (`RWF_DSYNC`).
    Durable,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// A new file, to read and write; an existing one is an error.
    CreateNew,
}

/// What a directory holds under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, without its directory. Names that are not UTF-8 are reported lossily and never ours.
    pub name: String,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// Room on the file system that holds a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// What an unprivileged process may still use.
    pub available_bytes: u64,
    /// The whole.
    pub total_bytes: u64,
}

/// Opens files and arranges directories. One per shard; not `Send`.
///
/// Nothing made, renamed or removed is durable before [`sync_directory`](Disk::sync_directory) of the
/// directory that holds the name has succeeded.
pub trait Disk: Clone + std::fmt::Debug + 'static {
    /// An open file.
    type File: DiskFile;

    /// The arena whose buffers this disk reads into and writes from.
    fn arena(&self) -> &Arena;

    /// Opens a file. The path is absolute, or relative to the process's directory.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: missing, existing ([`OpenMode::CreateNew`]), not permitted, too many open files.
    fn open(
        &self,
        path: &Path,
        mode: OpenMode,
    ) -> impl Future<Output = Result<Self::File, DiskError>>;

    /// Makes a directory; one that exists already is no error, a file of that name is.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: nothing was made.
    fn create_directory(&self, path: &Path) -> impl Future<Output = Result<(), DiskError>>;

    /// Lists a directory, in no order.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: missing, or no directory.
    fn list(&self, path: &Path) -> impl Future<Output = Result<Vec<DirectoryEntry>, DiskError>>;

    /// Gives a file a new name, replacing what had it.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: the old name still stands.
    fn rename(&self, from: &Path, to: &Path) -> impl Future<Output = Result<(), DiskError>>;

    /// Removes the name of a file.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: the name still stands.
    fn remove(&self, path: &Path) -> impl Future<Output = Result<(), DiskError>>;

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: the directory still stands.
    fn remove_directory(&self, path: &Path) -> impl Future<Output = Result<(), DiskError>>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: which of the changes since the last success are durable is unknown.
    fn sync_directory(&self, path: &Path) -> impl Future<Output = Result<(), DiskError>>;

    /// Asks how much room is left where `path` lies.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: unknown.
    fn space(&self, path: &Path) -> impl Future<Output = Result<DiskSpace, DiskError>>;
}

/// An open file. `Clone` shares it; the last one dropped closes it.
///
/// A future dropped before it resolves leaves its operation running: the buffer belongs to the operation
/// until its completion arrives.
pub trait DiskFile: Clone + std::fmt::Debug + 'static {
    /// The path it was opened by.
    fn path(&self) -> &Path;

    /// Writes all of `bytes` at `position`. Position, length and the start of `bytes` in its extent are whole
    /// blocks; anything else is the caller's mistake and panics. Writes in flight are not ordered among each
    /// other.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: any part of the range may hold old or new bytes. Do not retry: the page cache cannot
    /// be trusted after a failed write.
    fn write(
        &self,
        bytes: SharedExtent,
        position: Position,
        mode: WriteMode,
    ) -> impl Future<Output = Result<(), DiskError>>;

    /// Reads into `buffer` from `position`, a whole block, and returns it with its length cut to what was
    /// there: shorter than asked only at the end of the file.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: the buffer is given up.
    fn read(
        &self,
        buffer: Extent,
        position: Position,
    ) -> impl Future<Output = Result<Extent, DiskError>>;

    /// Makes every write that resolved before this call durable, and the file's length.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: none of those writes can be trusted to be on the medium, now or after a later success.
    fn sync(&self) -> impl Future<Output = Result<(), DiskError>>;

    /// Returns the file's length.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: unknown.
    fn length(&self) -> impl Future<Output = Result<u64, DiskError>>;

    /// Cuts or extends (with zeros) the file to `length_bytes`.
    ///
    /// # Errors
    ///
    /// [`DiskError`]: the length is as before.
    fn set_length(&self, length_bytes: u64) -> impl Future<Output = Result<(), DiskError>>;
}

/// What was asked of the disk when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskOperation {
    /// Open or create a file.
    Open,
    /// Read bytes.
    Read,
    /// Write bytes.
    Write,
    /// Make bytes durable.
    Sync,
    /// Ask for or change a length.
    Length,
    /// Make a directory.
    CreateDirectory,
    /// List a directory.
    List,
    /// Rename a file.
    Rename,
    /// Remove a name.
    Remove,
    /// Make names durable.
    SyncDirectory,
    /// Ask for room.
    Space,
}

/// A failed disk operation: what, where, and what the system said.
#[derive(Debug, thiserror::Error)]
#[error("{operation:?} {}{}: {source}", path.display(), At(*position))]
pub struct DiskError {
    /// What was asked.
    pub operation: DiskOperation,
    /// Of which file or directory.
    pub path: PathBuf,
    /// Where in it, for reads and writes.
    pub position: Option<Position>,
    /// What the system said.
    pub source: std::io::Error,
}

impl DiskError {
    /// Says that `operation` failed.
    #[must_use]
    pub fn new(
        operation: DiskOperation,
        path: &Path,
        position: Option<Position>,
        source: std::io::Error,
    ) -> DiskError {
        DiskError { operation, path: path.to_path_buf(), position, source }
    }

    /// Tells whether the process or the system has no file descriptors left (`EMFILE`, `ENFILE`): it may have later.
    #[must_use]
    pub fn is_out_of_files(&self) -> bool {
        let code = self.source.raw_os_error();
        [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error())).contains(&code)
    }

    /// Tells whether the file system had no room (`ENOSPC`, `EDQUOT`).
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(
            self.source.kind(),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
        )
    }

    /// Tells whether the name did not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.source.kind() == std::io::ErrorKind::NotFound
    }
}

struct At(Option<Position>);

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(position) => write!(f, " at {position}"),
            None => Ok(()),
        }
    }
}
