//! The admin API: HTTP and JSON on every voter and node, and the typed client of it.
//!
//! Shows and forwards; decides nothing. Every answer comes inside the caller's deadline.

mod client;
mod messages;
mod metrics;
mod role_source;
mod server;
mod source;

pub use client::{AdminClient, AdminError};
pub use messages::{
    AdminAnswer, CreateStreamRequest, ElectionEntry, NodeEntry, OperationEntry, PartitionEntry,
    StatusReport, StreamEntry,
};
pub use server::{AdminServer, BODY_BYTES_MAX};
pub use source::{AdminChange, AdminSource, BoxFuture, Readiness, Ready};
