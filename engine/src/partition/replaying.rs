//! Gives a recovered log what only the journal holds: a segment of its own behind the last one that was walked.
//!
//! The journal is never changed: a crash before the new checkpoint leaves everything for the next open.

use std::cell::RefCell;
use std::path::Path;

use super::checkpoint_store::OpenLogError;
use super::context::LogContext;
use super::journaling::STORE_BYTES;
use super::opening::failed;
use super::producers::Producers;
use super::set_aside::Recovery;
use crate::format::{
    Chain, Checkpoint, ClosedSegment, DurableMark, FIRST_GROUP_POSITION, GROUP_HEADER_BYTES,
    NextSegment, SegmentHeader, SegmentState,
};
use crate::id::{BLOCK_BYTES, Epoch, Offset, Position};
use crate::io::disk::{Disk, DiskError, DiskFile, OpenMode, WriteMode};
use crate::journal::{Replay, replay};
use crate::segment::{CloseSegmentError, SegmentWriter, close_segment, segment_path};

/// How long to wait for memory before trying again.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_millis(2);

/// What the journal adds to a log.
pub(super) struct Replayed {
    pub(super) closed: ClosedSegment,
    pub(super) last_epoch: Epoch,
}

impl<D: Disk> LogContext<D> {
    /// What the journals of earlier runs hold; read when the first partition asks.
    pub(crate) async fn replay(&self) -> Result<std::rc::Rc<Replay>, DiskError> {
        let mut held = self.replay.lock().await;
        if let Some(replay) = &*held {
            return Ok(replay.clone());
        }
        let read = replay(&self.disk, self.runtime.as_ref(), &self.directory).await?;
        let read = std::rc::Rc::new(read);
        *held = Some(read.clone());
        Ok(read)
    }

    /// Lets go of what the journals hold: every partition has been opened. Returns what was read, if anything.
    pub(crate) async fn forget_replay(&self) -> Option<std::rc::Rc<Replay>> {
        self.replay.lock().await.take()
    }
}

/// Writes the groups that lie behind `end` in the journal into a new segment, chained to `before`; durable when
/// this returns. `None` when there are none.
pub(super) async fn append_replayed<D: Disk>(
    context: &LogContext<D>,
    directory: &Path,
    checkpoint: &Checkpoint,
    end: Offset,
    before: Chain,
    recovery: &mut Recovery,
    producers: &RefCell<Producers>,
) -> Result<Option<Replayed>, OpenLogError> {
    let Some(mark) = checkpoint.journal else { return Ok(None) };
    let replay = context.replay().await?;
    let behind = replay.behind(checkpoint.partition, mark, end);
    if let Some(lost_until) = behind.lost_until {
        recovery.lost_end = Some(lost_until);
        tracing::error!(partition = %checkpoint.partition, end = %behind.end, until = %lost_until,
            "the journal is damaged; records are lost");
    }
    let mut groups: Vec<Vec<u8>> = Vec::new();
    let mut last_epoch = Epoch::NONE;
    for (header, batch) in &behind.batches {
        last_epoch = last_epoch.max(header.stamp.epoch);
        producers.borrow_mut().note_settled(header);
        match groups.last_mut() {
            Some(group) if group.len() + batch.len() <= STORE_BYTES => group.extend(*batch),
            _ => groups.push([&[0; GROUP_HEADER_BYTES], *batch].concat()),
        }
    }
    if groups.is_empty() {
        return Ok(None);
    }
    let written = write_segment(context, directory, checkpoint, end, before, &groups).await;
    let closed = written.map_err(|error| failed(directory, error))?;
    recovery.journal_bytes += groups.iter().map(|group| group.len() as u64).sum::<u64>();
    Ok(Some(Replayed { closed, last_epoch }))
}

async fn write_segment<D: Disk>(
    context: &LogContext<D>,
    directory: &Path,
    checkpoint: &Checkpoint,
    base_offset: Offset,
    before: Chain,
    groups: &[Vec<u8>],
) -> Result<ClosedSegment, DiskError> {
    let padded = |bytes: usize| bytes.next_multiple_of(BLOCK_BYTES) as u64;
    let groups_bytes: u64 = groups.iter().map(|group| padded(group.len())).sum();
    let made = NextSegment {
        segment: context.new_segment_id(),
        file_bytes: FIRST_GROUP_POSITION.0 + groups_bytes,
    };
    let header = SegmentHeader {
        partition: checkpoint.partition,
        segment: made.segment,
        file_bytes: made.file_bytes,
        created: context.clock.wall(),
    };
    let disk = &context.disk;
    let file = disk.open(&segment_path(directory, made.segment), OpenMode::CreateNew).await?;
    let mut block = context.allocate_waiting(BLOCK_BYTES).await;
    header.write(block.as_mut_slice());
    file.write(block.freeze(), Position::ZERO, WriteMode::Written).await?;
    let mut writer = SegmentWriter::begin(made, base_offset, before);
    for group in groups {
        let mut extent = context.allocate_waiting(group.len().next_multiple_of(BLOCK_BYTES)).await;
        extent.as_mut_slice()[..group.len()].copy_from_slice(group);
        let durable = DurableMark { offset: base_offset, position: Position::ZERO };
        let reserved = writer.frame(&mut extent, group.len(), durable).expect("made for them");
        file.write(extent.freeze(), reserved.position, WriteMode::Written).await?;
    }
    let footer = writer.footer();
    loop {
        match close_segment(disk, &file, &footer).await {
            Ok(()) => break,
            Err(CloseSegmentError::Disk(error)) => return Err(error),
            Err(_) => context.runtime.sleep(RETRY_AFTER).await,
        }
    }
    disk.sync_directory(directory).await?;
    let end = writer.point();
    Ok(ClosedSegment {
        segment: made.segment,
        base_offset,
        end_offset: end.offset,
        end_position: end.position,
        last_chain: end.chain,
        first_time: writer.first_time(),
        last_time: writer.last_time(),
        state: SegmentState::Healthy,
    })
}
