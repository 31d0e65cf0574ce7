//! The simulated device as a test holds it: it outlives processes, loses power, fails and is looked into.
//!
//! What the engine sees of it is a [`SimulatedDisk`].

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use super::disk::SimulatedDisk;
use super::disk_state::DiskState;
use super::faults::{Fault, FaultKind};
use super::file_content::PowerLoss;
use super::request::{Answer, Completion, Request};
use super::runtime::{Scheduler, SimulatedRuntime};
use crate::id::Position;
use crate::io::arena::Arena;
use crate::io::disk::{DiskError, DiskOperation, DiskSpace};
use crate::io::runtime::LocalFuture;

/// How long after the death of its process a write may still land.
const LATE_LANDING_MAX: Duration = Duration::from_millis(100);

/// A device with a file system. `Clone` shares it.
#[derive(Clone, Debug)]
pub struct SimulatedStorage {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    scheduler: Rc<Scheduler>,
    state: RefCell<DiskState>,
}

impl SimulatedStorage {
    /// Makes an empty device: a root directory, nothing in it.
    #[must_use]
    pub fn new(runtime: &SimulatedRuntime) -> SimulatedStorage {
        let scheduler = runtime.scheduler();
        let state = RefCell::new(DiskState::new(scheduler.fork_random()));
        SimulatedStorage { shared: Rc::new(Shared { scheduler, state }) }
    }

    /// Gives the process that runs now a disk on this device, with an arena of its own.
    ///
    /// A process with several shards has several. After [`kill_process`](Self::kill_process) and
    /// [`lose_power`](Self::lose_power) earlier ones never answer again.
    #[must_use]
    pub fn disk(&self, arena: Arena) -> SimulatedDisk {
        let process = self.shared.state.borrow().process();
        SimulatedDisk::new(self.clone(), process, arena)
    }

    /// Ends the process, not the machine: what was written stays readable, and each operation in flight takes
    /// effect on time, late (even when the next process already runs), or never.
    pub fn kill_process(&self) {
        let landings = self.shared.state.borrow_mut().kill_process(LATE_LANDING_MAX);
        for (number, late_by) in landings {
            self.complete_after(number, late_by);
        }
    }

    /// Ends the machine. `loss` says what of the unsynced bytes and names is there at the next start.
    pub fn lose_power(&self, loss: PowerLoss) {
        self.shared.state.borrow_mut().lose_power(loss);
    }

    /// Counts the operations asked of the device since it was made.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.shared.state.borrow().operations()
    }

    /// Freezes the device at the operation with this number, counted as [`operations`](Self::operations) does:
    /// it and everything in flight then stays in flight for ever. [`crashed`](Self::crashed) tells; then call
    /// [`kill_process`](Self::kill_process) or [`lose_power`](Self::lose_power), which thaw it.
    pub fn crash_at(&self, operation: u64) {
        self.shared.state.borrow_mut().set_crash_at(Some(operation));
    }

    /// Takes a crash point back that was not reached.
    pub fn cancel_crash(&self) {
        self.shared.state.borrow_mut().set_crash_at(None);
    }

    /// Resolves when the crash point has been reached.
    #[must_use]
    pub fn crashed(&self) -> LocalFuture<()> {
        let storage = self.clone();
        Box::pin(std::future::poll_fn(move |context| {
            let mut state = storage.shared.state.borrow_mut();
            if state.is_frozen() {
                return Poll::Ready(());
            }
            state.watch_crash(context.waker());
            Poll::Pending
        }))
    }

    /// Tells whether the crash point has been reached.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        self.shared.state.borrow().is_frozen()
    }

    /// Plans a fault.
    pub fn inject(&self, fault: Fault) {
        self.shared.state.borrow_mut().faults.add(fault);
    }

    /// Lets the next sync of a file fail with EIO, and later ones succeed.
    pub fn fail_sync_once(&self, path: &Path) {
        self.inject(Fault::new(DiskOperation::Sync, FaultKind::Io).under(path));
    }

    /// Forgets the faults that are still to come.
    pub fn clear_faults(&self) {
        self.shared.state.borrow_mut().faults.clear();
    }

    /// Sets the size of the file system. Blocks never written take no room.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) {
        self.shared.state.borrow_mut().capacity_bytes = capacity_bytes;
    }

    /// The room left.
    #[must_use]
    pub fn space(&self) -> DiskSpace {
        self.shared.state.borrow().space()
    }

    /// Lets the running process hold at most `files_max` files open (EMFILE).
    pub fn set_open_files_max(&self, files_max: usize) {
        self.shared.state.borrow_mut().open_files_max = files_max;
    }

    /// Counts the files that the running process holds open.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.shared.state.borrow_mut().open_files()
    }

    /// Counts the operations in flight, those of dead processes included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.state.borrow().in_flight()
    }

    /// Every file below `directory`, in order of its path.
    #[must_use]
    pub fn files(&self, directory: &Path) -> Vec<PathBuf> {
        let state = self.shared.state.borrow();
        let mut files = Vec::new();
        let mut visit = vec![directory.to_path_buf()];
        while let Some(directory) = visit.pop() {
            for (name, entry) in state.names().list(&directory).unwrap_or_default() {
                let path = directory.join(name);
                if entry.is_directory { visit.push(path) } else { files.push(path) }
            }
        }
        files.sort();
        files
    }

    /// What a read of the whole file sees now.
    ///
    /// # Errors
    ///
    /// There is no such file.
    ///
    /// # Panics
    ///
    /// If the file does not fit memory.
    pub fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.shared.state.borrow_mut();
        let content = state.content(path)?;
        let length = usize::try_from(content.length_bytes()).expect("it fits memory");
        let mut bytes = vec![0; length];
        content.read(0, &mut bytes);
        Ok(bytes)
    }

    /// Overwrites bytes of a file, durably, as a bad device would.
    ///
    /// # Errors
    ///
    /// There is no such file.
    pub fn corrupt(&self, path: &Path, position: Position, bytes: &[u8]) -> io::Result<()> {
        self.shared.state.borrow_mut().content(path)?.corrupt(position.0, bytes);
        Ok(())
    }

    /// Flips the lowest bit of one byte of a file, durably.
    ///
    /// # Errors
    ///
    /// There is no such file, or no such byte in it.
    pub fn flip_bit(&self, path: &Path, position: Position) -> io::Result<()> {
        let bytes = self.read_file(path)?;
        let index = usize::try_from(position.0).unwrap_or(usize::MAX);
        let byte = *bytes.get(index).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.corrupt(path, position, &[byte ^ 1])
    }

    /// Cuts or extends (with zeros) a file, durably.
    ///
    /// # Errors
    ///
    /// There is no such file.
    pub fn cut(&self, path: &Path, length_bytes: u64) -> io::Result<()> {
        self.shared.state.borrow_mut().content(path)?.corrupt_length(length_bytes);
        Ok(())
    }

    /// Performs one operation of a process. Dropped, it leaves the operation running.
    pub(super) async fn perform(
        &self,
        process: u64,
        request: Request,
    ) -> Result<Answer, DiskError> {
        let completion = Rc::<Completion>::default();
        let submitted = self.shared.state.borrow_mut().submit(process, request, completion.clone());
        if let Some((number, duration)) = submitted {
            self.complete_after(number, duration);
        }
        std::future::poll_fn(|context| completion.poll(context)).await
    }

    fn complete_after(&self, number: u64, duration: Duration) {
        let storage = self.clone();
        self.shared.scheduler.call_after(duration, move || {
            let answered = storage.shared.state.borrow_mut().complete(number);
            if let Some((completion, answer)) = answered {
                completion.fill(answer);
            }
        });
    }
}

#[cfg(test)]
#[path = "storage_tests.rs"]
mod tests;
