//! Faults met in the field, each with its right outcome, through the engine's public interface.
//!
//! A file holds the scenarios of one subject; the letter and number of each name it in the list of scenarios.
//! Where one names a crash, it runs at every operation of a simulated device, and once on real files.

mod batches;
mod checkpoints;
mod damage;
mod damage_anywhere;
mod device_errors;
mod directories;
mod epochs;
mod full_disk;
mod journal;
mod kills;
mod late_groups;
mod many_partitions;
mod offsets;
mod producers;
mod promises;
mod recovery;
mod recycling;
mod reservations;
mod retention;
mod rolls;
mod stopping;
mod unsynced;

/// Where real files go.
const TARGET: &str = env!("CARGO_TARGET_TMPDIR");
