//! A window over a segment file that moves forward: pieces in the arena, read ahead of the place that is looked at.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;

use crate::id::{BLOCK_BYTES, Position};
use crate::io::arena::Extent;
use crate::io::disk::{Disk, DiskError, DiskFile};

/// The first piece: a segment with little in it costs little.
const PIECE_BYTES_MIN: usize = 128 << 10;

/// The longest piece, to which they double.
const PIECE_BYTES_MAX: usize = 512 << 10;

/// Pieces on their way while another is looked at, once the window has moved so often.
///
/// Source: FACTS, "Reads are the slow side of this device: read ahead deeply".
const AHEAD_MAX: usize = 4;

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

/// How much was asked for, and what came.
type Reading = Pin<Box<dyn Future<Output = (usize, Result<Extent, DiskError>)>>>;

/// Bytes of the file in memory, from a place on.
#[derive(Debug)]
struct Piece {
    start: Position,
    bytes: Extent,
}

impl Piece {
    fn end(&self) -> Position {
        self.start.plus(self.bytes.len() as u64)
    }

    fn holds(&self, position: Position, bytes: usize) -> bool {
        position >= self.start && position.0.saturating_add(bytes as u64) <= self.end().0
    }

    fn from(&self, position: Position) -> &[u8] {
        let skipped = usize::try_from(position.0 - self.start.0).expect("inside the piece");
        self.bytes.as_slice().get(skipped..).unwrap_or_default()
    }
}

/// Part of a file in memory.
pub(super) struct Window<'a, D: Disk> {
    disk: &'a D,
    file: &'a D::File,
    /// What has been read, without gaps.
    pieces: VecDeque<Piece>,
    /// What goes on behind that, in order.
    coming: FuturesOrdered<Reading>,
    /// Where the next read begins.
    next: Position,
    piece_bytes: usize,
    /// Pieces that were read one after the other.
    run: usize,
    has_ended: bool,
    /// What lies across pieces, in one piece.
    joined: Option<Piece>,
}

impl<'a, D: Disk> Window<'a, D> {
    pub(super) fn new(disk: &'a D, file: &'a D::File) -> Window<'a, D> {
        Window {
            disk,
            file,
            pieces: VecDeque::new(),
            coming: FuturesOrdered::new(),
            next: Position::ZERO,
            piece_bytes: PIECE_BYTES_MIN,
            run: 0,
            has_ended: false,
            joined: None,
        }
    }

    /// The bytes from `position`, at least `bytes` of them unless the file ends before.
    pub(super) async fn at(
        &mut self,
        position: Position,
        bytes: usize,
    ) -> Result<&[u8], WindowError> {
        assert!(position.is_block_aligned());
        self.move_to(position);
        let end = Position(position.0.saturating_add(bytes as u64));
        while !self.has_ended && self.read_end() < end {
            self.read_piece(end).await?;
        }
        self.look(position, bytes)
    }

    /// Lets go of what lies before `position`; starts anew where that is not among what was read.
    fn move_to(&mut self, position: Position) {
        let starts_before = self.pieces.front().is_none_or(|front| position < front.start);
        if starts_before || position > self.read_end() {
            // What is on its way still comes, into memory of its own, and is dropped.
            *self = Window { next: position, ..Window::new(self.disk, self.file) };
            return;
        }
        while self.pieces.len() > 1 && self.pieces[0].end() <= position {
            self.pieces.pop_front();
        }
    }

    fn read_end(&self) -> Position {
        self.pieces.back().map_or(self.next, Piece::end)
    }

    /// Takes the next piece, and has those behind it read meanwhile.
    async fn read_piece(&mut self, end: Position) -> Result<(), WindowError> {
        let start = self.read_end();
        let needed = usize::try_from(end.0 - start.0).unwrap_or(usize::MAX);
        if self.coming.is_empty() {
            let least = needed.next_multiple_of(BLOCK_BYTES);
            let piece_bytes = self.piece_bytes.max(least);
            let room = self.disk.arena().allocate(piece_bytes);
            let room = room.or_else(|| self.disk.arena().allocate(least));
            self.begin(room.ok_or(WindowError::ArenaFull { bytes: least })?);
        }
        // Only where there is plenty: others need memory, too.
        while self.coming.len() <= self.run.min(AHEAD_MAX) {
            let Some(room) = self.disk.arena().allocate(self.piece_bytes) else { break };
            self.begin(room);
        }
        let (asked_bytes, read) = self.coming.next().await.expect("one is on its way");
        let bytes = read.map_err(WindowError::Disk)?;
        self.run += 1;
        self.piece_bytes = (2 * self.piece_bytes).min(PIECE_BYTES_MAX);
        // What is on its way behind the end of the file will be nothing.
        self.has_ended = bytes.len() < asked_bytes;
        self.pieces.push_back(Piece { start, bytes });
        Ok(())
    }

    fn begin(&mut self, room: Extent) {
        let (file, position, bytes) = (self.file.clone(), self.next, room.len());
        self.next = position.plus(bytes as u64);
        self.coming.push_back(Box::pin(async move { (bytes, file.read(room, position).await) }));
    }

    /// What has been read from `position` on, in one piece for at least `bytes`.
    fn look(&mut self, position: Position, bytes: usize) -> Result<&[u8], WindowError> {
        let Some(first) = self.pieces.iter().position(|piece| position < piece.end()) else {
            return Ok(&[]);
        };
        let is_whole = self.pieces[first].holds(position, bytes);
        if is_whole || first + 1 == self.pieces.len() {
            return Ok(self.pieces[first].from(position));
        }
        if !self.joined.as_ref().is_some_and(|joined| joined.holds(position, bytes)) {
            self.joined = None;
            let there = usize::try_from(self.read_end().0 - position.0).unwrap_or(usize::MAX);
            let wanted = bytes.next_multiple_of(BLOCK_BYTES).min(there);
            let room_bytes = wanted.next_multiple_of(BLOCK_BYTES);
            let room = self.disk.arena().allocate(room_bytes);
            let mut room = room.ok_or(WindowError::ArenaFull { bytes: room_bytes })?;
            let mut filled = 0;
            for piece in self.pieces.range(first..) {
                let from = piece.from(position.plus(filled as u64));
                let taken = from.len().min(wanted - filled);
                room.as_mut_slice()[filled..][..taken].copy_from_slice(&from[..taken]);
                filled += taken;
            }
            room.truncate(wanted);
            self.joined = Some(Piece { start: position, bytes: room });
        }
        Ok(self.joined.as_ref().map(|joined| joined.from(position)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::io::arena::Arena;
    use crate::io::disk::{OpenMode, WriteMode};
    use crate::io::simulated::{SimulatedDisk, SimulatedFile, SimulatedRuntime, SimulatedStorage};

    /// Ends within a piece.
    const BLOCKS: usize = 1_001;

    fn bytes_of(block: usize) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        fastrand::Rng::with_seed(block as u64).fill(&mut bytes);
        bytes
    }

    async fn write_file(disk: &SimulatedDisk) -> SimulatedFile {
        let file = disk.open(Path::new("/file"), OpenMode::CreateNew).await.unwrap();
        for block in 0..BLOCKS {
            let mut extent = disk.arena().allocate(BLOCK_BYTES).unwrap();
            extent.as_mut_slice().copy_from_slice(&bytes_of(block));
            let position = Position((block * BLOCK_BYTES) as u64);
            file.write(extent.freeze(), position, WriteMode::Written).await.unwrap();
        }
        file
    }

    async fn assert_shows(
        window: &mut Window<'_, SimulatedDisk>,
        block: usize,
        asked_bytes: usize,
    ) {
        let position = Position((block * BLOCK_BYTES) as u64);
        let bytes = window.at(position, asked_bytes).await.unwrap();
        let there = BLOCKS.saturating_sub(block) * BLOCK_BYTES;
        assert!(bytes.len() >= asked_bytes.min(there), "{block}: {} bytes", bytes.len());
        assert!(bytes.len() <= there);
        for (index, found) in bytes[..asked_bytes.min(there)].chunks(BLOCK_BYTES).enumerate() {
            assert_eq!(found, &bytes_of(block + index)[..found.len()], "block {}", block + index);
        }
    }

    fn with_file(arena_bytes: usize, test: impl AsyncFnOnce(SimulatedDisk, SimulatedFile)) {
        let runtime = SimulatedRuntime::new(1);
        let storage = SimulatedStorage::new(&runtime);
        let disk = storage.disk(Arena::new(arena_bytes));
        runtime.block_on(async {
            let file = write_file(&disk).await;
            test(disk, file).await;
        });
    }

    #[test]
    fn every_stretch_shows_the_bytes_of_the_file_across_pieces() {
        for (arena_bytes, asked_bytes) in [
            (16 << 20, 3 * BLOCK_BYTES),
            (16 << 20, 700_001),
            (1 << 20, 200_000),
            (256 << 10, 9_000),
        ] {
            with_file(arena_bytes, async |disk, file| {
                let mut window = Window::new(&disk, &file);
                for block in (0..BLOCKS).step_by(13) {
                    assert_shows(&mut window, block, BLOCK_BYTES).await;
                    assert_shows(&mut window, block, asked_bytes).await;
                }
            });
        }
    }

    #[test]
    fn jumps_start_anew_and_the_end_is_empty() {
        with_file(16 << 20, async |disk, file| {
            let mut window = Window::new(&disk, &file);
            for block in [0, 900, 3, 4, 600, BLOCKS - 1, BLOCKS, BLOCKS + 40, 0, BLOCKS - 1] {
                assert_shows(&mut window, block, 5 * BLOCK_BYTES).await;
            }
        });
    }

    #[test]
    fn what_the_arena_does_not_have_is_named() {
        with_file(256 << 10, async |disk, file| {
            let mut window = Window::new(&disk, &file);
            let at = window.at(Position::ZERO, 1 << 20).await;
            assert!(matches!(at, Err(WindowError::ArenaFull { bytes }) if bytes == 1 << 20));
        });
    }
}
