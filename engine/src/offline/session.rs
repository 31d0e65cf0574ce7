//! One look at a data directory: the lock, a thread with a blocking disk, and the errors of both.

use std::cell::RefCell;
use std::fs::File;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::format::FormatError;
use crate::id::PartitionName;
use crate::io::blocking::BlockingRuntime;
use crate::io::disk::{Disk, DiskError};
use crate::io::runtime::Runtime;
use crate::io::transport::Transport;
use crate::io::{Environment, ShardMain, StartError, SystemClock, ThreadOptions};
use crate::segment::{OpenSegmentError, ScanError, SegmentReadError};

/// Room for the largest group twice, and for the pieces a walk reads.
const ARENA_BYTES: usize = 64 << 20;

/// Why a data directory could not be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OfflineError {
    /// No engine has ever opened this directory.
    #[error("{} is not a data directory: it has no identity file", path.display())]
    NotADataDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// An engine runs on it; stop that first.
    #[error("{} is in use by a running engine; stop it first", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The identity does not decode.
    #[error("{}: {source}", path.display())]
    Identity {
        /// The identity file.
        path: PathBuf,
        /// What is wrong with it.
        source: FormatError,
    },
    /// No such partition.
    #[error("{} holds no partition {name}", path.display())]
    UnknownPartition {
        /// The directory.
        path: PathBuf,
        /// What was asked for.
        name: PartitionName,
    },
    /// The checkpoint of the partition that was asked for does not decode.
    #[error("{}: {reason}", path.display())]
    Checkpoint {
        /// The checkpoint file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The offset is below the first one the partition still holds.
    #[error("{name} starts at offset {log_start}; {from} was asked for")]
    BelowLogStart {
        /// The partition.
        name: PartitionName,
        /// What was asked for.
        from: u64,
        /// Read from here.
        log_start: u64,
    },
    /// The offset is above the end.
    #[error("{name} ends at offset {end}; {from} was asked for")]
    BeyondEnd {
        /// The partition.
        name: PartitionName,
        /// What was asked for.
        from: u64,
        /// Where it ends.
        end: u64,
    },
    /// A segment file is missing or not what its name says.
    #[error(transparent)]
    Segment(#[from] OpenSegmentError),
    /// A segment could not be walked.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// A segment could not be read; damaged ranges name where to go on.
    #[error(transparent)]
    Read(#[from] SegmentReadError),
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The directory could not be opened or locked.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The thread could not be set up.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// What is done with a directory once it is locked.
pub(super) trait Task {
    type Output;

    fn run<D: Disk>(
        self,
        disk: D,
        runtime: Rc<dyn Runtime>,
        directory: &Path,
    ) -> impl Future<Output = Result<Self::Output, OfflineError>>;
}

/// Locks the directory against engines and runs the task on a thread of its own, which may block where the
/// caller's may not.
pub(super) fn run<T>(directory: &Path, task: T) -> Result<T::Output, OfflineError>
where
    T: Task + Send + 'static,
    T::Output: Send,
{
    let _lock = lock(directory)?;
    let ended = std::thread::scope(|scope| scope.spawn(|| run_here(directory, task)).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn run_here<T: Task + 'static>(directory: &Path, task: T) -> Result<T::Output, OfflineError> {
    let outcome: Outcome<T::Output> = Rc::default();
    let main = TaskMain { directory: directory.to_owned(), task, outcome: outcome.clone() };
    let options = ThreadOptions { arena_bytes: ARENA_BYTES, clock: Arc::new(SystemClock) };
    BlockingRuntime::run(options, main)?;
    outcome.take().expect("the runtime ran the task to its end")
}

/// Where the task leaves what it came to.
type Outcome<T> = Rc<RefCell<Option<Result<T, OfflineError>>>>;

struct TaskMain<T: Task> {
    directory: PathBuf,
    task: T,
    outcome: Outcome<T::Output>,
}

impl<T: Task> ShardMain for TaskMain<T> {
    async fn run<D: Disk, S: Transport>(self, environment: Environment<D, S>) {
        let outcome = self.task.run(environment.disk, environment.runtime, &self.directory).await;
        self.outcome.replace(Some(outcome));
    }
}

/// A shared lock: several may look at once, an engine keeps all of them out.
fn lock(directory: &Path) -> Result<File, OfflineError> {
    let path = directory.join(crate::engine::IDENTITY);
    let file = File::open(&path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
            OfflineError::NotADataDirectory { path: directory.to_owned() }
        }
        _ => OfflineError::Io { path: path.clone(), source },
    })?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(OfflineError::Locked { path: directory.to_owned() })
        }
        Err(error) => Err(OfflineError::Io { path, source: error.into() }),
    }
}
