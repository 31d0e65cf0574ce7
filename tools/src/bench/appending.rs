//! One thread that appends: a closed loop of so many batches in flight, or an open one started by the clock.

use std::collections::VecDeque;
use std::time::Duration;

use palisade_benches::stopwatch::Stopwatch;
use palisade_engine::{AppendError, AppendOptions, Appended, Durability, Partition, RecordBatch};

use super::calls::Calls;
use super::lane::Lane;
use super::meter::Stop;
use super::pace::Pace;

/// How long to wait at most before looking whether the section has ended.
const PATIENCE: Duration = Duration::from_millis(20);

/// What one thread appends.
pub(crate) struct Appender<'a> {
    pub(crate) partitions: &'a [Partition],
    /// Where to begin in them, and how far the next batch's partition is.
    pub(crate) first: usize,
    pub(crate) step: usize,
    pub(crate) batch: &'a RecordBatch,
    pub(crate) record_bytes: u64,
    pub(crate) durability: Durability,
    pub(crate) depth: usize,
    pub(crate) pace: Option<Pace>,
}

/// A batch that met a limit.
struct Again {
    partition: usize,
    started: Duration,
    not_before: Duration,
}

struct Answer {
    partition: usize,
    started: Duration,
    result: Result<Appended, AppendError>,
}

impl Appender<'_> {
    /// Runs until `stop`, then waits for what is in flight. Latency counts from the (intended) start to the
    /// acknowledgement, tries again included.
    pub(crate) fn run(&self, lane: &Lane, stop: &Stop) {
        let clock = Stopwatch::start();
        let mut calls = Calls::new();
        let mut again: VecDeque<Again> = VecDeque::new();
        let mut begun: u64 = 0;
        let mut partition = self.first;
        while !stop.is_set() {
            let now = clock.elapsed();
            while again.front().is_some_and(|again| again.not_before <= now) {
                let Some(Again { partition, started, .. }) = again.pop_front() else { break };
                calls.push(self.append(partition, started));
            }
            let mut wait = again.front().map_or(PATIENCE, |next| next.not_before - now);
            while calls.len() + again.len() < self.depth {
                let started =
                    self.pace.map_or_else(|| clock.elapsed(), |pace| pace.start_of(begun));
                if started > now && self.pace.is_some() {
                    wait = wait.min(started - now);
                    break;
                }
                calls.push(self.append(partition, started));
                partition = (partition + self.step) % self.partitions.len();
                begun += 1;
            }
            let mut answer = calls.wait(wait.min(PATIENCE));
            while let Some(done) = answer {
                self.note(&done, &clock, &mut again, lane);
                answer = calls.poll();
            }
        }
        self.drain(calls, &clock, lane);
    }

    async fn append(&self, partition: usize, started: Duration) -> Answer {
        let options = AppendOptions { durability: self.durability, ..AppendOptions::default() };
        let result = self.partitions[partition].append(self.batch.clone(), options).await;
        Answer { partition, started, result }
    }

    fn note(&self, done: &Answer, clock: &Stopwatch, again: &mut VecDeque<Again>, lane: &Lane) {
        let now = clock.elapsed();
        match &done.result {
            Ok(appended) => {
                let latency = now.saturating_sub(done.started);
                lane.note(latency, u64::from(appended.records), self.record_bytes);
            }
            Err(AppendError::Busy { retry_after }) => {
                lane.note_busy();
                again.push_back(Again {
                    partition: done.partition,
                    started: done.started,
                    not_before: now + *retry_after,
                });
            }
            Err(error) => lane.note_error(error),
        }
    }

    /// What was accepted is waited for and counted; what met a limit is given up.
    fn drain<F>(&self, mut calls: Calls<F>, clock: &Stopwatch, lane: &Lane)
    where
        F: Future<Output = Answer>,
    {
        let mut given_up = VecDeque::new();
        while calls.len() > 0 {
            if let Some(done) = calls.wait(PATIENCE) {
                self.note(&done, clock, &mut given_up, lane);
            }
        }
    }
}
