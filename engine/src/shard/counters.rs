//! What a shard counts; written by its thread alone, read by anybody.

use std::sync::Arc;
use std::time::Duration;

use crate::partition::{Counter, LogCounters};

/// The counters of one shard.
#[derive(Debug, Default)]
pub(crate) struct ShardCounters {
    pub(crate) log: Arc<LogCounters>,
    /// Turns of the shard's loop.
    pub(crate) turns: Counter,
    /// The last and the longest time a no-op took through the ring, in microseconds.
    pub(crate) turn_last_us: Counter,
    pub(crate) turn_longest_us: Counter,
}

impl ShardCounters {
    pub(crate) fn note_turn(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.turn_last_us.set(micros);
        self.turn_longest_us.raise_to(micros);
    }
}
