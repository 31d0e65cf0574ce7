//! The data client: appends to and reads from partitions over TCP, wherever their owners are.
//!
//! Runs on tokio. Everything in flight is bounded; only what is safe to repeat is repeated.

mod connection;
mod data_client;
mod error;
mod owners;
mod producer_client;
mod retry;

pub use crate::wire::data::{Appended, DataError, Durability, Producer, Watermarks};
pub use crate::wire::records::{ReceivedBatch, RecordBatch, RecordBatchBuilder};
pub use crate::wire::session::{PartitionOwner, StreamOwners};
pub use data_client::{
    AppendOptions, DataClient, DataClientConfig, PendingAppend, ReadOutcome, partition_of,
};
pub use error::ClientError;
pub use producer_client::ProducerClient;
