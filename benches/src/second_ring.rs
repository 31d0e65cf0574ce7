//! Three ways for a shard to reach its files: the engine's `Disk` on tokio-uring, a bare ring, and a bare ring whose
//! completions reach a tokio-uring runtime through an eventfd, as a second ring for data would have to.
//!
//! Answers ADR-0010. Keeps no log; each does the same operations on the same pre-written file.

use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use io_uring::{IoUring, opcode, types};
use palisade_engine::id::Position;
use palisade_engine::io::disk::{Disk, DiskFile, OpenMode, WriteMode};
use palisade_engine::io::ring::RingRuntime;
use palisade_engine::io::transport::Transport;
use palisade_engine::io::{Environment, ShardMain, SystemClock, ThreadOptions};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::unix::AsyncFd;

use crate::raw_ring::{RawOperation, RawWork};
use crate::stopwatch::Stopwatch;

const ARENA_BYTES: usize = 16 << 20;
const ENTRIES: u32 = 64;

/// How a ring is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// Nothing asked for, the file by its descriptor.
    Plain,
    /// `SINGLE_ISSUER` and `COOP_TASKRUN`, the file registered.
    Cooperative,
    /// `SINGLE_ISSUER` and `DEFER_TASKRUN`, the file registered.
    Deferred,
}

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The engine's `Disk`, as it is.
    Engine,
    /// A ring and nothing else on the thread: what no runtime can pass.
    Bare(Setup),
    /// A ring beside the runtime, completions through an eventfd.
    Beside(Setup),
}

/// What a run took.
#[derive(Debug)]
pub struct Cost {
    /// From the first submission to the last completion.
    pub elapsed: Duration,
    /// Processor time of the thread meanwhile, the kernel's part on it included.
    pub processor: Duration,
    /// Of each operation.
    pub latencies: Vec<Duration>,
}

impl Lane {
    /// Does `work` on the pre-written file at `path`: writes in order, reads at random.
    ///
    /// # Errors
    ///
    /// The kernel's, where this lane's own code asks it.
    ///
    /// # Panics
    ///
    /// If an operation fails.
    pub fn run(self, path: &Path, work: RawWork) -> io::Result<Cost> {
        match self {
            Lane::Engine => Ok(run_through_disk(path, work)),
            Lane::Bare(setup) => run_bare(&mut Ring::new(setup, path, work)?),
            Lane::Beside(setup) => run_beside(setup, path, work),
        }
    }
}

/// Where the `index`th operation goes.
fn position_of(index: u64, places: u64, work: RawWork) -> u64 {
    let place = match work.operation {
        RawOperation::Read => {
            let mixed = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ (mixed >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16
        }
        RawOperation::Write | RawOperation::WriteDurable => index,
    };
    place % places * work.bytes as u64
}

/// Counts operations out and times them.
struct Meter {
    clock: Stopwatch,
    processor: Duration,
    next: Cell<u64>,
    count: u64,
    latencies: RefCell<Vec<Duration>>,
}

impl Meter {
    fn start(work: RawWork) -> Meter {
        Meter {
            clock: Stopwatch::start(),
            processor: processor_time(),
            next: Cell::new(0),
            count: work.count,
            latencies: RefCell::default(),
        }
    }

    fn take(&self) -> Option<u64> {
        let index = self.next.get();
        self.next.set(index + 1);
        (index < self.count).then_some(index)
    }

    fn completed(&self, began: Stopwatch) {
        self.latencies.borrow_mut().push(began.elapsed());
    }

    fn stop(&self) -> Cost {
        Cost {
            elapsed: self.clock.elapsed(),
            processor: processor_time().saturating_sub(self.processor),
            latencies: self.latencies.take(),
        }
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("processor time is not negative")
}

/// A ring with one file and a buffer for each of its slots.
struct Ring {
    ring: IoUring,
    setup: Setup,
    /// `'static`: an operation in flight reaches only memory that nobody else will ever have.
    memory: &'static mut [u8],
    file: File,
    places: u64,
    work: RawWork,
    waiting: u32,
}

impl Ring {
    fn new(setup: Setup, path: &Path, work: RawWork) -> io::Result<Ring> {
        let direct = OFlags::DIRECT.bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(direct).open(path)?;
        let mut builder = IoUring::builder();
        match setup {
            Setup::Plain => {}
            Setup::Cooperative => {
                builder.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag();
            }
            Setup::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun();
            }
        }
        let ring = builder.build(ENTRIES)?;
        if setup != Setup::Plain {
            ring.submitter().register_files(&[file.as_raw_fd()])?;
        }
        let map = memmap2::MmapMut::map_anon(work.bytes * work.depth as usize)?;
        let map: &'static mut memmap2::MmapMut = Box::leak(Box::new(map));
        let memory: &'static mut [u8] = map;
        memory.fill(0xa5);
        let whole = io::IoSliceMut::new(memory);
        // SAFETY: std guarantees that an `IoSliceMut` has the layout of an iovec, and `whole` outlives the slice.
        let iovecs = unsafe { std::slice::from_raw_parts((&raw const whole).cast(), 1) };
        // SAFETY: the iovec describes `memory`, which is `'static`, so it outlives the registration.
        unsafe { ring.submitter().register_buffers(iovecs) }?;
        let places = file.metadata()?.len() / work.bytes as u64;
        Ok(Ring { ring, setup, memory, file, places, work, waiting: 0 })
    }

    /// Puts an operation of `slot` on the queue; it reaches the kernel with [`enter`](Self::enter).
    fn push(&mut self, slot: usize, index: u64) {
        let position = position_of(index, self.places, self.work);
        let buffer = self.memory[slot * self.work.bytes..].as_mut_ptr();
        let length = u32::try_from(self.work.bytes).expect("an operation is below 4 GiB");
        let dsync = ReadWriteFlags::DSYNC.bits().cast_signed();
        macro_rules! entry {
            ($fd:expr) => {
                match self.work.operation {
                    RawOperation::Read => {
                        opcode::ReadFixed::new($fd, buffer, length, 0).offset(position).build()
                    }
                    RawOperation::Write => {
                        opcode::WriteFixed::new($fd, buffer, length, 0).offset(position).build()
                    }
                    RawOperation::WriteDurable => opcode::WriteFixed::new($fd, buffer, length, 0)
                        .offset(position)
                        .rw_flags(dsync)
                        .build(),
                }
            };
        }
        let entry = match self.setup {
            Setup::Plain => entry!(types::Fd(self.file.as_raw_fd())),
            Setup::Cooperative | Setup::Deferred => entry!(types::Fixed(0)),
        };
        let entry = entry.user_data(slot as u64);
        // SAFETY: the entry names bytes of `self.memory`, which is `'static`; the slot has no other operation in flight
        // and no reference into its bytes is kept. The file is open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("at most ENTRIES slots, the ring's size");
        self.waiting += 1;
    }

    /// Hands what waits to the kernel and lets it post completions, waiting for `want` of them.
    fn enter(&mut self, want: u32) -> io::Result<()> {
        const GETEVENTS: u32 = 1;
        // A plain ring posts completions by interrupting the thread: nothing to ask for.
        let flags = if self.setup == Setup::Plain && want == 0 { 0 } else { GETEVENTS };
        if flags == 0 && self.waiting == 0 {
            return Ok(());
        }
        let submitter = self.ring.submitter();
        // SAFETY: no argument is passed, and every entry was checked by `push`.
        let entered = unsafe { submitter.enter::<()>(self.waiting, want, flags, None) }?;
        self.waiting -= u32::try_from(entered).expect("no more than were waiting");
        Ok(())
    }

    /// Hands over the slots whose operations have completed.
    fn completed(&mut self, mut each: impl FnMut(usize)) {
        for entry in self.ring.completion() {
            let moved = usize::try_from(entry.result());
            assert_eq!(moved, Ok(self.work.bytes), "an operation of a bench: {}", entry.result());
            each(usize::try_from(entry.user_data()).expect("a slot"));
        }
    }
}

fn run_bare(ring: &mut Ring) -> io::Result<Cost> {
    let meter = Meter::start(ring.work);
    let mut began = vec![meter.clock; ring.work.depth as usize];
    let mut in_flight = 0;
    let mut free: Vec<usize> = (0..began.len()).collect();
    loop {
        while let Some(slot) = free.pop() {
            let Some(index) = meter.take() else { break };
            began[slot] = Stopwatch::start();
            ring.push(slot, index);
            in_flight += 1;
        }
        if in_flight == 0 {
            return Ok(meter.stop());
        }
        ring.enter(1)?;
        ring.completed(|slot| {
            meter.completed(began[slot]);
            free.push(slot);
            in_flight -= 1;
        });
    }
}

/// The second ring of a thread that has a runtime.
struct Second {
    ring: RefCell<Ring>,
    /// Signalled by the kernel whenever a completion is to be had.
    signal: AsyncFd<OwnedFd>,
    slots: RefCell<Vec<Slot>>,
    driver: RefCell<Option<Waker>>,
    is_stopping: Cell<bool>,
}

#[derive(Clone, Default)]
struct Slot {
    is_completed: bool,
    waker: Option<Waker>,
}

impl Second {
    fn new(ring: Ring) -> io::Result<Second> {
        let signal = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        ring.ring.submitter().register_eventfd(signal.as_raw_fd())?;
        let slots = RefCell::new(vec![Slot::default(); ring.work.depth as usize]);
        // SAFETY: `signal` is owned by the registration alone and answers with the same descriptor as long as it lives.
        let signal = unsafe { AsyncFd::register(signal) }?;
        Ok(Second {
            ring: RefCell::new(ring),
            signal,
            slots,
            driver: RefCell::default(),
            is_stopping: Cell::new(false),
        })
    }

    async fn operate(&self, slot: usize, index: u64) {
        self.slots.borrow_mut()[slot].is_completed = false;
        self.ring.borrow_mut().push(slot, index);
        self.wake_driver();
        poll_fn(|context| {
            let slot = &mut self.slots.borrow_mut()[slot];
            if slot.is_completed {
                return Poll::Ready(());
            }
            slot.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn wake_driver(&self) {
        if let Some(driver) = self.driver.borrow_mut().take() {
            driver.wake();
        }
    }

    /// Submits what the tasks before it have queued, and completes what the kernel has signalled. It runs after the
    /// tasks that were ready, so one entry into the kernel serves all of them.
    fn poll_driver(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut is_signalled = false;
        loop {
            if is_signalled || self.ring.borrow().waiting > 0 {
                self.ring.borrow_mut().enter(0).expect("the kernel takes the entries");
            }
            self.ring.borrow_mut().completed(|slot| {
                let slot = &mut self.slots.borrow_mut()[slot];
                slot.is_completed = true;
                if let Some(waker) = slot.waker.take() {
                    waker.wake();
                }
            });
            // Edge-triggered: the counter of the eventfd need not be read.
            match self.signal.poll_read_ready(context) {
                Poll::Ready(guard) => guard.expect("an eventfd has no errors").clear_ready(),
                Poll::Pending if self.is_stopping.get() => return Poll::Ready(()),
                Poll::Pending => {
                    *self.driver.borrow_mut() = Some(context.waker().clone());
                    return Poll::Pending;
                }
            }
            is_signalled = true;
        }
    }
}

fn run_beside(setup: Setup, path: &Path, work: RawWork) -> io::Result<Cost> {
    let mut builder = tokio_uring::uring_builder();
    builder.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag();
    let mut runtime = tokio_uring::builder();
    runtime.entries(ENTRIES).uring_builder(&builder);
    runtime.start(async {
        let second = Rc::new(Second::new(Ring::new(setup, path, work)?)?);
        let driver = tokio_uring::spawn({
            let second = Rc::clone(&second);
            async move { poll_fn(|context| second.poll_driver(context)).await }
        });
        let meter = Meter::start(work);
        let caller = |slot: u32| {
            let (second, meter) = (&second, &meter);
            async move {
                while let Some(index) = meter.take() {
                    let began = Stopwatch::start();
                    second.operate(slot as usize, index).await;
                    meter.completed(began);
                }
            }
        };
        let mut callers: FuturesUnordered<_> = (0..work.depth).map(caller).collect();
        while callers.next().await.is_some() {}
        let cost = meter.stop();
        second.is_stopping.set(true);
        second.wake_driver();
        driver.await.expect("the driver ends when told");
        Ok(cost)
    })
}

fn run_through_disk(path: &Path, work: RawWork) -> Cost {
    let (sender, receiver) = sync_channel(1);
    let load = DiskLoad { path: path.to_owned(), work, sender };
    let options = ThreadOptions { arena_bytes: ARENA_BYTES, clock: Arc::new(SystemClock) };
    RingRuntime::run(options, load).expect("a thread with a ring");
    receiver.recv().expect("the load has ended")
}

struct DiskLoad {
    path: PathBuf,
    work: RawWork,
    sender: SyncSender<Cost>,
}

impl ShardMain for DiskLoad {
    async fn run<D: Disk, T: Transport>(self, environment: Environment<D, T>) {
        let disk = &environment.disk;
        let work = self.work;
        let file = disk.open(&self.path, OpenMode::Write).await.expect("the pre-written file");
        let places = file.length().await.expect("its length") / work.bytes as u64;
        let meter = Meter::start(work);
        let caller = |_slot: u32| {
            let (file, meter) = (&file, &meter);
            let mut extent = disk.arena().allocate(work.bytes).expect("room in a fresh arena");
            async move {
                if work.operation == RawOperation::Read {
                    while let Some(index) = meter.take() {
                        let began = Stopwatch::start();
                        let position = Position(position_of(index, places, work));
                        extent = file.read(extent, position).await.expect("a read of a bench");
                        meter.completed(began);
                    }
                    return;
                }
                let mode = match work.operation {
                    RawOperation::WriteDurable => WriteMode::Durable,
                    RawOperation::Write | RawOperation::Read => WriteMode::Written,
                };
                let bytes = extent.freeze();
                while let Some(index) = meter.take() {
                    let began = Stopwatch::start();
                    let position = Position(position_of(index, places, work));
                    file.write(bytes.clone(), position, mode).await.expect("a write of a bench");
                    meter.completed(began);
                }
            }
        };
        let mut callers: FuturesUnordered<_> = (0..work.depth).map(caller).collect();
        while callers.next().await.is_some() {}
        drop(callers);
        self.sender.send(meter.stop()).expect("the receiver waits for the thread to end");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw_ring::RawFile;

    #[test]
    fn every_lane_completes_every_operation_once() {
        let beside = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let directory = tempfile::tempdir_in(beside).unwrap();
        let path = directory.path().join("raw");
        drop(RawFile::prewritten(&path, 1 << 20).unwrap());
        let setups = [Setup::Plain, Setup::Cooperative, Setup::Deferred];
        let lanes = setups.into_iter().flat_map(|setup| [Lane::Bare(setup), Lane::Beside(setup)]);

        for lane in lanes.chain([Lane::Engine]) {
            for operation in [RawOperation::WriteDurable, RawOperation::Read] {
                let work = RawWork { operation, bytes: 8_192, depth: 5, count: 123 };
                let cost = lane.run(&path, work).unwrap();

                assert_eq!(cost.latencies.len(), 123, "{lane:?}");
            }
        }
    }
}
