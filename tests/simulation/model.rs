//! The plain-vector model of one partition: what its log must, may and must not hold.
//!
//! Knows nothing of files. A run appends, reads, trims and cuts; after a crash the log found is checked against
//! what was acknowledged, what was served, and what was only asked for.

use std::collections::BTreeMap;

use bytes::Bytes;

/// One append that was asked for in this run.
#[derive(Clone, Debug)]
struct Asked {
    records: Vec<Bytes>,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// No answer, or one that promises nothing: it may be in the log.
    Open,
    /// It is in the log, from this offset on.
    At(u64),
    /// It is not in the log.
    Refused,
}

/// One batch found in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundBatch {
    /// The offset of its first record.
    pub(crate) base_offset: u64,
    /// Its packed epoch.
    pub(crate) epoch: u64,
    /// When the server took it, in microseconds.
    pub(crate) append_time: u64,
    /// Its records.
    pub(crate) records: Vec<Bytes>,
}

/// A log as a reader found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its start.
    pub(crate) log_start: u64,
    /// Its end.
    pub(crate) committed: u64,
    /// Its batches, in order.
    pub(crate) batches: Vec<FoundBatch>,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// An acknowledged or served record is not there.
    Lost { offset: u64 },
    /// Another record stands where an acknowledged or served one was.
    Changed { offset: u64 },
    /// A batch that nobody appended there, or one that overtook an earlier one.
    Invented { offset: u64 },
    /// The next batch does not start where the last one ended, or the last one not at the end.
    Gap { expected: u64, found: u64 },
    /// An acknowledgement named another offset than the order of calls gives.
    Misplaced { expected: u64, acknowledged: u64 },
    /// The log starts where no trim put it.
    LogStart { least: u64, most: u64, found: u64 },
    /// An epoch fell along the log.
    EpochFell { offset: u64 },
    /// Server time fell along the log.
    TimeFell { offset: u64 },
}

/// What one partition's log must look like.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// Acknowledged as durable, or served: there for ever, until trimmed or cut.
    required: BTreeMap<u64, Bytes>,
    /// Where the log ended when this run began.
    run_base: u64,
    /// The appends of this run, in the order of calls.
    asked: Vec<Asked>,
    trim_acknowledged: u64,
    trim_asked: u64,
    /// A cut without an answer: it may have happened.
    cut_asked: Option<u64>,
}

impl Model {
    /// Notes an append at the time of the call; returns its number in this run.
    pub(crate) fn ask(&mut self, records: Vec<Bytes>) -> usize {
        self.asked.push(Asked { records, fate: Fate::Open });
        self.asked.len() - 1
    }

    /// Notes an acknowledgement. `is_durable` says whether it promises that the batch survives.
    ///
    /// # Errors
    ///
    /// The offset contradicts what was served there before.
    pub(crate) fn acknowledge(
        &mut self,
        number: usize,
        base_offset: u64,
        is_durable: bool,
    ) -> Result<(), Violation> {
        self.asked[number].fate = Fate::At(base_offset);
        if !is_durable {
            return Ok(());
        }
        for (offset, record) in (base_offset..).zip(self.asked[number].records.clone()) {
            self.require(offset, record)?;
        }
        Ok(())
    }

    /// Notes an answer that says the batch is not in the log.
    pub(crate) fn refuse(&mut self, number: usize) {
        self.asked[number].fate = Fate::Refused;
    }

    /// Notes a record that a reader was served: it never goes away again.
    ///
    /// # Errors
    ///
    /// Another record was acknowledged or served there.
    pub(crate) fn serve(&mut self, offset: u64, record: Bytes) -> Result<(), Violation> {
        self.require(offset, record)
    }

    /// Notes a trim at the time of the call.
    pub(crate) fn ask_trim(&mut self, to: u64) {
        self.trim_asked = self.trim_asked.max(to);
    }

    /// Notes that a trim is done, and the log start it led to.
    pub(crate) fn acknowledge_trim(&mut self, log_start: u64) {
        self.trim_acknowledged = self.trim_acknowledged.max(log_start);
    }

    /// Notes a cut at the time of the call, when no append is on its way.
    pub(crate) fn ask_cut(&mut self, to: u64) {
        self.cut_asked = Some(to);
    }

    /// Notes that the cut was done (`true`) or refused.
    pub(crate) fn answer_cut(&mut self, is_done: bool) {
        let to = self.cut_asked.take().expect("a cut was asked for");
        if is_done {
            self.cut(to);
        }
    }

    /// The appends of this run, for the message of a failure: offset if known, records, fate.
    pub(crate) fn summary(&self) -> String {
        let asked = self.asked.iter().map(|asked| {
            let sizes: Vec<usize> = asked.records.iter().map(Bytes::len).collect();
            format!("{:?} {sizes:?}", asked.fate)
        });
        let asked: Vec<String> = asked.collect();
        format!("run base {}, cut {:?}, asked {asked:#?}", self.run_base, self.cut_asked)
    }

    /// Where the log ends if every append of this run that was not refused is in it.
    pub(crate) fn expected_end(&self) -> u64 {
        self.run_base + self.accepted().map(|asked| asked.records.len() as u64).sum::<u64>()
    }

    /// Checks a log against every promise.
    ///
    /// # Errors
    ///
    /// The first promise that is broken.
    pub(crate) fn check(&self, found: &Found) -> Result<(), Violation> {
        match self.cut_asked {
            // Done or not done, nothing in between.
            Some(to) if found.committed == to => {
                let mut after = self.clone();
                after.cut_asked = None;
                after.cut(to);
                after.check(found)
            }
            _ => self.check_uncut(found),
        }
    }

    /// Takes a checked log over as the start of the next run: it was read, so it stays.
    pub(crate) fn settle(&mut self, found: &Found) {
        self.required.retain(|offset, _| *offset < found.committed);
        for batch in &found.batches {
            self.required.extend((batch.base_offset..).zip(batch.records.iter().cloned()));
        }
        self.run_base = found.committed;
        self.asked.clear();
        self.cut_asked = None;
    }

    fn check_uncut(&self, found: &Found) -> Result<(), Violation> {
        let (least, most) = (self.trim_acknowledged, self.trim_asked);
        if found.log_start < least || found.log_start > most {
            return Err(Violation::LogStart { least, most, found: found.log_start });
        }
        check_order(found)?;
        let mut records = BTreeMap::new();
        for batch in &found.batches {
            records.extend((batch.base_offset..).zip(&batch.records));
        }
        for (offset, required) in self.required.range(found.log_start..) {
            match records.get(offset) {
                None => return Err(Violation::Lost { offset: *offset }),
                Some(record) if *record != required => {
                    return Err(Violation::Changed { offset: *offset });
                }
                Some(_) => {}
            }
        }
        self.check_new(found)
    }

    /// What is new since the run began is a prefix of what was asked for: nothing invented, no hole, no half batch.
    fn check_new(&self, found: &Found) -> Result<(), Violation> {
        let mut expected = self.run_base;
        let mut new = found.batches.iter().filter(|batch| {
            batch.base_offset >= self.run_base
                || batch.base_offset + batch.records.len() as u64 > self.run_base
        });
        for asked in self.accepted() {
            if let Fate::At(acknowledged) = asked.fate
                && acknowledged != expected
            {
                return Err(Violation::Misplaced { expected, acknowledged });
            }
            let end = expected + asked.records.len() as u64;
            // What was trimmed meanwhile need not be there.
            if end > found.log_start {
                let Some(batch) = new.next() else { return Ok(()) };
                if batch.base_offset != expected || batch.records != asked.records {
                    return Err(Violation::Invented { offset: batch.base_offset });
                }
            }
            expected = end;
        }
        match new.next() {
            Some(batch) => Err(Violation::Invented { offset: batch.base_offset }),
            None => Ok(()),
        }
    }

    fn accepted(&self) -> impl Iterator<Item = &Asked> {
        self.asked.iter().filter(|asked| asked.fate != Fate::Refused)
    }

    fn require(&mut self, offset: u64, record: Bytes) -> Result<(), Violation> {
        match self.required.get(&offset) {
            Some(required) if *required != record => Err(Violation::Changed { offset }),
            Some(_) => Ok(()),
            None => {
                self.required.insert(offset, record);
                Ok(())
            }
        }
    }

    fn cut(&mut self, to: u64) {
        self.required.retain(|offset, _| *offset < to);
        self.run_base = to;
        self.asked.clear();
    }
}

fn check_order(found: &Found) -> Result<(), Violation> {
    let mut expected = None;
    let (mut epoch, mut append_time) = (0, 0);
    for batch in &found.batches {
        let offset = batch.base_offset;
        match expected {
            // The first batch may start below the log start; it has to hold it.
            None if offset > found.log_start => {
                return Err(Violation::Gap { expected: found.log_start, found: offset });
            }
            Some(expected) if offset != expected => {
                return Err(Violation::Gap { expected, found: offset });
            }
            _ => {}
        }
        if batch.epoch < epoch {
            return Err(Violation::EpochFell { offset });
        }
        if batch.append_time < append_time {
            return Err(Violation::TimeFell { offset });
        }
        (epoch, append_time) = (batch.epoch, batch.append_time);
        expected = Some(offset + batch.records.len() as u64);
    }
    let end = expected.unwrap_or(found.log_start);
    if end != found.committed {
        return Err(Violation::Gap { expected: found.committed, found: end });
    }
    Ok(())
}
