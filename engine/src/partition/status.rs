//! What other threads may know of a partition, in atomics that only its shard writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::watermarks::SharedWatermarks;
use crate::id::Epoch;
use crate::io::disk::DiskError;

/// The shared state of one open partition.
#[derive(Debug, Default)]
pub(crate) struct SharedStatus {
    pub(crate) watermarks: SharedWatermarks,
    promised: AtomicU64,
    owned: AtomicU64,
    segments: AtomicU64,
    segment_bytes: AtomicU64,
    preallocated_bytes: AtomicU64,
    disk_full: AtomicBool,
    closed: AtomicBool,
    stopped: OnceLock<Arc<DiskError>>,
}

impl SharedStatus {
    pub(crate) fn set_epochs(&self, promised: Epoch, owned: Option<Epoch>) {
        self.promised.store(promised.packed(), Ordering::Release);
        self.owned.store(owned.unwrap_or(Epoch::NONE).packed(), Ordering::Release);
    }

    pub(crate) fn set_segments(&self, count: usize, bytes: u64) {
        self.segments.store(count as u64, Ordering::Relaxed);
        self.segment_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_preallocated(&self, bytes: u64) {
        self.preallocated_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_disk_full(&self, is_full: bool) {
        self.disk_full.store(is_full, Ordering::Release);
    }

    pub(crate) fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Notes the first error; later ones are consequences.
    pub(crate) fn stop(&self, error: &Arc<DiskError>) {
        self.stopped.get_or_init(|| error.clone());
    }

    pub(crate) fn promised(&self) -> Epoch {
        Epoch::from_packed(self.promised.load(Ordering::Acquire))
    }

    pub(crate) fn owned(&self) -> Option<Epoch> {
        let epoch = Epoch::from_packed(self.owned.load(Ordering::Acquire));
        (epoch != Epoch::NONE).then_some(epoch)
    }

    pub(crate) fn segments(&self) -> u64 {
        self.segments.load(Ordering::Relaxed)
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn preallocated_bytes(&self) -> u64 {
        self.preallocated_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Acquire)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn stopped(&self) -> Option<&Arc<DiskError>> {
        self.stopped.get()
    }
}
