//! How a voter is started, and the clock values of the role.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What one voter needs to run.
#[derive(Clone, Debug)]
pub struct VoterConfig {
    /// Its name, one of `peers`.
    pub name: String,
    /// Its own directory.
    pub data_directory: PathBuf,
    /// Where voters and node sessions connect. Port 0 is resolved only through a listener bound beforehand.
    pub listen: SocketAddr,
    /// Where its admin API listens, told to others as a hint.
    pub admin_listen: SocketAddr,
    /// All voters, itself included, the same list on each: (name, `--listen` address).
    pub peers: Vec<(String, SocketAddr)>,
    /// The clock values, the same on each voter.
    pub timings: Timings,
}

/// Every duration of the metadata role and of leases. The same on all voters and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// The leader's heartbeats.
    pub heartbeat: Duration,
    /// Shortest wait before a voter stands for election.
    pub election_min: Duration,
    /// Longest wait.
    pub election_max: Duration,
    /// How often voters ping each other.
    pub ping: Duration,
    /// A voter silent for so long is not live.
    pub voter_silent: Duration,
    /// How long a lease lasts from its sending.
    pub lease: Duration,
    /// How often a node renews.
    pub renew: Duration,
    /// A node silent for so long is suspected.
    pub node_silent: Duration,
    /// How often the leader proposes a no-op.
    pub canary: Duration,
    /// What a refusal for want of a majority says.
    pub retry_after: Duration,
}

impl Default for Timings {
    /// The values of DESIGN 5.2.
    fn default() -> Timings {
        Timings {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(500),
            election_max: Duration::from_millis(1000),
            ping: Duration::from_millis(250),
            voter_silent: Duration::from_millis(1200),
            lease: Duration::from_secs(4),
            renew: Duration::from_millis(500),
            node_silent: Duration::from_millis(1500),
            canary: Duration::from_secs(1),
            retry_after: Duration::from_secs(1),
        }
    }
}

impl Timings {
    /// For quiet machines and tests: a lease of one second.
    #[must_use]
    pub fn fast() -> Timings {
        Timings {
            heartbeat: Duration::from_millis(50),
            election_min: Duration::from_millis(250),
            election_max: Duration::from_millis(500),
            ping: Duration::from_millis(100),
            voter_silent: Duration::from_millis(600),
            lease: Duration::from_secs(1),
            renew: Duration::from_millis(150),
            node_silent: Duration::from_millis(500),
            canary: Duration::from_millis(300),
            retry_after: Duration::from_millis(500),
        }
    }
}

/// Why a voter did not start; nothing was changed unless said otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The voter's name is not in `peers`.
    #[error("the name {name:?} is not among the peers")]
    NotAPeer {
        /// The name.
        name: String,
    },
    /// A voter's name breaks the rule (that of streams).
    #[error("the voter name {name:?} is not allowed; use 1 to 63 of a-z A-Z 0-9 . _ -")]
    BadName {
        /// The name.
        name: String,
    },
    /// The same name or address twice.
    #[error("the peer {name:?} is named twice")]
    DuplicatePeer {
        /// The name.
        name: String,
    },
    /// The directory belongs to another voter or cluster.
    #[error("{path} belongs to voter {found:?}, not {expected:?}")]
    OtherVoter {
        /// The identity file.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it was asked to be.
        expected: String,
    },
    /// The directory was written by a newer version.
    #[error("{path} has version {found}; this program knows up to {supported}")]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// What is known.
        supported: u32,
    },
    /// A file of the directory is damaged.
    #[error("{path} is damaged: {what}; restore it or replace this voter")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// Another process uses the directory.
    #[error("{path} is in use by another process")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The path is no directory.
    #[error("{path} is not a directory")]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The system refused something.
    #[error("{path}: {source}")]
    Io {
        /// The file or address.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The Raft store could not be opened.
    #[error("the log store {path} does not open: {source}")]
    Store {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The Raft core did not start.
    #[error("raft does not start: {source}")]
    Raft {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
