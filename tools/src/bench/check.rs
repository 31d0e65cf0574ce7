//! What is refused before anything runs, and what makes a run fail after it.

use anyhow::{anyhow, bail};

use super::args::CommonArgs;
use super::meter::Measured;
use crate::outcome::UsageError;

const RUNTIME_MAX_S: u64 = 3_600;
const PARTITIONS_MAX: u64 = 100_000;
const ARENA_BYTES_MIN: u64 = 8 << 20;

pub(crate) fn common(common: &CommonArgs) -> anyhow::Result<()> {
    let runtime_s = common.runtime.as_secs_f64();
    if runtime_s <= 0.0 || common.runtime.as_secs() > RUNTIME_MAX_S {
        bail!(UsageError(format!("--runtime is above 0 and at most {RUNTIME_MAX_S} s")));
    }
    if common.ramp.as_secs() > RUNTIME_MAX_S {
        bail!(UsageError(format!("--ramp is at most {RUNTIME_MAX_S} s")));
    }
    if u32::from(common.threads) > common.depth {
        bail!(UsageError(format!(
            "--threads {} have nothing to do at --depth {}",
            common.threads, common.depth
        )));
    }
    if common.size == 0 {
        bail!(UsageError("--size 0: records without bytes have no throughput".into()));
    }
    if common.arena < ARENA_BYTES_MIN {
        bail!(UsageError(format!("--arena is at least {} MiB", ARENA_BYTES_MIN >> 20)));
    }
    Ok(())
}

pub(crate) fn partitions(count: u64) -> anyhow::Result<()> {
    if !(1..=PARTITIONS_MAX).contains(&count) {
        bail!(UsageError(format!("--partitions is from 1 to {PARTITIONS_MAX}")));
    }
    Ok(())
}

pub(crate) fn rate(rate: Option<u64>) -> anyhow::Result<()> {
    if rate == Some(0) {
        bail!(UsageError("--rate is above 0".into()));
    }
    Ok(())
}

/// Takes a turn whose every call succeeded: no rate is ever told over calls that failed.
pub(crate) fn measured(measured: Measured) -> anyhow::Result<Measured> {
    let sample = &measured.sample;
    if sample.errors > 0 {
        let first = sample.first_error.clone().unwrap_or_default();
        return Err(anyhow!("{} calls of the load failed; the first: {first}", sample.errors));
    }
    if sample.records == 0 {
        bail!("no call was done within the time; a longer --runtime is needed");
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::lane::Sample;
    use crate::bench::usage::Usage;

    fn turn(records: u64, errors: u64) -> Measured {
        let mut sample = Sample::new();
        sample.note(Duration::from_micros(5), records, records * 100);
        sample.errors = errors;
        sample.first_error = (errors > 0).then(|| "the device failed".to_owned());
        Measured { sample, elapsed: Duration::from_secs(1), usage: Usage::default() }
    }

    #[test]
    fn no_rate_is_told_over_calls_that_failed() {
        let failed = measured(turn(1_000, 2)).map(|_| ()).unwrap_err().to_string();

        assert!(failed.contains("2 calls") && failed.contains("the device failed"), "{failed}");
        assert!(measured(turn(0, 0)).is_err());
        assert!(measured(turn(1_000, 0)).is_ok());
    }
}
