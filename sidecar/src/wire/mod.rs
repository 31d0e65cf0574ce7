//! What nodes, voters and data clients say to each other: values, and the frames that carry them.
//!
//! A frame's body starts with a version byte. Bytes from the network are checked and refused; they never
//! panic, and their lengths are bounded before anything is allocated.

pub mod data;
pub mod frame;
pub mod hello;
pub mod records;
pub mod session;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version of everything in this module. It moves when a variant or a field does; enum variants are
/// only ever appended.
pub const WIRE_VERSION: u8 = 2;

/// Encodes a value behind the version byte.
///
/// # Panics
///
/// If the value has no postcard form: none of the types here is such.
#[must_use]
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![WIRE_VERSION]).expect("every wire type has a postcard form")
}

/// Decodes what [`encode`] made.
///
/// # Errors
///
/// [`WireError`]: another version, or no such value. The connection is of no more use.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    let (&version, body) = bytes.split_first().ok_or(WireError::Empty)?;
    if version != WIRE_VERSION {
        return Err(WireError::Version { found: version, supported: WIRE_VERSION });
    }
    let (value, rest) = postcard::take_from_bytes(body)?;
    if !rest.is_empty() {
        return Err(WireError::Trailing { bytes: rest.len() });
    }
    Ok(value)
}

/// Why bytes were no message, or a connection carried none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Not even a version byte.
    #[error("an empty frame")]
    Empty,
    /// The other side is older or newer; upgrade the older one.
    #[error("wire version {found}; this program speaks {supported}")]
    Version {
        /// What came.
        found: u8,
        /// [`WIRE_VERSION`].
        supported: u8,
    },
    /// The bytes are no such value.
    #[error("a malformed message: {0}")]
    Malformed(#[from] postcard::Error),
    /// Bytes behind the value.
    #[error("{bytes} bytes behind the message")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// A length or count over its limit; nothing was allocated for it.
    #[error("{what} of {found}; at most {limit} are allowed")]
    TooLarge {
        /// What was too large.
        what: &'static str,
        /// How large it was.
        found: u64,
        /// How large it may be.
        limit: u64,
    },
    /// The payload does not have the shape its head promises.
    #[error("a payload of {bytes} bytes does not hold {records} records")]
    Payload {
        /// The payload's length.
        bytes: usize,
        /// The records it should hold.
        records: u32,
    },
    /// The payload's checksum differs: it changed on the way.
    #[error("payload checksum {found:08x}; its head says {expected:08x}")]
    Checksum {
        /// What the bytes have.
        found: u32,
        /// What the head says.
        expected: u32,
    },
    /// The other side closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// The other side said something else than the protocol has here.
    #[error("expected {expected}")]
    Unexpected {
        /// What should have come.
        expected: &'static str,
    },
    /// No answer within the time allowed.
    #[error("no answer within {waited_ms} ms")]
    TimedOut {
        /// How long was waited.
        waited_ms: u64,
    },
    /// The system broke the connection.
    #[error("connection: {0}")]
    Io(#[from] std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::session::{FromNode, FromVoter, Renewal, RenewalAnswer};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn another_version_is_refused_before_anything_is_read() {
        let mut bytes = encode(&7u32);
        assert_eq!(decode::<u32>(&bytes).unwrap(), 7);

        bytes[0] = WIRE_VERSION + 1;

        let refused = decode::<u32>(&bytes);
        assert!(
            matches!(refused, Err(WireError::Version { found, .. }) if found == WIRE_VERSION + 1)
        );
        assert!(matches!(decode::<u32>(&[]), Err(WireError::Empty)));
    }

    #[test]
    fn bytes_behind_a_message_are_refused() {
        let mut bytes = encode(&7u32);
        bytes.push(0);

        assert!(matches!(decode::<u32>(&bytes), Err(WireError::Trailing { bytes: 1 })));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            if let Some(version) = bytes.first_mut() {
                *version = WIRE_VERSION;
            }
            let _ = decode::<hello::Hello>(&bytes);
            let _ = decode::<hello::HelloAnswer>(&bytes);
            let _ = decode::<FromNode>(&bytes);
            let _ = decode::<FromVoter>(&bytes);
            let _ = decode::<Renewal>(&bytes);
            let _ = decode::<RenewalAnswer>(&bytes);
        }

        #[test]
        fn random_frames_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let bytes = bytes::Bytes::from(bytes);
            let _ = data::split::<data::Request>(bytes.clone());
            let _ = data::split::<data::Response>(bytes.clone());
            let _ = records::RecordBatch::from_payload(bytes, 3, None);
        }
    }
}
