//! Looks at what lies behind a place where no group validates: the next one that does, and what the headers
//! there say had been durable. Believes only headers of the same segment at their own place.

use super::group_walk::{FoundGroup, check_group, find_group};
use super::scan::ScanError;
use super::window::Window;
use crate::format::{DurableMark, FIRST_GROUP_POSITION, Footer, GroupHeader, SegmentPoint};
use crate::id::{BLOCK_BYTES, Offset, Position, SegmentId};
use crate::io::disk::{Disk, DiskFile};

/// What lies behind a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    /// The first whole group behind it that could follow.
    pub(super) readable: Option<FoundGroup>,
    /// The furthest of what the headers say had been durable.
    pub(super) durable: DurableMark,
    /// The furthest durable offset in headers that saw nothing of their own segment durable.
    pub(super) durable_before: Offset,
    /// The base offset of the segment's first group, if its header was met.
    pub(super) first_offset: Option<Offset>,
    /// Behind the last block that is not all zeros; the place itself if there is none.
    pub(super) written_end: Position,
    /// Behind the last block that this segment may have written. In a file that was another segment's before, only
    /// headers tell.
    pub(super) own_end: Position,
}

/// How far a survey looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SurveyDepth {
    /// To the first readable group.
    FirstReadable,
    /// To the end.
    Whole,
}

/// Surveys `segment` from `behind`, the block there included, to `end` or the end of the file.
pub(super) async fn survey<D: Disk>(
    window: &mut Window<'_, D>,
    segment: SegmentId,
    behind: &SegmentPoint,
    end: Position,
    depth: SurveyDepth,
) -> Result<Survey, ScanError> {
    let mut survey = Survey { written_end: behind.position, ..Survey::default() };
    let (mut headed_end, mut is_recycled) = (behind.position, false);
    let mut position = behind.position;
    while position < end {
        let bytes = window.at(position, BLOCK_BYTES).await?;
        let block = &bytes[..bytes.len().min(BLOCK_BYTES)];
        if block.is_empty() {
            break;
        }
        let mut next_position = position.plus(BLOCK_BYTES as u64);
        if !is_zero(block) {
            survey.written_end = next_position;
            is_recycled = is_recycled || is_leftover(block, segment, position);
        }
        if let Ok(found) = find_group(block, segment, position) {
            survey.note_header(&found.header);
            headed_end = headed_end.max(found.header.end_position().min(end));
            let is_behind = position > behind.position;
            if is_behind && is_readable(window, &found, behind, end).await? {
                next_position = found.header.end_position();
                survey.written_end = next_position;
                survey.readable.get_or_insert(found);
                if depth == SurveyDepth::FirstReadable {
                    break;
                }
            }
        }
        position = next_position;
    }
    survey.own_end = if is_recycled { headed_end } else { survey.written_end };
    Ok(survey)
}

impl Survey {
    fn note_header(&mut self, header: &GroupHeader) {
        let claim = header.durable;
        if claim.position <= FIRST_GROUP_POSITION {
            self.durable_before = self.durable_before.max(claim.offset);
        }
        if header.number == 0 {
            self.first_offset = Some(header.base_offset);
        }
        self.durable.offset = self.durable.offset.max(claim.offset);
        self.durable.position = self.durable.position.max(claim.position);
    }
}

async fn is_readable<D: Disk>(
    window: &mut Window<'_, D>,
    found: &FoundGroup,
    behind: &SegmentPoint,
    end: Position,
) -> Result<bool, ScanError> {
    let header = &found.header;
    let follows = header.base_offset >= behind.offset && header.number > behind.group;
    if !follows || header.end_position() > end {
        return Ok(false);
    }
    let group = window.at(header.position, header.length_bytes as usize).await?;
    Ok(check_group(group, found, |_| {}).is_ok())
}

/// What the groups of a segment say had been durable when they were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurableClaim {
    /// Of the segment itself.
    pub own: DurableMark,
    /// Of the log in front of the segment: every record below was durable.
    pub before: Offset,
    /// Whether nothing of the segment stands where groups do: zeros, or what another segment left in its file.
    pub is_empty: bool,
}

impl DurableClaim {
    /// What a segment without groups says.
    pub const EMPTY: DurableClaim = DurableClaim {
        own: DurableMark { offset: Offset::ZERO, position: Position::ZERO },
        before: Offset::ZERO,
        is_empty: true,
    };
}

/// Reads what the groups of `segment` in its first `bytes_max` say had been durable, whether or not anything before them
/// can be read. For the segment made in advance: its groups vouch for the end of the one before it.
///
/// # Errors
///
/// [`ScanError`]: unknown.
pub async fn durable_claim<D: Disk>(
    disk: &D,
    file: &D::File,
    segment: SegmentId,
    bytes_max: u64,
) -> Result<DurableClaim, ScanError> {
    let end = Position(file.length().await.map_err(ScanError::Disk)?.min(bytes_max));
    let start = SegmentPoint { position: FIRST_GROUP_POSITION, ..SegmentPoint::default() };
    let mut window = Window::new(disk, file);
    let found = survey(&mut window, segment, &start, end, SurveyDepth::Whole).await?;
    // Something of the segment was durable, so all in front of it was: up to its first record.
    let before = match found.durable.position > FIRST_GROUP_POSITION {
        true => found.first_offset.unwrap_or(found.durable_before),
        false => found.durable_before,
    };
    let is_empty = found.own_end == FIRST_GROUP_POSITION;
    Ok(DurableClaim { own: found.durable, before, is_empty })
}

/// Tells whether a block begins a group or a footer of another segment: the file was that one's before.
fn is_leftover(block: &[u8], segment: SegmentId, position: Position) -> bool {
    let group = GroupHeader::decode(block).ok().filter(|(header, _)| header.position == position);
    let of_group = group.map(|(header, _)| header.segment);
    let former = of_group.or_else(|| Footer::segment_of(block));
    former.is_some_and(|former| former != segment)
}

fn is_zero(block: &[u8]) -> bool {
    let is_zero = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all | byte) == 0;
    block.chunks(128).all(is_zero)
}
