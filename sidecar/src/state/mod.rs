//! The metadata state machine: plain values and functions, the same on every voter.
//!
//! No I/O, no clock, no randomness: every id, term and uuid comes from a counter in the state.

mod apply;
#[cfg(test)]
mod apply_tests;
mod codec;
mod command;
mod id;
pub(crate) mod name;
mod node;
mod outcome;
mod placement;
mod refusal;
mod stream;
mod view;

pub use apply::{
    NODES_MAX, OPERATIONS_MAX, PARTITIONS_MAX, STREAMS_MAX, TOMBSTONES_MAX, VOTERS_MAX,
};
pub use codec::{DecodeError, STATE_VERSION, decode, encode};
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
