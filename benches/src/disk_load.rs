//! The raw ring's work done through the engine's `Disk` seam, without a log: what the seam alone costs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use palisade_engine::id::Position;
use palisade_engine::io::disk::{Disk, DiskFile, OpenMode, WriteMode};
use palisade_engine::io::ring::RingRuntime;
use palisade_engine::io::transport::Transport;
use palisade_engine::io::{Environment, ShardMain, SystemClock, ThreadOptions};

use crate::raw_ring::{RawOperation, RawWork};
use crate::stopwatch::Stopwatch;

const ARENA_BYTES: usize = 16 << 20;

/// Does `work`, writes only, on the pre-written file at `path`, from its start again at its end, and returns the time
/// from the first submission to the last completion.
///
/// # Panics
///
/// If a write fails, or the work reads.
#[must_use]
pub fn write_through_disk(path: &Path, work: RawWork) -> Duration {
    let (sender, receiver) = sync_channel(1);
    let load = DiskLoad { path: path.to_owned(), work, sender };
    let options = ThreadOptions { arena_bytes: ARENA_BYTES, clock: Arc::new(SystemClock) };
    RingRuntime::run(options, load).expect("a thread with a ring");
    receiver.recv().expect("the load has ended")
}

struct DiskLoad {
    path: PathBuf,
    work: RawWork,
    sender: SyncSender<Duration>,
}

impl ShardMain for DiskLoad {
    async fn run<D: Disk, T: Transport>(self, environment: Environment<D, T>) {
        let elapsed = write_all(&environment.disk, &self.path, self.work).await;
        self.sender.send(elapsed).expect("the receiver waits for the thread to end");
    }
}

async fn write_all<D: Disk>(disk: &D, path: &Path, work: RawWork) -> Duration {
    let mode = match work.operation {
        RawOperation::WriteDurable => WriteMode::Durable,
        RawOperation::Write => WriteMode::Written,
        RawOperation::Read => unreachable!("this load writes"),
    };
    let file = disk.open(path, OpenMode::Write).await.expect("the pre-written file");
    let places = file.length().await.expect("its length") / work.bytes as u64;
    let extent = disk.arena().allocate(work.bytes).expect("room in a fresh arena").freeze();
    let mut in_flight = FuturesUnordered::new();
    let mut submitted = 0;
    let clock = Stopwatch::start();
    loop {
        while submitted < work.count && in_flight.len() < work.depth as usize {
            let position = Position((submitted % places) * work.bytes as u64);
            in_flight.push(file.write(extent.clone(), position, mode));
            submitted += 1;
        }
        let Some(written) = in_flight.next().await else { break };
        written.expect("a write of a bench");
    }
    clock.elapsed()
}
