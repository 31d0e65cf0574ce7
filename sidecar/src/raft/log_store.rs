//! The Raft log, the vote and the committed index in one redb file.
//!
//! Entries, votes, cuts and purges are synced before openraft hears of them. The committed index is written without a
//! sync of its own: an older one is only a lower bound, and a new leader commits a barrier before it serves.

use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{LogId, LogState, OptionalSend, RaftLogReader, StorageError, StorageIOError, Vote};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::types::{RaftId, TypeConfig};
use crate::state::{DecodeError, decode, encode};

/// Entry index to entry, each behind its version byte.
const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
/// Single values by name.
const STATE: TableDefinition<&str, &[u8]> = TableDefinition::new("state");
const VOTE: &str = "vote";
const COMMITTED: &str = "committed";
const PURGED: &str = "purged";

/// How many bytes of entries one read for replication returns; at least one entry.
const READ_BYTES_TARGET: usize = 4 << 20;
/// How much memory redb keeps pages in.
const CACHE_BYTES: usize = 32 << 20;

type Entry = openraft::Entry<TypeConfig>;

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("the log store is closed")]
    Closed,
    #[error("the log store failed: {source}")]
    Database { source: Box<redb::Error> },
    #[error("an entry of the log does not decode: {source}")]
    Decode {
        #[from]
        source: DecodeError,
    },
    #[error("a store task ended early: {source}")]
    Task { source: tokio::task::JoinError },
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> StoreError {
        StoreError::Database { source: Box::new(error.into()) }
    }
}

/// A handle of the store; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct LogStore {
    database: Arc<RwLock<Option<Database>>>,
}

impl LogStore {
    /// Opens or makes the file.
    pub(crate) fn open(path: &Path) -> Result<LogStore, StoreError> {
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(path)?;
        let transaction = database.begin_write()?;
        transaction.open_table(LOG)?;
        transaction.open_table(STATE)?;
        transaction.commit()?;
        Ok(LogStore { database: Arc::new(RwLock::new(Some(database))) })
    }

    /// Closes the file once running work has ended; whatever comes later gets [`StoreError::Closed`].
    pub(crate) fn close(&self) {
        self.database.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Runs work on a thread that may block.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let database = Arc::clone(&self.database);
        tokio::task::spawn_blocking(move || {
            let database = database.read().unwrap_or_else(PoisonError::into_inner);
            work(database.as_ref().ok_or(StoreError::Closed)?)
        })
        .await
        .map_err(|source| StoreError::Task { source })?
    }

    async fn put<T: Serialize>(
        &self,
        key: &'static str,
        value: &T,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let bytes = encode(value);
        self.run(move |database| {
            let mut transaction = database.begin_write()?;
            transaction.set_durability(durability)?;
            transaction.open_table(STATE)?.insert(key, bytes.as_slice())?;
            transaction.commit()?;
            Ok(())
        })
        .await
    }

    async fn get<T: DeserializeOwned + Send + 'static>(
        &self,
        key: &'static str,
    ) -> Result<Option<T>, StoreError> {
        self.run(move |database| {
            let table = database.begin_read()?.open_table(STATE)?;
            let value = table.get(key)?;
            Ok(value.map(|bytes| decode(bytes.value())).transpose()?)
        })
        .await
    }

    async fn read(
        &self,
        range: (Bound<u64>, Bound<u64>),
        bytes_target: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        self.run(move |database| {
            let table = database.begin_read()?.open_table(LOG)?;
            let mut entries = Vec::new();
            let mut bytes = 0;
            for item in table.range::<u64>(range)? {
                let (_, value) = item?;
                bytes += value.value().len();
                if bytes > bytes_target && !entries.is_empty() {
                    break;
                }
                entries.push(decode(value.value())?);
            }
            Ok(entries)
        })
        .await
    }

    async fn write_entries(&self, entries: Vec<(u64, Vec<u8>)>) -> Result<(), StoreError> {
        self.run(move |database| {
            let mut transaction = database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            {
                let mut table = transaction.open_table(LOG)?;
                for (index, bytes) in &entries {
                    table.insert(index, bytes.as_slice())?;
                }
            }
            transaction.commit()?;
            Ok(())
        })
        .await
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError<RaftId>> {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        Ok(self.read(range, usize::MAX).await.map_err(|e| StorageIOError::read_logs(&e))?)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError<RaftId>> {
        let range = (Bound::Included(start), Bound::Excluded(end));
        Ok(self.read(range, READ_BYTES_TARGET).await.map_err(|e| StorageIOError::read_logs(&e))?)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError<RaftId>> {
        let last = self.run(|database| {
            let table = database.begin_read()?.open_table(LOG)?;
            let last = table.last()?;
            let entry = last.map(|(_, value)| decode::<Entry>(value.value())).transpose()?;
            Ok(entry.map(|entry| entry.log_id))
        });
        let last = last.await.map_err(|e| StorageIOError::read_logs(&e))?;
        let last_purged_log_id: Option<LogId<RaftId>> =
            self.get(PURGED).await.map_err(|e| StorageIOError::read_logs(&e))?;
        Ok(LogState { last_purged_log_id, last_log_id: last.or(last_purged_log_id) })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<RaftId>) -> Result<(), StorageError<RaftId>> {
        let saved = self.put(VOTE, vote, Durability::Immediate).await;
        Ok(saved.map_err(|e| StorageIOError::write_vote(&e))?)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<RaftId>>, StorageError<RaftId>> {
        Ok(self.get(VOTE).await.map_err(|e| StorageIOError::read_vote(&e))?)
    }

    async fn save_committed(
        &mut self,
        committed: Option<LogId<RaftId>>,
    ) -> Result<(), StorageError<RaftId>> {
        let saved = self.put(COMMITTED, &committed, Durability::None).await;
        Ok(saved.map_err(|e| StorageIOError::write(&e))?)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<RaftId>>, StorageError<RaftId>> {
        let committed = self.get::<Option<LogId<RaftId>>>(COMMITTED).await;
        Ok(committed.map_err(|e| StorageIOError::read(&e))?.flatten())
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<TypeConfig>,
    ) -> Result<(), StorageError<RaftId>>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let encoded = entries.into_iter().map(|entry| (entry.log_id.index, encode(&entry)));
        let encoded = encoded.collect();
        match self.write_entries(encoded).await {
            Ok(()) => {
                callback.log_io_completed(Ok(()));
                Ok(())
            }
            Err(error) => {
                let failed: StorageError<RaftId> = StorageIOError::write_logs(&error).into();
                callback.log_io_completed(Err(std::io::Error::other(error)));
                Err(failed)
            }
        }
    }

    async fn truncate(&mut self, log_id: LogId<RaftId>) -> Result<(), StorageError<RaftId>> {
        let cut = self.run(move |database| {
            let mut transaction = database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            transaction.open_table(LOG)?.retain_in(log_id.index.., |_, _| false)?;
            transaction.commit()?;
            Ok(())
        });
        Ok(cut.await.map_err(|e| StorageIOError::write_logs(&e))?)
    }

    async fn purge(&mut self, log_id: LogId<RaftId>) -> Result<(), StorageError<RaftId>> {
        let purged = self.run(move |database| {
            let mut transaction = database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            transaction.open_table(STATE)?.insert(PURGED, encode(&log_id).as_slice())?;
            transaction.open_table(LOG)?.retain_in(..=log_id.index, |_, _| false)?;
            transaction.commit()?;
            Ok(())
        });
        Ok(purged.await.map_err(|e| StorageIOError::write_logs(&e))?)
    }
}
