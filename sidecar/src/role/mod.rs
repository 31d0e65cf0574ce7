//! The handle of the metadata role in this process: propose, confirm, look, ask for the quorum.
//!
//! Owns the voter's tasks and what they know of each other. What the metadata is, `state` decides.

mod answer;
mod config;
mod confirmer;
mod contacts;
mod leadership;
mod listener;
mod metadata_role;
mod proposer;
mod quorum_status;
mod start;
mod voter;

pub use answer::{Answer, Confirmed, NotLeading, VoterHint};
pub use config::{StartError, Timings, VoterConfig};
pub use metadata_role::{MetadataRole, SESSION_MAGIC, SessionConnection};
pub(crate) use quorum_status::what_goes_on;
pub use quorum_status::{Majority, QuorumStatus, VoterStatus};
