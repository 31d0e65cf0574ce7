//! Starts a [`ShardMain`] on a shard that runs already, with the shard's own seams.
//!
//! The shard keeps its environment without its type; here are the kinds it can be of.

use std::any::Any;

use crate::io::blocking::{BlockingDisk, TokioTransport};
use crate::io::disk::Disk;
use crate::io::ring::{RingDisk, RingTransport};
use crate::io::runtime::LocalFuture;
use crate::io::simulated::{SimulatedDisk, SimulatedTransport};
use crate::io::transport::Transport;
use crate::io::{Environment, ShardMain};

/// Makes the task that runs `main` on the shard with this environment.
pub(super) fn run<M: ShardMain + 'static>(main: M, environment: &dyn Any) -> LocalFuture<()> {
    let main = match start::<M, RingDisk, RingTransport>(main, environment) {
        Ok(task) => return task,
        Err(main) => main,
    };
    let main = match start::<M, BlockingDisk, TokioTransport>(main, environment) {
        Ok(task) => return task,
        Err(main) => main,
    };
    match start::<M, SimulatedDisk, SimulatedTransport>(main, environment) {
        Ok(task) => task,
        Err(_unstarted) => unreachable!("a shard has one of three environments"),
    }
}

fn start<M: ShardMain + 'static, D: Disk, T: Transport>(
    main: M,
    environment: &dyn Any,
) -> Result<LocalFuture<()>, M> {
    match environment.downcast_ref::<Environment<D, T>>() {
        Some(environment) => Ok(Box::pin(main.run(environment.clone()))),
        None => Err(main),
    }
}
