//! Makes the tail that a crashed run left behind truly durable.
//!
//! A process that is killed leaves its writes on their way: their bytes can be seen, a sync does not cover them,
//! and a power cut can still take them back. So the groups that may have been in flight are written again, with
//! the very bytes that were found and checked, and those writes are awaited. What the dead run's writes still do
//! then changes nothing. Groups that a later header calls durable are not touched. Source: FACTS, writing.

use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::stream::iter;

use super::context::LogContext;
use crate::format::GroupHeader;
use crate::id::SegmentId;
use crate::io::arena::Extent;
use crate::io::disk::{Disk, DiskError, DiskFile, WriteMode};
use crate::segment::group_walk::{check_group, find_group};

/// While a write is on its way a read may meet some of its blocks and not others. It is asked again.
const READS_MAX: u32 = 200;

/// How long to wait in between.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// Groups written again at a time.
const SETTLED_AT_A_TIME: usize = 4;

/// Writes groups of `segment` again that may have been in flight when the run ended.
pub(super) async fn settle_tail<D: Disk>(
    context: &LogContext<D>,
    file: &D::File,
    segment: SegmentId,
    in_flight: impl Iterator<Item = &GroupHeader>,
) -> Result<(), DiskError> {
    let settle = async |header: &GroupHeader| {
        if let Some(mut group) = read_checked(context, file, segment, header).await? {
            group.as_mut_slice()[header.length_bytes as usize..].fill(0);
            file.write(group.freeze(), header.position, WriteMode::Durable).await?;
        }
        Ok(())
    };
    iter(in_flight.map(Ok)).try_for_each_concurrent(SETTLED_AT_A_TIME, settle).await?;
    file.sync().await
}

async fn read_checked<D: Disk>(
    context: &LogContext<D>,
    file: &D::File,
    segment: SegmentId,
    header: &GroupHeader,
) -> Result<Option<Extent>, DiskError> {
    let (position, bytes) = (header.position, header.padded_bytes());
    for _ in 0..READS_MAX {
        let extent = context.allocate_waiting(bytes).await;
        let extent = file.read(extent, position).await?;
        if let Ok(found) = find_group(extent.as_slice(), segment, position)
            && extent.len() == bytes
            && found.header == *header
            && check_group(extent.as_slice(), &found, |_| {}).is_ok()
        {
            return Ok(Some(extent));
        }
        drop(extent);
        context.runtime.sleep(READ_AGAIN_AFTER).await;
    }
    Ok(None)
}
