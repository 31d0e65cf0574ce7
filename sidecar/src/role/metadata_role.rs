//! `MetadataRole`: one voter of the metadata role, as the rest of the process uses it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

use super::answer::{Answer, Confirmed, NotLeading};
use super::config::{StartError, Timings, VoterConfig};
use super::quorum_status::QuorumStatus;
use crate::state::{Command, OperationId, Refusal, View};

/// The first bytes a node sends on a connection to a voter's `--listen` address, to reach its session server. The voter
/// reads them and hands the connection on.
pub const SESSION_MAGIC: [u8; 8] = *b"PALSESS1";

/// A node's connection, behind [`SESSION_MAGIC`].
#[derive(Debug)]
pub struct SessionConnection {
    /// The connection; the magic has been read.
    pub stream: TcpStream,
    /// Where it comes from.
    pub from: SocketAddr,
}

/// One running voter. Cheap to clone; every clone is the same voter.
#[derive(Clone, Debug)]
pub struct MetadataRole {
    timings: Timings,
    applied: watch::Receiver<u64>,
    view: Arc<View>,
}

impl MetadataRole {
    /// Starts the voter inside the current tokio runtime.
    ///
    /// # Errors
    ///
    /// [`StartError`] names the file or address and what to do.
    pub async fn start(config: VoterConfig) -> Result<MetadataRole, StartError> {
        let source = std::io::Error::from(std::io::ErrorKind::Unsupported);
        Err(StartError::Io { path: config.data_directory, source })
    }

    /// Proposes a change under a fresh operation id. Never takes longer than `deadline`.
    pub async fn propose(&self, command: Command, deadline: Duration) -> Answer {
        self.propose_as(OperationId::random(), command, deadline).await
    }

    /// Proposes a change under an id of the caller's; repeating it gives the first answer.
    pub async fn propose_as(
        &self,
        _operation: OperationId,
        _command: Command,
        _deadline: Duration,
    ) -> Answer {
        let reason = Refusal::Stopping;
        Answer::Refused { reason, live: 0, needed: 0, missing: vec![], retry_after: Duration::ZERO }
    }

    /// Proves by a majority round that begins after this call that this voter leads.
    ///
    /// # Errors
    ///
    /// [`NotLeading`] within `deadline`: ask the voter it hints at.
    pub async fn confirm_leadership(&self, _deadline: Duration) -> Result<Confirmed, NotLeading> {
        Err(NotLeading { leader: None, live: 0, needed: 0 })
    }

    /// The metadata as this voter has applied it.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// The applied index, as it rises.
    #[must_use]
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.applied.clone()
    }

    /// What this voter sees of the quorum, without asking anybody.
    #[must_use]
    pub fn quorum_status(&self) -> QuorumStatus {
        unreachable!("no role starts yet")
    }

    /// The connections of nodes; to be taken once, by the session server.
    #[must_use]
    pub fn session_connections(&self) -> Option<mpsc::Receiver<SessionConnection>> {
        None
    }

    /// The clock values it was started with.
    #[must_use]
    pub fn timings(&self) -> Timings {
        self.timings
    }

    /// Stops the voter in order: nothing is in flight and its directory is free afterwards.
    pub async fn stop(&self) {}
}
