//! A bare io_uring loop over one pre-written file: what the device gives to whoever asks in the best known way.
//!
//! Registered buffers and file, `O_DIRECT`, one thread, `depth` operations in flight, each replaced the moment it
//! completes. It frames, checks and remembers nothing, so a log can come close to it and never pass it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use memmap2::{Advice, MmapMut};
use palisade_engine::id::BLOCK_BYTES;
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;

use crate::stopwatch::Stopwatch;

/// The unit in which files are pre-written.
const PIECE_BYTES: usize = 1 << 20;
/// The ring and its buffers serve at most this many operations at once.
pub const DEPTH_MAX: u32 = 64;

#[derive(Clone)]
#[repr(align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// What every operation of a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawOperation {
    /// A write that resolves once it is on the medium (`RWF_DSYNC`).
    WriteDurable,
    /// A write, not synced.
    Write,
    /// A read.
    Read,
}

/// One run: `count` operations of `bytes` each, `depth` of them in flight.
#[derive(Clone, Copy, Debug)]
pub struct RawWork {
    /// What each does.
    pub operation: RawOperation,
    /// Bytes of one operation, whole blocks.
    pub bytes: usize,
    /// How many are in flight; 1 is one at a time.
    pub depth: u32,
    /// How many in all.
    pub count: u64,
}

/// What a run took.
#[derive(Debug)]
pub struct RawRun {
    /// From the first submission to the last completion.
    pub elapsed: Duration,
    /// Of each operation, in the order of completion.
    pub latencies: Vec<Duration>,
    /// Bytes moved.
    pub bytes: u64,
}

impl RawRun {
    /// Returns the rate in MB/s (10^6 bytes).
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed.as_secs_f64()
    }
}

/// A file opened with `O_DIRECT` whose blocks all exist, and where the next operation goes.
#[derive(Debug)]
pub struct RawFile {
    file: File,
    path: PathBuf,
    length_bytes: u64,
    position: u64,
}

impl RawFile {
    /// Makes a file of `length_bytes`, every block written and synced, so that later writes change no metadata.
    ///
    /// # Errors
    ///
    /// The file system's.
    ///
    /// # Panics
    ///
    /// If the length is not whole MiB.
    pub fn prewritten(path: &Path, length_bytes: u64) -> io::Result<RawFile> {
        assert!(length_bytes.is_multiple_of(PIECE_BYTES as u64));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(direct_flag())
            .open(path)?;
        let piece = noise(PIECE_BYTES);
        for position in (0..length_bytes).step_by(PIECE_BYTES) {
            file.write_all_at(as_bytes(&piece), position)?;
        }
        file.sync_all()?;
        Ok(RawFile { file, path: path.to_owned(), length_bytes, position: 0 })
    }

    /// Opens an existing file to read it.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn open(path: &Path) -> io::Result<RawFile> {
        let file = OpenOptions::new().read(true).custom_flags(direct_flag()).open(path)?;
        let length_bytes = file.metadata()?.len();
        Ok(RawFile { file, path: path.to_owned(), length_bytes, position: 0 })
    }

    /// Returns the file's length.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Returns the path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands out the next position, from the start again at the end.
    fn advance(&mut self, bytes: usize) -> u64 {
        let bytes = bytes as u64;
        if self.position + bytes > self.length_bytes {
            self.position = 0;
        }
        let position = self.position;
        self.position += bytes;
        position
    }
}

/// One ring with registered buffers for [`DEPTH_MAX`] operations of a size. Each thread makes its own.
pub struct RawRing {
    ring: IoUring,
    /// `'static`: an operation left in flight by a failed run reaches only memory nobody else will ever have.
    memory: &'static mut [u8],
    operation_bytes_max: usize,
    depth_max: u32,
}

impl std::fmt::Debug for RawRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawRing")
            .field("operation_bytes_max", &self.operation_bytes_max)
            .field("depth_max", &self.depth_max)
            .finish_non_exhaustive()
    }
}

impl RawRing {
    /// Makes a ring for operations of at most `operation_bytes_max`, `depth_max` in flight. Its memory is never freed.
    ///
    /// # Errors
    ///
    /// The kernel's: no io_uring here, or too little memlock for the buffers.
    ///
    /// # Panics
    ///
    /// If the size is not whole blocks or the depth not within 1 and [`DEPTH_MAX`].
    pub fn new(operation_bytes_max: usize, depth_max: u32) -> io::Result<RawRing> {
        assert!(operation_bytes_max.is_multiple_of(BLOCK_BYTES));
        assert!((1..=DEPTH_MAX).contains(&depth_max));
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(DEPTH_MAX)
            .or_else(|_| IoUring::new(DEPTH_MAX))?;
        let memory = huge_memory(operation_bytes_max * depth_max as usize)?;
        let whole = io::IoSliceMut::new(memory);
        // SAFETY: std guarantees that an `IoSliceMut` has the layout of an iovec, and `whole` outlives the slice.
        let iovecs = unsafe { std::slice::from_raw_parts((&raw const whole).cast(), 1) };
        // SAFETY: the iovec describes `memory`, which is `'static`, so it outlives the registration.
        unsafe { ring.submitter().register_buffers(iovecs) }?;
        Ok(RawRing { ring, memory, operation_bytes_max, depth_max })
    }

    /// Runs `work` on `file` from where the run before stopped, from its start again at its end.
    ///
    /// # Errors
    ///
    /// The first failed operation's; a short transfer counts as one. The file's content is then unknown.
    ///
    /// # Panics
    ///
    /// If the work does not fit the ring or the file.
    pub fn run(&mut self, file: &mut RawFile, work: RawWork) -> io::Result<RawRun> {
        assert!(work.bytes.is_multiple_of(BLOCK_BYTES));
        assert!(work.bytes <= self.operation_bytes_max);
        assert!((1..=self.depth_max).contains(&work.depth));
        assert!(work.bytes as u64 <= file.length_bytes);
        self.ring.submitter().register_files(&[file.file.as_raw_fd()])?;
        let outcome = self.turn_over(file, work);
        self.ring.submitter().unregister_files()?;
        outcome
    }

    /// The loop itself. After a failed operation it submits no more and waits for those in flight.
    fn turn_over(&mut self, file: &mut RawFile, work: RawWork) -> io::Result<RawRun> {
        let capacity = usize::try_from(work.count).expect("a count of this run");
        let mut latencies = Vec::with_capacity(capacity);
        let mut begun = vec![Duration::ZERO; work.depth as usize];
        let mut failed = None;
        let (mut submitted, mut in_flight) = (0, 0);
        let clock = Stopwatch::start();
        for slot in 0..u64::from(work.depth).min(work.count) {
            begun[index_of(slot)] = clock.elapsed();
            self.push(file, work, slot);
            submitted += 1;
            in_flight += 1;
        }
        let mut completed: Vec<cqueue::Entry> = Vec::with_capacity(work.depth as usize);
        while in_flight > 0 {
            self.ring.submit_and_wait(1)?;
            completed.extend(self.ring.completion());
            let now = clock.elapsed();
            for entry in completed.drain(..) {
                in_flight -= 1;
                let slot = entry.user_data();
                latencies.push(now.saturating_sub(begun[index_of(slot)]));
                if let Err(error) = outcome_of(&entry, work.bytes) {
                    failed.get_or_insert(error);
                }
                if failed.is_none() && submitted < work.count {
                    begun[index_of(slot)] = now;
                    self.push(file, work, slot);
                    submitted += 1;
                    in_flight += 1;
                }
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(RawRun {
                elapsed: clock.elapsed(),
                latencies,
                bytes: work.count * work.bytes as u64,
            }),
        }
    }

    fn push(&mut self, file: &mut RawFile, work: RawWork, slot: u64) {
        let start = index_of(slot) * work.bytes;
        let buffer = self.memory[start..start + work.bytes].as_mut_ptr();
        let length = u32::try_from(work.bytes).expect("an operation is below 4 GiB");
        let position = file.advance(work.bytes);
        let fd = types::Fixed(0);
        let entry = match work.operation {
            RawOperation::Read => {
                opcode::ReadFixed::new(fd, buffer, length, 0).offset(position).build()
            }
            RawOperation::Write => {
                opcode::WriteFixed::new(fd, buffer, length, 0).offset(position).build()
            }
            RawOperation::WriteDurable => opcode::WriteFixed::new(fd, buffer, length, 0)
                .offset(position)
                .rw_flags(dsync_flag())
                .build(),
        };
        self.submit_later(&entry.user_data(slot));
    }

    fn submit_later(&mut self, entry: &squeue::Entry) {
        // SAFETY: the entry names bytes of `self.memory`, which is `'static` and which no reference into is kept; the
        // slot has no other operation in flight, since it is pushed only before the first or after the last completed.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("at most DEPTH_MAX operations are in flight, the ring's size");
    }
}

fn outcome_of(entry: &cqueue::Entry, bytes: usize) -> io::Result<()> {
    match usize::try_from(entry.result()) {
        Ok(moved) if moved == bytes => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
    }
}

fn index_of(slot: u64) -> usize {
    usize::try_from(slot).expect("a slot is below DEPTH_MAX")
}

fn direct_flag() -> i32 {
    OFlags::DIRECT.bits().cast_signed()
}

fn dsync_flag() -> i32 {
    ReadWriteFlags::DSYNC.bits().cast_signed()
}

/// Maps memory that is never freed, in huge pages where the system has them, and fills it with noise. In pages of 4 KiB
/// scattered over the machine a read of 1 MiB is hundreds of pieces to the device, and takes twice as long.
fn huge_memory(bytes: usize) -> io::Result<&'static mut [u8]> {
    let memory = Box::leak(Box::new(MmapMut::map_anon(bytes)?));
    // Without huge pages it is slower, not wrong.
    memory.advise(Advice::HugePage).ok();
    fill_with_noise(memory, 1);
    Ok(memory)
}

/// Makes memory that no layer can compress or recognise as zeros.
fn noise(bytes: usize) -> Box<[Block]> {
    let mut blocks = vec![Block([0; BLOCK_BYTES]); bytes.div_ceil(BLOCK_BYTES)].into_boxed_slice();
    for (block, seed) in blocks.iter_mut().zip(1..) {
        fill_with_noise(&mut block.0, seed);
    }
    blocks
}

/// Fills `bytes` from `seed` (splitmix64), the same every time.
pub fn fill_with_noise(bytes: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0xd6e8_feb8_6659_fd93);
    for chunk in bytes.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes()[..chunk.len()]);
    }
}

fn as_bytes(blocks: &[Block]) -> &[u8] {
    // SAFETY: a `Block` is exactly its 4096 initialised bytes, without padding, and the borrow is the slice's.
    unsafe { std::slice::from_raw_parts(blocks.as_ptr().cast(), size_of_val(blocks)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory below the target directory: `/tmp` may be a tmpfs, which knows no `O_DIRECT`.
    fn beside_this_binary() -> PathBuf {
        std::env::current_exe().unwrap().parent().unwrap().to_owned()
    }

    #[test]
    fn every_operation_completes_and_is_counted_once() {
        let directory = tempfile::tempdir_in(beside_this_binary()).unwrap();
        let mut file = RawFile::prewritten(&directory.path().join("raw"), 1 << 20).unwrap();
        let mut ring = RawRing::new(2 * BLOCK_BYTES, 4).unwrap();

        for operation in [RawOperation::WriteDurable, RawOperation::Write, RawOperation::Read] {
            let work = RawWork { operation, bytes: 2 * BLOCK_BYTES, depth: 4, count: 300 };
            let run = ring.run(&mut file, work).unwrap();

            assert_eq!(run.latencies.len(), 300);
            assert_eq!(run.bytes, 300 * 2 * BLOCK_BYTES as u64);
        }
    }

    #[test]
    fn read_past_the_end_is_an_error_not_a_result() {
        let directory = tempfile::tempdir_in(beside_this_binary()).unwrap();
        let path = directory.path().join("raw");
        let mut file = RawFile::prewritten(&path, 1 << 20).unwrap();
        file.file.set_len(BLOCK_BYTES as u64).unwrap();
        let mut ring = RawRing::new(BLOCK_BYTES, 2).unwrap();

        let work =
            RawWork { operation: RawOperation::Read, bytes: BLOCK_BYTES, depth: 2, count: 9 };

        assert!(ring.run(&mut file, work).is_err());
    }
}
