//! Makes the tail that a crashed run left behind truly durable.
//!
//! A process that is killed leaves its writes on their way: their bytes can be seen, a sync does not cover them,
//! and a power cut can still take them back. So the groups that may have been in flight are written again, with
//! the very bytes that were found and checked, and those writes are awaited. What the dead run's writes still do
//! then changes nothing. Groups that a later header calls durable are not touched. Source: FACTS, writing.

use std::time::Duration;

use super::context::LogContext;
use crate::format::GroupHeader;
use crate::id::{BLOCK_BYTES, Position, SegmentId};
use crate::io::disk::{Disk, DiskError, DiskFile, WriteMode};
use crate::segment::group_walk::{FoundGroup, check_group, find_group};

/// While a write is on its way a read may meet some of its blocks and not others. It is asked again.
const READS_MAX: u32 = 200;

/// How long to wait in between.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// Writes the groups of `segment` from `start` to `end` again, as far as they may have been in flight.
pub(super) async fn settle_tail<D: Disk>(
    context: &LogContext<D>,
    file: &D::File,
    segment: SegmentId,
    start: Position,
    end: Position,
) -> Result<(), DiskError> {
    let mut headers: Vec<GroupHeader> = Vec::new();
    let mut position = start;
    while position < end {
        let read = read_checked(context, file, segment, position, BLOCK_BYTES, |_, _| true);
        // Behind damage nothing can be hopped over; what is there was durable, or damage would be torn.
        let Some((found, _)) = read.await? else { break };
        position = found.header.end_position();
        headers.push(found.header);
    }
    let durable = headers.iter().map(|header| header.durable.position).max();
    let in_flight = headers.iter().filter(|header| Some(header.position) >= durable);
    for header in in_flight {
        let is_whole = |found: &FoundGroup, group: &[u8]| check_group(group, found, |_| {}).is_ok();
        let bytes = header.padded_bytes();
        let read = read_checked(context, file, segment, header.position, bytes, is_whole);
        if let Some((_, mut group)) = read.await? {
            group.as_mut_slice()[header.length_bytes as usize..].fill(0);
            file.write(group.freeze(), header.position, WriteMode::Durable).await?;
        }
    }
    file.sync().await
}

async fn read_checked<D: Disk>(
    context: &LogContext<D>,
    file: &D::File,
    segment: SegmentId,
    position: Position,
    bytes: usize,
    is_whole: impl Fn(&FoundGroup, &[u8]) -> bool,
) -> Result<Option<(FoundGroup, crate::io::arena::Extent)>, DiskError> {
    for _ in 0..READS_MAX {
        let extent = context.allocate_waiting(bytes).await;
        let extent = file.read(extent, position).await?;
        if let Ok(found) = find_group(extent.as_slice(), segment, position)
            && extent.len() == bytes
            && is_whole(&found, extent.as_slice())
        {
            return Ok(Some((found, extent)));
        }
        drop(extent);
        context.runtime.sleep(READ_AGAIN_AFTER).await;
    }
    Ok(None)
}
