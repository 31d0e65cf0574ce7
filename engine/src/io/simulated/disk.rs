//! [`Disk`] on a [`SimulatedStorage`], for one process.
//!
//! Checks what a real device would refuse or the engine must never do, and panics: those are our mistakes.

use std::path::Path;
use std::rc::Rc;

use super::request::{Answer, OpenFile, Request};
use super::storage::SimulatedStorage;
use crate::id::{BLOCK_BYTES, Position};
use crate::io::arena::{Arena, Extent, SharedExtent};
use crate::io::disk::{
    DirectoryEntry, Disk, DiskError, DiskFile, DiskOperation, DiskSpace, OpenMode, WriteMode,
};

/// The disk of one simulated process. When the process has been killed, its operations never resolve.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    storage: SimulatedStorage,
    process: u64,
    arena: Arena,
}

impl SimulatedDisk {
    pub(super) fn new(storage: SimulatedStorage, process: u64, arena: Arena) -> SimulatedDisk {
        SimulatedDisk { storage, process, arena }
    }

    async fn perform(&self, request: Request) -> Result<Answer, DiskError> {
        self.storage.perform(self.process, request).await
    }
}

impl Disk for SimulatedDisk {
    type File = SimulatedFile;

    fn arena(&self) -> &Arena {
        &self.arena
    }

    async fn open(&self, path: &Path, mode: OpenMode) -> Result<SimulatedFile, DiskError> {
        match self.perform(Request::Open { path: path.into(), mode }).await? {
            Answer::Opened(file) => Ok(SimulatedFile { disk: self.clone(), file: Rc::new(file) }),
            answer => unreachable!("{answer:?}"),
        }
    }

    async fn create_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.perform(Request::CreateDirectory { path: path.into() }).await.map(drop)
    }

    async fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>, DiskError> {
        match self.perform(Request::List { path: path.into() }).await? {
            Answer::Entries(entries) => Ok(entries),
            answer => unreachable!("{answer:?}"),
        }
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.perform(Request::Rename { from: from.into(), to: to.into() }).await.map(drop)
    }

    async fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.perform(Request::Remove { path: path.into(), is_directory: false }).await.map(drop)
    }

    async fn remove_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.perform(Request::Remove { path: path.into(), is_directory: true }).await.map(drop)
    }

    async fn sync_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.perform(Request::SyncDirectory { path: path.into() }).await.map(drop)
    }

    async fn space(&self, path: &Path) -> Result<DiskSpace, DiskError> {
        match self.perform(Request::Space { path: path.into() }).await? {
            Answer::Space(space) => Ok(space),
            answer => unreachable!("{answer:?}"),
        }
    }
}

/// An open file of a [`SimulatedDisk`].
#[derive(Clone, Debug)]
pub struct SimulatedFile {
    disk: SimulatedDisk,
    file: Rc<OpenFile>,
}

impl SimulatedFile {
    fn check_writable(
        &self,
        operation: DiskOperation,
        position: Option<Position>,
    ) -> Result<(), DiskError> {
        if self.file.is_writable {
            return Ok(());
        }
        Err(DiskError::new(operation, &self.file.path, position, rustix::io::Errno::BADF.into()))
    }
}

impl DiskFile for SimulatedFile {
    fn path(&self) -> &Path {
        &self.file.path
    }

    async fn write(
        &self,
        bytes: SharedExtent,
        position: Position,
        mode: WriteMode,
    ) -> Result<(), DiskError> {
        let length = bytes.as_slice().len();
        let path = self.file.path.display();
        assert!(position.is_block_aligned(), "{path}: a write at {position}, inside a block");
        assert!(length.is_multiple_of(BLOCK_BYTES), "{path}: a write of {length} bytes");
        self.check_writable(DiskOperation::Write, Some(position))?;
        let file = self.file.clone();
        self.disk.perform(Request::Write { file, bytes, position, mode }).await.map(drop)
    }

    async fn read(&self, buffer: Extent, position: Position) -> Result<Extent, DiskError> {
        let path = self.file.path.display();
        assert!(position.is_block_aligned(), "{path}: a read at {position}, inside a block");
        let file = self.file.clone();
        match self.disk.perform(Request::Read { file, buffer, position }).await? {
            Answer::Read(buffer) => Ok(buffer),
            answer => unreachable!("{answer:?}"),
        }
    }

    async fn sync(&self) -> Result<(), DiskError> {
        self.disk.perform(Request::Sync { file: self.file.clone() }).await.map(drop)
    }

    async fn length(&self) -> Result<u64, DiskError> {
        match self.disk.perform(Request::Length { file: self.file.clone() }).await? {
            Answer::Length(length_bytes) => Ok(length_bytes),
            answer => unreachable!("{answer:?}"),
        }
    }

    async fn set_length(&self, length_bytes: u64) -> Result<(), DiskError> {
        self.check_writable(DiskOperation::Length, None)?;
        let file = self.file.clone();
        self.disk.perform(Request::SetLength { file, length_bytes }).await.map(drop)
    }
}
