//! Opens an engine: locks and claims the directory, starts the shards, and waits until all have recovered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::oneshot;

use super::catalog::Catalog;
use super::config::{EngineConfig, IoChoice, SHARDS_MAX};
use super::directory::{Lock, claim};
use super::open_error::OpenError;
use super::shards::{ShardHandle, ShardIndex};
use super::{Engine, EngineShared, Running};
use crate::format::Identity;
use crate::id::StorageId;
use crate::io::blocking::BlockingRuntime;
use crate::io::clock::Clock;
use crate::io::disk::Disk;
use crate::io::probe::{Finding, probe, raise_open_files};
use crate::io::ring::RingRuntime;
use crate::io::transport::Transport;
use crate::io::{Environment, ShardMain, SystemClock, ThreadOptions};
use crate::partition::{Answers, GateState, SetAside};
use crate::shard::{
    EndOnDrop, Mailbox, PartitionOpened, Request, Shard, ShardCounters, ShardKey, ShardOpened,
    ShardSetup,
};

/// What was found and done at open.
#[derive(Clone, Debug, Default)]
pub struct OpenReport {
    /// Whether the ring is used; `false` for blocking calls.
    pub is_ring: bool,
    /// The partitions that are open.
    pub partitions: Vec<PartitionOpened>,
    /// What was found and not understood; nothing of it was deleted.
    pub set_aside: Vec<SetAside>,
}

/// Tells the shards of all engines of the process apart.
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

type Claimed = Result<Identity, OpenError>;
type Opened = Result<ShardOpened, OpenError>;

impl Engine {
    /// Opens the engine on its data directory: makes the directory if needed, locks it, recovers every
    /// partition, and starts one pinned thread a shard. Blocks until all that is done, also inside an
    /// asynchronous runtime.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing or in the way; nothing was changed.
    ///
    /// # Panics
    ///
    /// If the system has no thread to wait on.
    pub fn open(config: EngineConfig) -> Result<Engine, OpenError> {
        // A thread of our own may wait where the caller's runtime forbids it.
        let opened = std::thread::scope(|scope| scope.spawn(|| Engine::open_here(config)).join());
        opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn open_here(config: EngineConfig) -> Result<Engine, OpenError> {
        let config = bounded(config);
        let lock = Lock::take(&config.data_directory)?;
        raise_open_files();
        let is_ring = choose(&config)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let plan = Plan::new(config, clock);
        let mut threads = Vec::new();
        let opened = plan.start_threads(is_ring, &mut threads);
        match opened {
            Ok((identity, opened)) => {
                let running = Running { is_closing: false, threads, lock: Some(lock) };
                Ok(plan.finish(identity, opened, is_ring, running))
            }
            Err(error) => {
                plan.abandon(threads);
                Err(error)
            }
        }
    }

    /// Opens the engine on environments that exist already, one shard on each, all on this thread.
    ///
    /// This is how a simulation runs a whole engine in virtual time. The directory is not locked.
    ///
    /// # Errors
    ///
    /// As [`Engine::open`].
    ///
    /// # Panics
    ///
    /// Without any environment.
    pub async fn open_on<D: Disk, T: Transport>(
        environments: Vec<Environment<D, T>>,
        mut config: EngineConfig,
    ) -> Result<Engine, OpenError> {
        let first = environments.first().expect("an engine has at least one shard");
        config.shards = environments.len();
        let clock = first.clock.clone();
        let plan = Plan::new(bounded(config), clock);
        let storage = plan.new_storage();
        let identity = claim(&first.disk, &plan.config, storage).await?;
        let mut opened = Vec::new();
        for (index, environment) in environments.into_iter().enumerate() {
            let (started, answer) = oneshot::channel();
            let main = ShardThread {
                setup: plan.setup(index),
                identity: Identification::Known(identity),
                started: Arc::new(Mutex::new(Some(started))),
            };
            let runtime = environment.runtime.clone();
            runtime.spawn(Box::pin(main.run(environment)));
            match answer.await.unwrap_or(Err(OpenError::ShardEnded { shard: index })) {
                Ok(shard) => opened.push(shard),
                Err(error) => {
                    plan.abandon(Vec::new());
                    return Err(error);
                }
            }
        }
        Ok(plan.finish(identity, opened, false, Running::default()))
    }
}

fn bounded(mut config: EngineConfig) -> EngineConfig {
    config.shards = config.shards.clamp(1, SHARDS_MAX);
    config.settings = config.settings.bounded();
    config
}

/// Decides between the ring and blocking calls, and says loudly what will make either slow.
fn choose(config: &EngineConfig) -> Result<bool, OpenError> {
    if config.io == IoChoice::Blocking {
        return Ok(false);
    }
    let arenas_bytes = (config.arena_bytes * config.shards) as u64;
    let findings = probe(&config.data_directory, arenas_bytes);
    let (missing, slow): (Vec<_>, Vec<_>) = findings.into_iter().partition(Finding::forbids_ring);
    for finding in slow {
        tracing::warn!(%finding, "the engine opens, but this makes it slower");
    }
    if missing.is_empty() {
        return Ok(true);
    }
    let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
    if config.io == IoChoice::Auto {
        tracing::warn!(?missing, "no io_uring here: using blocking I/O, which is slower");
        return Ok(false);
    }
    Err(OpenError::ProbeFailed { missing })
}

/// Everything that exists before the shards do.
struct Plan {
    config: EngineConfig,
    clock: Arc<dyn Clock>,
    gate: Arc<GateState>,
    shards: Vec<ShardHandle>,
    counters: Vec<Arc<ShardCounters>>,
    seed: u64,
}

impl Plan {
    fn new(config: EngineConfig, clock: Arc<dyn Clock>) -> Plan {
        let shards: Vec<_> = (0..config.shards)
            .map(|index| ShardHandle {
                index: ShardIndex(index),
                key: ShardKey(NEXT_KEY.fetch_add(1, Ordering::Relaxed)),
                mailbox: Arc::new(Mailbox::new(config.limits.mailbox_slots)),
                appends: Answers::new(),
                reservations: Answers::new(),
            })
            .collect();
        let counters = shards.iter().map(|_| Arc::default()).collect();
        let seed = config.seed.unwrap_or_else(system_seed);
        Plan { config, clock, gate: Arc::default(), shards, counters, seed }
    }

    fn new_storage(&self) -> StorageId {
        let drawn = StorageId(fastrand::Rng::with_seed(self.seed ^ 0x5354_4f52).u128(..));
        self.config.storage.unwrap_or(drawn)
    }

    fn setup(&self, index: usize) -> ShardSetup {
        ShardSetup {
            index,
            shards: self.config.shards,
            key: self.shards[index].key,
            mailbox: self.shards[index].mailbox.clone(),
            counters: self.counters[index].clone(),
            gate: self.gate.clone(),
            limits: self.config.limits,
            directory: self.config.data_directory.clone(),
            seed: self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(index as u64 + 1)),
        }
    }

    /// Starts the threads one after the other until the first knows whose directory it is, then all.
    fn start_threads(
        &self,
        is_ring: bool,
        threads: &mut Vec<std::thread::JoinHandle<()>>,
    ) -> Result<(Identity, Vec<ShardOpened>), OpenError> {
        let (claimed, claim_answer) = oneshot::channel();
        let identification = Identification::Claim {
            config: Box::new(self.config.clone()),
            storage: self.new_storage(),
            claimed,
        };
        let mut answers = vec![self.start_thread(0, identification, is_ring, threads)?];
        let identity = match claim_answer.blocking_recv() {
            Ok(claimed) => claimed?,
            // The thread could not even start; its own answer says why.
            Err(_gone) => {
                let answer = answers.remove(0).blocking_recv();
                return Err(match answer {
                    Ok(Err(error)) => error,
                    _ => OpenError::ShardEnded { shard: 0 },
                });
            }
        };
        for index in 1..self.config.shards {
            let known = Identification::Known(identity);
            answers.push(self.start_thread(index, known, is_ring, threads)?);
        }
        let mut opened = Vec::new();
        for (shard, answer) in answers.into_iter().enumerate() {
            opened.push(answer.blocking_recv().unwrap_or(Err(OpenError::ShardEnded { shard }))?);
        }
        Ok((identity, opened))
    }

    fn start_thread(
        &self,
        index: usize,
        identity: Identification,
        is_ring: bool,
        threads: &mut Vec<std::thread::JoinHandle<()>>,
    ) -> Result<oneshot::Receiver<Opened>, OpenError> {
        let (started, answer) = oneshot::channel();
        let started = Arc::new(Mutex::new(Some(started)));
        let main = ShardThread { setup: self.setup(index), identity, started: started.clone() };
        let options =
            ThreadOptions { arena_bytes: self.config.arena_bytes, clock: self.clock.clone() };
        let mailbox = self.shards[index].mailbox.clone();
        let thread = std::thread::Builder::new()
            .name(format!("palisade-{index}"))
            .spawn(move || {
                let _end = EndOnDrop(mailbox);
                pin_to_core(index);
                let ended = match is_ring {
                    true => RingRuntime::run(options, main),
                    false => BlockingRuntime::run(options, main),
                };
                if let (Err(error), Some(started)) = (ended, take(&started)) {
                    drop(started.send(Err(OpenError::start(index, error))));
                }
            })
            .map_err(|source| OpenError::Thread { shard: index, source: Arc::new(source) })?;
        threads.push(thread);
        Ok(answer)
    }

    fn finish(
        self,
        identity: Identity,
        opened: Vec<ShardOpened>,
        is_ring: bool,
        running: Running,
    ) -> Engine {
        let mut report = OpenReport { is_ring, ..OpenReport::default() };
        let mut catalog = Catalog::default();
        let journals = opened.first().map(|shard| shard.stale_journals.clone()).unwrap_or_default();
        let is_damaged = opened.iter().any(|shard| shard.has_damaged_journal);
        for shard in opened {
            for record in shard.records {
                catalog.insert(record);
            }
            report.partitions.extend(shard.partitions);
            report.set_aside.extend(shard.set_aside);
        }
        report.partitions.sort_by_key(|partition| partition.id);
        // What was set aside may open the next time, and then needs what they hold: they stay where they are.
        if !journals.is_empty() && report.set_aside.is_empty() {
            let retire = Request::RetireJournals { journals, keep: is_damaged };
            // A shard that has ended already leaves them to the next open.
            let _ = self.shards[0].mailbox.send(retire);
        }
        let shared = EngineShared {
            random: Mutex::new(fastrand::Rng::with_seed(self.seed ^ 0x4e41_4d45)),
            config: self.config,
            clock: self.clock,
            gate: self.gate,
            identity,
            report,
            shards: self.shards,
            counters: self.counters,
            catalog: RwLock::new(catalog),
            running: Mutex::new(running),
        };
        Engine { shared: Arc::new(shared) }
    }

    /// Closes the shards that have started and waits for their threads.
    fn abandon(&self, threads: Vec<std::thread::JoinHandle<()>>) {
        for shard in &self.shards {
            shard.mailbox.ask_to_close(None);
        }
        for thread in threads {
            // A panic has been reported by the thread itself.
            drop(thread.join());
        }
    }
}

fn system_seed() -> u64 {
    fastrand::u64(..)
}

/// Spreads the shards over the cores; where that is not allowed the scheduler places them.
fn pin_to_core(index: usize) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if let Some(core) = cores.get(index % cores.len().max(1)) {
        core_affinity::set_for_current(*core);
    }
}

/// Where a shard says that it has opened. Taken by the shard when it runs, or by its thread if it never did.
type Started = Arc<Mutex<Option<oneshot::Sender<Opened>>>>;

fn take(started: &Started) -> Option<oneshot::Sender<Opened>> {
    started.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// How a shard learns whose directory it works in.
enum Identification {
    /// It has been claimed already.
    Known(Identity),
    /// This shard claims it and tells the opener.
    Claim { config: Box<EngineConfig>, storage: StorageId, claimed: oneshot::Sender<Claimed> },
}

/// What one shard's thread runs.
struct ShardThread {
    setup: ShardSetup,
    identity: Identification,
    started: Started,
}

impl ShardMain for ShardThread {
    async fn run<D: Disk, T: Transport>(self, environment: Environment<D, T>) {
        let started = take(&self.started).expect("a shard runs once");
        let identity = match self.identity {
            Identification::Known(identity) => identity,
            Identification::Claim { config, storage, claimed } => {
                let answer = claim(&environment.disk, &config, storage).await;
                let identity = answer.as_ref().ok().copied();
                // The opener waits for nothing else before this.
                drop(claimed.send(answer));
                let Some(identity) = identity else { return };
                identity
            }
        };
        match Shard::open(environment, self.setup, identity).await {
            Ok((shard, opened)) => {
                if started.send(Ok(opened)).is_ok() {
                    shard.run().await;
                }
            }
            Err(error) => drop(started.send(Err(error.into()))),
        }
    }
}
