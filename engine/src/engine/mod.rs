//! The engine: opened on a data directory, it hands out partitions, the gate, and its shards' threads.
//!
//! The append path, file by file:
//!
//! 1. `engine/partition.rs` `Partition::append` makes the answer's channel and sends the request,
//! 2. `shard/mailbox.rs` queues it and wakes the shard (the one change of thread; calls made on the shard skip it),
//! 3. `shard/shard.rs` takes it in its turn,
//! 4. `partition/admission.rs` checks the gate and the limits, assigns the offset and copies the batch, once,
//!    into the group being gathered; at the end of the turn `partition/submission.rs` frames the group,
//! 5. `segment/` gives it its place and chain,
//! 6. `io/` hands it to the ring, durable.
//!
//! The completion comes back to `partition/submission.rs`: durable and committed move, the gate is asked again
//! with a fresh clock, acknowledgements go out.
//!
//! The read path: `engine/partition.rs` → mailbox → `shard/shard.rs` → `partition/reading.rs`, which takes
//! batches from `partition/tail_cache.rs` (groups still in memory) or, below that, from `segment/`.

mod append_future;
mod builder;
mod catalog;
mod config;
mod directory;
mod gate;
mod mapped;
mod metrics;
mod open;
mod open_error;
mod partition;
mod reader;
mod reservation;
mod serving;
mod shards;
mod shutdown;

use std::any::Any;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::oneshot;

pub use crate::shard::{CloseError, CreateError, PartitionOpened};
pub use append_future::Append;
pub use builder::EngineBuilder;
pub use config::{Coordinator, EngineConfig, IoChoice, SHARDS_MAX};
pub(crate) use directory::IDENTITY;
pub use gate::{Gate, GateStatus, Lease};
pub use mapped::MappedSegment;
pub use metrics::{EngineMetrics, PartitionStatus, ShardMetrics};
pub use open::OpenReport;
pub use open_error::OpenError;
pub use partition::Partition;
pub use reader::Reader;
pub use reservation::Reservation;
pub use shards::ShardIndex;
pub use shutdown::CloseReport;

use self::catalog::Catalog;
use self::directory::Lock;
use self::partition::MAILBOX_RETRY_AFTER;
use self::shards::ShardHandle;
use crate::format::Identity;
use crate::id::{PartitionId, PartitionName, StorageId, StreamId};
use crate::io::ShardMain;
use crate::io::clock::Clock;
use crate::partition::{ChangeError, GateState, PartitionSpec};
use crate::shard::{PartitionRecord, Request, Sent, ShardCounters, Task};

/// The partition logs of one data directory. `Clone` counts a reference; any thread may use it.
///
/// The engine closes in order when its last handle is dropped, partitions and gates included; only
/// [`close`](Engine::close) can report how that went.
#[derive(Clone, Debug)]
pub struct Engine {
    shared: Arc<EngineShared>,
}

/// What every handle shares.
pub(crate) struct EngineShared {
    pub(crate) config: EngineConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) gate: Arc<GateState>,
    identity: Identity,
    report: OpenReport,
    shards: Vec<ShardHandle>,
    counters: Vec<Arc<ShardCounters>>,
    catalog: RwLock<Catalog>,
    running: Mutex<Running>,
    random: Mutex<fastrand::Rng>,
}

/// What ends with the engine.
#[derive(Debug, Default)]
struct Running {
    is_closing: bool,
    threads: Vec<std::thread::JoinHandle<()>>,
    lock: Option<Lock>,
}

/// Why a task was not started.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// There is no such shard.
    #[error("there is no shard {shard}; the engine has {shards}")]
    NoSuchShard {
        /// Which.
        shard: ShardIndex,
        /// How many there are.
        shards: usize,
    },
    /// The mailbox is full.
    #[error("the shard is at a limit; try again in {retry_after:?}")]
    Busy {
        /// How long to wait before the next attempt.
        retry_after: std::time::Duration,
    },
}

impl Engine {
    /// Collects settings for an engine on `data_directory`.
    #[must_use]
    pub fn builder(data_directory: impl Into<PathBuf>) -> EngineBuilder {
        EngineBuilder::new(data_directory.into())
    }

    /// Creates a partition, durably, or returns the one that has this id.
    ///
    /// # Errors
    ///
    /// [`CreateError`]: no such partition is open.
    pub async fn create_partition(&self, spec: PartitionSpec) -> Result<Partition, CreateError> {
        if let Some(partition) = self.partition(&spec.id) {
            return Ok(partition);
        }
        self.shared.catalog_mut(|catalog| catalog.reserve(&spec.name, spec.id))?;
        let id = spec.id;
        let created = self.shared.create(spec).await;
        match created {
            Ok(record) => {
                self.shared.catalog_mut(|catalog| catalog.insert(record.clone()));
                Ok(self.handle(record))
            }
            Err(error) => {
                self.shared.catalog_mut(|catalog| catalog.remove(&id));
                Err(error)
            }
        }
    }

    /// Returns the partition of that name; a standalone engine creates it if there is none.
    ///
    /// # Errors
    ///
    /// [`CreateError`]; under a coordinator [`CreateError::Unknown`] when there is none.
    pub async fn open_partition(&self, name: &PartitionName) -> Result<Partition, CreateError> {
        if let Some(partition) = self.find(name) {
            return Ok(partition);
        }
        if self.shared.config.coordinator.is_some() {
            return Err(CreateError::Unknown { name: name.clone() });
        }
        let new = StreamId(self.shared.random_u128());
        let stream = self.shared.catalog_mut(|catalog| catalog.stream(&name.stream, new));
        let id = PartitionId { stream, index: name.index };
        let settings = self.shared.config.settings;
        self.create_partition(PartitionSpec { id, name: name.clone(), settings }).await
    }

    /// Returns an open partition by id.
    #[must_use]
    pub fn partition(&self, id: &PartitionId) -> Option<Partition> {
        let record = self.shared.catalog(|catalog| catalog.get(id).cloned())?;
        Some(self.handle(record))
    }

    /// Returns an open partition by name.
    #[must_use]
    pub fn find(&self, name: &PartitionName) -> Option<Partition> {
        let record = self.shared.catalog(|catalog| catalog.find(name).cloned())?;
        Some(self.handle(record))
    }

    /// Lists the open partitions, in the order of their ids.
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionStatus> {
        let shards = self.shared.shards.len();
        self.shared.catalog(|catalog| {
            let status = |record: &Arc<PartitionRecord>| PartitionStatus::of(record, shards);
            catalog.records().map(status).collect()
        })
    }

    /// Deletes a partition and its files. Only ever on an explicit order: nothing else deletes data.
    ///
    /// # Errors
    ///
    /// [`ChangeError`]: the partition may be closed but its files are still there.
    pub async fn delete_partition(&self, id: PartitionId) -> Result<(), ChangeError> {
        let Some((_, shard)) = self.shared.locate(&id) else { return Ok(()) };
        let (reply, answer) = oneshot::channel();
        match shard.send(Request::Delete { id, reply }) {
            Sent::Taken => answer.await.unwrap_or(Err(ChangeError::Closed))?,
            Sent::Full => return Err(ChangeError::Busy { retry_after: MAILBOX_RETRY_AFTER }),
        }
        self.shared.catalog_mut(|catalog| catalog.remove(&id));
        Ok(())
    }

    /// The gate, for a coordinator.
    #[must_use]
    pub fn gate(&self) -> Gate {
        Gate { engine: self.shared.clone() }
    }

    /// The clocks every shard reads.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.shared.clock.clone()
    }

    /// The id of this data directory: a replica is a member of a set under it, and never under another.
    #[must_use]
    pub fn storage(&self) -> StorageId {
        self.shared.identity.storage
    }

    /// The settings the engine was opened with.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.shared.config
    }

    /// What was found and done at open.
    #[must_use]
    pub fn report(&self) -> &OpenReport {
        &self.shared.report
    }

    /// Counters of every shard.
    #[must_use]
    pub fn metrics(&self) -> EngineMetrics {
        EngineMetrics::of(&self.shared.counters)
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shared.shards.len()
    }

    /// Runs a task on a shard's thread. Calls it makes to partitions of that shard need no hop.
    ///
    /// The task must park to let others run: on a shard nothing is preempted. It is dropped when the engine closes.
    ///
    /// # Errors
    ///
    /// [`SpawnError`]: the task was not started.
    pub fn spawn_on<F, T>(&self, shard: ShardIndex, task: F) -> Result<(), SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Future<Output = ()> + 'static,
    {
        self.spawn(shard, Box::new(move |_environment: &dyn Any| Box::pin(task())))
    }

    /// Runs `main` on a shard's thread with the shard's own disk, transport and runtime: how a server is put
    /// where its partitions live, whichever kind of I/O the engine has. As with [`spawn_on`](Self::spawn_on),
    /// it is dropped when the engine closes.
    ///
    /// # Errors
    ///
    /// [`SpawnError`]: it was not started.
    pub fn spawn_main<M>(&self, shard: ShardIndex, main: M) -> Result<(), SpawnError>
    where
        M: ShardMain + Send + 'static,
    {
        self.spawn(shard, Box::new(move |environment: &dyn Any| serving::run(main, environment)))
    }

    fn spawn(&self, shard: ShardIndex, task: Task) -> Result<(), SpawnError> {
        let shards = self.shared.shards.len();
        let handle =
            self.shared.shards.get(shard.0).ok_or(SpawnError::NoSuchShard { shard, shards })?;
        match handle.send(Request::Spawn(task)) {
            Sent::Taken => Ok(()),
            Sent::Full => Err(SpawnError::Busy { retry_after: MAILBOX_RETRY_AFTER }),
        }
    }

    fn handle(&self, record: Arc<PartitionRecord>) -> Partition {
        let shard = self.shared.shard_of(&record.id).clone();
        Partition { record, shard, engine: self.shared.clone() }
    }
}

impl EngineShared {
    /// Finds an open partition and its shard.
    pub(crate) fn locate(&self, id: &PartitionId) -> Option<(Arc<PartitionRecord>, ShardHandle)> {
        let record = self.catalog(|catalog| catalog.get(id).cloned())?;
        Some((record, self.shard_of(id).clone()))
    }

    async fn create(&self, spec: PartitionSpec) -> Result<Arc<PartitionRecord>, CreateError> {
        let shard = self.shard_of(&spec.id);
        let (reply, answer) = oneshot::channel();
        match shard.send(Request::Create { spec: Box::new(spec), reply }) {
            Sent::Taken => answer.await.unwrap_or(Err(CreateError::Closed)),
            Sent::Full => Err(CreateError::Busy { retry_after: MAILBOX_RETRY_AFTER }),
        }
    }

    fn shard_of(&self, id: &PartitionId) -> &ShardHandle {
        &self.shards[crate::shard::shard_of(id, self.shards.len())]
    }

    fn catalog<T>(&self, look: impl FnOnce(&Catalog) -> T) -> T {
        look(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn catalog_mut<T>(&self, change: impl FnOnce(&mut Catalog) -> T) -> T {
        change(&mut self.catalog.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn random_u128(&self) -> u128 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).u128(..)
    }
}

impl std::fmt::Debug for EngineShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("data_directory", &self.config.data_directory)
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}
