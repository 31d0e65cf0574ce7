//! The settings of a partition and the limits of a shard, each with its name and default.

use super::retention::RetentionLimits;
use crate::format::{BATCH_BYTES_MAX, StoredSettings};
use crate::id::BLOCK_BYTES;

/// The smallest `segment_bytes`: a segment holds at least one batch of the longest kind.
pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// The largest `segment_bytes`.
pub const SEGMENT_BYTES_MAX: u64 = 4 << 30;

/// How a partition is stored and how long it keeps its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSettings {
    /// The size at which a segment is closed and the next one begins.
    pub segment_bytes: u64,
    /// The size of the first segment; each next one doubles up to `segment_bytes`.
    pub first_segment_bytes: u64,
    /// What is kept.
    pub retention: RetentionLimits,
}

impl Default for PartitionSettings {
    fn default() -> Self {
        PartitionSettings {
            segment_bytes: 64 << 20,
            first_segment_bytes: 1 << 20,
            retention: RetentionLimits::default(),
        }
    }
}

impl PartitionSettings {
    /// The settings with sizes brought into their bounds and onto block boundaries.
    #[must_use]
    pub fn bounded(self) -> PartitionSettings {
        let block = BLOCK_BYTES as u64;
        let segment_bytes =
            self.segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX).next_multiple_of(block);
        let first_segment_bytes = self
            .first_segment_bytes
            .clamp(SEGMENT_BYTES_MIN, segment_bytes)
            .next_multiple_of(block);
        PartitionSettings { segment_bytes, first_segment_bytes, ..self }
    }

    /// The settings as a checkpoint holds them.
    pub(super) fn to_stored(self) -> StoredSettings {
        StoredSettings {
            segment_bytes: self.segment_bytes,
            first_segment_bytes: self.first_segment_bytes,
            retention_bytes: self.retention.bytes_max,
            retention_age: self.retention.age_max,
        }
    }

    /// Takes over the settings of a checkpoint.
    pub(super) fn from_stored(stored: StoredSettings) -> PartitionSettings {
        let retention =
            RetentionLimits { bytes_max: stored.retention_bytes, age_max: stored.retention_age };
        PartitionSettings {
            segment_bytes: stored.segment_bytes,
            first_segment_bytes: stored.first_segment_bytes,
            retention,
        }
        .bounded()
    }
}

/// The limits of one shard. Reaching one is `Busy`, never growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardLimits {
    /// Requests waiting in the mailbox.
    pub mailbox_slots: usize,
    /// Appends admitted and not acknowledged.
    pub appends_in_flight_max: usize,
    /// Bytes one partition may have gathered and not submitted.
    pub gathered_bytes_max: usize,
    /// Bytes of written groups kept in memory for tail readers, over all partitions of the shard.
    pub tail_bytes_max: usize,
    /// The length of the journal's file, made when a second partition takes appends; 0 for none.
    pub journal_bytes: u64,
    /// The bytes of removed segments' files kept to be written again, over all partitions; 0 for none.
    pub recycled_bytes_max: u64,
    /// Reads that wait for the disk, the ones in flight included.
    pub reads_in_flight_max: usize,
    /// Operations of reads in flight on the disk.
    pub cold_reads_in_flight_max: usize,
    /// Their bytes, at most an eighth of the arena.
    pub cold_bytes_in_flight_max: usize,
    /// Their bytes while there are appends: what is in flight stands before an append at the device.
    pub cold_bytes_beside_appends_max: usize,
    /// Bytes read ahead of readers that read in order, over all partitions; at most an eighth of the arena.
    pub read_ahead_bytes_max: usize,
    /// The share of the arena that readers may hold, in percent. Beyond it they are given copies.
    pub lent_percent_max: usize,
    /// The share of the arena that reservations may hold, in percent. Beyond it none is given.
    pub reserved_percent_max: usize,
    /// Producers of one partition whose last batches are remembered; the one silent for longest is forgotten.
    pub producers_max: usize,
    /// Readers waiting at the tail.
    pub readers_waiting_max: usize,
    /// Closed segments of one partition held open for reading.
    pub open_segments_max: usize,
}

impl Default for ShardLimits {
    fn default() -> Self {
        ShardLimits {
            mailbox_slots: 4096,
            appends_in_flight_max: 65_536,
            gathered_bytes_max: 2 * BATCH_BYTES_MAX,
            tail_bytes_max: 24 << 20,
            journal_bytes: 64 << 20,
            recycled_bytes_max: 256 << 20,
            reads_in_flight_max: 64,
            cold_reads_in_flight_max: 32,
            cold_bytes_in_flight_max: 4 << 20,
            cold_bytes_beside_appends_max: 512 << 10,
            read_ahead_bytes_max: 8 << 20,
            lent_percent_max: 60,
            reserved_percent_max: 25,
            producers_max: 256,
            readers_waiting_max: 16_384,
            open_segments_max: 4,
        }
    }
}
