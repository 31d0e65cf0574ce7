//! The metadata state machine as openraft drives it: applies entries to the view, writes and takes snapshots.

use std::io::Cursor;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::storage::RaftStateMachine;
use openraft::{
    EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, Snapshot, StorageError, StorageIOError,
    StoredMembership,
};
use tokio::sync::watch;

use super::snapshot::{self, Meta, SnapshotError};
use super::types::{Applied, RaftId, TypeConfig, VoterNode};
use crate::state::View;

/// A handle of the state machine; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct StateMachine {
    directory: Arc<PathBuf>,
    machine: Arc<Mutex<Machine>>,
    applied: Arc<watch::Sender<u64>>,
}

#[derive(Debug)]
struct Machine {
    /// Readers hold clones; `apply` copies only while one is held.
    view: Arc<View>,
    last_applied: Option<LogId<RaftId>>,
    membership: StoredMembership<RaftId, VoterNode>,
    snapshot: Option<(Meta, PathBuf)>,
}

impl StateMachine {
    /// Starts from the newest snapshot of the directory; openraft applies the log behind it again.
    pub(crate) fn open(directory: PathBuf) -> Result<StateMachine, SnapshotError> {
        let machine = match snapshot::load(&directory)? {
            None => Machine {
                view: Arc::default(),
                last_applied: None,
                membership: StoredMembership::default(),
                snapshot: None,
            },
            Some((meta, view, path)) => Machine {
                view: Arc::new(view),
                last_applied: meta.last_log_id,
                membership: meta.last_membership.clone(),
                snapshot: Some((meta, path)),
            },
        };
        let (applied, _) = watch::channel(machine.view.index);
        Ok(StateMachine {
            directory: Arc::new(directory),
            machine: Arc::new(Mutex::new(machine)),
            applied: Arc::new(applied),
        })
    }

    /// The view as of now.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.lock().view)
    }

    /// The applied index, as it rises.
    pub(crate) fn applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        // A panic in `apply` is our mistake and ends openraft's worker; readers may still look.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine {
    fn apply(&mut self, entry: openraft::Entry<TypeConfig>) -> Applied {
        let index = entry.log_id.index;
        let view = Arc::make_mut(&mut self.view);
        let outcomes = match entry.payload {
            EntryPayload::Blank => view.apply(index, &[]),
            EntryPayload::Normal(change) => view.apply(index, &change.proposals),
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
                view.apply(index, &[])
            }
        };
        self.last_applied = Some(entry.log_id);
        Applied { outcomes }
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<RaftId>>, StoredMembership<RaftId, VoterNode>), StorageError<RaftId>>
    {
        let machine = self.lock();
        Ok((machine.last_applied, machine.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Applied>, StorageError<RaftId>>
    where
        I: IntoIterator<Item = openraft::Entry<TypeConfig>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut machine = self.lock();
        let applied = entries.into_iter().map(|entry| machine.apply(entry)).collect();
        let index = machine.view.index;
        drop(machine);
        self.applied.send_replace(index);
        Ok(applied)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        let machine = self.lock();
        let (index, term) = machine.last_applied.map_or((0, 0), |id| (id.index, id.leader_id.term));
        SnapshotBuilder {
            machine: self.clone(),
            view: Arc::clone(&machine.view),
            meta: Meta {
                last_log_id: machine.last_applied,
                last_membership: machine.membership.clone(),
                snapshot_id: format!("{term}-{index}"),
            },
        }
    }

    async fn begin_receiving_snapshot(
        &mut self,
    ) -> Result<Box<Cursor<Vec<u8>>>, StorageError<RaftId>> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &Meta,
        received: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError<RaftId>> {
        let directory = Arc::clone(&self.directory);
        let announced = meta.clone();
        let installed = blocking(move || {
            let bytes = received.into_inner();
            let (found, view) = snapshot::decode(&bytes)?;
            if found.last_log_id != announced.last_log_id {
                return Err(SnapshotError::OtherSnapshot);
            }
            let path = snapshot::store(&directory, &found, &bytes)?;
            Ok((view, path))
        });
        let refused = |error| StorageIOError::write_snapshot(Some(meta.signature()), &error);
        let (view, path) = installed.await.map_err(refused)?;
        let index = view.index;
        {
            let mut machine = self.lock();
            machine.view = Arc::new(view);
            machine.last_applied = meta.last_log_id;
            machine.membership = meta.last_membership.clone();
            machine.snapshot = Some((meta.clone(), path));
        }
        self.applied.send_replace(index);
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<Snapshot<TypeConfig>>, StorageError<RaftId>> {
        let Some((meta, path)) = self.lock().snapshot.clone() else { return Ok(None) };
        let read = blocking(move || {
            let bytes = std::fs::read(&path)
                .map_err(|source| SnapshotError::Io { path: path.clone(), source })?;
            snapshot::decode(&bytes)
                .map_err(|error| SnapshotError::Damaged { path, source: Box::new(error) })?;
            Ok(bytes)
        });
        let refused = |error| StorageIOError::read_snapshot(Some(meta.signature()), &error);
        let bytes = read.await.map_err(refused)?;
        Ok(Some(Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) }))
    }
}

/// The view at one index, to be written as a snapshot while later entries are applied.
#[derive(Debug)]
pub(crate) struct SnapshotBuilder {
    machine: StateMachine,
    view: Arc<View>,
    meta: Meta,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, StorageError<RaftId>> {
        let directory = Arc::clone(&self.machine.directory);
        let (meta, view) = (self.meta.clone(), Arc::clone(&self.view));
        let written = blocking(move || {
            let bytes = snapshot::encode(&meta, &view);
            let path = snapshot::store(&directory, &meta, &bytes)?;
            Ok((bytes, path))
        });
        let refused = |error| StorageIOError::write_snapshot(Some(self.meta.signature()), &error);
        let (bytes, path) = written.await.map_err(refused)?;
        let meta = self.meta.clone();
        let mut machine = self.machine.lock();
        if machine
            .snapshot
            .as_ref()
            .is_none_or(|(newest, _)| newest.last_log_id <= meta.last_log_id)
        {
            machine.snapshot = Some((meta.clone(), path));
        }
        Ok(Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) })
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SnapshotError> + Send + 'static,
) -> Result<T, SnapshotError> {
    tokio::task::spawn_blocking(work).await?
}
