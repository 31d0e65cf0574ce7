//! Who a node is, over restarts: its name, its storage, its ids in the cluster, and which run this is.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic `PALNODE1` |
//! | 4 | CRC-32 of the rest |
//! | rest | version byte and postcard of [`NodeIdentity`] |
//!
//! Replaced as a whole (written aside, synced, renamed, directory synced); must never be lost while the data
//! directory lives, because the incarnation counter fences earlier runs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::wire::{WireError, decode, encode};

const MAGIC: &[u8; 8] = b"PALNODE1";
const HEAD_BYTES: usize = 12;
const FILE_NAME: &str = "node";
const LOCK_NAME: &str = "node.lock";

/// What a node remembers of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeIdentity {
    /// Its name.
    pub name: String,
    /// Drawn when the directory was first used; replicas are members of sets under it.
    pub storage_id: u128,
    /// The number of this run.
    pub incarnation: u64,
    /// Its place in a cluster, from the first admitted registration on.
    pub membership: Option<Membership>,
}

/// The place of a node in its cluster; never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The cluster.
    pub cluster: u128,
    /// The node's id in it.
    pub node: u32,
}

/// The identity of a directory, held by this process alone.
#[derive(Debug)]
pub(super) struct IdentityFile {
    directory: PathBuf,
    identity: NodeIdentity,
    _lock: File,
}

/// Why a directory's identity could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Another process runs a node on this directory.
    #[error("{}: another process uses this directory", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The directory is another node's.
    #[error("{}: this directory belongs to node {found:?}, not {expected:?}", path.display())]
    OtherNode {
        /// The identity file.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Who wanted to use it.
        expected: String,
    },
    /// The directory belongs to another cluster than the one that was reached.
    #[error("{}: this directory belongs to cluster {mine:032x}; reached {reached:032x}", path.display())]
    OtherCluster {
        /// The identity file.
        path: PathBuf,
        /// The directory's cluster.
        mine: u128,
        /// The cluster that was reached.
        reached: u128,
    },
    /// The identity file is damaged: restore it from a copy, or start with an empty directory.
    #[error("{}: damaged identity", path.display())]
    Damaged {
        /// The identity file.
        path: PathBuf,
    },
    /// The identity file's content cannot be read, by its version for example.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The identity file.
        path: PathBuf,
        /// What is wrong.
        source: WireError,
    },
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl IdentityFile {
    /// Takes the directory for the node `name` and begins a new run: the incarnation rises, durably.
    pub(super) fn begin_run(directory: &Path, name: &str) -> Result<IdentityFile, IdentityError> {
        fs::create_dir_all(directory).map_err(|source| io_error(directory, source))?;
        let lock_path = directory.join(LOCK_NAME);
        let lock = File::options().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(|source| io_error(&lock_path, source))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(IdentityError::Locked { path: lock_path });
            }
            Err(fs::TryLockError::Error(source)) => return Err(io_error(&lock_path, source)),
        }
        let path = directory.join(FILE_NAME);
        let identity = match fs::read(&path) {
            Ok(bytes) => parse(&path, &bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => NodeIdentity {
                name: name.to_owned(),
                storage_id: uuid::Uuid::new_v4().as_u128(),
                incarnation: 0,
                membership: None,
            },
            Err(source) => return Err(io_error(&path, source)),
        };
        if identity.name != name {
            let expected = name.to_owned();
            return Err(IdentityError::OtherNode { path, found: identity.name, expected });
        }
        let mut file = IdentityFile { directory: directory.to_owned(), identity, _lock: lock };
        file.next_run()?;
        Ok(file)
    }

    /// What it holds.
    pub(super) fn identity(&self) -> &NodeIdentity {
        &self.identity
    }

    /// Begins another run without a new process: the one before was declared gone.
    pub(super) fn next_run(&mut self) -> Result<(), IdentityError> {
        let incarnation = self.identity.incarnation + 1;
        self.replace(NodeIdentity { incarnation, ..self.identity.clone() })
    }

    /// Remembers the place in the cluster; a second, different one is refused.
    pub(super) fn join(&mut self, membership: Membership) -> Result<(), IdentityError> {
        match self.identity.membership {
            Some(known) if known == membership => Ok(()),
            Some(known) => Err(IdentityError::OtherCluster {
                path: self.directory.join(FILE_NAME),
                mine: known.cluster,
                reached: membership.cluster,
            }),
            None => {
                self.replace(NodeIdentity { membership: Some(membership), ..self.identity.clone() })
            }
        }
    }

    fn replace(&mut self, identity: NodeIdentity) -> Result<(), IdentityError> {
        let body = encode(&identity);
        let mut bytes = Vec::from(MAGIC);
        bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        let path = self.directory.join(FILE_NAME);
        write_whole(&self.directory, &path, &bytes).map_err(|source| io_error(&path, source))?;
        self.identity = identity;
        Ok(())
    }
}

fn write_whole(directory: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("new");
    let mut file = File::create(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    File::open(directory)?.sync_all()
}

fn parse(path: &Path, bytes: &[u8]) -> Result<NodeIdentity, IdentityError> {
    let damaged = || IdentityError::Damaged { path: path.to_owned() };
    let (head, body) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(damaged)?;
    let crc = crc32fast::hash(body).to_le_bytes();
    if head[..8] != MAGIC[..] || head[8..] != crc {
        return Err(damaged());
    }
    decode(body).map_err(|source| IdentityError::Unreadable { path: path.to_owned(), source })
}

fn io_error(path: &Path, source: io::Error) -> IdentityError {
    IdentityError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_a_higher_incarnation_and_the_same_storage() {
        let directory = tempfile::tempdir().unwrap();
        let first = IdentityFile::begin_run(directory.path(), "n1").unwrap();
        let (storage_id, incarnation) = (first.identity().storage_id, first.identity().incarnation);
        drop(first);

        let mut second = IdentityFile::begin_run(directory.path(), "n1").unwrap();

        assert_eq!(second.identity().storage_id, storage_id);
        assert_eq!(second.identity().incarnation, incarnation + 1);
        second.next_run().unwrap();
        assert_eq!(second.identity().incarnation, incarnation + 2);
    }

    #[test]
    fn a_directory_serves_one_process_one_node_and_one_cluster() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = IdentityFile::begin_run(directory.path(), "n1").unwrap();

        let second = IdentityFile::begin_run(directory.path(), "n1");
        assert!(matches!(second, Err(IdentityError::Locked { .. })));

        file.join(Membership { cluster: 7, node: 1 }).unwrap();
        file.join(Membership { cluster: 7, node: 1 }).unwrap();
        let other = file.join(Membership { cluster: 8, node: 1 });
        assert!(matches!(other, Err(IdentityError::OtherCluster { mine: 7, reached: 8, .. })));

        drop(file);
        let renamed = IdentityFile::begin_run(directory.path(), "n2");
        assert!(matches!(renamed, Err(IdentityError::OtherNode { .. })));
        let again = IdentityFile::begin_run(directory.path(), "n1").unwrap();
        assert_eq!(again.identity().membership, Some(Membership { cluster: 7, node: 1 }));
    }

    #[test]
    fn a_flipped_byte_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        drop(IdentityFile::begin_run(directory.path(), "n1").unwrap());
        let path = directory.path().join(FILE_NAME);
        let bytes = fs::read(&path).unwrap();

        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            fs::write(&path, flipped).unwrap();
            let refused = IdentityFile::begin_run(directory.path(), "n1").unwrap_err();
            assert!(matches!(refused, IdentityError::Damaged { .. }), "byte {at}: {refused}");
        }
    }
}
