//! One operation of the ring together with what the kernel may touch until it completes.
//!
//! Never a borrowed buffer: the operation owns what it lends, also after its future was dropped.

use std::io;
use std::marker::PhantomData;

use io_uring::{cqueue, opcode, squeue};
use tokio_uring::{InFlightOneshot, OneshotOutputTransform, UnsubmittedOneshot};

use crate::io::in_flight::{InFlight, Ticket};

/// An operation in flight. Resolves to the kernel's answer and what was lent; dropped before that, the
/// ring keeps what was lent until the completion arrives.
pub(super) type Operation<B> = InFlightOneshot<Lent<B>, Answered<B>>;

/// What an operation owns.
pub(super) struct Lent<B> {
    buffers: B,
    /// After `buffers`, so that they are gone when the count says so.
    _ticket: Ticket,
}

/// Turns a completion into the answer.
pub(super) struct Answered<B> {
    _buffers: PhantomData<B>,
}

impl<B: 'static> OneshotOutputTransform for Answered<B> {
    type Output = (io::Result<usize>, B);
    type StoredData = Lent<B>;

    fn transform_oneshot_output(self, lent: Lent<B>, completion: cqueue::Entry) -> Self::Output {
        let result = completion.result();
        let answer = usize::try_from(result).map_err(|_negative| errno(result));
        (answer, lent.buffers)
    }
}

/// A negative result is a negated errno. Source: io_uring_enter(2).
fn errno(result: i32) -> io::Error {
    io::Error::from_raw_os_error(result.wrapping_neg())
}

/// Puts `entry` on the ring of this thread; it reaches the kernel when the runtime parks.
///
/// # Safety
///
/// Every address and file descriptor in `entry` stays valid, and its memory free of other writers (for the
/// kernel to read) or other users (for it to write), until `buffers` is dropped or handed back.
///
/// # Panics
///
/// Outside of a ring's runtime.
pub(super) unsafe fn submit<B: Unpin + 'static>(
    in_flight: &InFlight,
    buffers: B,
    entry: squeue::Entry,
) -> Operation<B> {
    let lent = Lent { buffers, _ticket: in_flight.ticket() };
    UnsubmittedOneshot::new(lent, Answered { _buffers: PhantomData }, entry).submit()
}

/// An operation that does nothing but go through the ring.
pub(super) fn no_op(in_flight: &InFlight) -> Operation<()> {
    // SAFETY: a no-op refers to no memory and no file.
    unsafe { submit(in_flight, (), opcode::Nop::new().build()) }
}
