//! The whole engine on a simulated machine: crashes of process and power at random operations.
//!
//! After each crash the log holds every acknowledged record, at its offset, and otherwise only records that
//! were appended there. What was read once stays. Every failure prints its seed.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use palisade_engine::engine::Engine;
use palisade_engine::format::{Producer, RecordBatch};
use palisade_engine::id::Offset;
use palisade_engine::io::simulated::{PowerLoss, SimulatedMachine, SimulatedRuntime};
use palisade_engine::partition::producers::BATCHES_KEPT;
use palisade_engine::partition::{
    AppendError, AppendOptions, ChangeError, PartitionSettings, Read,
};
use palisade_engine::{EngineConfig, Partition};

/// Virtual time in which a run must have come to its end.
const RUN_MAX: Duration = Duration::from_secs(600);

/// What may lie at each offset, and what must.
#[derive(Default)]
struct Model {
    must: BTreeMap<u64, Vec<u8>>,
    may: BTreeMap<u64, Vec<Vec<u8>>>,
    /// The highest offset a trim was asked for: between the last trim that was done and it, all is possible.
    trimmed_max: u64,
    start: u64,
}

fn config(seed: u64) -> EngineConfig {
    let mut config = EngineConfig::new("/data");
    config.arena_bytes = 8 << 20;
    // Small, so that a short run goes round it.
    config.limits.journal_bytes = 256 << 10;
    config.seed = Some(seed);
    config.settings = PartitionSettings {
        segment_bytes: 128 << 10,
        first_segment_bytes: 64 << 10,
        ..PartitionSettings::default()
    };
    config
}

async fn open(machine: &SimulatedMachine, seed: u64) -> Engine {
    Engine::open_on(vec![machine.environment(8 << 20)], config(seed)).await.unwrap()
}

async fn read_all(log: &Partition, from: u64) -> BTreeMap<u64, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut next = Offset(from);
    loop {
        let answer = log.read(Read::from(next)).await.unwrap();
        if answer.next_offset == next {
            return all;
        }
        for batch in &answer.batches {
            // The first batch may begin below what was asked for.
            for (offset, record) in batch.iter().filter(|(offset, _)| offset.0 >= from) {
                assert!(all.insert(offset.0, record.to_vec()).is_none(), "offset {offset} twice");
            }
        }
        next = answer.next_offset;
    }
}

/// One partition, what is known of it, and the appends that have not been answered.
struct Worked<'a> {
    log: Partition,
    model: &'a mut Model,
    appends: Vec<(palisade_engine::engine::Append, Vec<u8>)>,
}

impl Worked<'_> {
    /// Compares with the model what was found. What was served stays.
    async fn check(&mut self) {
        let (log, model) = (&self.log, &mut *self.model);
        let start = log.watermarks().log_start.0;
        assert!(start <= model.trimmed_max, "log start {start} above {}", model.trimmed_max);
        assert!(start >= model.start, "log start {start} below {}", model.start);
        model.must.retain(|offset, _| *offset >= start);
        let found = read_all(log, start).await;
        for (offset, record) in &model.must {
            assert_eq!(found.get(offset), Some(record), "acknowledged record {offset}");
        }
        for (place, (offset, record)) in found.iter().enumerate() {
            assert_eq!(*offset, start + place as u64, "a gap");
            assert!(model.may[offset].contains(record), "record {offset} was never appended there");
        }
        model.must = found;
        model.start = start;
    }

    fn append(&mut self, random: &mut fastrand::Rng) {
        let records = random.usize(1..6);
        let bytes =
            if random.u8(..) < 16 { random.usize(20_000..60_000) } else { random.usize(0..3_000) };
        let mut builder = RecordBatch::builder();
        let tag: Vec<u8> = (0..bytes).map(|_| random.u8(..)).collect();
        for _ in 0..records {
            builder.push(&tag).unwrap();
        }
        let log_end = self.log.watermarks().log_end.0;
        let options =
            AppendOptions { expected_offset: Some(Offset(log_end)), ..AppendOptions::default() };
        for offset in log_end..log_end + records as u64 {
            self.model.may.entry(offset).or_default().push(tag.clone());
        }
        self.appends.push((self.log.append(builder.finish(), options), tag));
    }

    async fn trim(&mut self, random: &mut fastrand::Rng) {
        self.settle().await;
        let to = random.u64(self.model.start..=self.log.watermarks().committed.0);
        self.model.trimmed_max = self.model.trimmed_max.max(to);
        self.log.trim(Offset(to)).await.unwrap();
        self.model.start = self.log.watermarks().log_start.0;
        self.model.must.retain(|offset, _| *offset >= to);
    }

    async fn truncate(&mut self, random: &mut fastrand::Rng) {
        let model = &mut *self.model;
        let Some(cut) = model.must.range(model.start..).map(|(offset, _)| *offset).next_back()
        else {
            return;
        };
        self.settle().await;
        // A cut is allowed between batches only; most places are refused.
        let to = random.u64(self.model.start..=cut);
        let must = self.model.must.split_off(&to);
        match self.log.truncate(Offset(to)).await {
            Ok(_) => assert_eq!(self.log.watermarks().log_end, Offset(to)),
            Err(ChangeError::OutOfRange { .. }) => self.model.must.extend(must),
            Err(error) => panic!("{error}"),
        }
    }

    async fn settle(&mut self) {
        settle(&mut self.appends, self.model).await;
    }
}

/// Opens, compares with the models, then works until the crash point ends everything.
async fn run_until_crash(
    machine: &SimulatedMachine,
    models: &mut [Model],
    random: &mut fastrand::Rng,
    seed: u64,
    frames: &Cell<u64>,
) {
    let engine = open(machine, seed).await;
    let mut all = Vec::new();
    for (index, model) in models.iter_mut().enumerate() {
        let log = engine.open_partition(&format!("orders/{index}").parse().unwrap()).await.unwrap();
        let mut worked = Worked { log, model, appends: Vec::new() };
        worked.check().await;
        all.push(worked);
    }
    for round in 0..40 * all.len() {
        let one = random.usize(..all.len());
        let worked = &mut all[one];
        worked.append(random);
        if random.u8(..) < 96 {
            frames.set(frames.get().max(engine.metrics().shards[0].journal_frames));
            worked.settle().await;
        }
        if round % 17 == 16 && random.bool() {
            worked.trim(random).await;
        }
        if random.u8(..) < 5 {
            worked.truncate(random).await;
        }
    }
    for worked in &mut all {
        worked.settle().await;
    }
    if random.bool() {
        engine.close().await.unwrap();
    }
}

async fn settle(appends: &mut Vec<(palisade_engine::engine::Append, Vec<u8>)>, model: &mut Model) {
    for (append, tag) in appends.drain(..) {
        match append.await {
            Ok(appended) => {
                let base = appended.base_offset.0;
                for offset in base..base + u64::from(appended.records) {
                    model.must.insert(offset, tag.clone());
                }
            }
            Err(AppendError::Busy { .. } | AppendError::OffsetMismatch { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns the most frames the journal took in a run.
fn survive(seed: u64, partitions: usize) -> u64 {
    let runtime = SimulatedRuntime::new(seed);
    let machine = SimulatedMachine::alone(&runtime);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut models: Vec<Model> = (0..partitions).map(|_| Model::default()).collect();
    let frames = Cell::new(0);
    for crash in 0..12 {
        let operations = machine.storage().operations();
        machine.storage().crash_at(operations + random.u64(1..160 * partitions as u64));
        let crashed = machine.storage().crashed();
        let run_seed = random.u64(..);
        let late = machine.environment(1 << 20).runtime.sleep(RUN_MAX);
        runtime.block_on(async {
            let run = pin!(run_until_crash(&machine, &mut models, &mut random, run_seed, &frames));
            match select(select(run, crashed), late).await {
                Either::Left(_) => {}
                Either::Right(_) => panic!("no end in sight after {RUN_MAX:?}"),
            }
        });
        machine.storage().cancel_crash();
        if crash % 2 == 0 {
            machine.lose_power(PowerLoss::Random);
        } else {
            machine.kill_process();
        }
    }
    frames.get()
}

fn survive_all(partitions: usize) -> u64 {
    let seeds = match std::env::var("PALISADE_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().unwrap();
            seed..seed + 1
        }
        Err(_) => 0..std::env::var("PALISADE_SEEDS").map_or(60, |seeds| seeds.parse().unwrap()),
    };
    let mut frames = 0;
    for seed in seeds {
        match std::panic::catch_unwind(|| survive(seed, partitions)) {
            Ok(seed_frames) => frames = frames.max(seed_frames),
            Err(panic) => {
                eprintln!("failed with PALISADE_SEED={seed}, {partitions} partitions");
                std::panic::resume_unwind(panic);
            }
        }
    }
    frames
}

#[test]
fn acknowledged_records_survive_every_crash() {
    survive_all(1);
}

#[test]
fn acknowledged_records_of_many_partitions_survive_every_crash() {
    let frames = survive_all(5);
    assert!(frames > 0, "the journal was never used");
}

/// What a producer has sent to one partition: batches of one record, which is the batch's sequence.
#[derive(Default)]
struct Sent {
    next: u64,
    /// Sent and never answered: to be sent again.
    unanswered: std::collections::VecDeque<u64>,
}

async fn produce_until_crash(
    machine: &SimulatedMachine,
    all_sent: &RefCell<Vec<Sent>>,
    random: &mut fastrand::Rng,
    seed: u64,
) {
    let engine = open(machine, seed).await;
    let mut logs = Vec::new();
    let partitions = all_sent.borrow().len();
    for index in 0..partitions {
        logs.push(engine.open_partition(&format!("sent/{index}").parse().unwrap()).await.unwrap());
    }
    for (index, log) in logs.iter().enumerate() {
        let send = |sequence: u64| {
            let producer = Producer { id: 77, epoch: 1, sequence };
            let record = RecordBatch::single(&sequence.to_le_bytes()).unwrap();
            log.append(record, AppendOptions { producer, ..AppendOptions::default() })
        };
        let again = all_sent.borrow()[index].unanswered.clone();
        let answers: Vec<_> = again.iter().map(|sequence| send(*sequence)).collect();
        for (sequence, answer) in again.into_iter().zip(answers) {
            assert_eq!(answer.await.unwrap().base_offset, Offset(sequence));
            all_sent.borrow_mut()[index].unanswered.pop_front();
        }
    }
    for _ in 0..60 {
        let mut answers = Vec::new();
        for _ in 0..random.usize(1..5) {
            let index = random.usize(..logs.len());
            let sequence = {
                let mut all_sent = all_sent.borrow_mut();
                let sent = &mut all_sent[index];
                if sent.unanswered.len() == BATCHES_KEPT {
                    continue;
                }
                sent.next += 1;
                sent.unanswered.push_back(sent.next - 1);
                sent.next - 1
            };
            let producer = Producer { id: 77, epoch: 1, sequence };
            let record = RecordBatch::single(&sequence.to_le_bytes()).unwrap();
            let options = AppendOptions { producer, ..AppendOptions::default() };
            // Sometimes at once again, as a client that is too eager.
            if random.u8(..) < 40 {
                answers.push((index, None, logs[index].append(record.clone(), options)));
            }
            answers.push((index, Some(sequence), logs[index].append(record, options)));
        }
        for (index, sequence, answer) in answers {
            let appended = answer.await.unwrap();
            if let Some(sequence) = sequence {
                assert_eq!(appended.base_offset, Offset(sequence));
                let answered = all_sent.borrow_mut()[index].unanswered.pop_front();
                assert_eq!(answered, Some(sequence));
            }
        }
    }
    if random.bool() {
        engine.close().await.unwrap();
    }
}

/// Each sequence lies at the offset of the same number: none is missing, none is there twice.
#[test]
fn retried_batches_are_in_the_log_once() {
    for seed in 0..40 {
        let runtime = SimulatedRuntime::new(seed);
        let machine = SimulatedMachine::alone(&runtime);
        let mut random = fastrand::Rng::with_seed(seed);
        let all_sent = RefCell::new((0..3).map(|_| Sent::default()).collect::<Vec<_>>());
        for crash in 0..12 {
            let operations = machine.storage().operations();
            machine.storage().crash_at(operations + random.u64(1..300));
            let crashed = machine.storage().crashed();
            let run_seed = random.u64(..);
            runtime.block_on(async {
                let run = pin!(produce_until_crash(&machine, &all_sent, &mut random, run_seed));
                select(run, crashed).await;
            });
            machine.storage().cancel_crash();
            match crash % 2 {
                0 => machine.lose_power(PowerLoss::Random),
                _ => machine.kill_process(),
            }
        }
        runtime.block_on(async {
            let engine = open(&machine, seed).await;
            for (index, sent) in all_sent.take().into_iter().enumerate() {
                let name = format!("sent/{index}").parse().unwrap();
                let found = read_all(&engine.open_partition(&name).await.unwrap(), 0).await;
                let answered = sent.next - sent.unanswered.len() as u64;
                assert!(
                    found.len() as u64 >= answered,
                    "seed {seed}: {} of {answered}",
                    found.len()
                );
                for (offset, record) in found {
                    assert_eq!(record, offset.to_le_bytes(), "seed {seed}, offset {offset}");
                }
            }
        });
    }
}
