//! Palisade's engine: the partition logs of one machine, on io_uring, written only by their rightful owner.
//!
//! Opened on a directory, it hands out partitions: ordered logs of records, appended in batches, durable when
//! acknowledged, read by offset, by time and at the tail. Used alone it owns every partition it creates; under a
//! coordinator it serves only what it has been granted ([`engine::Gate`]).
//!
//! ```
//! use palisade_engine::engine::{Engine, IoChoice};
//! use palisade_engine::format::RecordBatch;
//! use palisade_engine::id::Offset;
//! use palisade_engine::partition::AppendOptions;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir_in(".")?;
//! # let directory = scratch.path().join("data");
//! // One pinned thread; the ring where the kernel has it, blocking calls elsewhere.
//! let engine = Engine::builder(directory).shards(1).io(IoChoice::Auto).open()?;
//!
//! // Any executor will do: the engine's futures need none of their own.
//! let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! runtime.block_on(async {
//!     let orders = engine.open_partition(&"orders/0".parse()?).await?;
//!
//!     // A batch is appended whole or not at all. By default it is synced when this resolves.
//!     let mut batch = RecordBatch::builder();
//!     batch.push(b"one cup of tea")?;
//!     batch.push(b"one slice of cake")?;
//!     let appended = orders.append(batch.finish(), AppendOptions::default()).await?;
//!     assert_eq!(appended.base_offset, Offset(0));
//!
//!     // Records come back as they went in, sharing the log's memory.
//!     let mut reader = orders.reader(Offset(0));
//!     while let Some(batch) = reader.next().await {
//!         for (offset, record) in &batch? {
//!             println!("{offset}: {}", String::from_utf8_lossy(record));
//!         }
//!     }
//!     engine.close().await?;
//!     Ok(())
//! })
//! # }
//! ```
//!
//! Imports point down: `engine > shard > partition > segment > format, io`. All `unsafe` lives in `io`.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod engine;
pub mod format;
pub mod id;
pub mod io;
mod journal;
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
