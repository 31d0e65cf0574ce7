//! The engine as its users see it, on real disks: every test in a directory of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod append_read;
mod changes;
mod gate;
mod reads;
mod refusals;
mod support;
