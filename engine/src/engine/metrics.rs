//! Counters and states as plain values, for whoever shows or exports them.

use std::sync::Arc;
use std::time::Duration;

use super::shards::ShardIndex;
use crate::id::{Epoch, PartitionId, PartitionName};
use crate::io::disk::DiskError;
use crate::partition::Watermarks;
use crate::shard::{PartitionRecord, ShardCounters, shard_of};

/// One partition at one instant.
#[derive(Clone, Debug)]
pub struct PartitionStatus {
    /// The partition.
    pub id: PartitionId,
    /// Its name.
    pub name: PartitionName,
    /// Where it lives.
    pub shard: ShardIndex,
    /// Its watermarks.
    pub watermarks: Watermarks,
    /// The highest epoch promised.
    pub promised: Epoch,
    /// The epoch this run owns, if any.
    pub owned: Option<Epoch>,
    /// Segments on disk, the one being written included.
    pub segments: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Bytes taken on the disk and not filled: of the segment being written and of the next one. Renewed every 100 ms.
    pub preallocated_bytes: u64,
    /// Whether appends are refused for lack of room.
    pub is_disk_full: bool,
    /// Whether it was closed.
    pub is_closed: bool,
    /// The device error that stopped it.
    pub stopped: Option<Arc<DiskError>>,
}

impl PartitionStatus {
    pub(super) fn of(record: &PartitionRecord, shards: usize) -> PartitionStatus {
        let status = &record.status;
        PartitionStatus {
            id: record.id,
            name: record.name.clone(),
            shard: ShardIndex(shard_of(&record.id, shards)),
            watermarks: status.watermarks.load(),
            promised: status.promised(),
            owned: status.owned(),
            segments: status.segments(),
            segment_bytes: status.segment_bytes(),
            preallocated_bytes: status.preallocated_bytes(),
            is_disk_full: status.is_disk_full(),
            is_closed: status.is_closed(),
            stopped: status.stopped().cloned(),
        }
    }
}

/// The counters of every shard at one instant, by shard.
#[derive(Clone, Debug, Default)]
pub struct EngineMetrics {
    /// One entry a shard.
    pub shards: Vec<ShardMetrics>,
}

/// The counters of one shard at one instant. What is in flight, taken or held at the moment rises and falls, all else only
/// grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardMetrics {
    /// Batches given an offset.
    pub appends: u64,
    /// Records in them.
    pub records: u64,
    /// Their bytes.
    pub append_bytes: u64,
    /// Groups handed to the device.
    pub groups: u64,
    /// Their bytes, padding included.
    pub group_bytes: u64,
    /// Syncs that made groups durable which nobody waited for, many at a time.
    pub group_syncs: u64,
    /// Appends refused at a limit.
    pub busy: u64,
    /// Appends refused for another reason.
    pub refused: u64,
    /// Appends acknowledged.
    pub acknowledged: u64,
    /// Repeated appends, answered like their first try.
    pub repeated: u64,
    /// Durable appends whose acknowledgement the gate withheld.
    pub withheld: u64,
    /// Segments begun because one was full.
    pub rolls: u64,
    /// Segments made of recycled files.
    pub recycled_segments: u64,
    /// Frames submitted to the journal.
    pub journal_frames: u64,
    /// Groups in those frames.
    pub journal_groups: u64,
    /// Bytes of those frames, padding included.
    pub journal_bytes: u64,
    /// Bytes of frames held in memory because their groups are not durable in segments yet.
    pub journal_memory_bytes: u64,
    /// Groups submitted to segments that were in the journal before.
    pub stored_groups: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Reads answered from memory alone.
    pub tail_reads: u64,
    /// Reads that went to the disk.
    pub cold_reads: u64,
    /// Answers out of what was read ahead of a scan; one read may take several.
    pub ahead_reads: u64,
    /// Answers in copies, because readers hold their share of the arena.
    pub copied_reads: u64,
    /// Partitions stopped by a device error.
    pub stopped: u64,
    /// Appends refused for lack of room.
    pub disk_full: u64,
    /// Segments made shorter than due: the disk is filling up, and appends will be refused before long.
    pub shortened_segments: u64,
    /// Turns of the shard's loop; one that stands still is stuck or idle.
    pub turns: u64,
    /// Appends waiting for their acknowledgement.
    pub appends_in_flight: u64,
    /// Groups on their way to the device.
    pub groups_in_flight: u64,
    /// Bytes of segments being written that are not filled yet. This and the next one are renewed every 100 ms.
    pub unfilled_bytes: u64,
    /// Bytes of segments made ahead or being made.
    pub next_segment_bytes: u64,
    /// The length of the journal's file; 0 while there is none.
    pub journal_file_bytes: u64,
    /// Bytes of removed segments' files that wait to become segments again.
    pub recycled_bytes: u64,
    /// Bytes kept in memory for tail readers.
    pub tail_bytes: u64,
    /// How long a no-op took through the ring, last time.
    pub turn_latency: Duration,
    /// The longest it ever took.
    pub turn_latency_longest: Duration,
    /// When the oldest write in flight was submitted, on CLOCK_BOOTTIME.
    pub oldest_write: Option<Duration>,
}

impl ShardMetrics {
    /// Every byte taken on the disk that holds no record yet.
    #[must_use]
    pub fn preallocated_bytes(&self) -> u64 {
        let ahead = self.unfilled_bytes + self.next_segment_bytes;
        ahead + self.recycled_bytes + self.journal_file_bytes
    }
}

impl EngineMetrics {
    pub(super) fn of(counters: &[Arc<ShardCounters>]) -> EngineMetrics {
        EngineMetrics { shards: counters.iter().map(|counters| metrics_of(counters)).collect() }
    }
}

fn metrics_of(counters: &ShardCounters) -> ShardMetrics {
    let log = &counters.log;
    let oldest_write = log.oldest_write_us.get();
    ShardMetrics {
        appends: log.appends.get(),
        records: log.records.get(),
        append_bytes: log.append_bytes.get(),
        groups: log.groups.get(),
        group_bytes: log.group_bytes.get(),
        group_syncs: log.group_syncs.get(),
        busy: log.busy.get(),
        refused: log.refused.get(),
        acknowledged: log.acknowledged.get(),
        repeated: log.repeated.get(),
        withheld: log.withheld.get(),
        rolls: log.rolls.get(),
        recycled_segments: log.recycled_segments.get(),
        journal_frames: log.journal_frames.get(),
        journal_groups: log.journal_groups.get(),
        journal_bytes: log.journal_bytes.get(),
        journal_memory_bytes: log.journal_memory_bytes.get(),
        stored_groups: log.stored_groups.get(),
        checkpoints: log.checkpoints.get(),
        tail_reads: log.tail_reads.get(),
        cold_reads: log.cold_reads.get(),
        ahead_reads: log.ahead_reads.get(),
        copied_reads: log.copied_reads.get(),
        stopped: log.stopped.get(),
        disk_full: log.disk_full.get(),
        shortened_segments: log.shortened_segments.get(),
        turns: counters.turns.get(),
        appends_in_flight: log.appends_in_flight.get(),
        groups_in_flight: log.groups_in_flight.get(),
        unfilled_bytes: log.unfilled_bytes.get(),
        next_segment_bytes: log.next_segment_bytes.get(),
        journal_file_bytes: log.journal_file_bytes.get(),
        recycled_bytes: log.recycled_bytes.get(),
        tail_bytes: log.tail_bytes.get(),
        turn_latency: Duration::from_micros(counters.turn_last_us.get()),
        turn_latency_longest: Duration::from_micros(counters.turn_longest_us.get()),
        oldest_write: (oldest_write != 0).then(|| Duration::from_micros(oldest_write)),
    }
}
