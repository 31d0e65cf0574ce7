//! How a node is started, and why it could not be.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use palisade_engine::engine::{IoChoice, OpenError};
use palisade_engine::partition::PartitionSettings;

use super::node_identity::IdentityError;
use crate::role::Timings;

/// How a node is started.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The node's name, unique in the cluster; belongs to its data directory.
    pub name: String,
    /// Where everything is stored.
    pub data_directory: PathBuf,
    /// Where clients connect; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the admin API listens; port 0 takes a free one.
    pub admin_listen: SocketAddr,
    /// The voters, `host:port`, resolved anew at each attempt.
    pub sidecars: Vec<String>,
    /// Which rack the node stands in; may be empty.
    pub rack: String,
    /// How many pinned threads serve partitions.
    pub shards: usize,
    /// The ring or blocking calls.
    pub io: IoChoice,
    /// The memory of one shard.
    pub arena_bytes: usize,
    /// How partitions are stored unless their stream says otherwise.
    pub settings: PartitionSettings,
    /// The clock values, the same as the voters'.
    pub timings: Timings,
}

impl NodeConfig {
    /// The defaults of a node on loopback with free ports.
    #[must_use]
    pub fn new(name: &str, data_directory: PathBuf, sidecars: Vec<String>) -> NodeConfig {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        NodeConfig {
            name: name.to_owned(),
            data_directory,
            listen: loopback,
            admin_listen: loopback,
            sidecars,
            rack: String::new(),
            shards: 1,
            io: IoChoice::Auto,
            arena_bytes: 64 << 20,
            settings: PartitionSettings::default(),
            timings: Timings::default(),
        }
    }
}

/// Why a node did not start, or ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The configuration cannot work.
    #[error("{what}")]
    Config {
        /// What is wrong, and what to do.
        what: String,
    },
    /// The directory cannot be used by this node.
    #[error("{0}")]
    Identity(Arc<IdentityError>),
    /// The engine did not open.
    #[error("{0}")]
    Open(OpenError),
    /// The data or the admin port could not be opened.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        reason: String,
    },
    /// The cluster refuses the node for good.
    #[error("the cluster refuses this node: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// The system gives no thread.
    #[error("no thread: {0}")]
    Thread(Arc<std::io::Error>),
    /// The node is not ready yet; it goes on trying.
    #[error("not ready within {waited_ms} ms: {reason}")]
    NotReady {
        /// How long was waited.
        waited_ms: u64,
        /// What it waits for.
        reason: String,
    },
    /// The node has been stopped.
    #[error("the node has stopped")]
    Stopped,
}

impl From<IdentityError> for NodeError {
    fn from(error: IdentityError) -> NodeError {
        NodeError::Identity(Arc::new(error))
    }
}
