//! The loop of a shard: takes requests, lets partitions submit once a turn, and parks. It never spins.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};

use super::counters::ShardCounters;
use super::local::{LocalShard, Registration, ShardKey};
use super::mailbox::Mailbox;
use super::record::PartitionRecord;
use super::report::{CreateError, PartitionOpened, ShardReport};
use super::request::{Change, Reply, Request, Slot};
use crate::format::Identity;
use crate::id::{JournalId, PartitionId};
use crate::io::Environment;
use crate::io::disk::Disk;
use crate::io::transport::Transport;
use crate::journal::list_journals;
use crate::partition::{
    AppendError, ChangeError, FoundPartition, GateState, GrantError, LogContext, OpenLogError,
    PartitionLog, PartitionSpec, ReadError, SetAside, ShardLimits, find_partitions,
};

/// Partitions recovered, or closed, at the same time.
const PARTITIONS_AT_ONCE: usize = 16;

/// How often the watchdog sends a no-op through the ring.
const WATCHDOG_EVERY: Duration = Duration::from_millis(100);

/// Watchdog rounds between two looks at retention: 10 s.
const RETENTION_EVERY: u32 = 100;

/// The shard a partition belongs to. Partitions of one stream spread evenly.
pub(crate) fn shard_of(id: &PartitionId, shards: usize) -> usize {
    let stream = id.stream.0 % shards as u128;
    let place = (stream + u128::from(id.index.0)) % shards as u128;
    usize::try_from(place).expect("below the number of shards")
}

/// What a shard is made from.
#[derive(Debug)]
pub(crate) struct ShardSetup {
    pub(crate) index: usize,
    pub(crate) shards: usize,
    pub(crate) key: ShardKey,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) counters: Arc<ShardCounters>,
    pub(crate) gate: Arc<GateState>,
    pub(crate) limits: ShardLimits,
    pub(crate) directory: PathBuf,
    pub(crate) seed: u64,
}

/// What a shard found when it opened.
#[derive(Debug, Default)]
pub(crate) struct ShardOpened {
    pub(crate) records: Vec<Arc<PartitionRecord>>,
    pub(crate) partitions: Vec<PartitionOpened>,
    pub(crate) set_aside: Vec<SetAside>,
    /// The journals of earlier runs: not needed once all shards have opened.
    pub(crate) stale_journals: Vec<JournalId>,
    /// Whether one of them is damaged.
    pub(crate) has_damaged_journal: bool,
}

/// One shard: its partitions and what they share.
pub(crate) struct Shard<D: Disk> {
    setup: ShardSetup,
    context: Rc<LogContext<D>>,
    environment: Box<dyn Any>,
    partitions: RefCell<Vec<Rc<PartitionLog<D>>>>,
    slots: RefCell<BTreeMap<PartitionId, Slot>>,
    /// Found at open and not opened; nothing may be created in their place.
    refused: RefCell<Vec<PartitionId>>,
    /// One creation or deletion at a time.
    creating: tokio::sync::Mutex<()>,
    is_closing: Cell<bool>,
}

impl<D: Disk> Shard<D> {
    /// Recovers the partitions of this shard.
    pub(crate) async fn open<T: Transport>(
        environment: Environment<D, T>,
        setup: ShardSetup,
        identity: Identity,
    ) -> Result<(Rc<Shard<D>>, ShardOpened), OpenLogError> {
        let context = LogContext::new(
            &environment,
            setup.directory.clone(),
            identity,
            setup.gate.clone(),
            setup.limits,
            setup.counters.log.clone(),
            setup.mailbox.waker(),
            setup.seed,
        );
        let stale_journals = list_journals(&context.disk, &context.directory).await?;
        let mut found = find_partitions(&context).await?;
        found.retain(|partition| shard_of(&partition.id, setup.shards) == setup.index);
        let shard = Rc::new(Shard {
            setup,
            context,
            environment: Box::new(environment),
            partitions: RefCell::default(),
            slots: RefCell::default(),
            refused: RefCell::default(),
            creating: tokio::sync::Mutex::new(()),
            is_closing: Cell::new(false),
        });
        let mut opened = shard.open_all(found).await?;
        opened.stale_journals = stale_journals;
        if let Some(replay) = shard.context.forget_replay().await {
            opened.has_damaged_journal = replay.is_damaged();
        }
        Ok((shard, opened))
    }

    async fn open_all(&self, found: Vec<FoundPartition>) -> Result<ShardOpened, OpenLogError> {
        let mut opened = ShardOpened::default();
        let context = &self.context;
        let mut logs: Vec<_> = stream::iter(found)
            .map(
                |found| async move { (found.id, PartitionLog::open(context.clone(), found).await) },
            )
            .buffer_unordered(PARTITIONS_AT_ONCE)
            .collect()
            .await;
        logs.sort_by_key(|(id, _)| *id);
        for (id, log) in logs {
            match log {
                Ok((log, recovery, set_aside)) => {
                    opened.partitions.push(PartitionOpened {
                        id,
                        name: log.name().clone(),
                        log_end: log.status().watermarks.load().log_end,
                        recovery,
                    });
                    opened.set_aside.extend(set_aside);
                    opened.records.push(self.add(log));
                }
                Err(OpenLogError::SetAside(set_aside)) => {
                    tracing::error!(partition = %id, path = %set_aside.path.display(),
                        reason = ?set_aside.reason, "partition set aside");
                    opened.set_aside.push(set_aside);
                    self.refused.borrow_mut().push(id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(opened)
    }

    /// Serves until asked to close, then closes.
    pub(crate) async fn run(self: Rc<Self>) {
        let registration = Registration::new(self.setup.key, self.clone());
        let runtime = self.context.runtime.clone();
        let watched = Rc::downgrade(&self);
        runtime.spawn(Box::pin(async move {
            let mut round = 0;
            while let Some(shard) = watched.upgrade() {
                if shard.is_closing.get() {
                    return;
                }
                shard.watch(round).await;
                round += 1;
                let runtime = shard.context.runtime.clone();
                drop(shard);
                runtime.sleep(WATCHDOG_EVERY).await;
            }
        }));
        loop {
            self.turn();
            if self.setup.mailbox.is_close_asked() {
                break;
            }
            if self.setup.mailbox.is_empty() && !self.context.is_expecting() {
                self.park().await;
            } else {
                // More came than fits one turn, or more is about to. Nothing is submitted while a task can run, so go through the ring.
                runtime.turn().await;
            }
        }
        self.close().await;
        drop(registration);
    }

    /// Takes what has come in, at most a mailbox full, and lets every partition it touched submit.
    fn turn(self: &Rc<Self>) {
        self.setup.counters.turns.add(1);
        self.context.end_expecting();
        for _ in 0..self.setup.limits.mailbox_slots {
            match self.setup.mailbox.receive() {
                Some(request) => self.clone().dispatch(request),
                None => break,
            }
        }
        while let Some(log) = self.context.take_dirty() {
            log.submit();
        }
        self.context.pump_journal();
    }

    /// Waits until there is something to do.
    async fn park(&self) {
        std::future::poll_fn(|task| {
            self.setup.mailbox.register(task.waker());
            let is_idle = self.setup.mailbox.is_empty()
                && !self.context.has_dirty()
                && !self.setup.mailbox.is_close_asked();
            if is_idle { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// One round of the watchdog: how long a no-op takes through the ring, and, seldom, retention.
    async fn watch(&self, round: u32) {
        let clock = &self.context.clock;
        let before = clock.now();
        self.context.runtime.turn().await;
        self.setup.counters.note_turn(clock.now().elapsed_for_holder(before));
        self.context.note_oldest_write(self.partitions.borrow().iter());
        self.context.note_preallocated(self.partitions.borrow().iter());
        if round % RETENTION_EVERY == RETENTION_EVERY - 1 {
            for log in self.partitions.borrow().iter() {
                log.apply_retention_in_background();
            }
        }
    }

    /// Refuses what comes, drains every partition and marks it clean.
    async fn close(&self) {
        self.is_closing.set(true);
        self.setup.mailbox.end();
        let logs = self.partitions.borrow().clone();
        let mut report = ShardReport::default();
        let closed: Vec<_> = stream::iter(logs)
            .map(|log| async move { (log.id(), log.close().await) })
            .buffer_unordered(PARTITIONS_AT_ONCE)
            .collect()
            .await;
        for (id, closed) in closed {
            match closed {
                Ok(_) | Err(ChangeError::Closed) => report.clean += 1,
                Err(_) => report.unclean.push(id),
            }
        }
        if report.unclean.is_empty() {
            self.context.remove_journal().await;
        }
        report.unclean.sort();
        for reply in self.setup.mailbox.take_closers() {
            drop(reply.send(Ok(report.clone())));
        }
    }

    fn add(&self, log: Rc<PartitionLog<D>>) -> Arc<PartitionRecord> {
        let mut partitions = self.partitions.borrow_mut();
        let slot = Slot(partitions.len());
        let record = PartitionRecord {
            id: log.id(),
            name: log.name().clone(),
            slot,
            status: log.status().clone(),
        };
        self.slots.borrow_mut().insert(log.id(), slot);
        partitions.push(log);
        Arc::new(record)
    }

    fn log(&self, slot: Slot) -> Option<Rc<PartitionLog<D>>> {
        self.partitions.borrow().get(slot.0).cloned()
    }

    async fn create(&self, spec: PartitionSpec) -> Result<Arc<PartitionRecord>, CreateError> {
        let _turn = self.creating.lock().await;
        let known = self.slots.borrow().get(&spec.id).copied();
        if let Some(slot) = known {
            let log = self.log(slot).expect("slots are never given up");
            let status = log.status().clone();
            return Ok(Arc::new(PartitionRecord {
                id: spec.id,
                name: log.name().clone(),
                slot,
                status,
            }));
        }
        if self.refused.borrow().contains(&spec.id) {
            return Err(CreateError::SetAside { id: spec.id });
        }
        if self.is_closing.get() {
            return Err(CreateError::Closed);
        }
        let log = PartitionLog::create(self.context.clone(), spec)
            .await
            .map_err(|error| CreateError::Disk(Arc::new(error)))?;
        Ok(self.add(log))
    }

    async fn delete(&self, id: PartitionId) -> Result<(), ChangeError> {
        let _turn = self.creating.lock().await;
        let slot = self.slots.borrow().get(&id).copied();
        let Some(log) = slot.and_then(|slot| self.log(slot)) else { return Ok(()) };
        log.delete().await?;
        self.slots.borrow_mut().remove(&id);
        Ok(())
    }
}

impl<D: Disk> LocalShard for Shard<D> {
    fn dispatch(self: Rc<Self>, request: Request) {
        if self.is_closing.get() {
            request.refuse_closed();
            return;
        }
        match request {
            Request::Append { slot, batch, options, reply } => match self.log(slot) {
                Some(log) => log.append(batch, options, reply),
                None => reply.send(Err(AppendError::Closed)),
            },
            Request::Reserve { slot, payload_bytes, reply } => match self.log(slot) {
                Some(log) => log.reserve(payload_bytes, reply),
                None => reply.send(Err(AppendError::Closed)),
            },
            Request::Read { slot, read, payloads, reply } => match self.log(slot) {
                Some(log) => log.read(read, payloads, reply),
                None => drop(reply.send(Err(ReadError::Closed))),
            },
            Request::Map { slot, offset, reply } => {
                self.start(reply, ReadError::Closed, slot, move |log| async move {
                    log.map_source(offset).await
                });
            }
            Request::OffsetAt { slot, time, reply } => {
                self.start(reply, ReadError::Closed, slot, move |log| async move {
                    log.offset_at(time).await
                });
            }
            Request::Change { slot, change, reply } => {
                self.start(reply, ChangeError::Closed, slot, move |log| async move {
                    match change {
                        Change::Trim(to) => log.trim(to).await,
                        Change::Truncate(to) => log.truncate(to).await,
                        Change::Roll => log.roll().await,
                        Change::ApplyRetention => log.apply_retention().await,
                        Change::Close => log.close().await,
                    }
                });
            }
            Request::Grant { slot, grant, reply } => {
                self.start(reply, GrantError::Closed, slot, move |log| async move {
                    log.grant(*grant).await
                });
            }
            Request::Revoke { slot, epoch, reply } => {
                self.start(reply, GrantError::Closed, slot, move |log| async move {
                    log.revoke(epoch).await
                });
            }
            Request::Create { spec, reply } => {
                let runtime = self.context.runtime.clone();
                runtime.spawn(Box::pin(async move {
                    drop(reply.send(self.create(*spec).await));
                }));
            }
            Request::Delete { id, reply } => {
                let runtime = self.context.runtime.clone();
                runtime.spawn(Box::pin(async move { drop(reply.send(self.delete(id).await)) }));
            }
            Request::RetireJournals { journals, keep } => {
                let runtime = self.context.runtime.clone();
                runtime.spawn(Box::pin(async move {
                    self.context.retire_journals(&journals, keep).await;
                }));
            }
            Request::Spawn(task) => {
                let task = task(self.environment.as_ref());
                self.context.runtime.spawn(task);
            }
        }
    }
}

impl<D: Disk> Shard<D> {
    /// Runs what takes longer than a turn on its own task, and answers when it is done.
    fn start<A, E, F, T>(&self, reply: Reply<A, E>, closed: E, slot: Slot, task: F)
    where
        A: 'static,
        E: 'static,
        F: FnOnce(Rc<PartitionLog<D>>) -> T,
        T: Future<Output = Result<A, E>> + 'static,
    {
        let Some(log) = self.log(slot) else {
            drop(reply.send(Err(closed)));
            return;
        };
        let task = task(log);
        self.context.runtime.spawn(Box::pin(async move { drop(reply.send(task.await)) }));
    }
}

impl<D: Disk> std::fmt::Debug for Shard<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").field("setup", &self.setup).finish_non_exhaustive()
    }
}
