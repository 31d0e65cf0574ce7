//! How long the simulated disk takes for an operation.

use std::time::Duration;

use fastrand::Rng;

use super::request::Request;
use crate::io::disk::WriteMode;

/// One operation in this many is slow.
const SLOW_ONE_IN: u32 = 16;

/// How much longer a slow operation takes.
const SLOW_FACTOR: u32 = 12;

/// Draws a latency, from a range wide enough that operations finish out of order.
pub(super) fn draw(request: &Request, random: &mut Rng) -> Duration {
    let (least, most) = match request {
        Request::Write { mode: WriteMode::Written, .. } => (10, 150),
        Request::Write { .. } => (40, 400),
        Request::Sync { .. } | Request::SyncDirectory { .. } => (50, 1_000),
        Request::Read { .. } => (20, 200),
        _ => (5, 100),
    };
    let factor = if random.u32(..SLOW_ONE_IN) == 0 { SLOW_FACTOR } else { 1 };
    Duration::from_nanos(random.u64(least * 1_000..most * 1_000)) * factor
}
