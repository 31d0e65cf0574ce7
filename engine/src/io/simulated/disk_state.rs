//! The state of one simulated device: its names, its files, what is in flight, and what crashes do to them.
//!
//! Applies requests at the instants `storage` chooses; knows no tasks and no time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use fastrand::Rng;

use super::faults::{FaultKind, FaultPlan};
use super::file_content::{FileContent, PowerLoss};
use super::latency;
use super::names::{Inode, Names};
use super::request::{Answer, Completion, OpenFile, Request};
use crate::id::BLOCK_BYTES;
use crate::io::arena::Extent;
use crate::io::disk::{DirectoryEntry, DiskError, DiskSpace, OpenMode, WriteMode};

/// What a device without a set capacity claims to have.
const CAPACITY_BYTES_DEFAULT: u64 = 1 << 40;

/// When this variable is set, every operation is printed: for whoever looks into one seed.
const TRACE: &str = "PALISADE_SIMULATION_TRACE";

/// The unit in which readers may meet a write in flight half way.
const SECTOR_BYTES: usize = 512;

/// A request that was handed over and not answered yet.
#[derive(Debug)]
pub(super) struct Submitted {
    process: u64,
    request: Request,
    fault: Option<FaultKind>,
    /// The last write number given out when it was handed over: what a sync covers.
    horizon: u64,
    completion: Rc<Completion>,
}

/// An answer, and where it goes.
pub(super) type Answered = (Rc<Completion>, Result<Answer, DiskError>);

/// A device and the file system on it.
#[derive(Debug)]
pub(super) struct DiskState {
    pub(super) random: Rng,
    pub(super) faults: FaultPlan,
    pub(super) capacity_bytes: u64,
    pub(super) open_files_max: usize,
    /// Handles dropped since the last look, by number.
    pub(super) closed: Rc<RefCell<Vec<u64>>>,
    names: Names,
    files: BTreeMap<Inode, FileContent>,
    /// Open files: the process and the inode.
    handles: BTreeMap<u64, (u64, Inode)>,
    submitted: BTreeMap<u64, Submitted>,
    /// The process that runs now. Others are dead.
    process: u64,
    operations: u64,
    crash_at: Option<u64>,
    /// The crash point was passed: nothing completes any more.
    is_frozen: bool,
    crash_watchers: Vec<Waker>,
    last_number: u64,
    is_traced: bool,
}

impl DiskState {
    pub(super) fn new(random: Rng) -> DiskState {
        DiskState {
            random,
            faults: FaultPlan::default(),
            capacity_bytes: CAPACITY_BYTES_DEFAULT,
            open_files_max: usize::MAX,
            closed: Rc::default(),
            names: Names::new(),
            files: BTreeMap::new(),
            handles: BTreeMap::new(),
            submitted: BTreeMap::new(),
            process: 1,
            operations: 0,
            crash_at: None,
            is_frozen: false,
            crash_watchers: Vec::new(),
            last_number: 0,
            is_traced: std::env::var_os(TRACE).is_some(),
        }
    }

    fn trace(&self, line: impl FnOnce(u64) -> String) {
        if self.is_traced {
            eprintln!("{}", line(self.operations));
        }
    }

    pub(super) fn process(&self) -> u64 {
        self.process
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    pub(super) fn open_files(&mut self) -> usize {
        self.note_closed();
        self.handles.len()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.submitted.len()
    }

    pub(super) fn set_crash_at(&mut self, operation: Option<u64>) {
        self.crash_at = operation;
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    pub(super) fn watch_crash(&mut self, waker: &Waker) {
        self.crash_watchers.push(waker.clone());
    }

    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    pub(super) fn content(&mut self, path: &Path) -> io::Result<&mut FileContent> {
        let entry = self.names.find(path)?;
        self.files.get_mut(&entry.inode).ok_or_else(|| io::ErrorKind::IsADirectory.into())
    }

    /// Takes a request; returns its number and how long it takes, or `None` when it will never complete.
    pub(super) fn submit(
        &mut self,
        process: u64,
        request: Request,
        completion: Rc<Completion>,
    ) -> Option<(u64, Duration)> {
        if process != self.process || self.is_frozen {
            return None;
        }
        self.check_overlap(&request);
        self.operations += 1;
        self.trace(|number| {
            let (operation, path) = (request.operation(), request.path().display());
            format!("{number} process {process}: {operation:?} {path} {:?}", request.position())
        });
        let fault = self.faults.strike(request.operation(), request.path());
        let mut duration = latency::draw(&request, &mut self.random);
        if let Some(FaultKind::Delay(delay)) = fault {
            duration += delay;
        }
        let number = self.next_number();
        let submitted = Submitted { process, request, fault, horizon: number, completion };
        self.submitted.insert(number, submitted);
        if self.crash_at.is_some_and(|crash_at| self.operations >= crash_at) {
            self.is_frozen = true;
            self.crash_watchers.drain(..).for_each(Waker::wake);
            return None;
        }
        (fault != Some(FaultKind::Hang)).then_some((number, duration))
    }

    /// Lets a request take effect, now that its time has come; `None` when it is gone or the machine stands still.
    pub(super) fn complete(&mut self, number: u64) -> Option<Answered> {
        if self.is_frozen {
            return None;
        }
        let submitted = self.submitted.remove(&number)?;
        let (operation, position) = (submitted.request.operation(), submitted.request.position());
        let path = submitted.request.path().to_path_buf();
        let is_dead = submitted.process != self.process;
        let completion = submitted.completion;
        let error = submitted.fault.and_then(FaultKind::error);
        let answer = match error {
            Some(error) => {
                self.fail(submitted.request, submitted.horizon);
                Err(error)
            }
            None => self.apply(submitted.request, submitted.horizon, is_dead),
        };
        let answer = answer.map_err(|source| DiskError { operation, path, position, source });
        Some((completion, answer))
    }

    /// The process dies, the machine goes on. Returns which operations in flight still take effect, and when.
    ///
    /// Only writes land late: the device works on them by itself. Everything else runs on a thread of the
    /// process, and its lock is not free before its last thread has gone.
    pub(super) fn kill_process(&mut self, late_max: Duration) -> Vec<(u64, Duration)> {
        let (left_behind, earlier): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.submitted)
                .into_iter()
                .partition(|(_, submitted)| submitted.process == self.process);
        self.submitted = earlier;
        let mut landings = Vec::new();
        for submitted in left_behind.into_values() {
            let is_hung = submitted.fault == Some(FaultKind::Hang);
            let is_write = matches!(submitted.request, Request::Write { .. });
            match self.random.u8(..4) {
                0 => {}
                _ if !is_write && is_hung => {}
                _ if !is_write => {
                    let _ = self.apply(submitted.request, submitted.horizon, true);
                }
                kind => {
                    // Soon, while the next process is just looking, or when it has long been serving.
                    let late_max = late_max / [1, 1024, 32, 1][usize::from(kind)];
                    let nanoseconds = u64::try_from(late_max.as_nanos()).expect("short");
                    let late_by = Duration::from_nanos(self.random.u64(..=nanoseconds));
                    // A new number, so that its planned completion finds nothing.
                    let number = self.next_number();
                    if !is_hung {
                        landings.push((number, late_by));
                    }
                    self.submitted.insert(number, submitted);
                }
            }
        }
        self.trace(|number| format!("{number} process {} killed", self.process));
        self.start_next_process();
        landings
    }

    /// The machine dies: the medium keeps what it keeps, nothing stays in flight.
    pub(super) fn lose_power(&mut self, loss: PowerLoss) {
        let loss = match (loss, self.random.u8(..8)) {
            (PowerLoss::Random, 0) => PowerLoss::LoseUnsynced,
            (PowerLoss::Random, 1) => PowerLoss::KeepUnsynced,
            (PowerLoss::Random, _) => PowerLoss::Mixed,
            (loss, _) => loss,
        };
        for (_, submitted) in std::mem::take(&mut self.submitted) {
            if loss != PowerLoss::LoseUnsynced && changes_the_medium(&submitted.request) {
                // Unsynced, so that the loss below decides what is kept of it.
                let _ = self.apply(submitted.request, submitted.horizon, true);
            }
        }
        self.names.lose_power(loss, &mut self.random);
        for content in self.files.values_mut() {
            content.lose_power(loss, &mut self.random);
        }
        self.handles.clear();
        self.trace(|number| format!("{number} power lost: {loss:?}"));
        self.start_next_process();
        self.collect();
    }

    fn start_next_process(&mut self) {
        let dead = self.process;
        self.handles.retain(|_, (process, _)| *process != dead);
        self.process += 1;
        self.crash_at = None;
        self.is_frozen = false;
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn check_overlap(&self, request: &Request) {
        let Some((inode, range)) = request.written_range() else { return };
        for other in self.submitted.values().filter(|other| other.process == self.process) {
            let Some((other_inode, other_range)) = other.request.written_range() else { continue };
            assert!(
                inode != other_inode
                    || range.end <= other_range.start
                    || other_range.end <= range.start,
                "{}: a write of {range:?} while one of {other_range:?} is in flight",
                request.path().display(),
            );
        }
    }

    fn apply(&mut self, request: Request, horizon: u64, is_dead: bool) -> io::Result<Answer> {
        let number = self.next_number();
        match request {
            Request::Open { path, mode } => return self.open(number, &path, mode),
            Request::Read { file, buffer, position } => {
                return Ok(Answer::Read(self.read(file.inode, buffer, position.0)));
            }
            Request::Write { file, bytes, position, mode } => {
                let bytes = bytes.as_slice();
                self.check_room(file.inode, position.0, bytes.len())?;
                let Some(content) = self.files.get_mut(&file.inode) else {
                    return Ok(Answer::Done);
                };
                content.write(number, position.0, bytes);
                // Nobody hears of a dead process's write, so the worse case is that it is not durable.
                if mode == WriteMode::Durable && !is_dead {
                    content.make_range_durable(number, position.0, bytes.len());
                }
            }
            Request::Sync { file } => {
                if let Some(content) = self.files.get_mut(&file.inode) {
                    content.sync(horizon);
                }
            }
            Request::Length { file } => {
                return Ok(Answer::Length(self.files[&file.inode].length_bytes()));
            }
            Request::SetLength { file, length_bytes } => {
                if let Some(content) = self.files.get_mut(&file.inode) {
                    content.set_length(number, length_bytes);
                }
            }
            Request::CreateDirectory { path } => self.names.create_directory(number, &path)?,
            Request::List { path } => {
                let entries = self.names.list(&path)?.into_iter();
                let entries = entries
                    .map(|(name, entry)| DirectoryEntry { name, is_directory: entry.is_directory });
                return Ok(Answer::Entries(entries.collect()));
            }
            Request::Rename { from, to } => self.names.rename(number, &from, &to)?,
            Request::Remove { path, is_directory } => {
                self.names.remove(number, &path, is_directory)?;
            }
            Request::SyncDirectory { path } => {
                let directory = self.names.directory(&path)?;
                self.names.sync(horizon, directory);
                self.collect();
            }
            Request::Space { path } => {
                self.names.find(&path)?;
                return Ok(Answer::Space(self.space()));
            }
        }
        Ok(Answer::Done)
    }

    /// What an operation that fails leaves behind.
    fn fail(&mut self, request: Request, horizon: u64) {
        let number = self.next_number();
        match request {
            Request::Write { file, bytes, position, .. } => {
                if let Some(content) = self.files.get_mut(&file.inode) {
                    let random = &mut self.random;
                    content.write_in_part(number, position.0, bytes.as_slice(), random);
                }
            }
            Request::Sync { file } => {
                if let Some(content) = self.files.get_mut(&file.inode) {
                    content.fail_sync(horizon, &mut self.random);
                }
            }
            Request::SyncDirectory { path } => {
                if let Ok(directory) = self.names.directory(&path) {
                    self.names.fail_sync(horizon, directory, &mut self.random);
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, number: u64, path: &Path, mode: OpenMode) -> io::Result<Answer> {
        if self.open_files() >= self.open_files_max {
            return Err(rustix::io::Errno::MFILE.into());
        }
        let inode = match mode {
            OpenMode::CreateNew => {
                let inode = self.names.create_file(number, path)?;
                self.files.insert(inode, FileContent::default());
                inode
            }
            OpenMode::Read | OpenMode::Write => {
                let entry = self.names.find(path)?;
                if entry.is_directory {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                entry.inode
            }
        };
        self.handles.insert(number, (self.process, inode));
        Ok(Answer::Opened(OpenFile {
            handle: number,
            inode,
            path: path.to_path_buf(),
            is_writable: mode != OpenMode::Read,
            closed: self.closed.clone(),
        }))
    }

    fn read(&mut self, inode: Inode, mut buffer: Extent, position: u64) -> Extent {
        self.land_in_part(inode, position..position + buffer.len() as u64);
        let count = self.files.get(&inode).map_or(0, |c| c.read(position, buffer.as_mut_slice()));
        buffer.truncate(count);
        buffer
    }

    /// Bytes that are being written may be seen, sector by sector. What was seen once has landed: it is seen
    /// again, and a sync that begins later covers it.
    fn land_in_part(&mut self, inode: Inode, read: std::ops::Range<u64>) {
        let number = self.next_number();
        let Some(content) = self.files.get_mut(&inode) else { return };
        for other in self.submitted.values() {
            let Request::Write { file, bytes, position, .. } = &other.request else { continue };
            if file.inode != inode {
                continue;
            }
            let blocks = bytes.as_slice().chunks(BLOCK_BYTES);
            for (start, block) in (position.0..).step_by(BLOCK_BYTES).zip(blocks) {
                let end = start + BLOCK_BYTES as u64;
                if start >= read.end || end <= read.start || end > content.length_bytes() {
                    continue;
                }
                let mut landed = vec![0; BLOCK_BYTES];
                content.read(start, &mut landed);
                let old = landed.clone();
                let sectors = landed.chunks_mut(SECTOR_BYTES).zip(block.chunks(SECTOR_BYTES));
                for (landed, sector) in sectors {
                    if self.random.bool() {
                        landed.copy_from_slice(sector);
                    }
                }
                if landed != old {
                    content.write(number, start, &landed);
                }
            }
        }
    }

    fn check_room(&self, inode: Inode, position: u64, length: usize) -> io::Result<()> {
        let Some(content) = self.files.get(&inode) else { return Ok(()) };
        if content.bytes_to_allocate(position, length) > self.space().available_bytes {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        Ok(())
    }

    pub(super) fn space(&self) -> DiskSpace {
        let used: u64 = self.files.values().map(FileContent::allocated_bytes).sum();
        DiskSpace {
            available_bytes: self.capacity_bytes.saturating_sub(used),
            total_bytes: self.capacity_bytes,
        }
    }

    fn note_closed(&mut self) {
        for handle in self.closed.borrow_mut().drain(..) {
            self.handles.remove(&handle);
        }
    }

    /// Frees files that no name leads to and nobody holds open.
    fn collect(&mut self) {
        self.note_closed();
        let live = self.names.collect();
        let handles = &self.handles;
        self.files.retain(|inode, _| {
            live.contains(inode) || handles.values().any(|(_, open)| open == inode)
        });
    }
}

fn changes_the_medium(request: &Request) -> bool {
    match request {
        Request::Write { .. }
        | Request::SetLength { .. }
        | Request::CreateDirectory { .. }
        | Request::Rename { .. }
        | Request::Remove { .. } => true,
        Request::Open { mode, .. } => *mode == OpenMode::CreateNew,
        _ => false,
    }
}
