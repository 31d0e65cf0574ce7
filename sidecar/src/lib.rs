//! The metadata role of a Palisade cluster: admission by majority, sessions and leases.
//!
//! `state` decides, `raft` makes it durable on a majority, `role` is the handle everything else uses,
//! `admin` shows it over HTTP. Only `agent` imports the engine.

#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod admin;
pub mod agent;
pub mod client;
mod raft;
pub mod role;
pub mod session;
pub mod state;
pub mod voter;
pub mod wire;
