//! [`Disk`] by `pread` and `pwritev2` on helper threads, through the page cache.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::id::Position;
use crate::io::arena::{Arena, Extent, SharedExtent};
use crate::io::disk::{
    DirectoryEntry, Disk, DiskError, DiskFile, DiskOperation, DiskSpace, OpenMode, WriteMode,
};
use crate::io::disk_calls::{self, DiskCalls, OpenedFile};
use crate::io::in_flight::InFlight;

/// The disk of a thread that has no ring. It works inside any tokio runtime.
#[derive(Clone, Debug)]
pub struct BlockingDisk {
    arena: Arena,
    calls: DiskCalls,
}

impl BlockingDisk {
    /// A disk that reads into and writes from `arena`.
    #[must_use]
    pub fn new(arena: Arena) -> BlockingDisk {
        BlockingDisk::counted(arena, InFlight::default())
    }

    /// A disk whose operations are counted in `in_flight`.
    pub(super) fn counted(arena: Arena, in_flight: InFlight) -> BlockingDisk {
        // The pool's threads are the limit here, so that a write is begun at its first poll.
        let calls = DiskCalls::new(in_flight, Semaphore::MAX_PERMITS);
        BlockingDisk { arena, calls }
    }
}

impl Disk for BlockingDisk {
    type File = BlockingFile;

    fn arena(&self) -> &Arena {
        &self.arena
    }

    async fn open(&self, path: &Path, mode: OpenMode) -> Result<BlockingFile, DiskError> {
        let open = move |path: &Path| disk_calls::open(path, mode, false);
        let file = self.calls.run(DiskOperation::Open, path, None, open).await?;
        Ok(BlockingFile { file: Arc::new(file), calls: self.calls.clone() })
    }

    async fn create_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.calls.create_directory(path).await
    }

    async fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>, DiskError> {
        self.calls.list(path).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.calls.rename(from, to).await
    }

    async fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.calls.remove(path).await
    }

    async fn remove_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.calls.remove_directory(path).await
    }

    async fn sync_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.calls.sync_directory(path).await
    }

    async fn space(&self, path: &Path) -> Result<DiskSpace, DiskError> {
        self.calls.space(path).await
    }
}

/// An open file of a [`BlockingDisk`].
#[derive(Clone, Debug)]
pub struct BlockingFile {
    file: Arc<OpenedFile>,
    calls: DiskCalls,
}

impl BlockingFile {
    async fn call<R: Send + 'static>(
        &self,
        operation: DiskOperation,
        position: Option<Position>,
        call: impl FnOnce(&OpenedFile) -> std::io::Result<R> + Send + 'static,
    ) -> Result<R, DiskError> {
        let file = Arc::clone(&self.file);
        self.calls.run(operation, &self.file.path, position, move |_| call(&file)).await
    }
}

impl DiskFile for BlockingFile {
    fn path(&self) -> &Path {
        &self.file.path
    }

    async fn write(
        &self,
        bytes: SharedExtent,
        position: Position,
        mode: WriteMode,
    ) -> Result<(), DiskError> {
        disk_calls::assert_writable(&bytes, position);
        let write = move |file: &OpenedFile| disk_calls::write(file, &bytes, position, mode);
        self.call(DiskOperation::Write, Some(position), write).await
    }

    async fn read(&self, buffer: Extent, position: Position) -> Result<Extent, DiskError> {
        assert!(position.is_block_aligned(), "a read starts on a block, not at {position}");
        let read = move |file: &OpenedFile| disk_calls::read(file, buffer, position);
        self.call(DiskOperation::Read, Some(position), read).await
    }

    async fn sync(&self) -> Result<(), DiskError> {
        self.call(DiskOperation::Sync, None, disk_calls::sync).await
    }

    async fn length(&self) -> Result<u64, DiskError> {
        self.call(DiskOperation::Length, None, disk_calls::length).await
    }

    async fn set_length(&self, length_bytes: u64) -> Result<(), DiskError> {
        let set_length = move |file: &OpenedFile| disk_calls::set_length(file, length_bytes);
        self.call(DiskOperation::Length, None, set_length).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::conformance;

    #[test]
    fn blocking_disk_conforms() {
        let directory = conformance::scratch_directory();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();

        runtime.block_on(async {
            let disk = BlockingDisk::new(Arena::new(2 << 20));
            conformance::check_disk(&disk, directory.path()).await;
        });
    }
}
