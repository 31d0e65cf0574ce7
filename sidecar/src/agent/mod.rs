//! The node side: keeps a session with the voter that leads, drives the engine's gate, serves the data port.
//!
//! The only module that imports the engine. What it is told it does; it decides nothing about ownership.

mod backoff;
mod config;
mod control_session;
mod data_answers;
mod data_port;
mod grant_applier;
mod lease_renewal;
mod lookup_link;
mod node_admin;
mod node_agent;
mod node_identity;
mod node_state;
mod node_status;
mod opening;
mod owner_lookup;
mod push_inbox;
mod quorum_watch;
mod voter_choice;
mod voter_link;

pub use config::{NodeConfig, NodeError};
pub use data_port::{CONNECTIONS_MAX, READ_BYTES_MAX, READS_IN_FLIGHT_MAX, REQUESTS_IN_FLIGHT_MAX};
pub use node_agent::{NodeAgent, StopReport};
pub use node_identity::{IdentityError, Membership, NodeIdentity};
pub use node_status::{LeaseStatus, NodePartition, NodeStatus, ShardCounters};
