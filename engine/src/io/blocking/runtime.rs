//! The runtime of a thread that has no ring: tokio, with a few helper threads for what blocks.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use tokio::task::LocalSet;

use super::disk::BlockingDisk;
use super::transport::TokioTransport;
use crate::io::arena::Arena;
use crate::io::environment::{Environment, ShardMain, StartError, ThreadOptions};
use crate::io::in_flight::InFlight;
use crate::io::runtime::{LocalFuture, Runtime, Turn, give_core_away};
use crate::io::tasks::Tasks;

/// The disk operations of a shard that run at the same time; others wait for their turn.
const BLOCKING_THREADS_MAX: usize = 16;

/// Tasks of one thread over tokio.
#[derive(Clone, Debug)]
pub struct BlockingRuntime {
    tasks: Tasks,
}

impl Runtime for BlockingRuntime {
    fn spawn(&self, task: LocalFuture<()>) {
        self.tasks.spawn(task);
    }

    fn sleep(&self, duration: Duration) -> LocalFuture<()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn turn(&self) -> Turn {
        give_core_away();
        Turn::new(Box::pin(tokio::task::yield_now()))
    }
}

impl BlockingRuntime {
    /// Runs `main` on this thread until it ends, then waits for every operation in flight. A panic of `main`
    /// goes on after that wait.
    ///
    /// # Errors
    ///
    /// [`StartError`]: `main` never ran.
    pub fn run<M: ShardMain>(options: ThreadOptions, main: M) -> Result<(), StartError> {
        let arena = Arena::map(options.arena_bytes)
            .map_err(|source| StartError::Arena { bytes: options.arena_bytes, source })?;
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .build()
            .map_err(|source| StartError::Runtime { source })?;
        let local = LocalSet::new();
        let in_flight = InFlight::default();
        let tasks = Tasks::default();

        let ended = catch_unwind(AssertUnwindSafe(|| {
            let environment = Environment {
                disk: BlockingDisk::counted(arena, in_flight.clone()),
                transport: TokioTransport::new(),
                runtime: Rc::new(BlockingRuntime { tasks: tasks.clone() }),
                clock: options.clock,
            };
            local.block_on(&tokio, main.run(environment));
        }));
        local.block_on(&tokio, async {
            tasks.stop().await;
            in_flight.drained().await;
        });

        if let Err(panic) = ended {
            resume_unwind(panic);
        }
        Ok(())
    }
}
