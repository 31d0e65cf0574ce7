//! Finds groups in segment files, so that a scenario can damage a place it can name.

use std::ops::Range;
use std::path::PathBuf;

use palisade_engine::format::{FIRST_GROUP_POSITION, GroupHeader};

use crate::world::World;

/// One group of a segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpan {
    /// Its bytes, padding included.
    pub positions: Range<u64>,
    /// Where its last batch ends and the padding begins.
    pub filled_end: u64,
    /// Its records.
    pub offsets: Range<u64>,
}

/// One segment file that has groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// The file.
    pub path: PathBuf,
    /// Its groups in order.
    pub groups: Vec<GroupSpan>,
}

impl SegmentFile {
    /// Where its last group ends; a closed segment has its footer there.
    #[must_use]
    pub fn end_position(&self) -> u64 {
        self.groups.last().expect("only files with groups are listed").positions.end
    }

    /// Its records.
    #[must_use]
    pub fn offsets(&self) -> Range<u64> {
        let last = self.groups.last().expect("only files with groups are listed");
        self.groups[0].offsets.start..last.offsets.end
    }
}

/// The segment files that have groups, in the order of their offsets.
#[must_use]
pub fn segment_files(world: &impl World) -> Vec<SegmentFile> {
    let mut segments: Vec<_> = world
        .files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "segment"))
        .map(|path| SegmentFile { groups: groups(&world.read_file(&path)), path })
        .filter(|segment| !segment.groups.is_empty())
        .collect();
    segments.sort_by_key(|segment| (segment.groups[0].offsets.start, segment.offsets().end));
    segments
}

fn groups(file: &[u8]) -> Vec<GroupSpan> {
    let mut groups = Vec::new();
    let mut position = FIRST_GROUP_POSITION.0;
    loop {
        let at = usize::try_from(position).expect("test files are small");
        let Some(Ok((header, _))) = file.get(at..).map(GroupHeader::decode) else {
            return groups;
        };
        let end = header.end_position().0;
        groups.push(GroupSpan {
            positions: position..end,
            filled_end: position + u64::from(header.length_bytes),
            offsets: header.base_offset.0..header.next_offset.0,
        });
        position = end;
    }
}
