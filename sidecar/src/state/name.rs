//! The rules for names, addresses and settings that people choose.

use std::time::Duration;

use super::refusal::Refusal;

/// The longest stream name, in bytes; the engine's rule.
const STREAM_NAME_BYTES_MAX: usize = 200;
/// The longest name of a node, rack or voter.
const NODE_NAME_BYTES_MAX: usize = 63;
/// The longest address: 255 of a host name, a colon and a port.
const ADDRESS_BYTES_MAX: usize = 261;
/// How much of a refused text is repeated.
const REPEATED_BYTES_MAX: usize = 200;

/// Checks a stream's name: 1 to 200 of `a-z A-Z 0-9 . _ -`, no leading dot.
pub(crate) fn check_stream_name(name: &str) -> Result<(), Refusal> {
    check(name, STREAM_NAME_BYTES_MAX)
}

/// Checks the name of a node or voter: 1 to 63 of the same characters.
pub(crate) fn check_node_name(name: &str) -> Result<(), Refusal> {
    check(name, NODE_NAME_BYTES_MAX)
}

/// Checks a rack: empty, or the rule of node names.
pub(crate) fn check_rack(rack: &str) -> Result<(), Refusal> {
    if rack.is_empty() { Ok(()) } else { check(rack, NODE_NAME_BYTES_MAX) }
}

/// Checks `host:port`, without resolving it.
pub(crate) fn check_address(address: &str) -> Result<(), Refusal> {
    let refused = || Refusal::BadAddress { address: shorten(address) };
    let (host, port) = address.rsplit_once(':').ok_or_else(refused)?;
    let is_host = !host.is_empty()
        && address.len() <= ADDRESS_BYTES_MAX
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
    if is_host && port.parse::<u16>().is_ok() { Ok(()) } else { Err(refused()) }
}

/// Checks one setting of the cluster's configuration.
pub(crate) fn check_config(key: &str, value: &str) -> Result<(), Refusal> {
    let is_known = match key {
        "canary.interval" => parse_duration(value)
            .is_some_and(|d| (Duration::from_millis(50)..=Duration::from_secs(60)).contains(&d)),
        _ => false,
    };
    if is_known {
        return Ok(());
    }
    Err(Refusal::BadConfig { key: shorten(key), value: shorten(value) })
}

/// Reads `250ms` or `2s`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    if let Some(millis) = text.strip_suffix("ms") {
        return millis.parse().ok().map(Duration::from_millis);
    }
    text.strip_suffix('s')?.parse().ok().map(Duration::from_secs)
}

fn check(name: &str, bytes_max: usize) -> Result<(), Refusal> {
    let refused = |rule: String| Err(Refusal::BadName { name: shorten(name), rule });
    if name.is_empty() {
        return refused("it is empty".into());
    }
    if name.len() > bytes_max {
        return refused(format!("at most {bytes_max} bytes"));
    }
    if name.starts_with('.') {
        return refused("no leading dot".into());
    }
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-".contains(*c))) {
        Some(character) => refused(format!("{character:?}; use a-z A-Z 0-9 . _ -")),
        None => Ok(()),
    }
}

/// Cuts a text that is repeated in an answer at a character.
pub(crate) fn shorten(text: &str) -> String {
    let mut end = text.len().min(REPEATED_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_slashes_dots_other_scripts_or_300_bytes_are_refused() {
        for name in ["", ".", ".a", "a/b", "..", "naïve", "日本", "a b", &"x".repeat(300)] {
            assert!(check_stream_name(name).is_err(), "{name:?}");
            assert!(check_node_name(name).is_err(), "{name:?}");
        }
        assert!(check_stream_name("orders.v2_eu-west").is_ok());
    }

    #[test]
    fn addresses_are_host_and_port() {
        for address in ["127.0.0.1:9000", "[::1]:80", "broker-1.example:65535"] {
            assert!(check_address(address).is_ok(), "{address}");
        }
        for address in ["", ":1", "host", "host:", "host:70000", "a/b:1", "h\n:1"] {
            assert!(check_address(address).is_err(), "{address:?}");
        }
    }

    #[test]
    fn only_known_settings_within_their_range_are_taken() {
        assert!(check_config("canary.interval", "250ms").is_ok());
        assert!(check_config("canary.interval", "0ms").is_err());
        assert!(check_config("canary.interval", "soon").is_err());
        assert!(check_config("no.such", "1").is_err());
    }
}
