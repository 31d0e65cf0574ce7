//! Proves leadership: one round to a majority that begins after the requests it answers.

use std::sync::Arc;
use std::time::Duration;

use openraft::error::{CheckIsLeaderError, RaftError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::answer::{Confirmed, NotLeading};
use super::voter::Voter;

/// How many requests may wait for a round.
pub(super) const WAITING_MAX: usize = 16_384;

/// Who waits for a round.
pub(super) type Waiter = oneshot::Sender<Result<Confirmed, Unconfirmed>>;

/// Why a round confirmed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unconfirmed {
    /// Not the leader, or with no barrier in this term yet.
    NotLeading,
    /// Too few answered in time; another round may do.
    TooFew,
}

impl Voter {
    pub(super) async fn confirm_leadership(
        &self,
        deadline: Duration,
    ) -> Result<Confirmed, NotLeading> {
        let until = Instant::now() + deadline;
        let mut barrier = self.barrier.subscribe();
        while let Some(term) = self.leading_term() {
            // A leader of a moment commits its barrier first; it cannot be confirmed before.
            let in_term = barrier.wait_for(|committed| *committed == Some(term));
            if timeout_at(until, in_term).await.is_err() {
                break;
            }
            let (waiter, answer) = oneshot::channel();
            if self.confirmations.try_send(waiter).is_err() {
                break;
            }
            match timeout_at(until, answer).await {
                Ok(Ok(Ok(confirmed))) => return Ok(confirmed),
                Ok(Ok(Err(Unconfirmed::TooFew))) => {}
                _ => break,
            }
        }
        let (live, needed, _) = self.count_live();
        let leader = self.leader().filter(|leader| leader != self.name());
        Err(NotLeading { leader: leader.and_then(|leader| self.hint(&leader)), live, needed })
    }

    async fn confirm_once(&self) -> Result<Confirmed, Unconfirmed> {
        let round = timeout(self.config.timings.election_max, self.raft.get_read_log_id());
        let read = match round.await {
            Ok(Ok((Some(read), _applied))) => read,
            Ok(Err(RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_)))) | Err(_) => {
                return Err(Unconfirmed::TooFew);
            }
            Ok(_) => return Err(Unconfirmed::NotLeading),
        };
        let term = read.leader_id.term;
        if *self.barrier.borrow() != Some(term) {
            return Err(Unconfirmed::NotLeading);
        }
        let mut applied = self.machine.applied();
        let caught_up = applied.wait_for(|applied| *applied >= read.index);
        if timeout(self.config.timings.election_max, caught_up).await.is_err() {
            return Err(Unconfirmed::TooFew);
        }
        Ok(Confirmed { lineage: self.machine.view().lineage, index: read.index, term })
    }
}

/// Runs rounds, one at a time, each for everybody who waits when it begins.
pub(super) async fn run_confirmer(voter: Arc<Voter>, mut queue: mpsc::Receiver<Waiter>) {
    while let Some(first) = queue.recv().await {
        let mut waiters = vec![first];
        while let Ok(next) = queue.try_recv() {
            waiters.push(next);
        }
        let confirmed = voter.confirm_once().await;
        for waiter in waiters {
            // A waiter that has gone needs no answer.
            let _ = waiter.send(confirmed);
        }
    }
}
