//! [`Disk`] on the ring: `O_DIRECT` reads and writes of arena memory, durable by `RWF_DSYNC`.
//!
//! Names and lengths change rarely and go to helper threads; nothing here blocks the shard.

use std::cell::Cell;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Once};

use io_uring::{opcode, squeue, types};
use rustix::io::Errno;

use super::operation::submit;
use super::registration;
use crate::id::{BLOCK_BYTES, Position};
use crate::io::arena::{Arena, Extent, Region, SharedExtent};
use crate::io::disk::{
    DirectoryEntry, Disk, DiskError, DiskFile, DiskOperation, DiskSpace, OpenMode, WriteMode,
};
use crate::io::disk_calls::{self, DiskCalls, OpenedFile};
use crate::io::in_flight::InFlight;

/// `RWF_DSYNC`. Source: pwritev2(2), linux/fs.h.
const RWF_DSYNC: types::RwFlags = 2;

/// Names and lengths changed at the same time; others wait for their turn.
const CALLS_MAX: usize = 16;

/// Whether files go around the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// `O_DIRECT`, where the file system takes it.
    Around,
    /// Through the page cache, as where the file system refuses `O_DIRECT`.
    #[cfg(test)]
    Through,
}

/// The disk of a shard that has a ring. Made inside the ring's runtime and used only there.
#[derive(Clone, Debug)]
pub struct RingDisk {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    arena: Arena,
    in_flight: InFlight,
    calls: DiskCalls,
    caching: Caching,
    is_registered: bool,
    /// Set when a file system refused `O_DIRECT`.
    is_direct_refused: Cell<bool>,
}

impl RingDisk {
    /// A disk that reads into and writes from `arena`, which it registers with this thread's ring if the
    /// memlock limit lets it.
    pub(super) fn new(arena: Arena, in_flight: InFlight, caching: Caching) -> RingDisk {
        let is_registered = match registration::register(&arena) {
            Ok(()) => true,
            Err(error) => {
                UNREGISTERED.call_once(|| warn_unregistered(&arena, &error));
                false
            }
        };
        let calls = DiskCalls::new(in_flight.clone(), CALLS_MAX);
        let is_direct_refused = Cell::new(false);
        let shared = Shared { arena, in_flight, calls, caching, is_registered, is_direct_refused };
        RingDisk { shared: Rc::new(shared) }
    }

    /// Tells whether the ring knows the arena's memory.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.shared.is_registered
    }

    /// Tells whether a file had to be opened through the page cache.
    #[must_use]
    pub fn is_direct_refused(&self) -> bool {
        self.shared.is_direct_refused.get()
    }

    /// The count of this ring's operations.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> &InFlight {
        &self.shared.in_flight
    }
}

/// One line a process, not one a shard.
static UNREGISTERED: Once = Once::new();
static DIRECT_REFUSED: Once = Once::new();

fn warn_unregistered(arena: &Arena, error: &io::Error) {
    tracing::warn!(
        arena_bytes = arena.capacity_bytes(),
        %error,
        "the arena is not registered with the ring, writes cost a little more: \
         raise the memlock limit (ulimit -l, LimitMEMLOCK=) above the sum of all arenas"
    );
}

fn warn_direct_refused(path: &Path) {
    tracing::warn!(
        path = %path.display(),
        "the file system refuses O_DIRECT, files go through the page cache: \
         put the data directory on ext4 or xfs for full speed"
    );
}

impl Disk for RingDisk {
    type File = RingFile;

    fn arena(&self) -> &Arena {
        &self.shared.arena
    }

    async fn open(&self, path: &Path, mode: OpenMode) -> Result<RingFile, DiskError> {
        let direct = self.shared.caching == Caching::Around;
        let open = move |path: &Path| disk_calls::open(path, mode, direct);
        let file = self.shared.calls.run(DiskOperation::Open, path, None, open).await?;
        if direct && !file.is_direct {
            self.shared.is_direct_refused.set(true);
            DIRECT_REFUSED.call_once(|| warn_direct_refused(path));
        }
        Ok(RingFile { file: Arc::new(file), shared: Rc::clone(&self.shared) })
    }

    async fn create_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.shared.calls.create_directory(path).await
    }

    async fn list(&self, path: &Path) -> Result<Vec<DirectoryEntry>, DiskError> {
        self.shared.calls.list(path).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.shared.calls.rename(from, to).await
    }

    async fn remove(&self, path: &Path) -> Result<(), DiskError> {
        self.shared.calls.remove(path).await
    }

    async fn remove_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.shared.calls.remove_directory(path).await
    }

    async fn sync_directory(&self, path: &Path) -> Result<(), DiskError> {
        self.shared.calls.sync_directory(path).await
    }

    async fn space(&self, path: &Path) -> Result<DiskSpace, DiskError> {
        self.shared.calls.space(path).await
    }
}

/// An open file of a [`RingDisk`].
#[derive(Clone, Debug)]
pub struct RingFile {
    file: Arc<OpenedFile>,
    shared: Rc<Shared>,
}

impl RingFile {
    fn failed(
        &self,
        operation: DiskOperation,
        position: Option<Position>,
        source: io::Error,
    ) -> DiskError {
        DiskError::new(operation, &self.file.path, position, source)
    }

    fn fd(&self) -> types::Fd {
        types::Fd(self.file.descriptor().as_raw_fd())
    }

    /// Writes all of `bytes`, going on after a short write.
    async fn write_all(
        &self,
        mut bytes: SharedExtent,
        position: Position,
        flags: types::RwFlags,
    ) -> io::Result<()> {
        let mut at = position;
        while !bytes.is_empty() {
            let entry = self.write_entry(&bytes, at, flags);
            // SAFETY: the entry's address and length are those of `bytes` and its descriptor that of `file`;
            // the operation owns both. Nobody writes a shared extent.
            let write =
                unsafe { submit(&self.shared.in_flight, (bytes, Arc::clone(&self.file)), entry) };
            let (answer, (returned, _)) = write.await;
            let done = self.whole_blocks(answer?);
            if done == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            if done >= returned.len() {
                return Ok(());
            }
            bytes = returned.slice(done..returned.len());
            at = at.plus(done as u64);
        }
        Ok(())
    }

    fn write_entry(
        &self,
        bytes: &SharedExtent,
        at: Position,
        flags: types::RwFlags,
    ) -> squeue::Entry {
        let (address, length) = (bytes.as_slice().as_ptr(), length_of(bytes.len()));
        match self.buffer_index(bytes.region(), address) {
            Some(index) => opcode::WriteFixed::new(self.fd(), address, length, index)
                .offset(at.0)
                .rw_flags(flags)
                .build(),
            None => {
                opcode::Write::new(self.fd(), address, length).offset(at.0).rw_flags(flags).build()
            }
        }
    }

    /// Reads from `position + filled` into the rest of the extent, once.
    async fn read_once(
        &self,
        mut buffer: Extent,
        position: Position,
        filled: usize,
    ) -> (io::Result<usize>, Extent) {
        // O_DIRECT reads whole blocks; the extent has them, whatever its length.
        let end = if self.file.is_direct { buffer.block_bytes() } else { buffer.len() };
        let address = buffer.start().wrapping_add(filled);
        let length = length_of(end - filled);
        let at = position.plus(filled as u64).0;
        let entry = match self.buffer_index(buffer.region(), address) {
            Some(index) => {
                opcode::ReadFixed::new(self.fd(), address, length, index).offset(at).build()
            }
            None => opcode::Read::new(self.fd(), address, length).offset(at).build(),
        };
        // SAFETY: the entry writes `length` bytes at `address`, both inside the blocks of `buffer`, which has
        // no other claim; its descriptor is that of `file`. The operation owns both.
        let read =
            unsafe { submit(&self.shared.in_flight, (buffer, Arc::clone(&self.file)), entry) };
        let (answer, (buffer, _)) = read.await;
        (answer, buffer)
    }

    async fn read_all(&self, mut buffer: Extent, position: Position) -> io::Result<Extent> {
        let mut filled = 0;
        while filled < buffer.len() {
            // After a short read O_DIRECT goes on from a block it has seen a part of. No progress from there
            // is the end of the file; a short answer alone is not.
            let start = self.whole_blocks(filled);
            let (answer, returned) = self.read_once(buffer, position, start).await;
            buffer = returned;
            let reached = start + answer?;
            if reached <= filled {
                break;
            }
            filled = reached;
        }
        buffer.truncate(filled);
        Ok(buffer)
    }

    /// How much of `bytes` counts: with `O_DIRECT` the next operation has to start on a block.
    fn whole_blocks(&self, bytes: usize) -> usize {
        if self.file.is_direct { bytes - bytes % BLOCK_BYTES } else { bytes }
    }

    fn buffer_index(&self, region: &Arc<Region>, address: *const u8) -> Option<u16> {
        if !self.shared.is_registered {
            return None;
        }
        registration::buffer_index(&self.shared.arena, region, address)
    }
}

fn length_of(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("an extent is at most EXTENT_BYTES_MAX")
}

impl DiskFile for RingFile {
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
        let failed = |source| self.failed(DiskOperation::Write, Some(position), source);
        if mode == WriteMode::Written {
            return self.write_all(bytes, position, 0).await.map_err(failed);
        }
        match self.write_all(bytes.clone(), position, RWF_DSYNC).await {
            // Refused before anything was written: a file system without RWF_DSYNC gets a sync instead.
            Err(refused) if Errno::from_io_error(&refused) == Some(Errno::OPNOTSUPP) => {
                self.write_all(bytes, position, 0).await.map_err(failed)?;
                self.sync().await
            }
            answer => answer.map_err(failed),
        }
    }

    async fn read(&self, buffer: Extent, position: Position) -> Result<Extent, DiskError> {
        assert!(position.is_block_aligned(), "a read starts on a block, not at {position}");
        let failed = |source| self.failed(DiskOperation::Read, Some(position), source);
        self.read_all(buffer, position).await.map_err(failed)
    }

    async fn sync(&self) -> Result<(), DiskError> {
        let entry = opcode::Fsync::new(self.fd()).flags(types::FsyncFlags::DATASYNC).build();
        // SAFETY: the entry has no address; its descriptor is that of `file`, which the operation owns.
        let sync = unsafe { submit(&self.shared.in_flight, Arc::clone(&self.file), entry) };
        let (answer, _) = sync.await;
        answer.map(|_zero| ()).map_err(|source| self.failed(DiskOperation::Sync, None, source))
    }

    async fn length(&self) -> Result<u64, DiskError> {
        // The inode of an open file is in memory: this asks no device.
        disk_calls::length(&self.file)
            .map_err(|source| self.failed(DiskOperation::Length, None, source))
    }

    async fn set_length(&self, length_bytes: u64) -> Result<(), DiskError> {
        let file = Arc::clone(&self.file);
        let set_length = move |_: &Path| disk_calls::set_length(&file, length_bytes);
        let path = &self.file.path;
        self.shared.calls.run(DiskOperation::Length, path, None, set_length).await
    }
}
