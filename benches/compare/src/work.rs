//! Which work is compared: the same for every system, told by name on the command line.

use palisade_benches::raw_ring::fill_with_noise;

/// What a caller does, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Appends a batch and waits until the sync of that very batch has ended.
    AppendDurable,
    /// Appends a batch; nobody promises that it is synced.
    AppendUnsynced,
    /// Reads back, from a cold page cache, what was appended before and synced.
    ReadBack,
}

/// One row of the comparison.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// How `--work` tells it.
    pub name: &'static str,
    /// What each caller does.
    pub operation: Operation,
    /// Of one record.
    pub record_bytes: usize,
    /// Records of one batch.
    pub records: usize,
    /// Callers, each of which waits for its answer before it asks again.
    pub callers: usize,
    /// Partitions they spread over.
    pub partitions: usize,
}

const KIB: usize = 1024;

/// All of it, in the order of the table.
pub const WORKS: [Work; 13] = [
    durable("1k-x1-c1", KIB, 1, 1, 1),
    durable("1k-x1-c4", KIB, 1, 4, 1),
    durable("1k-x1-c64", KIB, 1, 64, 1),
    durable("1k-x1000-c1", KIB, 1_000, 1, 1),
    durable("1k-x1000-c4", KIB, 1_000, 4, 1),
    durable("100b-x1000-c1", 100, 1_000, 1, 1),
    durable("100b-x1000-c4", 100, 1_000, 4, 1),
    durable("100b-p1", 100, 1, 64, 1),
    durable("100b-p100", 100, 1, 64, 100),
    durable("100b-p1000", 100, 1, 64, 1_000),
    durable("100b-p10000", 100, 1, 64, 10_000),
    Work { operation: Operation::AppendUnsynced, ..durable("64k-unsynced", KIB, 63, 16, 1) },
    Work { operation: Operation::ReadBack, ..durable("read-back", KIB, 63, 1, 1) },
];

const fn durable(
    name: &'static str,
    record_bytes: usize,
    records: usize,
    callers: usize,
    partitions: usize,
) -> Work {
    let operation = Operation::AppendDurable;
    Work { name, operation, record_bytes, records, callers, partitions }
}

impl Work {
    /// Finds a row by its name.
    pub fn named(name: &str) -> Option<Work> {
        WORKS.into_iter().find(|work| work.name == name)
    }

    /// Bytes of the records of one batch.
    pub fn batch_bytes(&self) -> u64 {
        (self.record_bytes * self.records) as u64
    }

    /// Describes it in words.
    pub fn describe(&self) -> String {
        let size = match self.record_bytes {
            bytes if bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
            bytes => format!("{bytes} B"),
        };
        let batches = format!("{size} x {}", self.records);
        match self.operation {
            Operation::ReadBack => format!("{batches}, read back in order, cold"),
            Operation::AppendUnsynced => format!("{batches}, not synced, {} callers", self.callers),
            Operation::AppendDurable => format!(
                "{batches}, durable, {} callers, {} partitions",
                self.callers, self.partitions
            ),
        }
    }
}

/// Records to be appended together.
#[derive(Clone, Debug)]
pub struct Batch {
    records: Vec<Vec<u8>>,
    bytes: u64,
}

impl Batch {
    /// Makes a batch of noise that no other `seed` gives.
    pub fn of(work: &Work, seed: u64) -> Batch {
        let record = |index| {
            let mut record = vec![0; work.record_bytes];
            fill_with_noise(&mut record, seed * work.records as u64 + index);
            record
        };
        let records: Vec<_> = (0..work.records as u64).map(record).collect();
        Batch { bytes: work.batch_bytes(), records }
    }

    /// The records in order.
    pub fn records(&self) -> &[Vec<u8>] {
        &self.records
    }

    /// Bytes of all records.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The partitions one caller appends to, in an order of its own. No two callers share a partition where there are
/// enough of them.
#[derive(Debug)]
pub struct Route {
    caller: usize,
    stride: usize,
    partitions: usize,
    random: fastrand::Rng,
}

impl Route {
    /// The route of `caller`.
    pub fn of(work: &Work, caller: usize) -> Route {
        let random = fastrand::Rng::with_seed(caller as u64);
        Route { caller, stride: work.callers, partitions: work.partitions, random }
    }

    /// The next partition.
    pub fn next(&mut self) -> usize {
        if self.partitions <= self.stride {
            return self.caller % self.partitions;
        }
        let own = (self.partitions - self.caller).div_ceil(self.stride);
        self.caller + self.stride * self.random.usize(0..own)
    }

    /// Every partition of this caller once.
    pub fn each(&self) -> impl Iterator<Item = usize> + use<> {
        let end = self.partitions.max(self.caller % self.partitions + 1);
        let first = if self.partitions <= self.stride {
            self.caller % self.partitions
        } else {
            self.caller
        };
        (first..end).step_by(self.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_share_no_partition_and_leave_none_out() {
        let work = Work::named("100b-p1000").expect("a row");
        let mut seen = vec![0; work.partitions];

        for caller in 0..work.callers {
            let mut route = Route::of(&work, caller);
            let own: Vec<usize> = route.each().collect();
            own.iter().for_each(|&partition| seen[partition] += 1);
            (0..200).for_each(|_| assert!(own.contains(&route.next())));
        }

        assert!(seen.iter().all(|&times| times == 1));
    }

    #[test]
    fn callers_beyond_the_partitions_share_them() {
        let work = Work::named("1k-x1-c64").expect("a row");

        let mut route = Route::of(&work, 63);

        assert_eq!(route.next(), 0);
        assert_eq!(route.each().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn names_tell_rows_apart() {
        for work in WORKS {
            assert_eq!(Work::named(work.name).map(|found| found.describe()), Some(work.describe()));
        }
    }
}
