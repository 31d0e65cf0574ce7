//! Keeps the files of segments that a trim, retention or a cut has removed, and writes the next segments over them:
//! their blocks are written already, so nothing has to be filled with zeros. Source: ADR-0013.
//!
//! A file comes here once the checkpoint without its segment is durable, if this run made it: a killed run may
//! still be writing into its own. It is written again once nobody reads it or has it mapped.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::context::LogContext;
use super::log::PartitionLog;
use crate::format::{ClosedSegment, SegmentHeader, SegmentState};
use crate::id::SegmentId;
use crate::io::disk::{Disk, DiskError, DiskFile, OpenMode};
use crate::segment::{
    MakeError, OpenSegmentError, open_segment, recycled_path, reuse_segment, segment_path,
};

/// A file without a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RecycledFile {
    /// The segment it was.
    former: SegmentId,
    bytes: u64,
}

/// The files of one partition that wait to become segments again.
#[derive(Debug, Default)]
pub(super) struct RecycledFiles {
    /// The segments whose files this run has made: only those may be written again.
    made: RefCell<BTreeSet<SegmentId>>,
    files: RefCell<Vec<RecycledFile>>,
}

impl RecycledFiles {
    /// Notes a file that this run has made.
    pub(super) fn note_made(&self, segment: SegmentId) {
        self.made.borrow_mut().insert(segment);
    }

    /// Tells whether any wait.
    pub(super) fn has_files(&self) -> bool {
        !self.files.borrow().is_empty()
    }

    /// Takes out the file that suits a segment of `wanted_bytes` best, of those that `is_free`.
    fn take(&self, wanted_bytes: u64, is_free: impl Fn(SegmentId) -> bool) -> Option<RecycledFile> {
        let mut files = self.files.borrow_mut();
        let suits =
            |file: &RecycledFile| does_suit(file.bytes, wanted_bytes) && is_free(file.former);
        let candidates = files.iter().enumerate().filter(|(_, file)| suits(file));
        let best = candidates.min_by_key(|(_, file)| file.bytes.abs_diff(wanted_bytes));
        let place = best.map(|(place, _)| place)?;
        Some(files.swap_remove(place))
    }
}

/// Tells whether a file of `file_bytes` is worth being written again as a segment of `wanted_bytes`: a shorter one is
/// filled up with zeros, of a longer one the rest lies idle.
fn does_suit(file_bytes: u64, wanted_bytes: u64) -> bool {
    file_bytes >= wanted_bytes / 2 && file_bytes <= wanted_bytes.saturating_mul(2)
}

/// Tells whether a file of `file_bytes` may be kept beside `held_bytes`.
fn has_room(held_bytes: u64, file_bytes: u64, bytes_max: u64) -> bool {
    held_bytes.checked_add(file_bytes).is_some_and(|bytes| bytes <= bytes_max)
}

impl<D: Disk> LogContext<D> {
    /// Removes every recycled file of the shard: the disk is short of room. Returns their bytes.
    pub(crate) async fn release_recycled(&self) -> u64 {
        let mut released_bytes = 0;
        for log in self.logs() {
            released_bytes += log.release_recycled().await;
        }
        released_bytes
    }

    fn add_recycled(&self, bytes: u64) {
        self.counters.recycled_bytes.add(bytes);
    }

    fn drop_recycled(&self, bytes: u64) {
        let held_bytes = self.counters.recycled_bytes.get();
        assert!(held_bytes >= bytes, "what is dropped was added");
        self.counters.recycled_bytes.set(held_bytes - bytes);
    }
}

impl<D: Disk> PartitionLog<D> {
    /// Keeps those of the files that may be written again; returns the segments whose files are to be removed. The
    /// checkpoint without all of them is durable.
    pub(super) async fn recycle(&self, removed: &[ClosedSegment]) -> Vec<SegmentId> {
        let mut left = Vec::new();
        let mut renamed = Vec::new();
        for closed in removed {
            self.read_segments.forget(closed.segment);
            match self.set_free(closed).await {
                Ok(Some(file)) => renamed.push(file),
                Ok(None) => left.push(closed.segment),
                Err(error) => {
                    tracing::warn!(%error, "a segment's file was not kept for the next one");
                    left.push(closed.segment);
                }
            }
        }
        if renamed.is_empty() {
            return left;
        }
        // Before the header is written over: under its segment's name the file would be taken for a foreign one.
        match self.context.disk.sync_directory(&self.directory).await {
            Ok(()) => self.recycled.files.borrow_mut().extend(renamed),
            Err(error) => {
                tracing::warn!(%error, "recycled files are left to the next open");
                self.context.drop_recycled(renamed.iter().map(|file| file.bytes).sum());
            }
        }
        left
    }

    /// Gives a segment's file the name of a recycled one; `None` if it is not to be kept.
    async fn set_free(&self, closed: &ClosedSegment) -> Result<Option<RecycledFile>, DiskError> {
        let was_made = self.recycled.made.borrow_mut().remove(&closed.segment);
        if !was_made || closed.state != SegmentState::Healthy {
            return Ok(None);
        }
        let disk = &self.context.disk;
        let file = loop {
            let opened =
                open_segment(disk, &self.directory, self.id, closed.segment, OpenMode::Read);
            match opened.await {
                Ok((file, _)) => break file,
                Err(OpenSegmentError::ArenaFull { .. }) => {
                    self.context.wait_for_memory().await;
                }
                Err(OpenSegmentError::Disk(error)) => return Err(error),
                // Whoever removes it sets it aside.
                Err(_) => return Ok(None),
            }
        };
        let bytes = file.length().await?;
        drop(file);
        let held_bytes = self.context.counters.recycled_bytes.get();
        let is_worth = does_suit(bytes, self.wanted_segment().due_bytes)
            && has_room(held_bytes, bytes, self.context.limits.recycled_bytes_max);
        if !is_worth {
            return Ok(None);
        }
        self.context.add_recycled(bytes);
        let from = segment_path(&self.directory, closed.segment);
        let to = recycled_path(&self.directory, closed.segment);
        if let Err(error) = disk.rename(&from, &to).await {
            self.context.drop_recycled(bytes);
            return Err(error);
        }
        Ok(Some(RecycledFile { former: closed.segment, bytes }))
    }

    /// Makes the segment of `header` out of a recycled file; `None` if there is none for it.
    pub(super) async fn make_of_recycled(
        &self,
        header: &SegmentHeader,
    ) -> Result<Option<D::File>, MakeError> {
        if !self.recycled.has_files() {
            return Ok(None);
        }
        // A rename would replace whatever has the name.
        let path = segment_path(&self.directory, header.segment);
        match self.context.disk.open(&path, OpenMode::Read).await {
            Err(error) if error.is_missing() => {}
            taken => return taken.map(|_| None).map_err(MakeError::Disk),
        }
        let is_free = |former| !self.read_segments.is_in_use(former);
        let Some(file) = self.recycled.take(header.file_bytes, is_free) else { return Ok(None) };
        self.context.drop_recycled(file.bytes);
        let from = recycled_path(&self.directory, file.former);
        let made = reuse_segment(&self.context.disk, &self.directory, &from, header).await?;
        self.context.counters.recycled_segments.add(1);
        Ok(Some(made))
    }

    /// Removes the recycled files. Returns their bytes.
    pub(super) async fn release_recycled(&self) -> u64 {
        let mut released_bytes = 0;
        let files = self.recycled.files.take();
        for file in files {
            self.context.drop_recycled(file.bytes);
            let path = recycled_path(&self.directory, file.former);
            match self.context.disk.remove(&path).await {
                Ok(()) => released_bytes += file.bytes,
                Err(error) => tracing::warn!(%error, "a recycled file is left to the next open"),
            }
        }
        released_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(lengths: &[u64]) -> RecycledFiles {
        let recycled = RecycledFiles::default();
        for (number, bytes) in (1..).zip(lengths) {
            let file = RecycledFile { former: SegmentId(number), bytes: *bytes };
            recycled.files.borrow_mut().push(file);
        }
        recycled
    }

    #[test]
    fn file_of_the_nearest_length_is_taken_once() {
        let recycled = files(&[600, 900, 1_100, 3_000]);

        let taken = |wanted| recycled.take(wanted, |_| true).map(|file| file.bytes);

        assert_eq!(taken(1_000), Some(900));
        assert_eq!(taken(1_000), Some(1_100));
        assert_eq!(taken(1_000), Some(600));
        assert_eq!(taken(1_000), None, "3,000 is more than twice as long");
    }

    #[test]
    fn file_that_somebody_reads_is_not_taken() {
        let recycled = files(&[1_000, 800]);

        let taken = recycled.take(1_000, |former| former != SegmentId(1));

        assert_eq!(taken.map(|file| file.bytes), Some(800));
        assert_eq!(recycled.take(1_000, |former| former != SegmentId(1)), None);
    }

    #[test]
    fn files_are_kept_up_to_the_limit() {
        assert!(has_room(900, 100, 1_000));
        assert!(!has_room(901, 100, 1_000));
        assert!(!has_room(u64::MAX, 1, u64::MAX), "an overflow is no room");
        assert!(!has_room(0, 1, 0));
    }
}
