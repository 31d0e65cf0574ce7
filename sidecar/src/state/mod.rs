//! The metadata state machine: plain values and functions, the same on every voter.
//!
//! No I/O, no clock, no randomness: every id, term and uuid comes from a counter in the state.

mod command;
mod id;
mod node;
mod outcome;
mod refusal;
mod stream;
mod view;

pub use command::{
    Command, CreateStream, ElectOwner, Proposal, RecordOwner, RegisterNode, STREAM_PARTITIONS_MAX,
};
pub use id::{Epoch, NodeId, OperationId, PartitionId, StorageId};
pub use node::Node;
pub use outcome::{Done, Operation, Outcome};
pub use refusal::Refusal;
pub use stream::{
    Descriptor, Election, HISTORY_MAX, Partition, Policy, Reason, Stream, StreamKind,
    StreamSettings,
};
pub use view::{ConfigEntry, GrantView, View};
