//! The log of one partition: the rules, which are pure, and what is done by them.
//!
//! Rules: [`watermarks`], [`group_commit`], [`retention`], [`lease`], [`authority`], [`push_order`], [`promise`],
//! [`epoch_history`]. They do no I/O and read no clock. The log itself is `log.rs` and the files beside it.

mod admission;
mod append;
pub mod authority;
mod change;
mod changing;
mod checkpoint_store;
mod checkpointing;
mod cold_lane;
mod cold_read;
mod context;
mod counters;
mod cutting;
pub mod epoch_history;
mod gate_state;
mod gather;
mod grant;
mod granting;
pub mod group_commit;
pub mod lease;
mod log;
mod opening;
pub mod promise;
pub mod push_order;
mod read;
mod read_ahead;
mod read_segments;
mod reading;
mod recovery;
pub mod retention;
mod rolling;
pub mod scan_rule;
mod scans;
mod set_aside;
mod settings;
mod settling;
mod starting;
mod status;
mod submission;
mod tail_cache;
pub mod watermarks;

pub use append::{AppendError, AppendOptions, Appended, Durability, UnknownReason};
pub use change::ChangeError;
pub(crate) use checkpoint_store::{CHECKPOINT, OpenLogError};
pub(crate) use context::LogContext;
pub(crate) use counters::{Counter, LogCounters};
pub(crate) use gate_state::GateState;
pub use gate_state::Renewal;
pub use grant::{Grant, GrantError, GrantOutcome};
pub use lease::{LeaseState, LeaseTerm};
pub(crate) use log::PartitionLog;
pub use log::PartitionSpec;
pub(crate) use opening::{FoundPartition, STREAMS, find_partitions};
pub use push_order::PushPoint;
pub(crate) use read::UncheckedAnswer;
pub use read::{Read, ReadAnswer, ReadError, Verification, Wait};
pub use retention::RetentionLimits;
pub use set_aside::{Recovery, SetAside, SetAsideReason};
pub use settings::{PartitionSettings, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, ShardLimits};
pub(crate) use status::SharedStatus;
pub use watermarks::Watermarks;
