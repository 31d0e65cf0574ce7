//! The engine in a simulated world: virtual time, a device that loses power, and a model of what it promised.
//!
//! Every failure prints its seed and the operation it crashed at.

mod model;
mod model_tests;
mod segment_crashes;
