//! How an engine is opened: every setting and limit with its name and default.

use std::path::PathBuf;

use crate::id::{NodeId, StorageId};
use crate::partition::{PartitionSettings, ShardLimits};

/// The most shards of one engine.
pub const SHARDS_MAX: usize = 64;

/// How the engine talks to its disk and sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// The ring, or a typed error that names what is missing.
    #[default]
    Uring,
    /// Blocking calls on helper threads.
    Blocking,
    /// The ring if the kernel has it, else blocking calls and one loud line.
    Auto,
}

/// Who else decides about ownership: the cluster this node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinator {
    /// This node in the cluster.
    pub node: NodeId,
    /// The cluster's id.
    pub cluster: u128,
}

/// Everything an engine is told when it is opened.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Where everything is stored; made if missing.
    pub data_directory: PathBuf,
    /// How many pinned threads, at most [`SHARDS_MAX`].
    pub shards: usize,
    /// Ring or blocking calls.
    pub io: IoChoice,
    /// The memory of one shard for groups, reads and tail readers.
    pub arena_bytes: usize,
    /// The limits of one shard.
    pub limits: ShardLimits,
    /// Whether reads from disk that do not say otherwise compare the checksums of payloads. Those of headers are
    /// compared always; see [`Verification`](crate::partition::Verification) for what is given up.
    pub verify_payloads: bool,
    /// The settings of partitions that are created without their own.
    pub settings: PartitionSettings,
    /// The cluster; `None` for a standalone engine that grants itself every partition.
    pub coordinator: Option<Coordinator>,
    /// The id a new data directory gets, for a coordinator that must know it before; one that has another is
    /// refused. `None` draws one and takes any.
    pub storage: Option<StorageId>,
    /// Makes the random ids repeatable, for simulation. `None` draws from the system.
    pub seed: Option<u64>,
}

impl EngineConfig {
    /// The defaults for a data directory.
    #[must_use]
    pub fn new(data_directory: impl Into<PathBuf>) -> EngineConfig {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        EngineConfig {
            data_directory: data_directory.into(),
            shards: cores.min(SHARDS_MAX),
            io: IoChoice::default(),
            arena_bytes: 64 << 20,
            limits: ShardLimits::default(),
            verify_payloads: true,
            settings: PartitionSettings::default(),
            coordinator: None,
            storage: None,
            seed: None,
        }
    }
}
