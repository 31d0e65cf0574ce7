//! Frames on a tokio stream: a little-endian `u32` length, then that many bytes.
//!
//! The same framing as the engine's transport, so that a tokio client can talk to a shard.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{WireError, decode, encode};

/// The longest hello and the longest renewal, in bytes: what a stranger can make us allocate.
pub const HELLO_BYTES_MAX: usize = 4 << 10;
/// The longest message of a lease lane, in bytes.
pub const RENEWAL_BYTES_MAX: usize = 64 << 10;
/// The longest message of a session's other lanes, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// The longest data frame, in bytes; the engine's transport has the same limit.
pub const DATA_FRAME_BYTES_MAX: usize = 16 << 20;

/// Memory is taken in steps of this while a frame arrives, so that a length alone costs nothing.
const READ_STEP_BYTES: usize = 256 << 10;

/// Reads one frame, or `None` when the peer closed between frames.
///
/// # Errors
///
/// [`WireError::TooLarge`] before anything is read or allocated, [`WireError::Io`] in mid frame: the
/// connection is over.
pub async fn read_frame<R: AsyncRead + Unpin>(
    reader: &mut R,
    bytes_max: usize,
) -> Result<Option<Bytes>, WireError> {
    let mut length = [0; 4];
    if reader.read(&mut length[..1]).await? == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut length[1..]).await?;
    let bytes = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if bytes > bytes_max {
        return Err(WireError::TooLarge {
            what: "a frame",
            found: bytes as u64,
            limit: bytes_max as u64,
        });
    }
    let mut frame = Vec::new();
    while frame.len() < bytes {
        let start = frame.len();
        frame.resize(bytes.min(start + READ_STEP_BYTES.max(start)), 0);
        reader.read_exact(&mut frame[start..]).await?;
    }
    Ok(Some(frame.into()))
}

/// Writes one frame made of `parts` in order. The caller may buffer; nothing is forced out here.
///
/// # Errors
///
/// [`WireError`]: over `u32::MAX` bytes, or the connection is over; whether the frame arrived is unknown.
pub async fn write_frame<W: AsyncWrite + Unpin>(
    writer: &mut W,
    parts: &[Bytes],
) -> Result<(), WireError> {
    let length = frame_length(parts.iter().map(Bytes::len).sum())?;
    writer.write_all(&length.to_le_bytes()).await?;
    for part in parts {
        writer.write_all(part).await?;
    }
    Ok(())
}

/// Reads one message; a peer that closed is [`WireError::Closed`].
///
/// # Errors
///
/// [`WireError`]: the connection is over, or of no more use.
pub async fn receive<T: DeserializeOwned, R: AsyncRead + Unpin>(
    reader: &mut R,
    bytes_max: usize,
) -> Result<T, WireError> {
    let frame = read_frame(reader, bytes_max).await?.ok_or(WireError::Closed)?;
    decode(&frame)
}

/// Writes one message.
///
/// # Errors
///
/// [`WireError`]: the connection is over; whether the message arrived is unknown.
pub async fn send<T: Serialize, W: AsyncWrite + Unpin>(
    writer: &mut W,
    message: &T,
) -> Result<(), WireError> {
    // One write a message: these connections have no delay for small segments to fill.
    let body = encode(message);
    let length = frame_length(body.len())?;
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    writer.write_all(&frame).await?;
    Ok(())
}

fn frame_length(bytes: usize) -> Result<u32, WireError> {
    u32::try_from(bytes).ok().filter(|_| bytes <= DATA_FRAME_BYTES_MAX).ok_or(WireError::TooLarge {
        what: "a frame",
        found: bytes as u64,
        limit: DATA_FRAME_BYTES_MAX as u64,
    })
}

/// Bounds a wait for the other side.
///
/// # Errors
///
/// [`WireError::TimedOut`], or what `step` failed with.
pub async fn within<T>(
    duration: Duration,
    step: impl Future<Output = Result<T, WireError>>,
) -> Result<T, WireError> {
    match tokio::time::timeout(duration, step).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => Err(WireError::TimedOut {
            waited_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(step: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(step)
    }

    #[test]
    fn a_frame_of_several_parts_arrives_as_one() {
        block_on(async {
            let mut sent = Vec::new();

            write_frame(&mut sent, &[Bytes::from_static(b"ab"), Bytes::from_static(b"c")])
                .await
                .unwrap();
            write_frame(&mut sent, &[]).await.unwrap();

            let mut reader = sent.as_slice();
            assert_eq!(read_frame(&mut reader, 8).await.unwrap().unwrap(), "abc");
            assert_eq!(read_frame(&mut reader, 8).await.unwrap().unwrap(), "");
            assert!(read_frame(&mut reader, 8).await.unwrap().is_none());
        });
    }

    #[test]
    fn a_length_over_the_limit_is_refused_unread() {
        block_on(async {
            let mut reader = [0xff; 64].as_slice();

            let refused = read_frame(&mut reader, HELLO_BYTES_MAX).await.unwrap_err();

            assert!(matches!(refused, WireError::TooLarge { found: 0xffff_ffff, .. }));
            assert_eq!(reader.len(), 60);
        });
    }

    #[test]
    fn a_frame_cut_short_is_an_error_and_costs_little() {
        block_on(async {
            let mut sent = Vec::from(8_000_000u32.to_le_bytes());
            sent.extend_from_slice(&[1; 100]);

            let cut = read_frame(&mut sent.as_slice(), MESSAGE_BYTES_MAX).await.unwrap_err();

            assert!(matches!(cut, WireError::Io(_)));
        });
    }
}
