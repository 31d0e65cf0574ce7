//! Palisade's engine: the partition logs of one machine, on io_uring, written only by their rightful owner.
//!
//! Imports point down: `engine > shard > partition > segment > format, io`. All `unsafe` lives in `io`.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod engine;
pub mod format;
pub mod id;
pub mod io;
pub mod partition;
pub mod segment;
pub mod shard;

pub use engine::{Engine, EngineBuilder, EngineConfig, Partition};
