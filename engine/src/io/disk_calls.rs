//! The blocking system calls behind both real disks, and the way to make them off the shard's thread.
//!
//! Each call does one thing once: no retry, no fallback that would weaken what it promises.

use std::ffi::OsStr;
use std::io;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use tokio::sync::Semaphore;

use super::arena::{Extent, SharedExtent};
use super::disk::{DirectoryEntry, DiskError, DiskOperation, DiskSpace, OpenMode, WriteMode};
use super::in_flight::InFlight;
use crate::id::{BLOCK_BYTES, Position};

/// Runs blocking calls on the pool of the tokio runtime this thread is in.
#[derive(Clone, Debug)]
pub(super) struct DiskCalls {
    in_flight: InFlight,
    /// One permit for each call that may run now.
    turns: Arc<Semaphore>,
}

impl DiskCalls {
    /// At most `calls_max` run at the same time; the others wait.
    pub(super) fn new(in_flight: InFlight, calls_max: usize) -> DiskCalls {
        DiskCalls { in_flight, turns: Arc::new(Semaphore::new(calls_max)) }
    }

    /// Runs `call` elsewhere. Once it has its turn, dropping the future does not stop it; what it owns drops
    /// when it ends.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        operation: DiskOperation,
        path: &Path,
        position: Option<Position>,
        call: impl FnOnce(&Path) -> io::Result<R> + Send + 'static,
    ) -> Result<R, DiskError> {
        let turn = Arc::clone(&self.turns).acquire_owned().await.expect("it is never closed");
        let ticket = self.in_flight.ticket();
        let owned_path = path.to_path_buf();
        let task = tokio::task::spawn_blocking(move || {
            let answer = call(&owned_path);
            drop(turn);
            drop(ticket);
            answer
        });
        let answer = match task.await {
            Ok(answer) => answer,
            Err(stopped) if stopped.is_panic() => std::panic::resume_unwind(stopped.into_panic()),
            Err(stopped) => Err(io::Error::other(stopped)),
        };
        answer.map_err(|source| DiskError::new(operation, path, position, source))
    }

    pub(super) async fn create_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.run(DiskOperation::CreateDirectory, path, None, create_directory).await
    }

    pub(super) async fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>, DiskError> {
        self.run(DiskOperation::List, path, None, list).await
    }

    pub(super) async fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let to = to.to_path_buf();
        self.run(DiskOperation::Rename, from, None, move |from| std::fs::rename(from, to)).await
    }

    pub(super) async fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.run(DiskOperation::Remove, path, None, |path| std::fs::remove_file(path)).await
    }

    pub(super) async fn remove_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.run(DiskOperation::Remove, path, None, |path| std::fs::remove_dir(path)).await
    }

    pub(super) async fn sync_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.run(DiskOperation::SyncDirectory, path, None, sync_directory).await
    }

    pub(super) async fn space(&self, path: &Path) -> Result<DiskSpace, DiskError> {
        self.run(DiskOperation::Space, path, None, space).await
    }
}

/// An open file as the system knows it. Closed when the last operation on it is done.
#[derive(Debug)]
pub(super) struct OpenedFile {
    pub(super) path: PathBuf,
    descriptor: Descriptor,
    /// Whether it goes around the page cache.
    pub(super) is_direct: bool,
}

impl OpenedFile {
    pub(super) fn descriptor(&self) -> &OwnedFd {
        self.descriptor.open.as_ref().expect("open until it drops")
    }
}

/// Closes elsewhere: closing a removed file gives its blocks back, which takes milliseconds.
#[derive(Debug)]
struct Descriptor {
    /// `None` only in `drop`.
    open: Option<OwnedFd>,
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let open = self.open.take();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || drop(open));
        }
    }
}

/// Opens a file; with `direct`, around the page cache where the file system can.
pub(super) fn open(path: &Path, mode: OpenMode, direct: bool) -> io::Result<OpenedFile> {
    let access = match mode {
        OpenMode::Read => OFlags::RDONLY,
        OpenMode::Write => OFlags::RDWR,
        OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
    };
    let permissions = Mode::RUSR | Mode::WUSR | Mode::RGRP;
    let descriptor = rustix::fs::open(path, access | OFlags::CLOEXEC, permissions)?;
    // A directory opens for reading without complaint.
    if FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode) == FileType::Directory {
        return Err(Errno::ISDIR.into());
    }
    // Not at open: where O_DIRECT is refused, open(2) may have created the file before it says so.
    let is_direct = direct && set_direct(&descriptor)?;
    let descriptor = Descriptor { open: Some(descriptor) };
    Ok(OpenedFile { path: path.to_path_buf(), descriptor, is_direct })
}

/// Makes a file go around the page cache; `false` where its file system refuses.
pub(super) fn set_direct(descriptor: &OwnedFd) -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    match rustix::fs::fcntl_setfl(descriptor, flags | OFlags::DIRECT) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        Err(refused) => Err(refused.into()),
    }
}

/// Writes all of `bytes`. With [`WriteMode::Durable`] every piece is on the medium when it returns.
pub(super) fn write(
    file: &OpenedFile,
    bytes: &SharedExtent,
    position: Position,
    mode: WriteMode,
) -> io::Result<()> {
    let flags = match mode {
        WriteMode::Written => ReadWriteFlags::empty(),
        WriteMode::Durable => ReadWriteFlags::DSYNC,
    };
    let mut rest = bytes.as_slice();
    let mut at = position;
    while !rest.is_empty() {
        let written =
            match rustix::io::pwritev2(file.descriptor(), &[IoSlice::new(rest)], at.0, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(Errno::INTR) => continue,
                Err(refused) if is_unsupported(refused) && mode == WriteMode::Durable => {
                    write(file, bytes, position, WriteMode::Written)?;
                    return sync(file);
                }
                Err(failed) => return Err(failed.into()),
            };
        rest = &rest[written..];
        at = at.plus(written as u64);
    }
    Ok(())
}

/// Whether the kernel or file system knows no `RWF_DSYNC`. Source: pwritev2(2).
fn is_unsupported(refused: Errno) -> bool {
    matches!(refused, Errno::OPNOTSUPP | Errno::NOSYS)
}

/// Fills the extent from `position`; its length is cut at the end of the file.
pub(super) fn read(
    file: &OpenedFile,
    mut buffer: Extent,
    position: Position,
) -> io::Result<Extent> {
    let asked = buffer.len();
    let mut filled = 0;
    while filled < asked {
        let at = position.plus(filled as u64);
        let rest = &mut buffer.as_mut_slice()[filled..];
        match rustix::io::pread(file.descriptor(), rest, at.0) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(failed) => return Err(failed.into()),
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

/// Makes what was written durable, and the length with it. Source: fdatasync(2).
pub(super) fn sync(file: &OpenedFile) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(file.descriptor())?)
}

pub(super) fn length(file: &OpenedFile) -> io::Result<u64> {
    let size = rustix::fs::fstat(file.descriptor())?.st_size;
    u64::try_from(size).map_err(io::Error::other)
}

pub(super) fn set_length(file: &OpenedFile, length_bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::ftruncate(file.descriptor(), length_bytes)?)
}

fn create_directory(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        answer => answer,
    }
}

fn list(path: &Path) -> io::Result<Vec<DirectoryEntry>> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let name = lossy(&entry.file_name());
        entries.push(DirectoryEntry { name, is_directory: entry.file_type()?.is_dir() });
    }
    Ok(entries)
}

fn lossy(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(rustix::fs::fsync(&directory)?)
}

fn space(path: &Path) -> io::Result<DiskSpace> {
    let system = rustix::fs::statvfs(path)?;
    Ok(DiskSpace {
        available_bytes: system.f_bavail.saturating_mul(system.f_frsize),
        total_bytes: system.f_blocks.saturating_mul(system.f_frsize),
    })
}

/// Checks what [`DiskFile::write`](super::disk::DiskFile::write) asks of its caller.
pub(super) fn assert_writable(bytes: &SharedExtent, position: Position) {
    assert!(position.is_block_aligned(), "a write starts on a block, not at {position}");
    assert!(bytes.len().is_multiple_of(BLOCK_BYTES), "a write has whole blocks");
    assert!(
        bytes.as_slice().as_ptr().addr().is_multiple_of(BLOCK_BYTES),
        "the bytes of a write start on a block of memory"
    );
}
