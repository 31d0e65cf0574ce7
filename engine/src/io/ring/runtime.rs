//! The runtime of a shard that has a ring, and the way into and out of it.
//!
//! tokio-uring frees what operations in flight were lent before it cancels them. So it is only left when
//! none is in flight, whatever ended the shard.

use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;

use super::disk::{Caching, RingDisk};
use super::operation::RingTurn;
use super::transport::RingTransport;
use crate::io::arena::Arena;
use crate::io::environment::{Environment, ShardMain, StartError, ThreadOptions};
use crate::io::in_flight::InFlight;
use crate::io::runtime::{LocalFuture, Runtime, Turn, give_core_away};
use crate::io::tasks::Tasks;

/// Submissions go to the kernel when the thread parks or when this many wait; with a long queue they
/// would wait for a busy thread.
const ENTRIES: u32 = 64;

/// Tasks of one thread over tokio-uring.
#[derive(Clone, Debug)]
pub struct RingRuntime {
    tasks: Tasks,
    in_flight: InFlight,
}

impl Runtime for RingRuntime {
    fn spawn(&self, task: LocalFuture<()>) {
        self.tasks.spawn(task);
    }

    fn sleep(&self, duration: Duration) -> LocalFuture<()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn turn(&self) -> Turn {
        give_core_away();
        Turn::of_ring(RingTurn::begin(&self.in_flight))
    }
}

impl RingRuntime {
    /// Runs `main` on this thread until it ends, with a ring of its own, then waits for every operation in
    /// flight. A panic of `main` goes on after that wait.
    ///
    /// # Errors
    ///
    /// [`StartError`]: `main` never ran.
    pub fn run<M: ShardMain>(options: ThreadOptions, main: M) -> Result<(), StartError> {
        RingRuntime::run_cached(options, Caching::Around, main)
    }

    pub(in crate::io) fn run_cached<M: ShardMain>(
        options: ThreadOptions,
        caching: Caching,
        main: M,
    ) -> Result<(), StartError> {
        let arena = Arena::map(options.arena_bytes)
            .map_err(|source| StartError::Arena { bytes: options.arena_bytes, source })?;
        let ring = start_ring().map_err(|source| StartError::Ring { source })?;
        let in_flight = InFlight::default();
        let tasks = Tasks::default();
        let transport: Rc<RefCell<Option<RingTransport>>> = Rc::default();

        let ended = catch_unwind(AssertUnwindSafe(|| {
            ring.block_on(async {
                let disk = RingDisk::new(arena, in_flight.clone(), caching);
                let connections = RingTransport::new(in_flight.clone());
                *transport.borrow_mut() = Some(connections.clone());
                let runtime = RingRuntime { tasks: tasks.clone(), in_flight: in_flight.clone() };
                let environment = Environment {
                    disk,
                    transport: connections,
                    runtime: Rc::new(runtime),
                    clock: options.clock,
                };
                main.run(environment).await;
            });
        }));
        ring.block_on(async {
            tasks.stop().await;
            let transport = transport.borrow_mut().take();
            if let Some(transport) = transport {
                transport.close();
            }
            in_flight.drained().await;
        });
        drop(ring);

        if let Err(panic) = ended {
            resume_unwind(panic);
        }
        Ok(())
    }
}

/// A ring without interrupts for completions where the kernel knows how (6.0), else a plain one.
fn start_ring() -> io::Result<tokio_uring::Runtime> {
    let plain = tokio_uring::uring_builder();
    let mut cooperative = plain.clone();
    cooperative.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag();
    match start_with(&cooperative) {
        Err(refused) if Errno::from_io_error(&refused) == Some(Errno::INVAL) => start_with(&plain),
        answer => answer,
    }
}

fn start_with(setup: &io_uring::Builder) -> io::Result<tokio_uring::Runtime> {
    tokio_uring::Runtime::new(tokio_uring::builder().entries(ENTRIES).uring_builder(setup))
}
