//! Why an engine does not open, with what to do about it.

use std::path::PathBuf;
use std::sync::Arc;

use crate::format::FormatError;
use crate::id::StorageId;
use crate::io::StartError;
use crate::io::disk::DiskError;
use crate::partition::OpenLogError;

/// Why an engine did not open. Nothing was changed in the data directory.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The kernel lacks something the ring needs.
    #[error("io_uring cannot be used here: {}; or choose blocking I/O", missing.join("; "))]
    ProbeFailed {
        /// Each missing thing, with what to do.
        missing: Vec<String>,
    },
    /// Another engine has the directory open.
    #[error("{} is in use by another process or engine; stop it or choose another directory", path.display())]
    Locked {
        /// The data directory.
        path: PathBuf,
    },
    /// A file, or nothing that could be made, stands where a directory should be.
    #[error("{} is not a directory: {source}", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
    /// The directory is a standalone engine's and a coordinator was given, or the other way round.
    #[error(
        "{} belongs to {}; open it that way or choose another directory",
        path.display(),
        if *is_cluster { "a cluster" } else { "a standalone engine" }
    )]
    OtherMode {
        /// The data directory.
        path: PathBuf,
        /// Whether the directory is a cluster's.
        is_cluster: bool,
    },
    /// The directory belongs to another cluster or node.
    #[error(
        "{} belongs to node {found_node} of cluster {found_cluster:032x}, not to node {node} of {cluster:032x}",
        path.display()
    )]
    OtherCluster {
        /// The data directory.
        path: PathBuf,
        /// Whose it is.
        found_cluster: u128,
        /// Whose it is.
        found_node: u32,
        /// Who asked.
        cluster: u128,
        /// Who asked.
        node: u32,
    },
    /// The directory has another id than its coordinator knows: it was exchanged or restored.
    #[error("{} is storage {found}, not {expected}; bring the right directory back", path.display())]
    OtherStorage {
        /// The data directory.
        path: PathBuf,
        /// Its id.
        found: StorageId,
        /// The id that was asked for.
        expected: StorageId,
    },
    /// A newer release wrote the directory.
    #[error("{}: {source}", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Found and supported version.
        source: FormatError,
    },
    /// The block that says whose directory it is cannot be believed.
    #[error("{}: {source}; restore it from a copy, the data beside it is untouched", path.display())]
    BadIdentity {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: FormatError,
    },
    /// The disk failed, is read-only, or is full.
    #[error("{0}")]
    Disk(#[from] Arc<DiskError>),
    /// A partition had to be set aside.
    #[error("{}: set aside", path.display())]
    SetAside {
        /// Where it lies.
        path: PathBuf,
    },
    /// The system has no memory for the arena or no threads.
    #[error("starting shard {shard}: {source}")]
    Start {
        /// Which shard.
        shard: usize,
        /// What the system said.
        source: Arc<StartError>,
    },
    /// The system gives no thread.
    #[error("no thread for shard {shard}: {source}")]
    Thread {
        /// Which shard.
        shard: usize,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
    /// A shard ended while it was opening.
    #[error("shard {shard} ended while it was opening; see the log of the process")]
    ShardEnded {
        /// Which shard.
        shard: usize,
    },
}

impl From<DiskError> for OpenError {
    fn from(error: DiskError) -> OpenError {
        OpenError::Disk(Arc::new(error))
    }
}

impl OpenError {
    pub(super) fn start(shard: usize, source: StartError) -> OpenError {
        OpenError::Start { shard, source: Arc::new(source) }
    }
}

impl From<OpenLogError> for OpenError {
    fn from(error: OpenLogError) -> OpenError {
        match error {
            OpenLogError::Newer { path, source } | OpenLogError::NewerData { path, source } => {
                OpenError::NewerVersion { path, source }
            }
            OpenLogError::Disk(error) => error.into(),
            OpenLogError::SetAside(set_aside) => OpenError::SetAside { path: set_aside.path },
        }
    }
}
