//! Makes the metadata durable on a majority: openraft over a redb log, snapshot files and TCP.
//!
//! Owns every byte a voter keeps on disk and sends to other voters. Decides nothing about the metadata.

mod directory;
mod frame;
mod log_store;
mod message;
mod peer;
mod snapshot;
mod state_machine;
#[cfg(test)]
mod store_tests;
mod types;

pub(crate) use directory::{DirectoryError, VoterDirectory};
pub(crate) use frame::{FRAME_BYTES_MAX, FrameError, read_frame, write_frame};
pub(crate) use log_store::LogStore;
pub(crate) use message::{
    Hello, HelloAnswer, HelloRefusal, PROTOCOL_VERSION, PeerReport, ProposeAnswer, Request,
    Response, VOTER_MAGIC,
};
pub(crate) use peer::{CallError, Connection, Peers, check_identity};
pub(crate) use snapshot::SnapshotError;
pub(crate) use state_machine::StateMachine;
pub(crate) use types::{Change, RaftId, TypeConfig, VoterNode};

/// The Raft core of one voter.
pub(crate) type Raft = openraft::Raft<TypeConfig>;
