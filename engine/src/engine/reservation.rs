//! Memory of a shard that a caller fills with one batch.

use super::append_future::Append;
use super::partition::Partition;
use crate::format::BatchError;
use crate::partition::{AppendBatch, AppendOptions, Reserved};

/// Room for one batch in a shard's memory, from [`Partition::reserve`]. May be held across awaits and sent to other
/// threads; while it is, it counts against the share that reservations may hold. Dropped, it gives the memory back.
///
/// The payload is what [`RecordBatch::from_payload`](crate::format::RecordBatch::from_payload) takes: for each record a
/// little-endian `u32` length and its bytes. Until it is written it holds whatever was there before, perhaps records of
/// other partitions: show it to nobody.
///
/// ```
/// # use palisade_engine::engine::Engine;
/// # use palisade_engine::partition::AppendOptions;
/// # let directory = std::env::temp_dir().join(format!("palisade-reserve-{}", std::process::id()));
/// # let engine = Engine::builder(&directory).shards(1).io(palisade_engine::engine::IoChoice::Auto).open()?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let partition = engine.open_partition(&"orders/0".parse()?).await?;
/// let mut reservation = partition.reserve(4 + 5).await?;
/// reservation.as_mut_slice().copy_from_slice(b"\x05\0\0\0hello");
/// let payload_crc = reservation.payload_crc();
/// let appended = reservation.commit(1, payload_crc, AppendOptions::default())?.await?;
/// assert_eq!(appended.records, 1);
/// # engine.close().await?;
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a reservation that is dropped appends nothing"]
pub struct Reservation {
    partition: Partition,
    reserved: Reserved,
}

impl Reservation {
    pub(super) fn new(partition: Partition, reserved: Reserved) -> Reservation {
        Reservation { partition, reserved }
    }

    /// The payload's bytes: what was asked for, or less after [`truncate`](Self::truncate).
    #[must_use]
    pub fn len(&self) -> usize {
        self.reserved.payload_bytes()
    }

    /// Tells whether there is no room for a payload.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The payload, to read.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.reserved.payload()
    }

    /// The payload, to write.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.reserved.payload_mut()
    }

    /// Keeps the first `bytes` of the payload: less came than was expected. A longer one changes nothing.
    pub fn truncate(&mut self, bytes: usize) {
        self.reserved.truncate(bytes);
    }

    /// Computes the checksum of the payload as it is, for who has received none with it.
    #[must_use]
    pub fn payload_crc(&self) -> u32 {
        crc32fast::hash(self.as_slice())
    }

    /// Appends the payload as one batch of `records`, as [`Partition::append`] does. The checks of the payload are made
    /// on the calling thread.
    ///
    /// # Errors
    ///
    /// [`BatchError`]: the payload does not hold exactly `records`, or changed on its way; its memory was given back.
    /// What else can go wrong comes through the future; the memory is given back then, too.
    pub fn commit(
        self,
        records: u32,
        payload_crc: u32,
        options: AppendOptions,
    ) -> Result<Append, BatchError> {
        let batch = self.reserved.into_batch(records, payload_crc)?;
        Ok(self.partition.append_batch(AppendBatch::Reserved(batch), options))
    }
}
