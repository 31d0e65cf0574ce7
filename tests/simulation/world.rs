//! One machine, the engine on it, one partition and the model beside it.
//!
//! Opens, crashes and reopens; panics, with the seed, where the log found breaks a promise.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::future::{Either, select};
use palisade_engine::engine::OpenError;
use palisade_engine::id::{Offset, PartitionId, PartitionName};
use palisade_engine::io::simulated::{PowerLoss, SimulatedMachine, SimulatedRuntime};
use palisade_engine::partition::{Read, ReadError};
use palisade_engine::{Engine, EngineConfig, Partition};

use crate::model::{Found, FoundBatch, Model};

/// The memory of one shard.
const ARENA_BYTES: usize = 16 << 20;

/// Small, so that a short run rolls often.
const SEGMENT_BYTES: u64 = 128 << 10;

/// What one read asks for: less than a segment.
const READ_BYTES: usize = 32 << 10;

/// Where the engine lives on the simulated device.
pub(crate) const DATA_DIRECTORY: &str = "/data";

/// Runs other seeds than those of an ordinary test run: one (`7`), or a range (`100..200`).
const SEED_VARIABLE: &str = "PALISADE_SIMULATION_SEED";

/// The seeds to run: those given, unless the environment names others.
pub(crate) fn seeds(ordinary: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var(SEED_VARIABLE) else { return ordinary };
    let number = |text: &str| text.trim().parse::<u64>().expect("a seed is a number");
    match text.split_once("..") {
        Some((start, end)) => number(start)..number(end),
        None => number(&text)..number(&text) + 1,
    }
}

/// How a run ends when it does not end in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process dies; what it was writing may still land.
    Kill,
    /// The machine dies.
    PowerLoss,
    /// The process dies, and shortly after it the machine.
    KillThenPowerLoss,
}

/// An open engine and its partition.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) engine: Engine,
    pub(crate) partition: Partition,
}

/// A simulated machine with an engine's directory, and what that directory must hold.
pub(crate) struct World {
    pub(crate) runtime: SimulatedRuntime,
    pub(crate) machine: SimulatedMachine,
    pub(crate) model: Rc<RefCell<Model>>,
    pub(crate) random: RefCell<fastrand::Rng>,
    seed: u64,
    shards: usize,
    runs: Cell<u64>,
    /// The partition, once its creation was acknowledged: it never goes away again.
    created: Cell<Option<PartitionId>>,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let runtime = SimulatedRuntime::new(seed);
        let machine = SimulatedMachine::alone(&runtime);
        let mut random = runtime.fork_random();
        World {
            machine,
            model: Rc::default(),
            shards: random.usize(1..=2),
            random: RefCell::new(random),
            runtime,
            seed,
            runs: Cell::new(0),
            created: Cell::new(None),
        }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Opens the engine and its partition, creating it if its creation never was acknowledged.
    pub(crate) async fn open(&self) -> Result<Opened, OpenError> {
        let engine = self.open_engine().await?;
        let name = partition_name();
        if let Some(created) = self.created.get() {
            let found = engine.find(&name).map(|partition| partition.id());
            assert_eq!(found, Some(created), "an acknowledged partition: {:?}", engine.report());
        }
        let partition = engine.open_partition(&name).await.expect("nothing stands in its way");
        self.created.set(Some(partition.id()));
        Ok(Opened { engine, partition })
    }

    async fn open_engine(&self) -> Result<Engine, OpenError> {
        let environments =
            (0..self.shards).map(|_| self.machine.environment(ARENA_BYTES)).collect();
        Engine::open_on(environments, self.config()).await
    }

    /// Ends the run by force.
    pub(crate) fn crash(&self, crash: Crash) {
        match crash {
            Crash::Kill => self.machine.kill_process(),
            Crash::PowerLoss => self.machine.lose_power(PowerLoss::Random),
            Crash::KillThenPowerLoss => {
                self.machine.kill_process();
                let delay = self.random.borrow_mut().u64(0..200);
                self.runtime.run_for(std::time::Duration::from_micros(delay));
                self.machine.lose_power(PowerLoss::Random);
            }
        }
    }

    pub(crate) fn draw_crash(&self) -> Crash {
        match self.random.borrow_mut().u8(..3) {
            0 => Crash::Kill,
            1 => Crash::PowerLoss,
            _ => Crash::KillThenPowerLoss,
        }
    }

    /// Opens after a crash, crashing again at operations of the recovery, until it is open; checks the log.
    pub(crate) fn recover(&self) -> Opened {
        for _ in 0..3 {
            let storage = self.machine.storage();
            if self.random.borrow_mut().bool() {
                let ahead = self.random.borrow_mut().u64(1..60);
                storage.crash_at(storage.operations() + ahead);
            }
            if let Some(opened) = self.run(self.open_and_check()) {
                storage.cancel_crash();
                return opened;
            }
            self.crash(self.draw_crash());
        }
        self.run(self.open_and_check()).expect("no crash was planned")
    }

    /// Runs `future` to its end, or to the planned crash.
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let crashed = self.machine.storage().crashed();
        let future = Box::pin(future);
        match self.runtime.block_on(select(crashed, future)) {
            Either::Left(_) => None,
            Either::Right((output, _)) => Some(output),
        }
    }

    /// Opens while faults are planned: `None` when one was in the way. Checks the log if it can be read.
    pub(crate) async fn try_open(&self) -> Option<Opened> {
        let engine = self.open_engine().await.ok()?;
        let partition = engine.find(&partition_name())?;
        match read_all(&partition).await {
            Ok(found) => self.check_found(&found),
            Err(error) => assert!(matches!(error, ReadError::Disk(_)), "{error}"),
        }
        Some(Opened { engine, partition })
    }

    /// Opens and reads the whole log: from then on all of it has been served.
    async fn open_and_check(&self) -> Opened {
        let opened = self.open().await.expect("a crash never keeps an engine from opening");
        self.check(&opened.partition).await;
        opened
    }

    /// Reads the whole log, checks it, and takes it over into the model.
    pub(crate) async fn check(&self, partition: &Partition) {
        let found = read_all(partition).await.expect("nothing is damaged");
        self.check_found(&found);
    }

    /// Checks a log that was read while nothing was on its way, and takes it over into the model.
    pub(crate) fn check_found(&self, found: &Found) {
        let mut model = self.model.borrow_mut();
        self.expect(&model, found);
        model.settle(found);
    }

    fn expect(&self, model: &Model, found: &Found) {
        if let Err(violation) = model.check(found) {
            let batches: Vec<_> = found
                .batches
                .iter()
                .map(|batch| {
                    let sizes: Vec<usize> = batch.records.iter().map(Bytes::len).collect();
                    (batch.base_offset, sizes, batch.epoch >> 32)
                })
                .collect();
            panic!(
                "seed {}: {violation:?}; log {}..{}, batches {batches:?}; {}",
                self.seed,
                found.log_start,
                found.committed,
                model.summary()
            );
        }
    }

    fn config(&self) -> EngineConfig {
        let run = self.runs.get();
        self.runs.set(run + 1);
        let mut config = EngineConfig::new(DATA_DIRECTORY);
        config.arena_bytes = ARENA_BYTES;
        config.seed = Some(self.seed.wrapping_mul(1 << 16).wrapping_add(run));
        config.settings.segment_bytes = SEGMENT_BYTES;
        config.settings.first_segment_bytes = SEGMENT_BYTES / 2;
        // Small, so that reads reach the disk.
        config.limits.tail_bytes_max = 64 << 10;
        config
    }
}

fn partition_name() -> PartitionName {
    "stream/0".parse().expect("a name")
}

/// Reads everything from log start to the committed end.
pub(crate) async fn read_all(partition: &Partition) -> Result<Found, ReadError> {
    let log_start = partition.watermarks().log_start;
    let mut found = Found { log_start: log_start.0, ..Found::default() };
    let mut from = log_start;
    loop {
        let answer = partition.read(Read { bytes_max: READ_BYTES, ..Read::from(from) }).await?;
        for batch in &answer.batches {
            found.batches.push(FoundBatch {
                base_offset: batch.base_offset().0,
                epoch: batch.epoch().packed(),
                append_time: batch.append_time().0,
                records: batch.iter().map(|(_, record)| Bytes::copy_from_slice(record)).collect(),
            });
        }
        found.committed = answer.watermarks.committed.0;
        if answer.next_offset >= answer.watermarks.committed {
            return Ok(found);
        }
        assert!(answer.next_offset > from, "a read that does not advance at {from}");
        from = answer.next_offset;
    }
}

/// Where a batch begins, for cuts.
pub(crate) fn boundaries(found: &Found) -> Vec<Offset> {
    found.batches.iter().map(|batch| Offset(batch.base_offset)).collect()
}
