//! A shard: one thread's mailbox, loop and partitions. Nothing here knows what is in a log.

mod counters;
mod local;
mod mailbox;
mod record;
mod report;
mod request;
#[expect(clippy::module_inception, reason = "the folder's main type is its namesake")]
mod shard;

pub(crate) use counters::ShardCounters;
pub(crate) use local::{ShardKey, find as find_local};
pub(crate) use mailbox::{EndOnDrop, Mailbox, Sent};
pub(crate) use record::PartitionRecord;
pub use report::{CloseError, CreateError, PartitionOpened};
pub(crate) use request::{Change, Request, Task};
pub(crate) use shard::{Shard, ShardOpened, ShardSetup, shard_of};
