//! Frames between voters. The length is bounded before anything is allocated.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of the payload, little endian |
//! | 4 | CRC-32 of the payload |
//! | n | the payload: postcard |

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest payload. Holds a chunk of a snapshot and the entries of one append.
pub(crate) const FRAME_BYTES_MAX: usize = 8 << 20;
/// Length and checksum.
const HEADER_BYTES: usize = 8;

/// Why a frame was not read or written. The connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the connection failed: {source}")]
    Io {
        #[from]
        source: std::io::Error,
    },
    #[error("a frame of {bytes} bytes is over the limit of {bytes_max}")]
    TooLong { bytes: usize, bytes_max: usize },
    #[error("a frame does not match its checksum")]
    Checksum,
    #[error("a frame does not decode: {source}")]
    Malformed {
        #[from]
        source: postcard::Error,
    },
}

/// Writes one value as a frame.
pub(crate) async fn write_frame<T: Serialize + Sync>(
    stream: &mut (impl AsyncWrite + Unpin),
    value: &T,
) -> Result<(), FrameError> {
    let mut frame = postcard::to_extend(value, vec![0; HEADER_BYTES])?;
    let bytes = frame.len() - HEADER_BYTES;
    let length = u32::try_from(bytes).ok().filter(|_| bytes <= FRAME_BYTES_MAX);
    let Some(length) = length else {
        return Err(FrameError::TooLong { bytes, bytes_max: FRAME_BYTES_MAX });
    };
    let crc = crc32fast::hash(&frame[HEADER_BYTES..]);
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame[4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    stream.write_all(&frame).await?;
    Ok(())
}

/// Reads one value of at most `bytes_max` payload bytes.
pub(crate) async fn read_frame<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> Result<T, FrameError> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    let [a, b, c, d, e, f, g, h] = header;
    let bytes = u32::from_le_bytes([a, b, c, d]) as usize;
    if bytes > bytes_max {
        return Err(FrameError::TooLong { bytes, bytes_max });
    }
    let mut payload = vec![0; bytes];
    stream.read_exact(&mut payload).await?;
    if crc32fast::hash(&payload) != u32::from_le_bytes([e, f, g, h]) {
        return Err(FrameError::Checksum);
    }
    Ok(postcard::from_bytes(&payload)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_frame_comes_back_as_it_was() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &("name".to_owned(), 7u64)).await.unwrap();

        let back: (String, u64) = read_frame(&mut bytes.as_slice(), 100).await.unwrap();

        assert_eq!(back, ("name".to_owned(), 7));
    }

    #[tokio::test]
    async fn an_oversized_length_is_refused_before_any_byte_is_read() {
        let bytes = [0xff; 8];

        let error = read_frame::<u64>(&mut bytes.as_slice(), FRAME_BYTES_MAX).await.unwrap_err();

        assert!(matches!(error, FrameError::TooLong { bytes: 0xffff_ffff, .. }), "{error}");
    }

    #[tokio::test]
    async fn every_flipped_bit_and_every_cut_is_an_error() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &"some value of some length").await.unwrap();

        for bit in 32..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read_frame::<String>(&mut flipped.as_slice(), 1000).await.is_err());
        }
        for cut in 0..bytes.len() {
            assert!(read_frame::<String>(&mut &bytes[..cut], 1000).await.is_err());
        }
    }
}
