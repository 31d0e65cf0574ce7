//! A frame on its way out of the ring: its bytes, and the list of their addresses that the kernel reads.

use io_uring::{opcode, squeue, types};

use crate::io::frame::OutgoingFrame;

/// The most addresses one operation takes: `UIO_MAXIOV`.
const SLICES_MAX: usize = 1024;

/// What is left to send.
pub(super) struct Outgoing {
    frame: OutgoingFrame,
    slices: Vec<Slice>,
}

/// The layout of `struct iovec`. Source: readv(2).
#[repr(C)]
struct Slice {
    base: *const u8,
    length: usize,
}

impl Outgoing {
    pub(super) fn new(frame: OutgoingFrame) -> Outgoing {
        Outgoing { frame, slices: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frame.is_empty()
    }

    /// An operation that writes what is left, or a first part of it. Its addresses hold until `self` changes
    /// or drops; moving it is no change.
    pub(super) fn write_entry(&mut self, fd: types::Fd) -> squeue::Entry {
        self.slices.clear();
        let next = self.frame.parts().take(SLICES_MAX);
        self.slices.extend(next.map(|part| Slice { base: part.as_ptr(), length: part.len() }));
        let count = u32::try_from(self.slices.len()).expect("at most SLICES_MAX");
        opcode::Writev::new(fd, self.slices.as_ptr().cast(), count).build()
    }

    /// Leaves the first `written` bytes behind.
    pub(super) fn advance(&mut self, written: usize) {
        self.frame.advance(written);
    }
}
