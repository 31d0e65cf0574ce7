//! What a log promised, kept beside it: the part of every crash scenario that is the same.

use bytes::Bytes;
use palisade_engine::engine::Partition;
use palisade_engine::partition::{AppendError, AppendOptions};
use palisade_tests::{ReadLog, Workload, batch};

/// The appends of a partition in the order of calls, and what has been said about them.
///
/// The log must hold a prefix of them, in whole batches, that reaches at least as far as anything promised.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    asked: Vec<Vec<Bytes>>,
    /// Records that were acknowledged as durable or served to a reader.
    promised: u64,
}

impl Promises {
    /// Appends batches one after the other, each once the one before is acknowledged.
    pub(crate) async fn append(
        &mut self,
        partition: &Partition,
        workload: &mut Workload,
        batches: usize,
    ) {
        for _ in 0..batches {
            self.append_at_once(partition, vec![workload.some()]).await.expect("nothing is wrong");
        }
    }

    /// Appends batches without waiting between them. Stops at the first that is not acknowledged.
    pub(crate) async fn append_at_once(
        &mut self,
        partition: &Partition,
        batches: Vec<Vec<Bytes>>,
    ) -> Result<(), AppendError> {
        let mut expected = self.asked_end();
        self.asked.extend(batches.iter().cloned());
        let append =
            |records: &Vec<Bytes>| partition.append(batch(records), AppendOptions::default());
        let appends: Vec<_> = batches.iter().map(append).collect();
        for (append, records) in appends.into_iter().zip(&batches) {
            let appended = append.await?;
            assert_eq!(appended.base_offset.0, expected);
            expected += records.len() as u64;
            self.promised = expected;
        }
        Ok(())
    }

    /// Checks a log, and takes it over: what was read stays readable.
    pub(crate) fn check(&mut self, log: &ReadLog) {
        let found = log.whole();
        let end = found.len() as u64;
        assert!(end >= self.promised, "{} records were promised, {end} are left", self.promised);
        let mut asked = self.asked.iter();
        let mut known = Vec::new();
        while (known.len() as u64) < end {
            let batch = asked.next();
            known.extend_from_slice(batch.expect("the log holds more than was ever appended"));
        }
        assert!(known == found, "the log holds other records than were appended, or half a batch");
        let kept = self.asked.len() - asked.count();
        self.asked.truncate(kept);
        self.promised = end;
    }

    /// Where the log ends if everything asked for is in it.
    pub(crate) fn asked_end(&self) -> u64 {
        self.asked.iter().map(|records| records.len() as u64).sum()
    }
}
