//! Answers who owns the partitions of a stream: from any voter that can be reached, else from what this node
//! knows of itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::lookup_link::LookupLink;
use super::node_state::NodeState;
use crate::wire::data::DataError;
use crate::wire::session::{Lookup, LookupAnswer, StreamOwners};

/// Questions that may wait; beyond them clients are told that the node is busy.
pub(super) const QUESTIONS_MAX: usize = 256;
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
    let link = LookupLink::new(state.config.sidecars.clone());
    let mut voters = Voters { link, is_down_until: None };
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
    link: LookupLink,
    is_down_until: Option<Instant>,
}

impl Voters {
    async fn ask(&mut self, state: &NodeState, stream: String) -> Result<StreamOwners, DataError> {
        let own = state.own_partitions(&stream);
        if self.is_down_until.is_some_and(|until| Instant::now() < until) {
            return own.ok_or_else(nobody_answers);
        }
        match self.link.ask(state, &Lookup::Stream { name: stream }).await {
            Some(answer) => merge(answer, own),
            None => {
                self.is_down_until = Some(Instant::now() + DOWN_WAIT);
                own.ok_or_else(nobody_answers)
            }
        }
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
        (LookupAnswer::Quorum(_), own) => own.ok_or_else(nobody_answers),
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
