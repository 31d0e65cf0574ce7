//! What one raw durable write costs on this device: the yardstick beside every latency quickstart shows.

use std::io::IoSlice;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use palisade_engine::id::BLOCK_BYTES;
use palisade_engine::io::clock::Clock;
use rustix::fs::{Mode, OFlags};
use rustix::io::ReadWriteFlags;

/// How many blocks are written: enough for a median, under a tenth of a second.
const WRITES: usize = 512;

/// Writes single blocks with `O_DIRECT` and `RWF_DSYNC` into a file that was written before, one at a time.
///
/// Where the file system refuses `O_DIRECT`, the page cache is in between and the figure includes it.
pub(crate) fn measure(directory: &Path, clock: &dyn Clock) -> anyhow::Result<Histogram<u64>> {
    let path = directory.join("raw-device-probe");
    let mut block = vec![0_u8; 2 * BLOCK_BYTES];
    let aligned = block.as_ptr().align_offset(BLOCK_BYTES);
    let block = &mut block[aligned..aligned + BLOCK_BYTES];
    block.fill(0xa5);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::open(&path, flags | OFlags::DIRECT, mode)
        .or_else(|_| rustix::fs::open(&path, flags, mode))
        .with_context(|| format!("opening {}", path.display()))?;
    for at in 0..WRITES {
        write_block(&file, block, at, ReadWriteFlags::empty())?;
    }
    rustix::fs::fsync(&file).with_context(|| format!("syncing {}", path.display()))?;

    let mut latencies_ns = latencies();
    for at in 0..WRITES {
        let started = clock.now();
        write_block(&file, block, at, ReadWriteFlags::DSYNC)?;
        record(&mut latencies_ns, clock.now().elapsed_for_holder(started));
    }
    std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    Ok(latencies_ns)
}

/// An empty histogram of latencies in nanoseconds, up to a minute.
pub(crate) fn latencies() -> Histogram<u64> {
    const LATENCY_NS_MAX: u64 = 60_000_000_000;
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are in order")
}

/// Records a duration in nanoseconds, at the top of the range if it is longer than that.
pub(crate) fn record(latencies_ns: &mut Histogram<u64>, latency: Duration) {
    latencies_ns.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
}

fn write_block(
    file: &rustix::fd::OwnedFd,
    block: &[u8],
    at: usize,
    flags: ReadWriteFlags,
) -> anyhow::Result<()> {
    let position = (at * BLOCK_BYTES) as u64;
    let written = rustix::io::pwritev2(file, &[IoSlice::new(block)], position, flags)
        .context("writing a raw block")?;
    anyhow::ensure!(written == BLOCK_BYTES, "a raw write came to {written} bytes");
    Ok(())
}
