//! The answer to an append that is on its way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_executor::block_on;
use tokio::sync::Mutex;

use crate::partition::{Answer, AppendError, Appended, UnknownReason};

/// Resolves when the append is acknowledged or refused.
///
/// The batch was submitted by the call that returned this; dropping it does not take the batch back.
#[derive(Debug)]
#[must_use = "an append is acknowledged only through its future"]
pub struct Append {
    state: State,
}

#[derive(Debug)]
enum State {
    Refused(Option<AppendError>),
    Waiting(Answer<Result<Appended, AppendError>>),
}

impl Append {
    pub(super) fn refused(error: AppendError) -> Append {
        Append { state: State::Refused(Some(error)) }
    }

    pub(super) fn waiting(answer: Answer<Result<Appended, AppendError>>) -> Append {
        Append { state: State::Waiting(answer) }
    }

    /// Blocks this thread until the answer is there. For threads that run no tasks; never on a shard.
    ///
    /// # Errors
    ///
    /// As awaiting it.
    ///
    /// # Panics
    ///
    /// Inside an asynchronous runtime.
    pub fn wait(self) -> Result<Appended, AppendError> {
        match self.state {
            State::Refused(error) => Err(error.unwrap_or(AppendError::Closed)),
            State::Waiting(answer) => {
                // Nobody holds it. Inside a runtime, which must not be blocked, it panics.
                drop(Mutex::const_new(()).blocking_lock());
                block_on(answer).unwrap_or_else(|| Err(shard_ended()))
            }
        }
    }
}

impl Future for Append {
    type Output = Result<Appended, AppendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            State::Refused(error) => Poll::Ready(Err(error.take().unwrap_or(AppendError::Closed))),
            State::Waiting(answer) => Pin::new(answer)
                .poll(context)
                .map(|answer| answer.unwrap_or_else(|| Err(shard_ended()))),
        }
    }
}

fn shard_ended() -> AppendError {
    AppendError::Unknown { base_offset: None, reason: UnknownReason::ShardEnded }
}
