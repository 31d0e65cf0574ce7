//! Pieces of segments read ahead into the arena, of all partitions of a shard together. Bounded; the oldest pieces
//! nobody has come for give way when memory is short.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::cold_lane::{ColdLane, Urgency};
use super::read_segments::SegmentHold;
use crate::id::Position;
use crate::io::arena::{Arena, SharedExtent};
use crate::io::clock::Clock;
use crate::io::disk::{Disk, DiskFile};

/// A piece nobody has come for by then gives way to another.
const PIECE_AGE_MAX: Duration = Duration::from_secs(1);

/// What has become of a piece.
#[derive(Debug)]
enum PieceState {
    OnItsWay,
    Ready(SharedExtent),
    /// The disk refused, or its memory was needed for something else.
    Gone,
}

/// The memory of a piece, once it has arrived. Counts against the budget while it has or will have some.
#[derive(Debug)]
pub(super) struct PieceSlot {
    state: RefCell<PieceState>,
    arrived: Notify,
    charged_bytes: Cell<usize>,
    budget: Rc<Cell<usize>>,
}

impl PieceSlot {
    /// Tells whether there is nothing to wait for.
    pub(super) fn is_settled(&self) -> bool {
        !matches!(*self.state.borrow(), PieceState::OnItsWay)
    }

    /// Waits for the bytes; `None` when they are gone.
    pub(super) async fn wait(&self) -> Option<SharedExtent> {
        loop {
            let arrived = self.arrived.notified();
            match &*self.state.borrow() {
                PieceState::Ready(extent) => return Some(extent.clone()),
                PieceState::Gone => return None,
                PieceState::OnItsWay => {}
            }
            arrived.await;
        }
    }

    fn settle(&self, state: PieceState) {
        if matches!(state, PieceState::Gone) {
            self.discharge();
        }
        *self.state.borrow_mut() = state;
        self.arrived.notify_waiters();
    }

    fn discharge(&self) {
        self.budget.set(self.budget.get() - self.charged_bytes.take());
    }
}

impl Drop for PieceSlot {
    fn drop(&mut self) {
        self.discharge();
    }
}

/// A piece of a segment, read or being read ahead.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) positions: Range<Position>,
    pub(super) slot: Rc<PieceSlot>,
}

impl Piece {
    pub(super) fn bytes(&self) -> usize {
        bytes_of(&self.positions)
    }
}

fn bytes_of(positions: &Range<Position>) -> usize {
    usize::try_from(positions.end.0 - positions.start.0).unwrap_or(usize::MAX)
}

/// What a shard has read ahead.
#[derive(Debug)]
pub(super) struct ReadAhead {
    bytes_max: usize,
    bytes: Rc<Cell<usize>>,
    /// What has arrived, oldest first.
    arrived: RefCell<VecDeque<(Duration, Weak<PieceSlot>)>>,
    clock: Arc<dyn Clock>,
}

impl ReadAhead {
    /// A budget of `bytes_max`, and never more than an eighth of the memory.
    pub(super) fn new(
        bytes_max: usize,
        arena_bytes: usize,
        clock: Arc<dyn Clock>,
    ) -> Rc<ReadAhead> {
        let bytes_max = bytes_max.min(arena_bytes / 8);
        let (bytes, arrived) = (Rc::default(), RefCell::default());
        Rc::new(ReadAhead { bytes_max, bytes, arrived, clock })
    }

    /// The bytes there and on their way.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// The most that is read ahead of one reader: a quarter, so that one scan leaves room for others.
    pub(super) fn window_bytes_max(&self) -> usize {
        self.bytes_max / 4
    }

    /// Begins a piece, if the budget has room for it. Pieces that nobody came for make room.
    pub(super) fn begin(&self, positions: Range<Position>) -> Option<Piece> {
        let bytes = bytes_of(&positions);
        while self.bytes.get().saturating_add(bytes) > self.bytes_max {
            let too_old = self.clock.now().boottime.checked_sub(PIECE_AGE_MAX)?;
            if self.arrived.borrow().front().is_none_or(|(since, _)| *since > too_old) {
                return None;
            }
            self.evict_oldest();
        }
        self.bytes.set(self.bytes.get() + bytes);
        let slot = PieceSlot {
            state: RefCell::new(PieceState::OnItsWay),
            arrived: Notify::new(),
            charged_bytes: Cell::new(bytes),
            budget: self.bytes.clone(),
        };
        Some(Piece { positions, slot: Rc::new(slot) })
    }

    /// Reads a piece from its file, in its turn. Nobody may wait for it any more by then.
    pub(super) async fn load<D: Disk>(
        self: Rc<Self>,
        source: PieceSource<D>,
        positions: Range<Position>,
        slot: Weak<PieceSlot>,
    ) {
        let bytes = bytes_of(&positions);
        let _passage = source.lane.enter(bytes, source.urgency).await;
        if slot.strong_count() == 0 {
            return;
        }
        let extent = match source.arena.allocate(bytes) {
            Some(extent) => source.file.read(extent, positions.start).await.ok(),
            None => None,
        };
        let Some(slot) = slot.upgrade() else { return };
        // What the disk said is said to the reader: it finds the piece gone, and asks the disk itself.
        match extent.filter(|extent| extent.len() == bytes) {
            Some(extent) => {
                slot.settle(PieceState::Ready(extent.freeze()));
                self.note_arrived(&slot);
            }
            None => slot.settle(PieceState::Gone),
        }
    }

    fn note_arrived(&self, slot: &Rc<PieceSlot>) {
        let mut arrived = self.arrived.borrow_mut();
        arrived.retain(|(_, other)| other.strong_count() > 0);
        arrived.push_back((self.clock.now().boottime, Rc::downgrade(slot)));
    }

    /// Lets go of the oldest piece that has arrived. Returns whether there was one.
    pub(super) fn evict_oldest(&self) -> bool {
        loop {
            let Some((_, oldest)) = self.arrived.borrow_mut().pop_front() else { return false };
            if let Some(slot) = oldest.upgrade() {
                slot.settle(PieceState::Gone);
                return true;
            }
        }
    }
}

/// Where a piece is read from, and how.
pub(super) struct PieceSource<D: Disk> {
    pub(super) file: D::File,
    pub(super) arena: Arena,
    pub(super) lane: Rc<ColdLane>,
    pub(super) urgency: Urgency,
    /// Keeps the file from being recycled meanwhile.
    pub(super) _hold: SegmentHold,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::simulated::{SimulatedClock, SimulatedRuntime};

    const MIB: u64 = 1 << 20;

    fn positions(number: u64) -> Range<Position> {
        Position(number * MIB)..Position((number + 1) * MIB)
    }

    fn arrive(read_ahead: &ReadAhead, piece: &Piece, arena: &Arena) {
        let extent = arena.allocate(piece.bytes()).unwrap();
        piece.slot.settle(PieceState::Ready(extent.freeze()));
        read_ahead.note_arrived(&piece.slot);
    }

    #[test]
    fn budget_is_kept_and_a_piece_nobody_came_for_makes_room() {
        let runtime = SimulatedRuntime::new(1);
        let arena = Arena::new(16 << 20);
        let clock = Arc::new(SimulatedClock::new(&runtime));
        let read_ahead = ReadAhead::new(usize::MAX, arena.capacity_bytes(), clock);
        let first = read_ahead.begin(positions(0)).unwrap();
        let second = read_ahead.begin(positions(1)).unwrap();
        assert!(read_ahead.begin(positions(2)).is_none(), "both are on their way");
        arrive(&read_ahead, &first, &arena);
        arrive(&read_ahead, &second, &arena);
        assert!(read_ahead.begin(positions(2)).is_none(), "their readers may still come");

        runtime.run_for(2 * PIECE_AGE_MAX);
        let third = read_ahead.begin(positions(2)).unwrap();

        assert!(matches!(*first.slot.state.borrow(), PieceState::Gone));
        assert!(matches!(*second.slot.state.borrow(), PieceState::Ready(_)));
        assert_eq!(read_ahead.bytes(), 2 << 20);
        assert_eq!(arena.available_bytes(), 15 << 20);
        drop((first, second, third));
        assert_eq!(read_ahead.bytes(), 0);
        assert_eq!(arena.available_bytes(), 16 << 20);
    }

    #[test]
    fn memory_that_is_short_is_taken_from_what_has_arrived() {
        let arena = Arena::new(16 << 20);
        let clock = Arc::new(SimulatedClock::new(&SimulatedRuntime::new(1)));
        let read_ahead = ReadAhead::new(2 << 20, arena.capacity_bytes(), clock);
        let dropped = read_ahead.begin(positions(0)).unwrap();
        arrive(&read_ahead, &dropped, &arena);
        drop(dropped);
        let kept = read_ahead.begin(positions(1)).unwrap();
        arrive(&read_ahead, &kept, &arena);

        assert!(read_ahead.evict_oldest());
        assert!(!read_ahead.evict_oldest());

        assert!(kept.slot.is_settled());
        assert_eq!(read_ahead.bytes(), 0);
        assert_eq!(arena.available_bytes(), 16 << 20);
    }
}
