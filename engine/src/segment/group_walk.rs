//! Checks a whole group in memory: its header, every batch, and that they belong together. Pure.

use std::ops::Range;

use crate::format::{BatchHeader, Chain, FormatError, GROUP_HEADER_BYTES, GroupHeader};
use crate::id::{Offset, Position, SegmentId};

/// A group whose header validates, and whose place and segment are what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundGroup {
    /// The header.
    pub header: GroupHeader,
    /// Its crc, which enters the chain.
    pub header_crc: u32,
}

/// Decodes the header of a group of `segment` at `position`, if one starts at the head of `bytes`.
///
/// # Errors
///
/// [`FormatError`]: none starts here; a header of another segment or place counts as none.
pub fn find_group(
    bytes: &[u8],
    segment: SegmentId,
    position: Position,
) -> Result<FoundGroup, FormatError> {
    let (header, header_crc) = GroupHeader::decode(bytes)?;
    let refuse =
        |field, value| FormatError::Field { what: crate::format::Structure::Group, field, value };
    if header.segment != segment {
        return Err(refuse("segment id", header.segment.0));
    }
    if header.position != position {
        return Err(refuse("position", header.position.0));
    }
    Ok(FoundGroup { header, header_crc })
}

/// Walks the batches of a group in order, without looking at their payloads.
///
/// Ends after the last batch the header counts, or with the first error.
#[derive(Debug)]
pub struct GroupBatches<'a> {
    group: &'a [u8],
    header: GroupHeader,
    at: usize,
    next_offset: Offset,
    left: u32,
}

impl<'a> GroupBatches<'a> {
    /// Starts in front of the first batch. `group` starts with the group's header and may be cut short.
    #[must_use]
    pub fn new(group: &'a [u8], header: &GroupHeader) -> GroupBatches<'a> {
        let end = group.len().min(header.length_bytes as usize);
        GroupBatches {
            group: &group[..end],
            header: *header,
            at: GROUP_HEADER_BYTES,
            next_offset: header.base_offset,
            left: header.batches,
        }
    }

    /// The offset the next batch starts at.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// Where the next batch starts, from the head of the group.
    #[must_use]
    pub fn next_at(&self) -> usize {
        self.at
    }

    fn step(&mut self) -> Result<(BatchHeader, Range<usize>), FormatError> {
        let batch = BatchHeader::decode(self.group.get(self.at..).unwrap_or_default())?;
        let end = self.at + batch.total_bytes();
        let refuse = |field, value| FormatError::Field {
            what: crate::format::Structure::Batch,
            field,
            value,
        };
        if batch.stamp.base_offset != self.next_offset {
            return Err(refuse("base offset in its group", batch.stamp.base_offset.0));
        }
        let is_last = self.left == 1;
        let fits = match is_last {
            true => end == self.header.length_bytes as usize,
            false => end < self.header.length_bytes as usize,
        };
        if !fits {
            return Err(refuse("total bytes in its group", batch.total_bytes() as u64));
        }
        if is_last && batch.next_offset() != self.header.next_offset {
            return Err(refuse("last offset in its group", batch.next_offset().0));
        }
        let range = self.at..end;
        self.at = end;
        self.next_offset = batch.next_offset();
        self.left -= 1;
        Ok((batch, range))
    }
}

impl Iterator for GroupBatches<'_> {
    type Item = Result<(BatchHeader, Range<usize>), FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.left = 0;
        }
        Some(step)
    }
}

/// Checks every batch of a group, payloads included, and hands their headers to `visit` once all are sound.
/// Returns the chain behind the group, if the chain in its header is right.
///
/// # Errors
///
/// [`FormatError`]: the group is not whole.
pub fn check_group(
    group: &[u8],
    found: &FoundGroup,
    mut visit: impl FnMut(&BatchHeader),
) -> Result<Chain, FormatError> {
    let header = &found.header;
    let mut chain = header.chain;
    for step in GroupBatches::new(group, header) {
        let (batch, range) = step?;
        batch.check_payload(group.get(range).unwrap_or_default())?;
        chain = chain.with_crc(batch.header_crc);
    }
    for (batch, _) in GroupBatches::new(group, header).flatten() {
        visit(&batch);
    }
    Ok(chain.with_crc(found.header_crc))
}
