//! What every bench here shares: the raw ring to compare with, the machine's description, and ratios with their spread.
//!
//! Nothing here measures the engine itself; the files under `benches/` do, through its public API.

pub mod disk_load;
pub mod executor;
pub mod figure;
pub mod instructions;
pub mod load;
pub mod machine;
pub mod ratio;
pub mod raw_ring;
pub mod scratch;
pub mod second_ring;
pub mod stopwatch;
