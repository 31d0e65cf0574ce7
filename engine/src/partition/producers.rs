//! Who appended what last: tells a repeated batch from a new one, across restarts and owners.
//!
//! The table is a function of the log in order, so that every replica and every recovery comes to the same one.
//! Pure: no I/O, no clock. Source of the rules: DESIGN 4, "Producers".

use std::collections::{BTreeMap, VecDeque};

use crate::format::{BatchHeader, Producer, ProducerEntry};
use crate::id::Offset;

/// Batches remembered of one producer: as many as it may have sent without an answer.
///
/// Source: Kafka's idempotent producer allows five requests in flight.
pub const BATCHES_KEPT: usize = 5;

/// What a batch is to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Append it.
    New,
    /// It was appended before; answer what the first try was answered.
    Repeated(ProducerEntry),
    /// Batches before it are missing.
    Gap {
        /// The sequence that is due.
        expected: u64,
    },
    /// A later run of the producer has appended.
    Fenced {
        /// That run.
        epoch: u32,
    },
    /// It was appended too long ago to know where.
    Forgotten {
        /// The oldest sequence that is remembered.
        oldest: u64,
    },
}

/// The producers of one partition, each with its last batches in the order of the log.
#[derive(Clone, Debug, Default)]
pub struct Producers {
    by_id: BTreeMap<u64, VecDeque<ProducerEntry>>,
}

impl Producers {
    /// Takes over what a checkpoint remembers.
    #[must_use]
    pub fn from_entries(entries: &[ProducerEntry], producers_max: usize) -> Producers {
        let mut producers = Producers::default();
        for entry in entries {
            producers.note(*entry, producers_max);
        }
        producers
    }

    /// Decides about a batch of `producer`. A producer that is not known, or a later run of one that is, may
    /// begin with any sequence.
    #[must_use]
    pub fn judge(&self, producer: Producer) -> Verdict {
        let batches = self.by_id.get(&producer.id).filter(|_| producer.id != 0);
        let Some((batches, last)) =
            batches.and_then(|batches| batches.back().map(|last| (batches, last.producer)))
        else {
            return Verdict::New;
        };
        if producer.epoch != last.epoch {
            return match producer.epoch > last.epoch {
                true => Verdict::New,
                false => Verdict::Fenced { epoch: last.epoch },
            };
        }
        let expected = last.sequence.wrapping_add(1);
        if producer.sequence == expected {
            return Verdict::New;
        }
        if let Some(repeated) = batches.iter().find(|entry| entry.producer == producer) {
            return Verdict::Repeated(*repeated);
        }
        if producer.sequence > expected {
            return Verdict::Gap { expected };
        }
        let mut of_run = batches.iter().filter(|entry| entry.producer.epoch == last.epoch);
        let oldest = of_run.next().map_or(last.sequence, |entry| entry.producer.sequence);
        Verdict::Forgotten { oldest }
    }

    /// Notes a batch that has its place in the log. One noted before changes nothing. Beyond `producers_max` the
    /// producer that has been silent for longest is forgotten.
    pub fn note(&mut self, entry: ProducerEntry, producers_max: usize) {
        if entry.producer.id == 0 || producers_max == 0 {
            return;
        }
        let batches = self.by_id.entry(entry.producer.id).or_default();
        if batches.back().is_some_and(|last| last.base_offset >= entry.base_offset) {
            return;
        }
        if batches.len() == BATCHES_KEPT {
            batches.pop_front();
        }
        batches.push_back(entry);
        while self.by_id.len() > producers_max {
            let last_of =
                |batches: &VecDeque<ProducerEntry>| batches.back().map(|last| last.base_offset);
            let silent = self.by_id.iter().min_by_key(|(_, batches)| last_of(batches));
            let Some(silent) = silent.map(|(id, _)| *id) else { return };
            self.by_id.remove(&silent);
        }
    }

    /// Notes a batch of the log.
    pub fn note_batch(&mut self, header: &BatchHeader, producers_max: usize) {
        let stamp = &header.stamp;
        let entry = ProducerEntry {
            producer: stamp.producer,
            base_offset: stamp.base_offset,
            records: header.records,
            append_time: stamp.append_time,
            epoch: stamp.epoch,
        };
        if header.records > 0 {
            self.note(entry, producers_max);
        }
    }

    /// Forgets what lies at or above `end`.
    pub fn truncate(&mut self, end: Offset) {
        self.by_id.retain(|_, batches| {
            batches.retain(|entry| entry.base_offset < end);
            !batches.is_empty()
        });
    }

    /// What a checkpoint remembers of a log that ends at `end`, in the order of the log.
    #[must_use]
    pub fn entries_below(&self, end: Offset) -> Vec<ProducerEntry> {
        let all = self.by_id.values().flatten().filter(|entry| entry.base_offset < end);
        let mut entries: Vec<_> = all.copied().collect();
        entries.sort_by_key(|entry| entry.base_offset);
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Epoch;
    use crate::io::clock::WallTime;
    use proptest::prelude::{any, prop, proptest};

    fn sent(id: u64, epoch: u32, sequence: u64) -> Producer {
        Producer { id, epoch, sequence }
    }

    fn entry(producer: Producer, base_offset: u64) -> ProducerEntry {
        ProducerEntry {
            producer,
            base_offset: Offset(base_offset),
            records: 1,
            append_time: WallTime(base_offset),
            epoch: Epoch::NONE,
        }
    }

    /// One producer that has sent `sequences`, each a record.
    fn after(sequences: std::ops::Range<u64>) -> Producers {
        let mut producers = Producers::default();
        sequences.for_each(|sequence| producers.note(entry(sent(7, 1, sequence), sequence), 10));
        producers
    }

    #[test]
    fn next_sequence_is_new_and_a_later_one_leaves_a_gap() {
        assert_eq!(after(0..3).judge(sent(7, 1, 3)), Verdict::New);
        assert_eq!(after(0..3).judge(sent(7, 1, 5)), Verdict::Gap { expected: 3 });
    }

    #[test]
    fn repeated_batch_gets_the_first_answer() {
        assert_eq!(after(0..3).judge(sent(7, 1, 1)), Verdict::Repeated(entry(sent(7, 1, 1), 1)));
    }

    #[test]
    fn batch_from_too_long_ago_is_forgotten() {
        assert_eq!(after(0..9).judge(sent(7, 1, 3)), Verdict::Forgotten { oldest: 4 });
    }

    #[test]
    fn unknown_producer_and_later_run_begin_anywhere() {
        assert_eq!(after(0..3).judge(sent(8, 0, 99)), Verdict::New);
        assert_eq!(after(0..3).judge(sent(7, 2, 99)), Verdict::New);
    }

    #[test]
    fn earlier_run_is_fenced() {
        assert_eq!(after(0..3).judge(sent(7, 0, 3)), Verdict::Fenced { epoch: 1 });
    }

    #[test]
    fn nobody_is_never_repeated() {
        let mut producers = Producers::default();
        producers.note(entry(Producer::default(), 0), 10);
        assert_eq!(producers.judge(Producer::default()), Verdict::New);
        assert_eq!(producers.entries_below(Offset(9)), vec![]);
    }

    #[test]
    fn silent_producer_is_forgotten_first() {
        let mut producers = Producers::default();
        for (offset, id) in [1, 2, 1, 3].into_iter().enumerate() {
            let sequence = offset as u64;
            producers.note(entry(sent(id, 1, sequence), sequence), 2);
        }
        assert_eq!(producers.by_id.keys().copied().collect::<Vec<_>>(), vec![1, 3]);
    }

    #[test]
    fn cut_takes_what_it_cut_off() {
        let mut producers = after(0..4);
        producers.truncate(Offset(2));
        assert_eq!(producers.judge(sent(7, 1, 2)), Verdict::New);
        producers.truncate(Offset(0));
        assert_eq!(producers.judge(sent(7, 1, 50)), Verdict::New);
    }

    proptest! {
        /// The table of the owner is the one that a recovery builds from any checkpoint and the log behind it.
        #[test]
        fn table_is_a_function_of_the_log(
            sent_by in prop::collection::vec((1u64..6, any::<bool>()), 1..60),
            checkpoint_at in 0usize..60,
            walk_from in 0usize..60,
        ) {
            let mut owner = Producers::default();
            let mut log = Vec::new();
            let mut runs: BTreeMap<u64, Producer> = BTreeMap::new();
            for (offset, (id, is_new_run)) in sent_by.into_iter().enumerate() {
                let last = runs.get(&id).copied().unwrap_or(sent(id, 0, 0));
                let next = match is_new_run {
                    true => sent(id, last.epoch + 1, 0),
                    false => sent(id, last.epoch, last.sequence + 1),
                };
                runs.insert(id, next);
                log.push(entry(next, offset as u64));
                owner.note(entry(next, offset as u64), 3);
            }
            let checkpoint_at = checkpoint_at.min(log.len());
            let mut until = Producers::default();
            log[..checkpoint_at].iter().for_each(|entry| until.note(*entry, 3));
            let stored = until.entries_below(Offset(checkpoint_at as u64));
            let mut recovered = Producers::from_entries(&stored, 3);
            log[walk_from.min(checkpoint_at)..].iter().for_each(|entry| recovered.note(*entry, 3));
            let end = Offset(log.len() as u64);
            assert_eq!(recovered.entries_below(end), owner.entries_below(end));
        }
    }
}
