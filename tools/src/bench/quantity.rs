//! Numbers as people write them for a load: sizes, counts and times with a suffix. Pure.

use std::time::Duration;

/// Parses bytes: `100`, `64k`, `1m`, `2g`, in powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text, 1024)
}

/// Parses a count: `1000`, `10k`, `4m`, in powers of 1000.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    parse(text, 1000)
}

fn parse(text: &str, step: u64) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|error| format!("{text:?}: {error}"))?;
    let power = match suffix.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        _ => return Err(format!("{text:?}: write a number, and k, m or g behind it, or nothing")),
    };
    number.checked_mul(step.pow(power)).ok_or_else(|| format!("{text:?} is too large"))
}

/// Parses a time: `5` is seconds, as in fio; or `250ms`, `2s`, `1m`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => crate::cli::parse_duration(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_1024_and_counts_by_1000() {
        assert_eq!(parse_bytes("100"), Ok(100));
        assert_eq!(parse_bytes("64k"), Ok(65_536));
        assert_eq!(parse_bytes("1M"), Ok(1 << 20));
        assert_eq!(parse_bytes("2g"), Ok(2 << 30));
        assert_eq!(parse_count("10k"), Ok(10_000));
        assert_eq!(parse_count("4m"), Ok(4_000_000));
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "k", "-1", "1.5k", "1kb", "1 k", "99999999999999999999", "99999999999999g"]
        {
            assert!(parse_bytes(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn bare_time_is_seconds() {
        assert_eq!(parse_time("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_time("250ms"), Ok(Duration::from_millis(250)));
        assert!(parse_time("5h").is_err());
    }
}
