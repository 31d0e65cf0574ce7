//! Values as bytes: one version byte, then postcard. Postcard is not self-describing, so the byte comes first and
//! variants and fields are only appended; another layout gets another version.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version this program writes, of entries and of the view alike.
pub const STATE_VERSION: u8 = 1;

/// Why bytes are not a value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// No bytes at all.
    #[error("the value is empty")]
    Empty,
    /// Written by a newer program.
    #[error("the value has version {found}; this program knows up to {supported}")]
    NewerVersion {
        /// Its version.
        found: u8,
        /// What is known.
        supported: u8,
    },
    /// Not such a value, or cut short, or with bytes behind it.
    #[error("the value does not decode: {source}")]
    Malformed {
        /// Why.
        source: postcard::Error,
    },
}

/// Encodes a value behind its version byte.
///
/// # Panics
///
/// Never for the types of this crate: they hold nothing postcard cannot encode.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![STATE_VERSION]).expect("plain values encode")
}

/// Decodes what [`encode`] made.
///
/// # Errors
///
/// [`DecodeError`] on any other bytes.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let (&found, rest) = bytes.split_first().ok_or(DecodeError::Empty)?;
    if found != STATE_VERSION {
        return Err(DecodeError::NewerVersion { found, supported: STATE_VERSION });
    }
    match postcard::take_from_bytes(rest) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(DecodeError::Malformed { source: postcard::Error::DeserializeBadEncoding }),
        Err(source) => Err(DecodeError::Malformed { source }),
    }
}
