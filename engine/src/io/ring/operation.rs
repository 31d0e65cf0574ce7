//! One operation of the ring together with what the kernel may touch until it completes.
//!
//! Never a borrowed buffer: the operation owns what it lends, also after its future was dropped.

use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

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
pub(in crate::io) struct RingTurn(Operation<()>);

impl RingTurn {
    pub(super) fn begin(in_flight: &InFlight) -> RingTurn {
        // SAFETY: a no-op refers to no memory and no file.
        RingTurn(unsafe { submit(in_flight, (), opcode::Nop::new().build()) })
    }
}

impl Future for RingTurn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // It has no answer but that it has been.
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::io::{PipeReader, Write};
    use std::os::fd::AsRawFd;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use io_uring::types;

    use super::*;
    use crate::io::SystemClock;
    use crate::io::disk::Disk;
    use crate::io::environment::{Environment, ShardMain, ThreadOptions};
    use crate::io::ring::{RingDisk, RingRuntime};
    use crate::io::transport::Transport;

    /// A buffer that says when it is freed.
    struct Watched {
        bytes: Box<[u8; 8]>,
        freed: Sender<()>,
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            self.freed.send(()).unwrap();
        }
    }

    /// Begins to read a pipe into a watched buffer, then leaves: the operation held by a task, or dropped.
    struct LeaveReading {
        pipe: PipeReader,
        freed: Sender<()>,
        holds: bool,
    }

    impl ShardMain for LeaveReading {
        async fn run<D: Disk, T: Transport>(self, environment: Environment<D, T>) {
            let disk: &dyn Any = &environment.disk;
            let disk = disk.downcast_ref::<RingDisk>().unwrap();
            let mut buffer = Watched { bytes: Box::default(), freed: self.freed };
            let fd = types::Fd(self.pipe.as_raw_fd());
            let entry =
                opcode::Read::new(fd, buffer.bytes.as_mut_ptr(), 8).offset(u64::MAX).build();
            // SAFETY: the entry's address is in the box of `buffer` and its descriptor is that of the pipe; the
            // operation owns both alone.
            let read = unsafe { submit(disk.in_flight(), (buffer, self.pipe), entry) };
            if self.holds {
                environment.runtime.spawn(Box::pin(async move {
                    drop(read.await);
                }));
            } else {
                drop(read);
            }
            environment.runtime.turn().await;
        }
    }

    /// Ends the read, unless its buffer is freed before that, which would be the mistake.
    fn end_the_read(mut pipe: impl Write, freed: &Receiver<()>) -> bool {
        let is_freed = freed.recv_timeout(Duration::from_millis(200)).is_ok();
        pipe.write_all(b"late").unwrap();
        is_freed
    }

    #[test]
    fn buffer_is_not_freed_before_its_operation_completes() {
        for holds in [true, false] {
            let (reader, writer) = std::io::pipe().unwrap();
            let (freed, is_freed) = channel();
            let ender = std::thread::spawn(move || {
                let too_early = end_the_read(writer, &is_freed);
                (too_early, is_freed.recv().is_ok())
            });

            let options = ThreadOptions { arena_bytes: 4096, clock: Arc::new(SystemClock) };
            RingRuntime::run(options, LeaveReading { pipe: reader, freed, holds }).unwrap();

            let (too_early, freed_later) = ender.join().unwrap();
            assert!(!too_early, "the kernel may still write into a freed buffer");
            assert!(freed_later);
        }
    }
}
