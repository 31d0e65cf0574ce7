//! The sessions of nodes, as a voter serves them: registration, leases confirmed by a majority, pushes.
//!
//! Runs beside the metadata role in every voter; one that does not lead says who does.

mod control_lane;
mod grant_set;
mod lease_lane;
mod lease_table;
mod lookup;
mod reading;
mod server;

pub use grant_set::GrantSet;
pub use lease_table::{DRIFT_PER_MILLE, Decision, LeaseRules, LeaseTable, NotRenewed, Run};
pub use reading::Reading;
pub use server::{CONNECTIONS_MAX, NodeHealth, SessionServer, SessionStatus};
