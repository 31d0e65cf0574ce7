//! What the partitions of a shard count together; written by its thread alone, read by anybody.

use std::sync::atomic::{AtomicU64, Ordering};

/// One number that only its shard writes.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds. One thread writes, so a load and a store are enough and cost no locked instruction.
    pub(crate) fn add(&self, amount: u64) {
        self.set(self.get().wrapping_add(amount));
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn raise_to(&self, value: u64) {
        if value > self.get() {
            self.set(value);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one shard's partitions.
#[derive(Debug, Default)]
pub(crate) struct LogCounters {
    pub(crate) appends: Counter,
    pub(crate) records: Counter,
    pub(crate) append_bytes: Counter,
    pub(crate) groups: Counter,
    pub(crate) group_bytes: Counter,
    /// Syncs of groups that were only written.
    pub(crate) group_syncs: Counter,
    pub(crate) busy: Counter,
    pub(crate) refused: Counter,
    pub(crate) acknowledged: Counter,
    /// Appends answered with what their first try was answered.
    pub(crate) repeated: Counter,
    pub(crate) withheld: Counter,
    pub(crate) appends_in_flight: Counter,
    pub(crate) groups_in_flight: Counter,
    /// Frames written to the journal, the groups in them, their bytes, and those in memory.
    pub(crate) journal_frames: Counter,
    pub(crate) journal_groups: Counter,
    pub(crate) journal_bytes: Counter,
    pub(crate) journal_memory_bytes: Counter,
    /// Groups written from the journal to segments.
    pub(crate) stored_groups: Counter,
    pub(crate) rolls: Counter,
    /// Bytes taken on the disk that hold no record yet: of active segments, of next ones, of the journal.
    pub(crate) unfilled_bytes: Counter,
    pub(crate) next_segment_bytes: Counter,
    pub(crate) journal_file_bytes: Counter,
    /// Segments made of recycled files, and the bytes of files that wait to be.
    pub(crate) recycled_segments: Counter,
    pub(crate) recycled_bytes: Counter,
    pub(crate) checkpoints: Counter,
    pub(crate) tail_reads: Counter,
    pub(crate) cold_reads: Counter,
    /// Reads answered from what was read ahead.
    pub(crate) ahead_reads: Counter,
    /// Reads answered with copies, because readers hold their share of the arena.
    pub(crate) copied_reads: Counter,
    pub(crate) tail_bytes: Counter,
    pub(crate) stopped: Counter,
    pub(crate) disk_full: Counter,
    /// Segments made shorter than due, because the disk is filling up.
    pub(crate) shortened_segments: Counter,
    /// When the oldest write still in flight was submitted, in microseconds of CLOCK_BOOTTIME; 0 for none.
    pub(crate) oldest_write_us: Counter,
}
