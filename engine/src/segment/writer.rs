//! The writing end of a segment: where the next group goes, what it is chained to, and its header.
//!
//! Decides and frames; the write itself is issued by the caller. A group that does not fit changes nothing:
//! the caller rolls.

use super::index::SparseIndex;
use crate::format::{
    ActiveSegment, BatchHeader, Chain, DurableMark, FIRST_GROUP_POSITION, Footer, GROUP_BYTES_MAX,
    GROUP_HEADER_BYTES, GroupHeader, IndexEntry, NextSegment, SegmentPoint,
};
use crate::id::{BLOCK_BYTES, Offset, Position, SegmentId};
use crate::io::arena::Extent;
use crate::io::clock::WallTime;

/// A group that has its place in the segment: what to write, and what holds once it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedWrite {
    /// Where the group goes.
    pub position: Position,
    /// How many bytes it takes, padding included: the whole extent.
    pub bytes: usize,
    /// The log end in front of it.
    pub base_offset: Offset,
    /// The place behind it, once it and all before it are durable.
    pub after: SegmentPoint,
}

/// The group does not fit into what is left of the segment's file; roll and frame it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{needed_bytes} bytes do not fit into the {left_bytes} left")]
pub struct SegmentFull {
    /// What the group takes, padding included.
    pub needed_bytes: u64,
    /// What is left.
    pub left_bytes: u64,
}

/// The state of a segment that takes appends.
#[derive(Debug)]
pub struct SegmentWriter {
    segment: SegmentId,
    file_bytes: u64,
    base_offset: Offset,
    point: SegmentPoint,
    index: SparseIndex,
    first_time: WallTime,
    last_time: WallTime,
}

impl SegmentWriter {
    /// Begins a segment that has been made: its first record gets `base_offset`, and `before` is the chain
    /// behind the last group of the segment before it, or the default for the first segment.
    #[must_use]
    pub fn begin(made: NextSegment, base_offset: Offset, before: Chain) -> SegmentWriter {
        SegmentWriter {
            segment: made.segment,
            file_bytes: made.file_bytes,
            base_offset,
            point: SegmentPoint {
                position: FIRST_GROUP_POSITION,
                offset: base_offset,
                chain: Chain::seed(made.segment, before),
                group: 0,
            },
            index: SparseIndex::default(),
            first_time: WallTime::UNKNOWN,
            last_time: WallTime::UNKNOWN,
        }
    }

    /// Goes on where an orderly close left off. `index` may know fewer groups than there are: look-ups then
    /// walk further.
    #[must_use]
    pub fn resume(active: &ActiveSegment, index: SparseIndex) -> SegmentWriter {
        SegmentWriter {
            segment: active.segment,
            file_bytes: active.file_bytes,
            base_offset: active.base_offset,
            point: active.durable,
            index,
            first_time: active.first_time,
            last_time: active.last_time,
        }
    }

    /// Gives the group in `extent` its place: writes its header over the [`GROUP_HEADER_BYTES`] left free at
    /// the head, pads with zeros to whole blocks, and cuts the extent there. `filled_bytes` counts header and
    /// batches; the batches' headers are final. `durable` is what is durable now, as a place in this segment.
    ///
    /// # Errors
    ///
    /// [`SegmentFull`]: nothing was changed; roll.
    ///
    /// # Panics
    ///
    /// If the extent holds no whole batches that go on from the log end, or is not whole blocks long: the
    /// caller has built it.
    pub fn frame(
        &mut self,
        extent: &mut Extent,
        filled_bytes: usize,
        durable: DurableMark,
    ) -> Result<ReservedWrite, SegmentFull> {
        let padded_bytes = self.reserve(filled_bytes)?;
        assert!(extent.len() >= padded_bytes);
        let bytes = extent.as_mut_slice();
        let batches =
            GatheredBatches::walk(&bytes[GROUP_HEADER_BYTES..filled_bytes], self.point.chain);
        assert!(batches.base_offset == self.point.offset, "the group goes on from the log end");
        let header = GroupHeader {
            segment: self.segment,
            position: self.point.position,
            number: self.point.group,
            batches: batches.count,
            length_bytes: u32::try_from(filled_bytes).expect("below GROUP_BYTES_MAX"),
            base_offset: batches.base_offset,
            next_offset: batches.next_offset,
            durable,
            chain: self.point.chain,
        };
        let header_crc = header.write(bytes);
        bytes[filled_bytes..padded_bytes].fill(0);
        extent.truncate(padded_bytes);
        self.advance(&header, &batches, batches.chain.with_crc(header_crc));
        Ok(ReservedWrite {
            position: header.position,
            bytes: padded_bytes,
            base_offset: header.base_offset,
            after: self.point,
        })
    }

    /// Tells whether a group of `filled_bytes`, header included, fits. Into a segment without groups it
    /// always does: a batch may be longer than a segment is made, and then the file grows with the write.
    #[must_use]
    pub fn fits(&self, filled_bytes: usize) -> bool {
        self.reserve(filled_bytes).is_ok()
    }

    /// The place behind the last framed group.
    #[must_use]
    pub fn point(&self) -> SegmentPoint {
        self.point
    }

    /// The segment's name.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// The offset of its first record.
    #[must_use]
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// How long its file was made.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The append time of its first batch; unknown without one.
    #[must_use]
    pub fn first_time(&self) -> WallTime {
        self.first_time
    }

    /// The append time of its last framed batch; unknown without one.
    #[must_use]
    pub fn last_time(&self) -> WallTime {
        self.last_time
    }

    /// The index over the framed groups.
    #[must_use]
    pub fn index(&self) -> &SparseIndex {
        &self.index
    }

    /// The footer of the segment if it ends behind the last framed group.
    #[must_use]
    pub fn footer(&self) -> Footer {
        Footer {
            segment: self.segment,
            base_offset: self.base_offset,
            end_offset: self.point.offset,
            end_position: self.point.position,
            last_chain: self.point.chain,
            first_time: self.first_time,
            last_time: self.last_time,
            entries: self.index.entries().to_vec(),
        }
    }

    fn advance(&mut self, header: &GroupHeader, batches: &GatheredBatches, chain: Chain) {
        let time = batches.first_time;
        self.index.note(IndexEntry { offset: header.base_offset, position: header.position, time });
        if header.number == 0 {
            self.first_time = batches.first_time;
        }
        self.last_time = batches.last_time;
        self.point = SegmentPoint {
            position: header.end_position(),
            offset: header.next_offset,
            chain,
            group: header.number + 1,
        };
    }

    /// The bytes a group takes if it fits.
    fn reserve(&self, filled_bytes: usize) -> Result<usize, SegmentFull> {
        assert!(filled_bytes > GROUP_HEADER_BYTES);
        assert!(filled_bytes <= GROUP_BYTES_MAX);
        let padded_bytes = filled_bytes.next_multiple_of(BLOCK_BYTES);
        let left_bytes = self.file_bytes.saturating_sub(self.point.position.0);
        let needed_bytes = padded_bytes as u64;
        if needed_bytes > left_bytes && self.point.group > 0 {
            return Err(SegmentFull { needed_bytes, left_bytes });
        }
        Ok(padded_bytes)
    }
}

/// What the headers of gathered batches say.
struct GatheredBatches {
    count: u32,
    base_offset: Offset,
    next_offset: Offset,
    first_time: WallTime,
    last_time: WallTime,
    /// The chain before, and the header crcs of all batches.
    chain: Chain,
}

impl GatheredBatches {
    fn walk(batches: &[u8], before: Chain) -> GatheredBatches {
        let first = BatchHeader::decode(batches).expect("the caller wrote whole batches");
        let mut gathered = GatheredBatches {
            count: 0,
            base_offset: first.stamp.base_offset,
            next_offset: first.stamp.base_offset,
            first_time: first.stamp.append_time,
            last_time: first.stamp.append_time,
            chain: before,
        };
        let mut at = 0;
        while at < batches.len() {
            let header =
                BatchHeader::decode(&batches[at..]).expect("the caller wrote whole batches");
            assert!(header.stamp.base_offset == gathered.next_offset, "batches follow each other");
            gathered.count += 1;
            gathered.next_offset = header.next_offset();
            gathered.last_time = header.stamp.append_time;
            gathered.chain = gathered.chain.with_crc(header.header_crc);
            at += header.total_bytes();
        }
        assert!(at == batches.len(), "the last batch is whole");
        gathered
    }
}
