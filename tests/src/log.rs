//! Reads a whole partition, damage included, and checks that nothing between its ends is missing in silence.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;
use palisade_engine::engine::Partition;
use palisade_engine::format::StoredBatch;
use palisade_engine::id::{Offset, Position};
use palisade_engine::partition::{Read, ReadError};

/// A damaged range, as a read reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The bytes of it.
    pub positions: Range<Position>,
    /// The records.
    pub offsets: Range<u64>,
}

/// Everything that reads say of a partition.
#[derive(Clone, Debug, Default)]
pub struct ReadLog {
    /// The log start.
    pub log_start: u64,
    /// The end of what may be read.
    pub committed: u64,
    /// Its batches in order.
    pub batches: Vec<StoredBatch>,
    /// Its damaged ranges in order.
    pub damage: Vec<Damage>,
}

impl ReadLog {
    /// The readable records at or above the log start, by offset.
    #[must_use]
    pub fn records(&self) -> BTreeMap<u64, Bytes> {
        let record = |batch: &StoredBatch, (offset, record): (Offset, &[u8])| {
            (offset.0, batch.bytes().slice_ref(record))
        };
        let batches = self.batches.iter();
        let records = batches.flat_map(|batch| batch.iter().map(move |at| record(batch, at)));
        records.filter(|(offset, _)| *offset >= self.log_start).collect()
    }

    /// The records in order, of a log that starts at 0 and has no damage.
    #[must_use]
    pub fn whole(&self) -> Vec<Bytes> {
        assert_eq!(self.log_start, 0);
        assert_eq!(self.damage, Vec::new());
        self.records().into_values().collect()
    }

    /// Every offset is either readable or reported as damaged.
    fn assert_nothing_is_missing(&self) {
        let mut expected = self.log_start;
        let records = self.records();
        while expected < self.committed {
            if records.contains_key(&expected) {
                expected += 1;
                continue;
            }
            let damage = self.damage.iter().find(|damage| damage.offsets.contains(&expected));
            let Some(damage) = damage else { panic!("offset {expected} is missing: {self:?}") };
            expected = damage.offsets.end;
        }
        assert_eq!(expected, self.committed, "{self:?}");
    }
}

/// Reads everything from the log start to the committed end, going on behind each damaged range.
///
/// # Errors
///
/// Whatever a read answers but damage.
pub async fn read_log(partition: &Partition) -> Result<ReadLog, ReadError> {
    let start = partition.watermarks();
    let mut log = ReadLog {
        log_start: start.log_start.0,
        committed: start.committed.0,
        ..ReadLog::default()
    };
    let mut from = start.log_start;
    while from < start.committed {
        match partition.read(Read::from(from)).await {
            Ok(answer) => {
                assert!(answer.next_offset > from, "a read at {from} got nowhere");
                // Copies: what is kept here must not hold the engine's memory.
                let copy = |batch: StoredBatch| {
                    let bytes = Bytes::copy_from_slice(batch.bytes());
                    StoredBatch::decode(&bytes).expect("what a read returns is whole")
                };
                log.batches.extend(answer.batches.into_iter().map(copy));
                from = answer.next_offset;
            }
            Err(ReadError::Corrupt { path, positions, offsets }) => {
                assert!(offsets.contains(&from), "{offsets:?} for a read at {from}");
                let offsets = from.0..offsets.end.0;
                from = Offset(offsets.end);
                log.damage.push(Damage { path, positions, offsets });
            }
            Err(error) => return Err(error),
        }
    }
    log.committed = log.committed.max(from.0);
    log.assert_nothing_is_missing();
    Ok(log)
}
