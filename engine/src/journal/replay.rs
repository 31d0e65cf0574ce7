//! Reads the journals that earlier runs left behind: which groups they hold, and what of them was durable.
//!
//! Nothing is written here. Frames beyond a hole that were not known to be durable are left out: nobody was told
//! of them. A hole among those that were is damage, and is reported.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::making::{JOURNALS, journal_id_of_name, journal_path};
use crate::format::{
    BatchHeader, BatchKind, FIRST_FRAME_POSITION, FRAME_BYTES_MAX, FRAME_HEADER_BYTES, FrameEntry,
    FrameHeader, FrameSequence, JournalHeader, JournalMark,
};
use crate::id::{BLOCK_BYTES, JournalId, Offset, PartitionId, Position};
use crate::io::arena::Extent;
use crate::io::disk::{Disk, DiskError, DiskFile, OpenMode};
use crate::io::runtime::Runtime;

/// The bytes of one read.
const WINDOW_BYTES: usize = 1 << 20;

/// How long to wait for memory.
const RETRY_AFTER: Duration = Duration::from_millis(2);

const _: () = assert!(WINDOW_BYTES >= 2 * FRAME_BYTES_MAX);

/// One group as a frame holds it.
#[derive(Clone, Debug)]
pub(crate) struct ReplayedPiece {
    /// In which frame.
    pub(crate) sequence: FrameSequence,
    /// The offset of its first record.
    pub(crate) base_offset: Offset,
    /// Whole batches, checked.
    pub(crate) batches: Vec<u8>,
}

/// What one journal holds.
#[derive(Debug, Default)]
struct ReplayedJournal {
    pieces: BTreeMap<PartitionId, Vec<ReplayedPiece>>,
    /// Frames that had been durable and are not whole any more.
    lost: Vec<FrameSequence>,
}

/// What follows the end of a partition's segments.
pub(crate) struct Behind<'a> {
    /// Whole batches with their headers, each going on where the one before ends.
    pub(crate) batches: Vec<(BatchHeader, &'a [u8])>,
    /// The end of the log with them.
    pub(crate) end: Offset,
    /// Records from `end` to here were acknowledged and lay in a frame that is damaged.
    pub(crate) lost_until: Option<Offset>,
}

/// What all journals of a data directory hold.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    journals: BTreeMap<JournalId, ReplayedJournal>,
}

impl Replay {
    /// What the journal named by `mark` holds of a partition behind `end`, where its segments end.
    pub(crate) fn behind(
        &self,
        partition: PartitionId,
        mark: JournalMark,
        end: Offset,
    ) -> Behind<'_> {
        let journal = self.journals.get(&mark.journal);
        let pieces = journal.and_then(|journal| journal.pieces.get(&partition));
        let pieces = pieces.map(Vec::as_slice).unwrap_or_default();
        let from = pieces.partition_point(|piece| piece.sequence < mark.from);
        let mut behind = Behind { batches: Vec::new(), end, lost_until: None };
        for piece in &pieces[from..] {
            if piece.base_offset > behind.end {
                // Behind a group that never became durable: nobody was told of it. Unless frames were damaged.
                let lost = journal.into_iter().flat_map(|journal| &journal.lost);
                let is_lost = lost.into_iter().any(|lost| *lost >= mark.from);
                behind.lost_until = is_lost.then_some(piece.base_offset);
                break;
            }
            let mut batches = piece.batches.as_slice();
            while !batches.is_empty() {
                let header = BatchHeader::decode(batches).expect("checked when it was read");
                let (batch, rest) = batches.split_at(header.total_bytes());
                batches = rest;
                if header.stamp.base_offset == behind.end {
                    behind.end = header.next_offset();
                    behind.batches.push((header, batch));
                }
            }
        }
        behind
    }

    /// Whether any journal is damaged; then their files are kept.
    pub(crate) fn is_damaged(&self) -> bool {
        self.journals.values().any(|journal| !journal.lost.is_empty())
    }
}

/// Lists the journals that lie in a data directory.
pub(crate) async fn list_journals<D: Disk>(
    disk: &D,
    directory: &Path,
) -> Result<Vec<JournalId>, DiskError> {
    let entries = match disk.list(&directory.join(JOURNALS)).await {
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found: Vec<_> =
        entries.iter().filter_map(|entry| journal_id_of_name(&entry.name)).collect();
    found.sort();
    Ok(found)
}

/// Reads all journals of a data directory. A file without a header was never used.
///
/// # Errors
///
/// [`DiskError`]: what is in the journals is unknown, so nothing may be opened.
pub(crate) async fn replay<D: Disk>(
    disk: &D,
    runtime: &dyn Runtime,
    directory: &Path,
) -> Result<Replay, DiskError> {
    let mut replay = Replay::default();
    for journal in list_journals(disk, directory).await? {
        let file = disk.open(&journal_path(directory, journal), OpenMode::Read).await?;
        let mut reader = Reader { runtime, disk, file, window: None, start: Position::ZERO };
        let block = reader.at(Position::ZERO, BLOCK_BYTES).await?;
        match JournalHeader::decode(block) {
            Ok(header) if header.journal == journal => {}
            Ok(_) | Err(_) => continue,
        }
        replay.journals.insert(journal, read_journal(&mut reader, journal).await?);
    }
    Ok(replay)
}

/// A frame that is whole.
struct WholeFrame {
    pieces: Vec<(PartitionId, ReplayedPiece)>,
}

async fn read_journal<D: Disk>(
    reader: &mut Reader<'_, D>,
    journal: JournalId,
) -> Result<ReplayedJournal, DiskError> {
    let mut frames: BTreeMap<FrameSequence, WholeFrame> = BTreeMap::new();
    // A header says what was durable even if the rest of its frame is damaged.
    let (mut durable, mut tail) = (FrameSequence(1), FrameSequence(1));
    let mut position = FIRST_FRAME_POSITION;
    let length = reader.file.length().await?;
    while position.0 < length {
        let bytes = reader.at(position, FRAME_BYTES_MAX).await?;
        let header = FrameHeader::decode(bytes).ok();
        let header =
            header.filter(|header| header.journal == journal && header.position == position);
        let Some(header) = header else {
            position = position.plus(BLOCK_BYTES as u64);
            continue;
        };
        durable = durable.max(header.durable);
        tail = tail.max(header.tail);
        match whole_frame(bytes) {
            Some(frame) => {
                position = position.plus(header.padded_bytes() as u64);
                frames.insert(header.sequence, frame);
            }
            // Damaged, or partly written over: look for others inside.
            None => position = position.plus(BLOCK_BYTES as u64),
        }
    }
    Ok(judge(frames, tail, durable))
}

/// Keeps the frames from `tail` to the first hole that was not durable.
fn judge(
    mut frames: BTreeMap<FrameSequence, WholeFrame>,
    tail: FrameSequence,
    durable: FrameSequence,
) -> ReplayedJournal {
    let mut replayed = ReplayedJournal::default();
    let mut sequence = tail;
    loop {
        match frames.remove(&sequence) {
            Some(frame) => {
                for (partition, piece) in frame.pieces {
                    replayed.pieces.entry(partition).or_default().push(piece);
                }
            }
            None if sequence < durable => replayed.lost.push(sequence),
            None => return replayed,
        }
        sequence = FrameSequence(sequence.0 + 1);
    }
}

fn whole_frame(bytes: &[u8]) -> Option<WholeFrame> {
    let (header, entries) = FrameHeader::decode_table(bytes).ok()?;
    let mut at = FRAME_HEADER_BYTES;
    let mut pieces = Vec::with_capacity(entries.len());
    for entry in entries {
        let batches = &bytes[at..][..entry.batches_bytes as usize];
        at += batches.len();
        if !are_whole(batches, &entry) {
            return None;
        }
        let piece = ReplayedPiece {
            sequence: header.sequence,
            base_offset: entry.base_offset,
            batches: batches.to_vec(),
        };
        pieces.push((entry.partition, piece));
    }
    Some(WholeFrame { pieces })
}

/// Checks that `batches` are batches of records that follow each other from the entry's offset.
fn are_whole(mut batches: &[u8], entry: &FrameEntry) -> bool {
    let mut next = entry.base_offset;
    while !batches.is_empty() {
        let Ok(header) = BatchHeader::decode(batches) else { return false };
        let is_next = header.stamp.base_offset == next && header.kind == BatchKind::Records;
        if !is_next || header.check_payload(batches).is_err() {
            return false;
        }
        next = header.next_offset();
        batches = &batches[header.total_bytes()..];
    }
    next > entry.base_offset
}

/// A window over the file that moves forward.
struct Reader<'a, D: Disk> {
    runtime: &'a dyn Runtime,
    disk: &'a D,
    file: D::File,
    window: Option<Extent>,
    start: Position,
}

impl<D: Disk> Reader<'_, D> {
    /// The bytes from `position`, at least `bytes` of them unless the file ends before.
    async fn at(&mut self, position: Position, bytes: usize) -> Result<&[u8], DiskError> {
        let end = self.start.0 + self.window.as_ref().map_or(0, Extent::len) as u64;
        let holds = position >= self.start && position.0 + bytes as u64 <= end;
        if !holds {
            self.window = None;
            let room = loop {
                match self.disk.arena().allocate(WINDOW_BYTES) {
                    Some(room) => break room,
                    None => self.runtime.sleep(RETRY_AFTER).await,
                }
            };
            self.window = Some(self.file.read(room, position).await?);
            self.start = position;
        }
        let skipped = usize::try_from(position.0 - self.start.0).expect("inside the window");
        let window = self.window.as_ref().map(Extent::as_slice).unwrap_or_default();
        Ok(window.get(skipped..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(sequence: u64) -> (FrameSequence, WholeFrame) {
        let sequence = FrameSequence(sequence);
        let partition =
            PartitionId { stream: crate::id::StreamId(1), index: crate::id::PartitionIndex(0) };
        let piece = ReplayedPiece { sequence, base_offset: Offset(sequence.0), batches: vec![] };
        (sequence, WholeFrame { pieces: vec![(partition, piece)] })
    }

    fn judged(present: &[u64], tail: u64, durable: u64) -> (Vec<u64>, Vec<u64>) {
        let frames = present.iter().map(|sequence| frame(*sequence)).collect();
        let replayed = judge(frames, FrameSequence(tail), FrameSequence(durable));
        let pieces = replayed.pieces.into_values().flatten().map(|piece| piece.sequence.0);
        (pieces.collect(), replayed.lost.iter().map(|sequence| sequence.0).collect())
    }

    #[test]
    fn frames_beyond_a_hole_that_was_not_durable_are_left_out() {
        assert_eq!(judged(&[3, 4, 6, 7], 3, 5), (vec![3, 4], vec![]));
    }

    #[test]
    fn hole_among_durable_frames_is_damage() {
        assert_eq!(judged(&[3, 4, 6, 7], 3, 6), (vec![3, 4, 6, 7], vec![5]));
    }

    #[test]
    fn frames_below_the_tail_do_not_count() {
        assert_eq!(judged(&[1, 2, 3, 4], 3, 4), (vec![3, 4], vec![]));
        assert_eq!(judged(&[], 1, 1), (vec![], vec![]));
    }
}
