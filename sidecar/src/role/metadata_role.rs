//! `MetadataRole`: one voter of the metadata role, as the rest of the process uses it.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use super::answer::{Answer, Confirmed, NotLeading, VoterHint};
use super::config::{StartError, Timings, VoterConfig};
use super::quorum_status::QuorumStatus;
use super::start;
use super::voter::Voter;
use crate::state::{Command, OperationId, Outcome, Proposal, View};

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

/// One running voter. Cheap to clone; every clone is the same voter, and dropping the last one stops it.
#[derive(Clone, Debug)]
pub struct MetadataRole {
    voter: Arc<Voter>,
    _last: Arc<StopOnDrop>,
}

/// Tells the voter's tasks to end when the last handle goes.
#[derive(Debug)]
struct StopOnDrop(watch::Sender<bool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl MetadataRole {
    /// Starts the voter inside the current tokio runtime: locks its directory, listens, and joins or forms the group.
    /// It serves as soon as a majority of `peers` has been met; until then answers say what is missing.
    ///
    /// # Errors
    ///
    /// [`StartError`] names the file or address and what to do.
    pub async fn start(config: VoterConfig) -> Result<MetadataRole, StartError> {
        let address = config.listen;
        let bound = TcpListener::bind(address).await;
        let listener = bound.map_err(|source| StartError::Listen { address, source })?;
        MetadataRole::start_on(config, listener).await
    }

    /// Like [`start`](MetadataRole::start), on a socket bound beforehand (`config.listen` is not looked at).
    ///
    /// # Errors
    ///
    /// As [`start`](MetadataRole::start).
    pub async fn start_on(
        config: VoterConfig,
        listener: TcpListener,
    ) -> Result<MetadataRole, StartError> {
        let voter = start::start(config, listener).await?;
        let last = Arc::new(StopOnDrop(voter.stop.clone()));
        Ok(MetadataRole { voter, _last: last })
    }

    /// Proposes a change under a fresh operation id, from any voter. Takes no longer than `deadline`.
    pub async fn propose(&self, command: Command, deadline: Duration) -> Answer {
        self.propose_as(OperationId::random(), command, deadline).await
    }

    /// Proposes a change under an id of the caller's; repeating it gives the first answer.
    ///
    /// Refused means that it took no effect and never will. Unknown means that it may: ask
    /// [`View::operation`], or repeat it under the same id.
    pub async fn propose_as(
        &self,
        operation: OperationId,
        command: Command,
        deadline: Duration,
    ) -> Answer {
        self.voter.propose(Proposal { operation, command }, deadline).await
    }

    /// Proposes many changes, each with its own answer; those that wait together share an entry of the log.
    pub async fn propose_many(&self, commands: Vec<Command>, deadline: Duration) -> Vec<Answer> {
        let proposed = commands.into_iter().map(|command| self.propose(command, deadline));
        futures_util::future::join_all(proposed).await
    }

    /// Tells what a command would do now, as this voter has applied the metadata; changes nothing.
    #[must_use]
    pub fn dry_run(&self, command: &Command) -> Outcome {
        self.view().dry_run(command)
    }

    /// Proves by a majority round that begins after this call that this voter leads. One round serves all that wait.
    ///
    /// # Errors
    ///
    /// [`NotLeading`] within `deadline`: ask the voter it hints at.
    pub async fn confirm_leadership(&self, deadline: Duration) -> Result<Confirmed, NotLeading> {
        self.voter.confirm_leadership(deadline).await
    }

    /// The metadata as this voter has applied it.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        self.voter.machine.view()
    }

    /// The applied index, as it rises.
    #[must_use]
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.voter.machine.applied()
    }

    /// What this voter sees of the quorum, without asking anybody.
    #[must_use]
    pub fn quorum_status(&self) -> QuorumStatus {
        self.voter.quorum_status()
    }

    /// Where the leader is, as far as known; `None` also when it is this voter's guess that nobody leads.
    #[must_use]
    pub fn leader_hint(&self) -> Option<VoterHint> {
        self.voter.hint(&self.voter.leader()?)
    }

    /// The connections of nodes; to be taken once, by the session server.
    #[must_use]
    pub fn session_connections(&self) -> Option<mpsc::Receiver<SessionConnection>> {
        self.voter.session_receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The voter's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.voter.name()
    }

    /// The clock values it was started with.
    #[must_use]
    pub fn timings(&self) -> Timings {
        self.voter.config.timings
    }

    /// Stops the voter in order: afterwards nothing is in flight, and its directory and address are free.
    pub async fn stop(&self) {
        self.voter.stop.send_replace(true);
        // The sender is in the voter this handle holds, so the wait ends only by being stopped.
        let _ = self.voter.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }
}
