//! Reads the records of a partition in order, checking every byte it passes.

use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;

use super::contents::{contents_of, find};
use super::session::{self, OfflineError, Task};
use super::walk::{WalkedSegment, segments_of};
use crate::format::{Checkpoint, StoredBatch};
use crate::id::{Offset, PartitionName};
use crate::io::disk::{Disk, DiskFile, OpenMode};
use crate::io::runtime::Runtime;
use crate::journal::{Replay, replay};
use crate::segment::{
    PayloadCheck, SegmentCursor, SegmentRead, SegmentReader, Sharing, load_index, open_segment,
};

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// Where a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// The first offset the partition still holds.
    pub log_start: Offset,
    /// The end of what it holds.
    pub end: Offset,
}

/// Hands the batches of a partition from `from` (the log start if `None`) to `visit`, in order, until it breaks.
/// The first may start below `from`.
///
/// What a crash left in memory only is made durable before it is handed out, so that what was read once is
/// there the next time.
///
/// # Errors
///
/// [`OfflineError`]: what was handed out before it is good. A damaged range names its file and offsets; go
/// on behind it.
pub fn read(
    directory: &Path,
    name: &PartitionName,
    from: Option<Offset>,
    visit: impl FnMut(&StoredBatch) -> ControlFlow<()> + Send + 'static,
) -> Result<ReadOutcome, OfflineError> {
    session::run(directory, ReadTask { name: name.clone(), from, visit })
}

struct ReadTask<F> {
    name: PartitionName,
    from: Option<Offset>,
    visit: F,
}

impl<F: FnMut(&StoredBatch) -> ControlFlow<()> + 'static> Task for ReadTask<F> {
    type Output = ReadOutcome;

    async fn run<D: Disk>(
        mut self,
        disk: D,
        runtime: Rc<dyn Runtime>,
        directory: &Path,
    ) -> Result<ReadOutcome, OfflineError> {
        let contents = contents_of(&disk, directory).await?;
        let partition = find(&contents, directory, &self.name)?;
        let believed = partition.checkpoint.as_ref().map_err(|error| OfflineError::Checkpoint {
            path: partition.checkpoint_path(),
            reason: error.to_string(),
        })?;
        let checkpoint = &believed.checkpoint;
        let segments = segments_of(&disk, &partition.path, checkpoint).await?;
        let stored = segments.last().map_or(checkpoint.next_offset, |segment| segment.end.offset);
        // What only the journal holds.
        let mut replayed = Replay::default();
        let journal = checkpoint.journal.filter(|_| !checkpoint.clean);
        if journal.is_some() {
            replayed = replay(&disk, runtime.as_ref(), directory).await?;
        }
        let behind = journal.map(|mark| replayed.behind(checkpoint.partition, mark, stored));
        let end = behind.as_ref().map_or(stored, |behind| behind.end);
        let log_start = checkpoint.log_start;
        let from = self.from.unwrap_or(log_start);
        if from < log_start {
            let (from, log_start) = (from.0, log_start.0);
            return Err(OfflineError::BelowLogStart { name: self.name, from, log_start });
        }
        if from > end {
            return Err(OfflineError::BeyondEnd { name: self.name, from: from.0, end: end.0 });
        }
        for segment in segments.iter().filter(|segment| segment.end.offset > from) {
            let from = from.max(segment.base_offset);
            let flow =
                read_segment(&disk, &partition.path, checkpoint, segment, from, &mut self.visit);
            if flow.await?.is_break() {
                return Ok(ReadOutcome { log_start, end });
            }
        }
        for (header, batch) in behind.iter().flat_map(|behind| &behind.batches) {
            let batch = StoredBatch::from_checked(Bytes::copy_from_slice(batch), *header);
            if header.next_offset() > from && (self.visit)(&batch).is_break() {
                break;
            }
        }
        Ok(ReadOutcome { log_start, end })
    }
}

async fn read_segment<D: Disk>(
    disk: &D,
    directory: &Path,
    checkpoint: &Checkpoint,
    segment: &WalkedSegment,
    from: Offset,
    visit: &mut impl FnMut(&StoredBatch) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, OfflineError> {
    let (file, _) =
        open_segment(disk, directory, checkpoint.partition, segment.segment, OpenMode::Read)
            .await?;
    if !checkpoint.clean {
        file.sync().await?;
    }
    let closed = checkpoint.closed.iter().find(|closed| closed.segment == segment.segment);
    let mut cursor = SegmentCursor::first(segment.base_offset);
    if let Some(closed) = closed
        && let Some(entry) = load_index(disk, &file, closed).await?.locate(from)
    {
        cursor = entry.into();
    }
    let reader = SegmentReader::new(disk.clone(), file, segment.segment);
    let mut read = SegmentRead {
        from,
        cursor,
        end: segment.end,
        bytes_max: READ_BYTES,
        markers: false,
        payloads: PayloadCheck::Now,
        sharing: Sharing::Lend,
    };
    loop {
        let answer = reader.read(read).await?;
        for batch in &answer.batches {
            if visit(batch).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if answer.batches.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        read = SegmentRead { from: answer.next_offset, cursor: answer.cursor, ..read };
    }
}
