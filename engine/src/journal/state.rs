//! What a shard knows of its journal: its file, the frames that are needed, and who waits for the next one.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use super::frame::{FrameBuilder, FramePiece};
use super::space::Space;
use crate::format::{
    FRAME_BYTES_MAX, FRAME_ENTRY_BYTES, FRAME_HEADER_BYTES, FrameHeader, FrameSequence,
};
use crate::id::{BLOCK_BYTES, JournalId, Position};
use crate::io::arena::SharedExtent;
use crate::io::disk::Disk;

/// Room in which a frame with one group of the largest kind that comes here fits.
const FRAME_ROOM_LARGE: usize = 40 << 10;

/// Waiting bytes from which a frame is worth submitting beside others in flight.
const FRAME_BYTES_TARGET: usize = 64 << 10;

/// Frames in flight at a time. One at a time gathers most; a second one overlaps the device's latency when
/// there is enough to write.
const FRAMES_IN_FLIGHT_MAX: usize = 4;

/// Frames kept for the next ones.
const SPARE_MAX: usize = 1024;

/// The shortest journal that is used: a few frames fit.
const JOURNAL_BYTES_MIN: u64 = 128 << 10;

/// What a piece of a frame holds on to until it is durable in its segment.
#[derive(Debug)]
pub(crate) struct LiveFrame {
    sequence: FrameSequence,
    submitted: Duration,
    is_durable: Cell<bool>,
}

impl LiveFrame {
    pub(crate) fn sequence(&self) -> FrameSequence {
        self.sequence
    }

    /// Whether this frame and all before it are durable.
    pub(crate) fn is_durable(&self) -> bool {
        self.is_durable.get()
    }
}

/// Keeps a frame from being overwritten.
pub(crate) type FrameHold = Rc<LiveFrame>;

/// The number of a submitted frame.
pub(crate) type FrameNumber = FrameSequence;

#[derive(Debug)]
struct Submitted<O> {
    hold: FrameHold,
    is_written: bool,
    /// What its header says of frames that are not needed any more.
    tail: FrameSequence,
    memory_bytes: usize,
    owners: Vec<O>,
}

/// Where the file is.
#[derive(Debug)]
enum JournalFile<F> {
    /// Nobody has wanted it yet, or there was no room for it.
    Unmade,
    Making,
    Made {
        file: F,
        space: Space,
    },
    /// Not used any more in this run: what is in it is needed by somebody who cannot store it.
    Frozen,
}

/// A frame that has its place.
pub(crate) struct SealedFrame<F, O> {
    pub(crate) file: F,
    pub(crate) bytes: SharedExtent,
    pub(crate) position: Position,
    pub(crate) number: FrameNumber,
    pub(crate) hold: FrameHold,
    pub(crate) pieces: Vec<FramePiece<O>>,
}

/// The journal of one shard. `O` owns groups, and clones cheaply.
#[derive(Debug)]
pub(crate) struct Journal<D: Disk, O> {
    id: JournalId,
    file_bytes: u64,
    memory_bytes_max: usize,
    file: JournalFile<D::File>,
    waiting: VecDeque<O>,
    waiting_bytes: usize,
    frames: VecDeque<Submitted<O>>,
    /// Frames that nobody needs any more, for the next ones: so none is allocated in steady state.
    spare: Vec<Submitted<O>>,
    next: FrameSequence,
    /// Frames below are durable.
    durable: FrameSequence,
    /// Frames below are known, on the medium, not to be needed: only their room is used again, so that a
    /// torn frame never lies where a needed one is looked for.
    durable_tail: FrameSequence,
    /// Frames below have given up their room.
    released: FrameSequence,
    memory_bytes: usize,
    /// Bytes in frames that no segment write has been issued for.
    unstored_bytes: usize,
    /// From which frame on owners may have to store something.
    store_from: FrameSequence,
}

impl<D: Disk, O: Clone> Journal<D, O> {
    /// A journal that is made when it is first wanted; shorter than 128 KiB it never is.
    pub(crate) fn new(id: JournalId, file_bytes: u64, memory_bytes_max: usize) -> Journal<D, O> {
        Journal {
            id,
            file_bytes: file_bytes.next_multiple_of(BLOCK_BYTES as u64),
            memory_bytes_max: memory_bytes_max.max(2 * FRAME_ROOM_LARGE),
            file: if file_bytes < JOURNAL_BYTES_MIN {
                JournalFile::Frozen
            } else {
                JournalFile::Unmade
            },
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            frames: VecDeque::new(),
            spare: Vec::new(),
            next: FrameSequence(1),
            durable: FrameSequence(1),
            durable_tail: FrameSequence(1),
            released: FrameSequence(1),
            memory_bytes: 0,
            unstored_bytes: 0,
            store_from: FrameSequence(1),
        }
    }

    pub(crate) fn id(&self) -> JournalId {
        self.id
    }

    /// How long the file is made.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Tells whether groups may go here.
    pub(crate) fn is_made(&self) -> bool {
        matches!(self.file, JournalFile::Made { .. })
    }

    /// Has the caller make the file if nobody else does.
    pub(crate) fn begin_making(&mut self) -> bool {
        let is_due = matches!(self.file, JournalFile::Unmade);
        if is_due {
            self.file = JournalFile::Making;
        }
        is_due
    }

    /// The file is there, or it could not be made and may be wanted again.
    pub(crate) fn end_making(&mut self, file: Option<D::File>) {
        self.file = match file {
            Some(file) => JournalFile::Made { file, space: Space::new(self.file_bytes) },
            None => JournalFile::Unmade,
        };
    }

    /// Ends the use of the file; what was written stays needed.
    pub(crate) fn freeze(&mut self) {
        self.file = JournalFile::Frozen;
    }

    /// The number the next frame gets.
    pub(crate) fn next_sequence(&self) -> FrameSequence {
        self.next
    }

    /// When the oldest frame in flight was submitted.
    pub(crate) fn oldest_submitted(&self) -> Option<Duration> {
        let in_flight = self.frames.iter().find(|frame| !frame.is_written)?;
        Some(in_flight.hold.submitted)
    }

    pub(crate) fn frames_in_flight(&self) -> usize {
        self.frames.iter().rev().take_while(|frame| !frame.hold.is_durable()).count()
    }

    /// Bytes of frames held in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The bytes that wait for a frame.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Notes that an owner has `bytes` for the next frame.
    pub(crate) fn wait(&mut self, owner: O, bytes: usize) {
        self.waiting_bytes += bytes;
        self.waiting.push_back(owner);
    }

    /// Notes that an owner who waits already has `bytes` instead of what it had `before`.
    pub(crate) fn wait_on(&mut self, before: usize, bytes: usize) {
        self.waiting_bytes = self.waiting_bytes - before + bytes;
    }

    /// How many owners wait for the next frame.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The owner that has waited longest; `bytes_of` says how much it has been noted with.
    pub(crate) fn take_waiting(&mut self, bytes_of: impl Fn(&O) -> usize) -> Option<O> {
        let owner = self.waiting.pop_front()?;
        self.waiting_bytes -= bytes_of(&owner);
        Some(owner)
    }

    /// Puts an owner back to the front: the frame is full.
    pub(crate) fn put_back(&mut self, owner: O, bytes: usize) {
        self.waiting.push_front(owner);
        self.waiting_bytes += bytes;
    }

    /// The room to lend for the next frame, if it may go now.
    pub(crate) fn frame_room_due(&self) -> Option<usize> {
        let JournalFile::Made { space, .. } = &self.file else { return None };
        let in_flight = self.frames_in_flight();
        let is_due = in_flight == 0
            || (in_flight < FRAMES_IN_FLIGHT_MAX && self.waiting_bytes >= FRAME_BYTES_TARGET);
        if self.waiting.is_empty() || !is_due {
            return None;
        }
        // No more than is needed: what is given back of a longer piece of memory lies between frames that stay
        // for long, and then nothing long is found any more.
        let table_bytes = self.waiting.len() * FRAME_ENTRY_BYTES;
        let wanted = FRAME_HEADER_BYTES + self.waiting_bytes + table_bytes;
        let mut room = wanted.next_multiple_of(BLOCK_BYTES).min(FRAME_BYTES_MAX);
        while !self.fits(space, room) {
            if room <= FRAME_ROOM_LARGE {
                return None;
            }
            room = (room / 2).next_multiple_of(BLOCK_BYTES).max(FRAME_ROOM_LARGE);
        }
        Some(room)
    }

    fn fits(&self, space: &Space, room: usize) -> bool {
        self.memory_bytes + room <= self.memory_bytes_max && space.room_for(room).is_some()
    }

    /// Gives a filled frame its place. There is one: [`frame_room_due`](Self::frame_room_due) has said so.
    pub(crate) fn seal<P>(
        &mut self,
        builder: FrameBuilder<(O, P)>,
        now: Duration,
    ) -> SealedFrame<D::File, (O, P)> {
        let tail = self.tail();
        let JournalFile::Made { file, space } = &mut self.file else {
            panic!("a frame for a journal that is not there")
        };
        let bytes = builder.padded_bytes();
        let position = space.place(bytes).expect("a longer frame had room");
        let number = self.next;
        self.next = FrameSequence(number.0 + 1);
        let header = FrameHeader {
            entries: 0,
            journal: self.id,
            sequence: number,
            position,
            durable: self.durable,
            tail,
            table_at: 0,
        };
        let (extent, pieces) = builder.finish(header);
        let live = LiveFrame { sequence: number, submitted: now, is_durable: Cell::new(false) };
        let (hold, mut owners) = match self.spare.pop() {
            Some(mut spare) => {
                *Rc::get_mut(&mut spare.hold).expect("nobody holds a spare") = live;
                (spare.hold, spare.owners)
            }
            None => (Rc::new(live), Vec::new()),
        };
        owners.extend(pieces.iter().map(|piece| piece.owner.0.clone()));
        self.memory_bytes += bytes;
        self.unstored_bytes += pieces.iter().map(|piece| piece.range.len()).sum::<usize>();
        self.frames.push_back(Submitted {
            hold: hold.clone(),
            is_written: false,
            tail,
            memory_bytes: bytes,
            owners,
        });
        let bytes = extent.freeze();
        SealedFrame { file: file.clone(), bytes, position, number, hold, pieces }
    }

    fn tail(&self) -> FrameSequence {
        self.frames.front().map_or(self.next, |frame| frame.hold.sequence).min(self.durable)
    }

    /// Notes that a frame is on the medium. Adds the owners in every frame that is durable now to `owners`, in order.
    pub(crate) fn complete(&mut self, number: FrameNumber, owners: &mut Vec<O>) {
        let first = self.frames.front().expect("a frame in flight is needed").hold.sequence;
        let place = usize::try_from(number.0 - first.0).expect("few frames are needed");
        self.frames[place].is_written = true;
        let durable = usize::try_from(self.durable.0.saturating_sub(first.0)).unwrap_or(0);
        for frame in self.frames.range(durable..) {
            if !frame.is_written {
                break;
            }
            frame.hold.is_durable.set(true);
            self.durable = FrameSequence(frame.hold.sequence.0 + 1);
            self.durable_tail = self.durable_tail.max(frame.tail);
            owners.extend(frame.owners.iter().cloned());
        }
        self.release();
    }

    /// Gives up the oldest frames that nobody needs any more.
    pub(crate) fn reclaim(&mut self) {
        while let Some(frame) = self.frames.front() {
            if Rc::strong_count(&frame.hold) > 1 || !frame.hold.is_durable() {
                break;
            }
            self.memory_bytes -= frame.memory_bytes;
            let gone = self.frames.pop_front().expect("the front was just seen");
            self.keep_spare(gone);
        }
        self.release();
    }

    fn keep_spare(&mut self, mut frame: Submitted<O>) {
        if self.spare.len() < SPARE_MAX {
            frame.owners.clear();
            self.spare.push(frame);
        }
    }

    fn release(&mut self) {
        let JournalFile::Made { space, .. } = &mut self.file else { return };
        // With nothing needed there is nothing to mistake a torn frame for, and no frame to say so with.
        let end = if self.frames.is_empty() { self.next } else { self.durable_tail };
        while self.released < end {
            space.release_oldest();
            self.released = FrameSequence(self.released.0 + 1);
        }
    }

    /// Notes that `bytes` of groups are on their way to their segments, or given up.
    pub(crate) fn note_stored(&mut self, bytes: usize) {
        self.unstored_bytes -= bytes;
    }

    /// Tells whether the oldest groups should be written to their segments now.
    pub(crate) fn wants_room(&self) -> bool {
        let is_occupied = match &self.file {
            JournalFile::Made { space, .. } => {
                let is_blocked = !self.waiting.is_empty() && !self.fits(space, FRAME_ROOM_LARGE);
                is_blocked || space.occupied_bytes() > self.file_bytes / 2
            }
            _ => false,
        };
        self.unstored_bytes > 0
            && (is_occupied
                || self.unstored_bytes > self.memory_bytes_max / 2
                || self.memory_bytes > self.memory_bytes_max / 4 * 3)
    }

    /// An owner in the oldest durable frame whose groups may not be on their way yet.
    pub(crate) fn next_to_store(&mut self) -> Option<(O, FrameSequence)> {
        let first = self.frames.front()?.hold.sequence;
        self.store_from = self.store_from.max(first);
        loop {
            let place = usize::try_from(self.store_from.0 - first.0).ok()?;
            let frame = self.frames.get_mut(place).filter(|frame| frame.hold.is_durable())?;
            if let Some(owner) = frame.owners.pop() {
                return Some((owner, self.store_from));
            }
            self.store_from = FrameSequence(self.store_from.0 + 1);
        }
    }

    /// Puts an owner back that could not store now.
    pub(crate) fn store_later(&mut self, owner: O, sequence: FrameSequence) {
        let found = self.frames.iter_mut().find(|frame| frame.hold.sequence == sequence);
        if let Some(frame) = found {
            frame.owners.push(owner);
        }
    }
}
