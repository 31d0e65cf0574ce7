//! The handle of a shard: its mailbox, and the short cut for calls made on its own thread.

use std::fmt;
use std::sync::Arc;

use crate::partition::{Answers, AppendError, Appended, Reserved};
use crate::shard::{Mailbox, Request, Sent, ShardKey, find_local};

/// The number of a shard, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardIndex(pub usize);

impl fmt::Display for ShardIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reaches one shard from any thread.
#[derive(Clone, Debug)]
pub(crate) struct ShardHandle {
    pub(crate) index: ShardIndex,
    pub(crate) key: ShardKey,
    pub(crate) mailbox: Arc<Mailbox>,
    /// Places for the answers to appends.
    pub(crate) appends: Answers<Result<Appended, AppendError>>,
    /// Places for reservations.
    pub(crate) reservations: Answers<Result<Reserved, AppendError>>,
}

impl ShardHandle {
    /// Hands over a request: directly on the shard's own thread, else through the mailbox.
    pub(crate) fn send(&self, request: Request) -> Sent {
        match find_local(self.key) {
            Some(shard) => {
                shard.dispatch(request);
                Sent::Taken
            }
            None => self.mailbox.send(request),
        }
    }
}
