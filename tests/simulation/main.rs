//! The engine in a simulated world: virtual time, a device that loses power, and a model of what it promised.
//!
//! Every failure prints its seed and the operation it crashed at. Run that seed alone, and see what the engine asks
//! of the device, with
//! `PALISADE_SIMULATION_SEED=7 PALISADE_SIMULATION_TRACE=1 cargo test -p palisade-tests --test simulation crash`;
//! run many with `PALISADE_SIMULATION_SEED=1000..9000`.

mod crash_everywhere;
mod faults_everywhere;
mod model;
mod model_tests;
mod segment_crashes;
mod workload;
mod world;
