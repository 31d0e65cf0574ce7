//! A window over a segment file that moves forward: one arena extent, refilled in large reads.

use crate::id::{BLOCK_BYTES, Position};
use crate::io::arena::Extent;
use crate::io::disk::{Disk, DiskError, DiskFile};

/// The bytes of one read, when the arena has them and nothing longer is asked for.
pub(super) const WINDOW_BYTES: usize = 1 << 20;

/// Why the window could not be moved.
#[derive(Debug)]
pub(super) enum WindowError {
    /// The disk refused.
    Disk(DiskError),
    /// The arena has no such room now.
    ArenaFull {
        /// What was asked.
        bytes: usize,
    },
}

/// Part of a file in memory.
#[derive(Debug)]
pub(super) struct Window<'a, D: Disk> {
    disk: &'a D,
    file: &'a D::File,
    start: Position,
    held: Option<Extent>,
}

impl<'a, D: Disk> Window<'a, D> {
    pub(super) fn new(disk: &'a D, file: &'a D::File) -> Window<'a, D> {
        Window { disk, file, start: Position::ZERO, held: None }
    }

    /// The bytes from `position`, at least `bytes` of them unless the file ends before.
    pub(super) async fn at(
        &mut self,
        position: Position,
        bytes: usize,
    ) -> Result<&[u8], WindowError> {
        assert!(position.is_block_aligned());
        if !self.holds(position, bytes) {
            self.held = None;
            let extent = self.lend(bytes.next_multiple_of(BLOCK_BYTES))?;
            let extent = self.file.read(extent, position).await.map_err(WindowError::Disk)?;
            self.start = position;
            self.held = Some(extent);
        }
        let skipped = usize::try_from(position.0 - self.start.0).expect("inside the window");
        let held = self.held.as_ref().map(Extent::as_slice).unwrap_or_default();
        Ok(held.get(skipped..).unwrap_or_default())
    }

    fn holds(&self, position: Position, bytes: usize) -> bool {
        let Some(held) = &self.held else { return false };
        let end = position.0.saturating_add(bytes as u64);
        position >= self.start && end <= self.start.0 + held.len() as u64
    }

    /// A large extent, or in a full arena the smallest that serves.
    fn lend(&self, needed_bytes: usize) -> Result<Extent, WindowError> {
        let arena = self.disk.arena();
        let large = arena.allocate(needed_bytes.max(WINDOW_BYTES));
        let extent = large.or_else(|| arena.allocate(needed_bytes));
        extent.ok_or(WindowError::ArenaFull { bytes: needed_bytes })
    }
}
