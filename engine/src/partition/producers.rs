//! Who appended what last: tells a repeated batch from a new one, across restarts and owners.
//!
//! The table is a function of the log in order, so that every replica and every recovery comes to the same one.
//! Pure: no I/O, no clock. Source of the rules: DESIGN 4, "Producers".

use std::collections::{BTreeMap, VecDeque};

use crate::format::{BatchHeader, Producer, ProducerEntry};
use crate::id::Offset;

/// Batches remembered of one producer: as many as it may have sent without an answer.
///
/// Source: Kafka, `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`; its idempotent producer allows five requests in flight.
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

/// The last batches of one producer, in the order of the log.
#[derive(Clone, Debug, Default)]
struct Batches {
    settled: VecDeque<ProducerEntry>,
    unsettled: VecDeque<ProducerEntry>,
}

impl Batches {
    /// The last [`BATCHES_KEPT`], newest first.
    fn newest_first(&self) -> impl Iterator<Item = &ProducerEntry> {
        self.unsettled.iter().rev().chain(self.settled.iter().rev()).take(BATCHES_KEPT)
    }

    fn last_settled(&self) -> Option<Offset> {
        self.settled.back().map(|last| last.base_offset)
    }
}

/// The producers of one partition, each with its last batches in the order of the log.
///
/// A batch that a crash or a cut may still take back is unsettled. It drives nothing out of the table before it is
/// settled: without it the table must be what it would have been.
#[derive(Clone, Debug, Default)]
pub struct Producers {
    by_id: BTreeMap<u64, Batches>,
    unsettled: VecDeque<ProducerEntry>,
    /// Producers that have settled batches.
    settled_count: usize,
    /// Batches below it have been noted.
    noted_end: Offset,
    producers_max: usize,
}

impl Producers {
    /// Takes over what a checkpoint remembers, of at most `producers_max` producers.
    #[must_use]
    pub fn from_entries(entries: &[ProducerEntry], producers_max: usize) -> Producers {
        let mut producers = Producers { producers_max, ..Producers::default() };
        for entry in entries {
            producers.note(*entry);
        }
        producers.settle(producers.noted_end);
        producers
    }

    /// Decides about a batch of `producer`. A run begins with sequence 0, that of a producer that is not known too:
    /// who could begin anywhere would be told of batches that were lost that they had been appended.
    #[must_use]
    pub fn judge(&self, producer: Producer) -> Verdict {
        if producer.id == 0 || self.producers_max == 0 {
            return Verdict::New;
        }
        let batches = self.by_id.get(&producer.id);
        let last = batches.and_then(|batches| batches.newest_first().next());
        let run = last.map(|last| last.producer.epoch);
        if let Some(epoch) = run.filter(|epoch| producer.epoch < *epoch) {
            return Verdict::Fenced { epoch };
        }
        let (Some(batches), Some(last)) = (batches, last.filter(|_| run == Some(producer.epoch)))
        else {
            return match producer.sequence {
                0 => Verdict::New,
                _ => Verdict::Gap { expected: 0 },
            };
        };
        let expected = last.producer.sequence.wrapping_add(1);
        if producer.sequence == expected {
            return Verdict::New;
        }
        if producer.sequence > expected {
            return Verdict::Gap { expected };
        }
        let of_run = batches.newest_first().filter(|entry| entry.producer.epoch == producer.epoch);
        let mut oldest = expected;
        for entry in of_run {
            if entry.producer.sequence == producer.sequence {
                return Verdict::Repeated(*entry);
            }
            oldest = entry.producer.sequence;
        }
        Verdict::Forgotten { oldest }
    }

    /// Notes a batch that has its place in the log, in the order of the log. One noted before changes nothing.
    pub fn note(&mut self, entry: ProducerEntry) {
        let is_known = entry.base_offset < self.noted_end;
        if entry.producer.id == 0 || self.producers_max == 0 || is_known {
            return;
        }
        self.noted_end = Offset(entry.base_offset.0.saturating_add(1));
        self.unsettled.push_back(entry);
        let batches = &mut self.by_id.entry(entry.producer.id).or_default().unsettled;
        push_bounded(batches, entry);
    }

    /// Notes that nothing takes back what lies below `end`. Beyond the limit the producers that have been silent
    /// for longest are forgotten.
    pub fn settle(&mut self, end: Offset) {
        while let Some(entry) = self.unsettled.pop_front_if(|entry| entry.base_offset < end) {
            let batches = self.by_id.entry(entry.producer.id).or_default();
            batches.unsettled.pop_front_if(|first| first.base_offset == entry.base_offset);
            self.settled_count += usize::from(batches.settled.is_empty());
            push_bounded(&mut batches.settled, entry);
            if self.settled_count > self.producers_max {
                self.forget_most_silent();
            }
        }
    }

    fn forget_most_silent(&mut self) {
        let settled = self.by_id.iter().filter_map(|(id, batches)| {
            batches.last_settled().map(|last_offset| (last_offset, *id))
        });
        let Some((_, id)) = settled.min() else { return };
        self.settled_count -= 1;
        if let Some(batches) = self.by_id.get_mut(&id) {
            batches.settled.clear();
            if batches.unsettled.is_empty() {
                self.by_id.remove(&id);
            }
        }
    }

    /// Notes a batch of the log that nothing takes back.
    pub fn note_settled(&mut self, header: &BatchHeader) {
        let stamp = &header.stamp;
        if header.records == 0 {
            return;
        }
        self.note(ProducerEntry {
            producer: stamp.producer,
            base_offset: stamp.base_offset,
            records: header.records,
            append_time: stamp.append_time,
            epoch: stamp.epoch,
        });
        self.settle(self.noted_end);
    }

    /// Forgets what lies at or above `end`. What settled batches above it drove out does not come back.
    pub fn truncate(&mut self, end: Offset) {
        self.noted_end = self.noted_end.min(end);
        self.unsettled.retain(|entry| entry.base_offset < end);
        self.by_id.retain(|_, batches| {
            batches.settled.retain(|entry| entry.base_offset < end);
            batches.unsettled.clear();
            !batches.settled.is_empty()
        });
        self.settled_count = self.by_id.len();
        for entry in &self.unsettled {
            push_bounded(&mut self.by_id.entry(entry.producer.id).or_default().unsettled, *entry);
        }
    }

    /// What a checkpoint remembers of a log that ends at `end`, in the order of the log.
    #[must_use]
    pub fn entries_below(&self, end: Offset) -> Vec<ProducerEntry> {
        let mut table = self.clone();
        table.truncate(end);
        table.settle(end);
        let mut entries: Vec<_> =
            table.by_id.into_values().flat_map(|batches| batches.settled).collect();
        entries.sort_by_key(|entry| entry.base_offset);
        entries
    }
}

fn push_bounded(batches: &mut VecDeque<ProducerEntry>, entry: ProducerEntry) {
    if batches.len() == BATCHES_KEPT {
        batches.pop_front();
    }
    batches.push_back(entry);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Epoch;
    use crate::io::clock::WallTime;
    use proptest::prelude::{any, prop, prop_assert_eq, proptest};

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

    fn empty(producers_max: usize) -> Producers {
        Producers::from_entries(&[], producers_max)
    }

    /// The table of a log in which everything is settled.
    fn table_of(log: &[ProducerEntry], producers_max: usize) -> Producers {
        Producers::from_entries(log, producers_max)
    }

    /// One producer that has sent `sequences`, each a record, none of them settled.
    fn after(sequences: std::ops::Range<u64>) -> Producers {
        let mut producers = empty(10);
        sequences.for_each(|sequence| producers.note(entry(sent(7, 1, sequence), sequence)));
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
    fn every_run_begins_with_sequence_zero() {
        assert_eq!(after(0..3).judge(sent(8, 0, 0)), Verdict::New);
        assert_eq!(after(0..3).judge(sent(7, 2, 0)), Verdict::New);
        assert_eq!(after(0..3).judge(sent(8, 0, 99)), Verdict::Gap { expected: 0 });
        assert_eq!(after(0..3).judge(sent(7, 2, 3)), Verdict::Gap { expected: 0 });
    }

    #[test]
    fn earlier_run_is_fenced() {
        assert_eq!(after(0..3).judge(sent(7, 0, 3)), Verdict::Fenced { epoch: 1 });
        assert_eq!(after(0..3).judge(sent(7, 0, 0)), Verdict::Fenced { epoch: 1 });
    }

    #[test]
    fn a_batch_of_the_run_before_is_no_repeated_one() {
        let mut producers = after(0..3);
        producers.note(entry(sent(7, 2, 0), 3));
        assert_eq!(producers.judge(sent(7, 2, 1)), Verdict::New);
        assert_eq!(producers.judge(sent(7, 2, 2)), Verdict::Gap { expected: 1 });
    }

    #[test]
    fn nobody_is_never_repeated() {
        let mut producers = empty(10);
        producers.note(entry(Producer::default(), 0));
        assert_eq!(producers.judge(Producer::default()), Verdict::New);
        assert_eq!(producers.entries_below(Offset(9)), vec![]);
    }

    #[test]
    fn a_table_without_room_refuses_nobody() {
        let mut producers = empty(0);
        producers.note(entry(sent(7, 1, 0), 0));
        assert_eq!(producers.judge(sent(7, 1, 9)), Verdict::New);
    }

    #[test]
    fn silent_producer_is_forgotten_first() {
        let mut producers = empty(2);
        for (offset, id) in [1, 2, 1, 3].into_iter().enumerate() {
            let sequence = offset as u64;
            producers.note(entry(sent(id, 1, sequence), sequence));
        }
        assert_eq!(producers.by_id.keys().copied().collect::<Vec<_>>(), vec![1, 2, 3]);
        producers.settle(Offset(4));
        assert_eq!(producers.by_id.keys().copied().collect::<Vec<_>>(), vec![1, 3]);
    }

    #[test]
    fn what_may_be_taken_back_drives_nothing_out() {
        let mut producers = after(0..3);
        producers.settle(Offset(3));
        (3..9).for_each(|sequence| producers.note(entry(sent(7, 1, sequence), sequence)));

        assert_eq!(producers.entries_below(Offset(3)), after(0..3).entries_below(Offset(3)));
        producers.truncate(Offset(3));

        assert_eq!(producers.judge(sent(7, 1, 2)), Verdict::Repeated(entry(sent(7, 1, 2), 2)));
        assert_eq!(producers.judge(sent(7, 1, 4)), Verdict::Gap { expected: 3 });
    }

    #[test]
    fn cut_takes_what_it_cut_off() {
        let mut producers = after(0..4);
        producers.truncate(Offset(2));
        assert_eq!(producers.judge(sent(7, 1, 2)), Verdict::New);
        producers.truncate(Offset(0));
        assert_eq!(producers.judge(sent(7, 1, 0)), Verdict::New);
    }

    /// A log of batches of few producers, each batch the next of its run or the first of the next run.
    fn log_of(sent_by: Vec<(u64, bool)>) -> Vec<ProducerEntry> {
        let mut runs: BTreeMap<u64, Producer> = BTreeMap::new();
        let next = |(offset, (id, is_new_run)): (usize, (u64, bool))| {
            let next = match runs.get(&id) {
                None => sent(id, 0, 0),
                Some(last) if is_new_run => sent(id, last.epoch + 1, 0),
                Some(last) => sent(id, last.epoch, last.sequence + 1),
            };
            runs.insert(id, next);
            entry(next, offset as u64)
        };
        sent_by.into_iter().enumerate().map(next).collect()
    }

    const PRODUCERS_MAX: usize = 3;

    proptest! {
        /// Whatever was settled when, the owner's table of any durable part of its log is the one that this part
        /// alone makes; and a recovery, from any checkpoint and a walk that begins anywhere below it, comes to it.
        #[test]
        fn table_is_a_function_of_the_log(
            sent_by in prop::collection::vec((1u64..6, prop::bool::weighted(0.1)), 1..80),
            settles in prop::collection::vec(any::<prop::sample::Index>(), 0..80),
            cut in any::<prop::sample::Index>(),
            checkpoint in any::<prop::sample::Index>(),
            walk_from in any::<prop::sample::Index>(),
        ) {
            let log = log_of(sent_by);
            let mut owner = empty(PRODUCERS_MAX);
            let mut settled = 0;
            for (offset, entry) in log.iter().enumerate() {
                owner.note(*entry);
                let settle = settles.get(offset).map_or(0, |settle| settle.index(offset + 2));
                settled = settled.max(settle);
                owner.settle(Offset(settled as u64));
            }
            let end = settled + cut.index(log.len() - settled + 1);
            let durable = Offset(end as u64);
            let expected = table_of(&log[..end], PRODUCERS_MAX).entries_below(durable);

            prop_assert_eq!(owner.entries_below(durable), expected.clone());

            let checkpoint = checkpoint.index(end + 1);
            let stored = table_of(&log[..checkpoint], PRODUCERS_MAX);
            let stored = stored.entries_below(Offset(checkpoint as u64));
            let mut recovered = Producers::from_entries(&stored, PRODUCERS_MAX);
            for entry in &log[walk_from.index(checkpoint + 1)..end] {
                recovered.note(*entry);
                recovered.settle(recovered.noted_end);
            }
            prop_assert_eq!(recovered.entries_below(durable), expected.clone());

            owner.truncate(durable);
            prop_assert_eq!(owner.entries_below(durable), expected);
        }
    }
}
