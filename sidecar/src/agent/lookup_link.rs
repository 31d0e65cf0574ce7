//! A look-up lane to whichever voter answers: opened when it is needed, moved on when it fails.

use std::time::Duration;

use tokio::net::TcpStream;

use super::node_state::NodeState;
use super::voter_choice::VoterChoice;
use super::voter_link::{self, LinkError};
use crate::wire::WireError;
use crate::wire::frame::{MESSAGE_BYTES_MAX, receive, send, within};
use crate::wire::hello::{Hello, Lane};
use crate::wire::session::{Lookup, LookupAnswer};

/// How long one voter may take.
const VOTER_WAIT: Duration = Duration::from_millis(400);

/// A lane to some voter, for questions that need no leader.
#[derive(Debug)]
pub(super) struct LookupLink {
    voters: VoterChoice,
    count: usize,
    open: Option<TcpStream>,
}

impl LookupLink {
    pub(super) fn new(voters: Vec<String>) -> LookupLink {
        LookupLink { count: voters.len(), voters: VoterChoice::new(voters, 0), open: None }
    }

    /// Asks one voter after the other, each once; `None` if none answers.
    pub(super) async fn ask(
        &mut self,
        state: &NodeState,
        question: &Lookup,
    ) -> Option<LookupAnswer> {
        // One more than there are: the open lane may have ended since the last question.
        for _ in 0..=self.count {
            match self.ask_one(state, question).await {
                Ok(answer) => return Some(answer),
                Err(error) => tracing::debug!(%error, "a voter did not answer a look-up"),
            }
        }
        None
    }

    /// A lane that fails is dropped: an answer that comes late must not answer the next question.
    async fn ask_one(
        &mut self,
        state: &NodeState,
        question: &Lookup,
    ) -> Result<LookupAnswer, LinkError> {
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

    async fn connect(&mut self, state: &NodeState) -> Result<TcpStream, LinkError> {
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
