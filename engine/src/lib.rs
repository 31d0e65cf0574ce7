//! Palisade's engine: the partition logs of one machine, on io_uring, written only by their rightful owner.
//!
//! Imports point down: `engine > shard > partition > segment > format, io`. All `unsafe` lives in `io`.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod engine;
pub mod format;
pub mod id;
pub mod io;
pub mod offline;
pub mod partition;
pub mod segment;
pub mod shard;

pub use engine::{Append, Engine, EngineBuilder, EngineConfig, Partition};
pub use format::{RecordBatch, StoredBatch};
pub use partition::{AppendError, AppendOptions, Appended, Durability, Read, ReadError, Wait};

// The README's example is a doc test of this crate.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[derive(Debug)]
struct Readme;
