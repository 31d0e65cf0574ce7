//! Where the next frame goes in the circular file, and what is still needed of it.
//!
//! Pure: positions only.

use std::collections::VecDeque;
use std::ops::Range;

use crate::format::FIRST_FRAME_POSITION;
use crate::id::Position;

/// The room between the header and the end of a journal file.
#[derive(Debug)]
pub(super) struct Space {
    end: u64,
    head: u64,
    /// The frames that are needed, oldest first.
    live: VecDeque<Range<u64>>,
}

impl Space {
    pub(super) fn new(file_bytes: u64) -> Space {
        Space { end: file_bytes, head: FIRST_FRAME_POSITION.0, live: VecDeque::new() }
    }

    /// Where a frame of `bytes` would go; `None` while frames that are needed are in the way.
    pub(super) fn room_for(&self, bytes: usize) -> Option<Position> {
        let bytes = bytes as u64;
        let first = FIRST_FRAME_POSITION.0;
        let tail = self.live.front().map(|frame| frame.start);
        let is_wrapped = tail.is_some_and(|tail| self.head <= tail);
        let ahead_end = if is_wrapped { tail.unwrap_or(self.end) } else { self.end };
        if self.head + bytes <= ahead_end {
            return Some(Position(self.head));
        }
        let behind_end = tail.unwrap_or(self.end);
        (!is_wrapped && first + bytes <= behind_end).then_some(Position(first))
    }

    /// Takes the room that [`room_for`](Self::room_for) names.
    pub(super) fn place(&mut self, bytes: usize) -> Option<Position> {
        let position = self.room_for(bytes)?;
        self.head = position.0 + bytes as u64;
        self.live.push_back(position.0..self.head);
        Some(position)
    }

    /// Gives up the oldest frame.
    pub(super) fn release_oldest(&mut self) {
        self.live.pop_front();
    }

    /// The bytes from the oldest needed frame to the head, what was skipped at the end included.
    pub(super) fn occupied_bytes(&self) -> u64 {
        match self.live.front() {
            None => 0,
            Some(tail) if self.head > tail.start => self.head - tail.start,
            Some(tail) => self.end - tail.start + self.head - FIRST_FRAME_POSITION.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::BLOCK_BYTES;
    use proptest::prelude::{any, prop, proptest};

    const BLOCK: u64 = BLOCK_BYTES as u64;

    #[test]
    fn frames_follow_each_other_and_wrap_to_the_first_block() {
        let mut space = Space::new(5 * BLOCK);
        assert_eq!(space.place(2 * BLOCK_BYTES), Some(Position(BLOCK)));
        assert_eq!(space.place(BLOCK_BYTES), Some(Position(3 * BLOCK)));
        assert_eq!(space.place(2 * BLOCK_BYTES), None);
        space.release_oldest();
        assert_eq!(space.place(2 * BLOCK_BYTES), Some(Position(BLOCK)));
        assert_eq!(space.occupied_bytes(), 4 * BLOCK);
        assert_eq!(space.place(BLOCK_BYTES), None);
        space.release_oldest();
        space.release_oldest();
        assert_eq!(space.occupied_bytes(), 0);
    }

    #[test]
    fn frame_longer_than_the_file_never_fits() {
        assert_eq!(Space::new(3 * BLOCK).room_for(3 * BLOCK_BYTES), None);
        assert!(Space::new(3 * BLOCK).room_for(2 * BLOCK_BYTES).is_some());
    }

    proptest! {
        #[test]
        fn needed_frames_never_overlap(
            blocks in 2u64..20,
            steps in prop::collection::vec((any::<bool>(), 1usize..6), 1..200),
        ) {
            let mut space = Space::new(blocks * BLOCK);
            for (is_release, frame_blocks) in steps {
                if is_release {
                    space.release_oldest();
                } else if let Some(position) = space.place(frame_blocks * BLOCK_BYTES) {
                    assert!(position >= FIRST_FRAME_POSITION);
                }
                let frames: Vec<_> = space.live.iter().cloned().collect();
                for (place, frame) in frames.iter().enumerate() {
                    assert!(frame.end <= blocks * BLOCK);
                    for other in &frames[place + 1..] {
                        assert!(frame.end <= other.start || other.end <= frame.start);
                    }
                }
                let needed: u64 = frames.iter().map(|frame| frame.end - frame.start).sum();
                assert!(space.occupied_bytes() >= needed);
                assert!(space.occupied_bytes() <= (blocks - 1) * BLOCK);
            }
        }
    }
}
