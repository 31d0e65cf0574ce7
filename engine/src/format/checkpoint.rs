//! The authoritative state of a partition: what cannot be rebuilt from its log, and where its log is.
//!
//! Promises live here, so a checkpoint that cannot be read is never replaced by a guess.
//!
//! | bytes | field |
//! |---|---|
//! | 24 | wrapped header, magic `PCKP`, version 2 |
//! | 8 | sequence of this checkpoint |
//! | 16 + 4 | partition: stream id, index |
//! | 4 + n | stream name |
//! | 1 | clean: 1 after an orderly close, nothing was written since |
//! | 8, 8, 8 | log start, next offset, committed |
//! | 8 | promised epoch |
//! | 4 + n | descriptor of the promised term, with its own header; length 0 for none |
//! | 8 | loss generation |
//! | 4 + n x 16 | epoch history: epoch, start offset |
//! | 4 + n x 48 | producers: id 8, epoch 4, sequence 8, base offset 8, records 4, append time 8, epoch of the log 8 |
//! | 4 + n x 57 | closed segments: id, base offset, end offset, end position, last chain, first and last append time, 8 each, state 1 |
//! | 4 + n x 40 | quarantined ranges: segment id, start and end position, start and end offset |
//! | 1 + 72 | active segment: 0 none or 1 and id, file bytes, base offset, first and last append time, durable position, offset, chain, group number |
//! | 1 + 16 | next segment: 0 none or 1 and id, file bytes |
//! | 32 | settings: segment bytes, first segment bytes, retention bytes, retention age in microseconds; all ones for no limit |
//! | 1 + 16 | journal: 0 none or 1 and journal id, sequence of the first frame that counts |
//!
//! Version 1 has no journal field and is still read.

use std::ops::Range;
use std::time::Duration;

use super::batch::Producer;
use super::checkpoint_fields::{decode_checkpoint, encode_checkpoint};
use super::descriptor::Descriptor;
use super::envelope::Envelope;
use super::error::{FormatError, Structure};
use super::group::Chain;
use super::journal::JournalMark;
use crate::id::{Epoch, Offset, PartitionId, Position, SegmentId, StreamName};
use crate::io::clock::WallTime;

/// The longest encoded checkpoint.
pub const CHECKPOINT_BYTES_MAX: usize = 64 << 20;

pub(super) const ENVELOPE: Envelope = Envelope::of_payload(Structure::Checkpoint, *b"PCKP", 2);

const ENVELOPE_V1: Envelope = Envelope { version: 1, ..ENVELOPE };

/// Where an epoch starts in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: Epoch,
    /// The log end when its marker was written.
    pub start: Offset,
}

/// A batch remembered to answer a repeated one with the first one's offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// Who sent it.
    pub producer: Producer,
    /// Where it went.
    pub base_offset: Offset,
    /// How many records it had.
    pub records: u32,
    /// When it was appended.
    pub append_time: WallTime,
    /// In which epoch of the log.
    pub epoch: Epoch,
}

/// Whether all of a closed segment is readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// As far as is known.
    Healthy,
    /// Some ranges of it are in the list of quarantined ranges.
    Quarantined,
}

/// A segment that is written no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedSegment {
    /// Its name.
    pub segment: SegmentId,
    /// The offset of its first record.
    pub base_offset: Offset,
    /// The offset behind its last record.
    pub end_offset: Offset,
    /// Where its groups end; bytes behind are a footer or leftovers, never log.
    pub end_position: Position,
    /// The chain behind its last group.
    pub last_chain: Chain,
    /// The append time of its first batch.
    pub first_time: WallTime,
    /// The append time of its last batch.
    pub last_time: WallTime,
    /// Whether all of it is readable.
    pub state: SegmentState,
}

/// Bytes that did not validate although they had been durable; they are kept, and reads of them fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedRange {
    /// In which segment.
    pub segment: SegmentId,
    /// The bytes of it.
    pub positions: Range<Position>,
    /// The records that cannot be read.
    pub offsets: Range<Offset>,
}

/// A place between two groups of a segment, and all that is needed to go on from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentPoint {
    /// Where the next group starts.
    pub position: Position,
    /// The log end there.
    pub offset: Offset,
    /// The chain over everything before.
    pub chain: Chain,
    /// The number of the next group in the segment.
    pub group: u64,
}

/// The segment that takes appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveSegment {
    /// Its name.
    pub segment: SegmentId,
    /// How long its file was made.
    pub file_bytes: u64,
    /// The offset of its first record.
    pub base_offset: Offset,
    /// The append time of its first batch, unknown without one.
    pub first_time: WallTime,
    /// The append time of its last durable batch: later ones never fall below.
    pub last_time: WallTime,
    /// Everything below was durable when the checkpoint was written.
    pub durable: SegmentPoint,
}

/// The segment made in advance for the next roll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextSegment {
    /// Its name.
    pub segment: SegmentId,
    /// How long its file was made.
    pub file_bytes: u64,
}

/// The settings of a partition, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredSettings {
    /// The size at which a segment is closed and the next one begins.
    pub segment_bytes: u64,
    /// The size of the first segment.
    pub first_segment_bytes: u64,
    /// How many bytes are kept.
    pub retention_bytes: Option<u64>,
    /// How long records are kept, in whole microseconds.
    pub retention_age: Option<Duration>,
}

/// The state of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Counts the checkpoints of a partition; the higher one is believed.
    pub sequence: u64,
    /// Whose state it is.
    pub partition: PartitionId,
    /// What people call the stream.
    pub stream_name: StreamName,
    /// Written by an orderly close; nothing was written since.
    pub clean: bool,
    /// The first readable offset.
    pub log_start: Offset,
    /// The log end when it was written.
    pub next_offset: Offset,
    /// `committed` when it was written.
    pub committed: Offset,
    /// The highest epoch promised; it never falls.
    pub promise: Epoch,
    /// The descriptor of the promised term.
    pub descriptor: Option<Descriptor>,
    /// How often an operator has accepted a loss.
    pub loss_generation: u64,
    /// Which epoch wrote from where on, in order.
    pub epochs: Vec<EpochStart>,
    /// The batches remembered for repeated ones.
    pub producers: Vec<ProducerEntry>,
    /// The segments written no more, oldest first.
    pub closed: Vec<ClosedSegment>,
    /// What cannot be read.
    pub quarantined: Vec<QuarantinedRange>,
    /// The segment that takes appends; the first append makes one if there is none.
    pub active: Option<ActiveSegment>,
    /// The segment made in advance.
    pub next: Option<NextSegment>,
    /// The partition's settings.
    pub settings: StoredSettings,
    /// Which frames of the shard's journal may hold records behind those in the segments.
    pub journal: Option<JournalMark>,
}

impl Checkpoint {
    /// Encodes the checkpoint; the same value always gives the same bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        ENVELOPE.wrap(&encode_checkpoint(self))
    }

    /// Decodes the checkpoint at the head of `bytes`.
    ///
    /// # Errors
    ///
    /// [`FormatError`] names what is wrong; believe the other slot, or put the partition aside.
    pub fn decode(bytes: &[u8]) -> Result<Checkpoint, FormatError> {
        let (mut fields, version) = match ENVELOPE.unwrap(bytes) {
            Err(FormatError::Field { field: "version", value: 1, .. }) => {
                (ENVELOPE_V1.unwrap(bytes)?, 1)
            }
            fields => (fields?, ENVELOPE.version),
        };
        let checkpoint = decode_checkpoint(&mut fields, version)?;
        fields.end()?;
        checkpoint.check_order()?;
        Ok(checkpoint)
    }

    fn check_order(&self) -> Result<(), FormatError> {
        if self.log_start > self.committed {
            return Err(ENVELOPE.field("log start", self.log_start.0));
        }
        if self.committed > self.next_offset {
            return Err(ENVELOPE.field("committed", self.committed.0));
        }
        let epochs_rise =
            |pair: &[EpochStart]| pair[0].epoch < pair[1].epoch && pair[0].start <= pair[1].start;
        if !self.epochs.windows(2).all(epochs_rise) {
            return Err(ENVELOPE.field("epoch history order", self.epochs.len() as u64));
        }
        let segments_follow = |pair: &[ClosedSegment]| pair[0].end_offset <= pair[1].base_offset;
        let segment_is_whole = |closed: &ClosedSegment| {
            closed.base_offset <= closed.end_offset && closed.end_position.is_block_aligned()
        };
        if !self.closed.windows(2).all(segments_follow) || !self.closed.iter().all(segment_is_whole)
        {
            return Err(ENVELOPE.field("closed segment order", self.closed.len() as u64));
        }
        if let Some(active) = &self.active
            && !active.durable.position.is_block_aligned()
        {
            return Err(ENVELOPE.field("durable position", active.durable.position.0));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
pub(super) mod tests;
