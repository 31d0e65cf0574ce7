//! Whose data directory it is: the exclusive lock, and the identity that refuses other modes and clusters.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::config::EngineConfig;
use super::open_error::OpenError;
use crate::format::{DirectoryMode, FormatError, Identity};
use crate::id::{BLOCK_BYTES, NodeId, Position, StorageId};
use crate::io::disk::{Disk, DiskError, DiskFile, DiskOperation, OpenMode, WriteMode};

/// The name of the identity's file.
pub(crate) const IDENTITY: &str = "identity";

/// Keeps every other engine out of the directory until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _identity: File,
}

impl Lock {
    /// Makes the directory if needed and locks it.
    pub(super) fn take(directory: &Path) -> Result<Lock, OpenError> {
        make_directory(directory)?;
        let path = directory.join(IDENTITY);
        let identity = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| disk_error(DiskOperation::Open, &path, source))?;
        match rustix::fs::flock(&identity, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _identity: identity }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(OpenError::Locked { path: directory.to_owned() })
            }
            Err(error) => Err(disk_error(DiskOperation::Open, &path, error.into()).into()),
        }
    }
}

fn make_directory(directory: &Path) -> Result<(), OpenError> {
    let not_a_directory = |source: io::Error| OpenError::NotADirectory {
        path: directory.to_owned(),
        source: Arc::new(source),
    };
    match std::fs::create_dir_all(directory) {
        Ok(()) => Ok(()),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory
            ) =>
        {
            Err(not_a_directory(error))
        }
        Err(error) => Err(disk_error(DiskOperation::CreateDirectory, directory, error).into()),
    }
}

fn disk_error(operation: DiskOperation, path: &Path, source: io::Error) -> DiskError {
    DiskError { operation, path: path.to_owned(), position: None, source }
}

/// Reads the directory's identity and checks that it is ours, or writes ours into a new directory.
pub(super) async fn claim<D: Disk>(
    disk: &D,
    config: &EngineConfig,
    new_storage: StorageId,
) -> Result<Identity, OpenError> {
    let directory = &config.data_directory;
    disk.create_directory(directory).await?;
    let path = directory.join(IDENTITY);
    let file = match disk.open(&path, OpenMode::Write).await {
        Err(error) if error.is_missing() => disk.open(&path, OpenMode::CreateNew).await?,
        opened => opened?,
    };
    let mut block = room(disk, &path)?;
    let mut found = Vec::new();
    if file.length().await? > 0 {
        block = file.read(block, Position::ZERO).await?;
        found = block.as_slice().to_vec();
        block = room(disk, &path)?;
    }
    // A crash while the directory was made leaves no byte or zeros, and no streams yet.
    let is_new = found.iter().all(|byte| *byte == 0) && !has_streams(disk, directory).await?;
    let identity = if is_new {
        let identity = ours(config, new_storage);
        block.as_mut_slice().copy_from_slice(&identity.encode());
        file.write(block.freeze(), Position::ZERO, WriteMode::Durable).await?;
        identity
    } else {
        let identity = Identity::decode(&found).map_err(|source| match source {
            FormatError::NewerVersion { .. } => {
                OpenError::NewerVersion { path: path.clone(), source }
            }
            source => OpenError::BadIdentity { path: path.clone(), source },
        })?;
        check(identity, config)?;
        identity
    };
    // Even what was found: a process that was killed may have written it and not made it durable.
    file.sync().await?;
    disk.sync_directory(directory).await?;
    if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        disk.sync_directory(parent).await?;
    }
    Ok(identity)
}

fn room<D: Disk>(disk: &D, path: &Path) -> Result<crate::io::arena::Extent, OpenError> {
    disk.arena().allocate(BLOCK_BYTES).ok_or_else(|| {
        disk_error(DiskOperation::Open, path, io::ErrorKind::OutOfMemory.into()).into()
    })
}

async fn has_streams<D: Disk>(disk: &D, directory: &Path) -> Result<bool, DiskError> {
    let entries = disk.list(directory).await?;
    Ok(entries.iter().any(|entry| entry.name == crate::partition::STREAMS))
}

fn ours(config: &EngineConfig, storage: StorageId) -> Identity {
    match config.coordinator {
        None => Identity { mode: DirectoryMode::Standalone, node: NodeId::STANDALONE, storage },
        Some(coordinator) => Identity {
            mode: DirectoryMode::Cluster { cluster: coordinator.cluster },
            node: coordinator.node,
            storage,
        },
    }
}

fn check(found: Identity, config: &EngineConfig) -> Result<(), OpenError> {
    let path = config.data_directory.clone();
    if let Some(expected) = config.storage.filter(|expected| *expected != found.storage) {
        return Err(OpenError::OtherStorage { path, found: found.storage, expected });
    }
    match (found.mode, config.coordinator) {
        (DirectoryMode::Standalone, None) => Ok(()),
        (DirectoryMode::Standalone, Some(_)) => {
            Err(OpenError::OtherMode { path, is_cluster: false })
        }
        (DirectoryMode::Cluster { .. }, None) => {
            Err(OpenError::OtherMode { path, is_cluster: true })
        }
        (DirectoryMode::Cluster { cluster }, Some(coordinator)) => {
            if cluster == coordinator.cluster && found.node == coordinator.node {
                return Ok(());
            }
            Err(OpenError::OtherCluster {
                path,
                found_cluster: cluster,
                found_node: found.node.get(),
                cluster: coordinator.cluster,
                node: coordinator.node.get(),
            })
        }
    }
}
