//! Answers who owns the partitions of a stream: from any voter that can be reached, else from what this node
//! knows of itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::node_state::NodeState;
use super::voter_choice::VoterChoice;
use super::voter_link;
use crate::wire::WireError;
use crate::wire::data::DataError;
use crate::wire::frame::{MESSAGE_BYTES_MAX, receive, send, within};
use crate::wire::hello::{Hello, Lane};
use crate::wire::session::{Lookup, LookupAnswer, StreamOwners};

/// Questions that may wait; beyond them clients are told that the node is busy.
pub(super) const QUESTIONS_MAX: usize = 256;
/// How long one voter may take.
const VOTER_WAIT: Duration = Duration::from_millis(400);
/// After no voter could be reached, questions are answered locally for so long.
const DOWN_WAIT: Duration = Duration::from_millis(500);

/// A question on its way to the thread that may wait for voters; shards never do.
#[derive(Debug)]
pub(super) struct Question {
    stream: String,
    reply: oneshot::Sender<Result<StreamOwners, DataError>>,
}

/// Asks, from any thread.
pub(super) async fn ask(state: &NodeState, stream: String) -> Result<StreamOwners, DataError> {
    let (reply, answer) = oneshot::channel();
    match state.questions.try_send(Question { stream, reply }) {
        Ok(()) => answer.await.unwrap_or(Err(DataError::Stopping)),
        Err(mpsc::error::TrySendError::Full(_)) => Err(DataError::Busy { retry_after_ms: 50 }),
        Err(mpsc::error::TrySendError::Closed(_)) => Err(DataError::Stopping),
    }
}

/// Answers questions one after the other, over one connection, until the node stops.
pub(super) async fn run(state: Arc<NodeState>, mut questions: mpsc::Receiver<Question>) {
    let mut stopping = state.stopping.subscribe();
    let voters = VoterChoice::new(state.config.sidecars.clone(), 0);
    let mut voters = Voters { voters, open: None, is_down_until: None };
    loop {
        let question = tokio::select! {
            question = questions.recv() => question,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        let Some(Question { stream, reply }) = question else { return };
        let answer = voters.ask(&state, stream).await;
        // A client that has left needs no answer.
        drop(reply.send(answer));
    }
}

struct Voters {
    voters: VoterChoice,
    open: Option<TcpStream>,
    is_down_until: Option<Instant>,
}

impl Voters {
    async fn ask(&mut self, state: &NodeState, stream: String) -> Result<StreamOwners, DataError> {
        let own = state.own_partitions(&stream);
        if self.is_down_until.is_some_and(|until| Instant::now() < until) {
            return own.ok_or_else(nobody_answers);
        }
        let question = Lookup::Stream { name: stream };
        for _ in 0..=state.config.sidecars.len() {
            match self.ask_one(state, &question).await {
                Ok(answer) => return merge(answer, own),
                Err(error) => {
                    tracing::debug!(%error, "a voter did not answer a look-up");
                    self.open = None;
                }
            }
        }
        self.is_down_until = Some(Instant::now() + DOWN_WAIT);
        own.ok_or_else(nobody_answers)
    }

    async fn ask_one(
        &mut self,
        state: &NodeState,
        question: &Lookup,
    ) -> Result<LookupAnswer, voter_link::LinkError> {
        let mut stream = match self.open.take() {
            Some(stream) => stream,
            None => self.connect(state).await?,
        };
        let asking = async {
            send(&mut stream, question).await?;
            receive(&mut stream, MESSAGE_BYTES_MAX).await
        };
        let answer = within(VOTER_WAIT, asking).await?;
        self.open = Some(stream);
        Ok(answer)
    }

    async fn connect(&mut self, state: &NodeState) -> Result<TcpStream, voter_link::LinkError> {
        let voter = self.voters.next().ok_or(WireError::Closed)?;
        let identity = state.identity();
        let hello = Hello {
            lane: Lane::Lookup,
            cluster: identity.membership.map(|membership| membership.cluster),
            name: identity.name,
            node: identity.membership.map(|membership| membership.node),
            incarnation: identity.incarnation,
        };
        let (stream, _welcome) = voter_link::open(&voter, &hello, VOTER_WAIT).await?;
        Ok(stream)
    }
}

/// A voter may lag behind: what this node owns for certain is never taken back by an older answer.
fn merge(answer: LookupAnswer, own: Option<StreamOwners>) -> Result<StreamOwners, DataError> {
    match (answer, own) {
        (LookupAnswer::Stream(mut told), Some(own)) if told.stream == own.stream => {
            for owner in own.owners {
                match told.owners.iter_mut().find(|known| known.index == owner.index) {
                    Some(known) if known.epoch <= owner.epoch => *known = owner,
                    Some(_) => {}
                    None => told.owners.push(owner),
                }
            }
            Ok(told)
        }
        (LookupAnswer::Stream(told), _) => Ok(told),
        (LookupAnswer::UnknownStream { .. }, Some(own)) => Ok(own),
        (LookupAnswer::UnknownStream { at }, None) => Err(DataError::UnknownStream { at }),
    }
}

fn nobody_answers() -> DataError {
    let reason = "no voter answers, and this node owns nothing of the stream".to_owned();
    DataError::Unavailable { reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::session::{MetadataPoint, PartitionOwner};

    fn owners(index: u64, epoch: u64, address: &str) -> StreamOwners {
        StreamOwners {
            stream: 1,
            at: MetadataPoint { lineage: 0, index },
            partitions: if index == 0 { 0 } else { 1 },
            owners: vec![PartitionOwner { index: 0, epoch, node: 1, address: address.to_owned() }],
        }
    }

    #[test]
    fn a_lagging_voter_does_not_hide_what_the_node_owns() {
        let told = LookupAnswer::Stream(owners(5, 3, "old"));

        let merged = merge(told, Some(owners(0, 4, "mine"))).unwrap();

        assert_eq!(merged.owners[0].address, "mine");
        assert_eq!((merged.at.index, merged.partitions), (5, 1));
        let unknown = LookupAnswer::UnknownStream { at: MetadataPoint::default() };
        assert_eq!(merge(unknown, Some(owners(0, 4, "mine"))).unwrap().owners.len(), 1);
    }

    #[test]
    fn a_newer_owner_wins_over_what_the_node_thinks() {
        let told = LookupAnswer::Stream(owners(5, 6, "new"));

        let merged = merge(told, Some(owners(0, 4, "mine"))).unwrap();

        assert_eq!(merged.owners[0].address, "new");
    }
}
