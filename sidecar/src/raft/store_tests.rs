//! openraft's storage suite over the redb log and the snapshot files, and what the suite misses.

use std::collections::BTreeMap;

use openraft::entry::RaftEntry as _;
use openraft::storage::{RaftLogStorage as _, RaftLogStorageExt as _, RaftStateMachine as _};
use openraft::testing::{StoreBuilder, Suite};
use openraft::{
    CommittedLeaderId, EntryPayload, LogId, Membership, RaftLogReader as _,
    RaftSnapshotBuilder as _, StorageError,
};
use tempfile::TempDir;

use super::log_store::LogStore;
use super::snapshot;
use super::state_machine::StateMachine;
use super::types::{Change, RaftId, TypeConfig, VoterNode};
use crate::state::{Command, OperationId, Proposal};

struct Directories;

fn scratch() -> TempDir {
    tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")).unwrap()
}

fn open(directory: &TempDir) -> (LogStore, StateMachine) {
    let log = LogStore::open(&directory.path().join("log.redb")).unwrap();
    (log, StateMachine::open(directory.path().to_owned()).unwrap())
}

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for Directories {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<RaftId>> {
        let directory = scratch();
        let (log, machine) = open(&directory);
        Ok((directory, log, machine))
    }
}

#[test]
fn the_storage_suite_of_openraft_passes() {
    Suite::test_all(Directories).unwrap();
}

fn id(index: u64) -> LogId<RaftId> {
    LogId::new(CommittedLeaderId::new(1, 1), index)
}

fn entry(index: u64) -> openraft::Entry<TypeConfig> {
    let operation = OperationId(uuid::Uuid::from_u128(index.into()));
    let proposals = vec![Proposal { operation, command: Command::Noop }];
    openraft::Entry { log_id: id(index), payload: EntryPayload::Normal(Change { proposals }) }
}

fn membership(index: u64) -> openraft::Entry<TypeConfig> {
    let node = VoterNode { name: "v1".into(), address: "127.0.0.1:1".into() };
    let nodes = BTreeMap::from([(1, node)]);
    openraft::Entry::new_membership(id(index), Membership::new(vec![[1].into()], nodes))
}

// The suite never purges a log whose snapshot lives in memory only; such a voter could not start again.
#[tokio::test]
async fn a_voter_restarts_after_its_log_was_purged() {
    let directory = scratch();
    {
        let (mut log, mut machine) = open(&directory);
        let entries: Vec<_> = std::iter::once(membership(0)).chain((1..10).map(entry)).collect();
        log.blocking_append(entries.clone()).await.unwrap();
        machine.apply(entries).await.unwrap();
        machine.get_snapshot_builder().await.build_snapshot().await.unwrap();
        log.purge(id(7)).await.unwrap();
        log.close();
    }

    let (mut log, mut machine) = open(&directory);

    let state = log.get_log_state().await.unwrap();
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(id(7)), Some(id(9))));
    assert_eq!(log.try_get_log_entries(0..100).await.unwrap().len(), 2);
    let (applied, members) = machine.applied_state().await.unwrap();
    assert_eq!(applied, Some(id(9)));
    assert_eq!(members.log_id(), &Some(id(0)));
    assert_eq!(machine.view().index, 9);
}

#[tokio::test]
async fn the_vote_and_the_entries_are_there_after_a_kill() {
    let directory = scratch();
    let log = LogStore::open(&directory.path().join("log.redb")).unwrap();
    let mut writer = log.clone();
    writer.save_vote(&openraft::Vote::new(3, 2)).await.unwrap();
    writer.blocking_append([entry(0), entry(1)]).await.unwrap();
    // What a killed process leaves behind: the file as it is now.
    let copy = scratch();
    std::fs::copy(directory.path().join("log.redb"), copy.path().join("log.redb")).unwrap();

    let (mut log, _) = open(&copy);

    assert_eq!(log.read_vote().await.unwrap(), Some(openraft::Vote::new(3, 2)));
    assert_eq!(log.try_get_log_entries(..).await.unwrap(), [entry(0), entry(1)]);
}

#[tokio::test]
async fn a_snapshot_with_any_flipped_bit_is_refused() {
    let directory = scratch();
    let (_log, mut machine) = open(&directory);
    machine.apply([membership(0), entry(1)]).await.unwrap();
    machine.get_snapshot_builder().await.build_snapshot().await.unwrap();
    let (meta, view, path) = snapshot::load(directory.path()).unwrap().unwrap();
    assert_eq!((meta.last_log_id, view.index), (Some(id(1)), 1));

    let bytes = std::fs::read(&path).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(snapshot::decode(&flipped).is_err(), "bit {bit}");
    }
    for cut in 0..bytes.len() {
        assert!(snapshot::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(StateMachine::open(directory.path().to_owned()).is_err());
}
