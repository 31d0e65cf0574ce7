//! Takes proposals to a majority: many waiting ones become one entry, several entries are in flight.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::answer::Answer;
use super::voter::{Route, Voter, millis};
use crate::raft::{Change, ProposeAnswer, Request, Response};
use crate::state::{Command, OperationId, Outcome, Proposal, Refusal, encode};

/// How many proposals may wait on the leader.
pub(super) const WAITING_MAX: usize = 8192;
/// How large one command may be.
const COMMAND_BYTES_MAX: usize = 256 << 10;
/// An entry takes no more proposals once it is so large.
const ENTRY_BYTES_TARGET: usize = 256 << 10;
/// An entry takes at most so many proposals.
const ENTRY_PROPOSALS_MAX: usize = 1024;
/// How many entries are in flight; while they are, proposals gather.
const ENTRIES_IN_FLIGHT_MAX: usize = 4;
/// The longest deadline a caller gets.
const DEADLINE_MAX: Duration = Duration::from_secs(60);
/// How long to wait before looking again where nothing told of a change.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// One proposal in the leader's queue.
#[derive(Debug)]
pub(super) struct Waiting {
    proposal: Proposal,
    bytes: usize,
    /// Dropped without an answer if the entry was not seen to be committed.
    answer: oneshot::Sender<(u64, Outcome)>,
}

/// What became of a proposal on this voter.
enum Local {
    Answered(Answer),
    NotLeading,
    /// It may be in the log.
    Lost,
}

impl Voter {
    /// Proposes from any voter; see [`MetadataRole::propose_as`](super::MetadataRole::propose_as).
    pub(super) async fn propose(&self, proposal: Proposal, deadline: Duration) -> Answer {
        let until = Instant::now() + deadline.min(DEADLINE_MAX);
        let bytes = encode(&proposal).len();
        if bytes > COMMAND_BYTES_MAX {
            let (bytes, bytes_max) = (bytes as u64, COMMAND_BYTES_MAX as u64);
            return self.refuse(Refusal::TooLarge { bytes, bytes_max });
        }
        let unknown = Answer::Unknown { operation_id: proposal.operation };
        let (mut contacts, mut metrics) = (self.contacts.changed(), self.raft.metrics());
        let mut may_be_in_log = false;
        loop {
            let route = self.route();
            let refusal = match &route {
                Route::Here => match self.propose_here(proposal.clone(), bytes, until).await {
                    Local::Answered(answer) => return answer,
                    Local::NotLeading => Refusal::NoLeader,
                    Local::Lost if !proposal.repeats_safely() => return unknown,
                    Local::Lost => {
                        may_be_in_log = true;
                        Refusal::NoLeader
                    }
                },
                Route::To { name } => match self.forward(name, &proposal, until).await {
                    Local::Answered(answer) => return answer,
                    Local::NotLeading => Refusal::NoLeader,
                    Local::Lost if !proposal.repeats_safely() => return unknown,
                    Local::Lost => {
                        may_be_in_log = true;
                        Refusal::NoLeader
                    }
                },
                Route::NoLeader => Refusal::NoLeader,
                Route::NoMajority => Refusal::NoMajority,
                Route::Stopped => Refusal::Stopping,
            };
            let is_final = match route {
                Route::Stopped => true,
                // A voter that has just started has not met the others yet.
                Route::NoMajority => self.started.elapsed() > self.config.timings.voter_silent,
                _ => false,
            };
            if is_final || Instant::now() >= until {
                return if may_be_in_log { unknown } else { self.refuse(refusal) };
            }
            tokio::select! {
                _ = contacts.changed() => {}
                _ = metrics.changed() => {}
                () = sleep_until(until.min(Instant::now() + LOOK_AGAIN)) => {}
            }
        }
    }

    /// Proposes on this voter only; for proposals that other voters forward.
    pub(super) async fn propose_forwarded(
        &self,
        proposal: Proposal,
        deadline: Duration,
    ) -> ProposeAnswer {
        let until = Instant::now() + deadline.min(DEADLINE_MAX);
        let operation_id = proposal.operation;
        let bytes = encode(&proposal).len();
        if self.leading_term().is_none() {
            return ProposeAnswer::NotLeading;
        }
        match self.propose_here(proposal, bytes, until).await {
            Local::Answered(answer) => ProposeAnswer::Answered(answer),
            Local::NotLeading => ProposeAnswer::NotLeading,
            Local::Lost => ProposeAnswer::Answered(Answer::Unknown { operation_id }),
        }
    }

    /// Waits until a voter is no longer live.
    async fn lost(&self, name: &str) {
        let silent = self.config.timings.voter_silent;
        while self.contacts.get(name).is_some_and(|contact| contact.is_live(silent)) {
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Proposes a no-op through this voter's own log; whether it was admitted there.
    pub(super) async fn commits_barrier(&self, deadline: Duration) -> bool {
        let proposal = Proposal { operation: OperationId::random(), command: Command::Noop };
        let bytes = encode(&proposal).len();
        let local = self.propose_here(proposal, bytes, Instant::now() + deadline).await;
        matches!(local, Local::Answered(Answer::Admitted { .. }))
    }

    async fn propose_here(&self, proposal: Proposal, bytes: usize, until: Instant) -> Local {
        let operation_id = proposal.operation;
        let (answer, answered) = oneshot::channel();
        match self.proposals.try_send(Waiting { proposal, bytes, answer }) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                return Local::Answered(self.refuse(Refusal::Busy));
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return Local::NotLeading,
        }
        match timeout_at(until, answered).await {
            Ok(Ok((index, Outcome::Done(response)))) => {
                Local::Answered(Answer::Admitted { index, operation_id, response })
            }
            Ok(Ok((_, Outcome::Refused(reason)))) => Local::Answered(self.refuse(reason)),
            Ok(Err(_dropped)) => Local::Lost,
            Err(_elapsed) => Local::Answered(Answer::Unknown { operation_id }),
        }
    }

    async fn forward(&self, name: &str, proposal: &Proposal, until: Instant) -> Local {
        let remaining = until.saturating_duration_since(Instant::now());
        let request =
            Request::Propose { proposal: proposal.clone(), deadline_ms: millis(remaining) };
        let called = tokio::select! {
            called = self.peers.call(name, "", &request, remaining) => called,
            // A leader that went silent gives no answer; the next one may.
            () = self.lost(name) => return Local::Lost,
        };
        match called {
            Ok(Response::Propose(ProposeAnswer::Answered(answer))) => Local::Answered(answer),
            Ok(Response::Propose(ProposeAnswer::NotLeading)) => Local::NotLeading,
            Ok(_) => Local::Lost,
            Err(error) if error.may_have_arrived() => Local::Lost,
            Err(_) => Local::NotLeading,
        }
    }
}

/// Gathers what waits into entries.
pub(super) async fn run_proposer(voter: Arc<Voter>, mut queue: mpsc::Receiver<Waiting>) {
    let in_flight = Arc::new(Semaphore::new(ENTRIES_IN_FLIGHT_MAX));
    loop {
        let Ok(permit) = Arc::clone(&in_flight).acquire_owned().await else { return };
        let Some(first) = queue.recv().await else { return };
        let entry = gather(first, &mut queue);
        if entry.is_empty() {
            continue;
        }
        let voter = Arc::clone(&voter);
        tokio::spawn(async move {
            let _permit = permit;
            let mut stop = voter.stop.subscribe();
            tokio::select! {
                () = commit(&voter, entry) => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        });
    }
}

/// Takes what waits, up to the limits of an entry, and leaves out whose caller has given up.
fn gather(first: Waiting, queue: &mut mpsc::Receiver<Waiting>) -> Vec<Waiting> {
    let mut bytes = 0;
    let mut entry = Vec::new();
    let mut next = Some(first);
    while let Some(waiting) = next {
        if !waiting.answer.is_closed() {
            bytes += waiting.bytes;
            entry.push(waiting);
        }
        if bytes >= ENTRY_BYTES_TARGET || entry.len() >= ENTRY_PROPOSALS_MAX {
            break;
        }
        next = queue.try_recv().ok();
    }
    entry
}

async fn commit(voter: &Voter, entry: Vec<Waiting>) {
    let (proposals, answers): (Vec<_>, Vec<_>) =
        entry.into_iter().map(|waiting| (waiting.proposal, waiting.answer)).unzip();
    match voter.raft.client_write(Change { proposals }).await {
        Ok(written) => {
            voter.ages().admitted = Some(Instant::now());
            for (answer, outcome) in answers.into_iter().zip(written.data.outcomes) {
                // A caller that has given up was told that the outcome is unknown.
                let _ = answer.send((written.log_id.index, outcome));
            }
        }
        Err(error) => tracing::debug!(%error, "an entry was not seen to be committed"),
    }
}
