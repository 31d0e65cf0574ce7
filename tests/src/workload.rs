//! Seeded records that name themselves, so that a record in the wrong place is seen.

use bytes::Bytes;
use palisade_engine::format::RecordBatch;

/// Makes records, each unlike every other.
#[derive(Clone, Debug)]
pub struct Workload {
    random: fastrand::Rng,
    next: u64,
}

impl Workload {
    /// The same seed makes the same records.
    #[must_use]
    pub fn new(seed: u64) -> Workload {
        Workload { random: fastrand::Rng::with_seed(seed), next: 0 }
    }

    /// One record of `record_bytes`, at least the 8 that name it.
    pub fn record(&mut self, record_bytes: usize) -> Bytes {
        let mut record = self.next.to_le_bytes().to_vec();
        self.next += 1;
        let more = record_bytes.saturating_sub(record.len());
        record.extend(std::iter::repeat_with(|| self.random.u8(..)).take(more));
        record.into()
    }

    /// One to four records of up to 3,000 bytes, some of them empty.
    pub fn some(&mut self) -> Vec<Bytes> {
        let records = self.random.usize(1..=4);
        (0..records)
            .map(|_| match self.random.u8(..8) {
                0 => Bytes::new(),
                _ => {
                    let record_bytes = self.random.usize(8..3_000);
                    self.record(record_bytes)
                }
            })
            .collect()
    }
}

/// Makes a batch of records.
#[must_use]
pub fn batch(records: &[Bytes]) -> RecordBatch {
    let mut builder = RecordBatch::builder();
    for record in records {
        builder.push(record).expect("tests that want a refusal build their own");
    }
    builder.finish()
}
