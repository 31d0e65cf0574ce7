//! A random run against an open partition: appends, reads, trims, cuts, rolls and pauses, all noted in the model.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use palisade_engine::Partition;
use palisade_engine::format::RecordBatch;
use palisade_engine::id::Offset;
use palisade_engine::io::runtime::Runtime;
use palisade_engine::io::simulated::FaultKind;
use palisade_engine::partition::{
    AppendError, AppendOptions, ChangeError, Durability, Read, ReadError, Wait,
};

use crate::model::Model;
use crate::world::{Opened, World, boundaries, read_all};

/// How long virtual time may pass before an append that has no answer counts as forgotten.
const PATIENCE: Duration = Duration::from_secs(600);

/// The most records of one batch.
const RECORDS_MAX: usize = 4;

/// A run in progress.
pub(crate) struct Workload<'a> {
    world: &'a World,
    partition: Partition,
    runtime: Rc<dyn Runtime>,
    model: Rc<RefCell<Model>>,
    outstanding: Rc<Cell<usize>>,
    random: fastrand::Rng,
    /// Faults are planned: refusals for their sake are right answers.
    expects_faults: bool,
    /// A cut refused for lack of room may be in effect until the next crash: the model has no word for that.
    may_cut: bool,
    /// The tail reader stops when the run does.
    is_over: Rc<Cell<bool>>,
}

impl<'a> Workload<'a> {
    pub(crate) fn new(world: &'a World, opened: &Opened) -> Workload<'a> {
        Workload {
            world,
            partition: opened.partition.clone(),
            runtime: Rc::new(world.machine.group()),
            model: world.model.clone(),
            outstanding: Rc::default(),
            random: world.random.borrow_mut().fork(),
            expects_faults: false,
            may_cut: true,
            is_over: Rc::default(),
        }
    }

    /// Takes refusals for the device's sake as right answers.
    pub(crate) fn expecting(self, fault: FaultKind) -> Workload<'a> {
        Workload { expects_faults: true, may_cut: fault != FaultKind::NoSpace, ..self }
    }

    /// Takes `steps` random steps, then waits for every answer.
    pub(crate) async fn run(&mut self, steps: usize) {
        let cuts = self.may_cut && self.random.bool();
        if !cuts {
            self.start_tail_reader();
        }
        for _ in 0..steps {
            match self.random.u8(..100) {
                0..60 => self.append(),
                60..70 => self.drain().await,
                70..78 => self.read().await,
                78..82 => self.trim().await,
                82..88 => self.roll().await,
                88..91 if cuts => self.cut().await,
                91..93 => self.flood(),
                _ => self.pause().await,
            }
        }
        self.drain().await;
        self.is_over.set(true);
    }

    fn append(&mut self) {
        let records = (0..self.random.usize(1..=RECORDS_MAX)).map(|_| self.record()).collect();
        let durability = match self.random.u8(..4) {
            0 => Durability::Accepted,
            1 => Durability::Local,
            _ => Durability::Committed,
        };
        self.append_records(records, durability);
    }

    /// Appends so much that nobody waits for that its groups are written and synced later, some behind others.
    fn flood(&mut self) {
        for _ in 0..self.random.usize(2..6) {
            let long = |random: &mut fastrand::Rng| {
                let length = random.usize(15_000..40_000);
                (0..length).map(|_| random.u8(..)).collect()
            };
            let records = (0..5).map(|_| long(&mut self.random)).collect();
            self.append_records(records, Durability::Accepted);
        }
    }

    fn append_records(&mut self, records: Vec<Bytes>, durability: Durability) {
        let mut batch = RecordBatch::builder();
        for record in &records {
            batch.push(record).expect("short records");
        }
        let options = AppendOptions { durability, ..AppendOptions::default() };
        // Noted before the call: the order of calls is the order of offsets.
        let number = self.model.borrow_mut().ask(records);
        let append = self.partition.append(batch.finish(), options);
        let (model, outstanding) = (self.model.clone(), self.outstanding.clone());
        outstanding.set(outstanding.get() + 1);
        self.runtime.spawn(Box::pin(async move {
            let answer = append.await;
            outstanding.set(outstanding.get() - 1);
            let mut model = model.borrow_mut();
            match answer {
                Ok(appended) => {
                    let is_durable = durability != Durability::Accepted;
                    let base_offset = appended.base_offset.0;
                    let noted = model.acknowledge(number, base_offset, is_durable);
                    noted.expect("the offset is nobody else's");
                }
                Err(AppendError::Unknown { .. }) => {}
                Err(_) => model.refuse(number),
            }
        }));
    }

    /// Random bytes; mostly short, sometimes none, sometimes many.
    fn record(&mut self) -> Bytes {
        let length = match self.random.u8(..20) {
            0 => 0,
            1 => self.random.usize(8_000..40_000),
            _ => self.random.usize(1..3_000),
        };
        (0..length).map(|_| self.random.u8(..)).collect()
    }

    /// Waits until every append has its answer, and those that were only accepted are committed, too.
    async fn drain(&mut self) {
        let deadline = self.world.runtime.now() + PATIENCE;
        while self.outstanding.get() > 0 || !self.is_settled() {
            assert!(
                self.world.runtime.now() < deadline,
                "{} appends without an answer: {:?}, stopped {:?}",
                self.outstanding.get(),
                self.partition.watermarks(),
                self.partition.stopped(),
            );
            self.runtime.sleep(Duration::from_micros(50)).await;
        }
    }

    fn is_settled(&self) -> bool {
        let watermarks = self.partition.watermarks();
        watermarks.committed == watermarks.log_end || self.partition.stopped().is_some()
    }

    /// Reads a little from anywhere.
    async fn read(&mut self) {
        let watermarks = self.partition.watermarks();
        let from = self.draw_offset(watermarks.log_start, watermarks.committed);
        let read = Read { bytes_max: 16 << 10, ..Read::from(from) };
        match self.partition.read(read).await {
            Ok(answer) => {
                assert!(answer.next_offset <= answer.watermarks.committed, "served too early");
                for batch in &answer.batches {
                    serve(&self.model, batch.iter(), watermarks.log_start);
                }
            }
            Err(ReadError::Disk(_)) if self.expects_faults => {}
            Err(error) => panic!("a read at {from}: {error}"),
        }
    }

    async fn trim(&mut self) {
        let watermarks = self.partition.watermarks();
        let to = self.draw_offset(watermarks.log_start, watermarks.committed);
        self.model.borrow_mut().ask_trim(to.0);
        match self.partition.trim(to).await {
            Ok(log_start) => self.model.borrow_mut().acknowledge_trim(log_start.0),
            Err(error) => self.expect_refusal("trim", &error),
        }
    }

    async fn roll(&mut self) {
        match self.partition.roll().await {
            Ok(_) => {}
            Err(error) => self.expect_refusal("roll", &error),
        }
    }

    fn expect_refusal(&self, change: &str, error: &ChangeError) {
        let is_expected = match error {
            ChangeError::Busy { .. } => true,
            ChangeError::Stopped { .. } | ChangeError::DiskFull { .. } => self.expects_faults,
            _ => false,
        };
        assert!(is_expected, "a {change}: {error}");
    }

    /// Cuts the log at the beginning of some batch, while nothing is on its way.
    async fn cut(&mut self) {
        self.drain().await;
        if self.partition.stopped().is_some() {
            return;
        }
        let found = match read_all(&self.partition).await {
            Ok(found) => found,
            Err(error) if self.expects_faults => {
                assert!(matches!(error, ReadError::Disk(_)), "{error}");
                return;
            }
            Err(error) => panic!("the whole log: {error}"),
        };
        self.world.check_found(&found);
        let candidates: Vec<Offset> = boundaries(&found)
            .into_iter()
            .filter(|offset| offset.0 >= found.log_start)
            .chain([Offset(found.committed)])
            .collect();
        let to = candidates[self.random.usize(..candidates.len())];
        self.model.borrow_mut().ask_cut(to.0);
        let answer = self.partition.truncate(to).await;
        match answer {
            Ok(_) => self.model.borrow_mut().answer_cut(true),
            // It may be on the medium or not; nothing more is appended in this run.
            Err(ChangeError::Stopped { .. }) if self.expects_faults => {}
            Err(error) => {
                self.expect_refusal("cut", &error);
                self.model.borrow_mut().answer_cut(false);
            }
        }
    }

    async fn pause(&mut self) {
        let pause = Duration::from_micros(self.random.u64(1..5_000));
        self.runtime.sleep(pause).await;
    }

    fn draw_offset(&mut self, start: Offset, end: Offset) -> Offset {
        Offset(self.random.u64(start.0..=end.0))
    }

    /// Follows the end of the log; what it is served must stay.
    fn start_tail_reader(&self) {
        let (partition, model) = (self.partition.clone(), self.model.clone());
        let (expects_faults, is_over) = (self.expects_faults, self.is_over.clone());
        self.runtime.spawn(Box::pin(async move {
            let mut next = partition.watermarks().log_start;
            loop {
                let read = Read { bytes_max: 16 << 10, wait: Wait::Forever, ..Read::from(next) };
                match partition.read(read).await {
                    _ if is_over.get() => return,
                    Ok(answer) => {
                        for batch in &answer.batches {
                            assert!(batch.base_offset() <= next, "a gap before {next}");
                            serve(&model, batch.iter(), next);
                            next = batch.next_offset();
                        }
                    }
                    Err(ReadError::BelowLogStart { log_start, .. }) => next = log_start,
                    Err(ReadError::Closed) => return,
                    Err(ReadError::Disk(_)) if expects_faults => return,
                    Err(error) => panic!("a tail read at {next}: {error}"),
                }
            }
        }));
    }
}

/// Notes what a reader was served from `from` on.
fn serve<'a>(
    model: &RefCell<Model>,
    records: impl Iterator<Item = (Offset, &'a [u8])>,
    from: Offset,
) {
    for (offset, record) in records.filter(|(offset, _)| *offset >= from) {
        let noted = model.borrow_mut().serve(offset.0, Bytes::copy_from_slice(record));
        noted.expect("what was served before stays");
    }
}
