//! The handle of the metadata role in this process: propose, confirm, look, ask for the quorum.

mod answer;
mod config;
mod metadata_role;
mod quorum_status;

pub use answer::{Answer, Confirmed, NotLeading, VoterHint};
pub use config::{StartError, Timings, VoterConfig};
pub use metadata_role::{MetadataRole, SESSION_MAGIC, SessionConnection};
pub use quorum_status::{Majority, QuorumStatus, VoterStatus};
