//! A closed segment mapped on the caller's thread: read without the shard and without its memory.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::format::StoredBatch;
use crate::id::Offset;
use crate::io::FileMap;
use crate::io::disk::{DiskError, DiskOperation};
use crate::partition::{MapSource, ReadError, SegmentHold, segment_read_error};
use crate::segment::{PayloadCheck, SegmentMap};

/// A closed segment as this thread has it in memory. Batches share the map and keep it.
///
/// Pages are read when they are touched: that blocks the calling thread, not the shard. **A media error is a SIGBUS
/// to this process** rather than an error, and so is a file that somebody outside the engine cuts short. While the
/// map or any batch of it lives, its file is not recycled and takes room on the disk even after a trim. The bytes
/// come from the page cache, not the arena, and the lease was looked at once, when it was mapped.
#[derive(Clone, Debug)]
pub struct MappedSegment {
    map: SegmentMap,
    first_offset: Offset,
    payloads: PayloadCheck,
}

/// What keeps the bytes of a map in place.
struct MapOwner {
    map: FileMap,
    _hold: SegmentHold,
}

impl AsRef<[u8]> for MapOwner {
    fn as_ref(&self) -> &[u8] {
        self.map.as_ref()
    }
}

impl MappedSegment {
    /// Maps the file.
    pub(super) fn open(
        source: MapSource,
        checks_payloads: bool,
    ) -> Result<MappedSegment, DiskError> {
        let MapSource { path, segment, base_offset, first_offset, end, index, hold } = source;
        let map = FileMap::open(&path, end.position.0)
            .map_err(|error| DiskError::new(DiskOperation::Open, &path, None, error))?;
        let bytes = Bytes::from_owner(MapOwner { map, _hold: hold });
        let map = SegmentMap::new(bytes, path, segment, base_offset, end, index);
        let payloads = if checks_payloads { PayloadCheck::Now } else { PayloadCheck::Later };
        Ok(MappedSegment { map, first_offset, payloads })
    }

    /// The records that were readable when it was mapped.
    #[must_use]
    pub fn offsets(&self) -> Range<Offset> {
        self.first_offset..self.map.offsets().end
    }

    /// Reads whole batches from the one that holds `from`: about `bytes_max`, but at least one. None at the end of
    /// the segment. Returns where to go on, too.
    ///
    /// # Errors
    ///
    /// [`ReadError::BelowLogStart`], [`ReadError::BeyondEnd`]: `from` is not in [`offsets`](Self::offsets).
    /// [`ReadError::Corrupt`]: go on at the end of the offsets it names.
    pub fn read(
        &self,
        from: Offset,
        bytes_max: usize,
    ) -> Result<(Vec<StoredBatch>, Offset), ReadError> {
        let Range { start, end } = self.offsets();
        if from < start {
            return Err(ReadError::BelowLogStart { from, log_start: start });
        }
        if from > end {
            return Err(ReadError::BeyondEnd { from, committed: end });
        }
        let answer = self.map.read(from, bytes_max, self.payloads).map_err(segment_read_error)?;
        let next_offset = if answer.batches.is_empty() { end } else { answer.next_offset };
        Ok((answer.batches, next_offset))
    }
}

/// Turns what went wrong on the way to a map into what a reader is told.
pub(super) fn map_failed(error: DiskError) -> ReadError {
    ReadError::Disk(Arc::new(error))
}
