//! Frames on a byte stream: a `u32` length, little endian, then that many bytes.
//!
//! Lengths from the peer are checked before memory is taken for them.

use bytes::{Buf, Bytes, BytesMut};

use super::transport::FRAME_BYTES_MAX;

/// The bytes of a frame's length.
const PREFIX_BYTES: usize = size_of::<u32>();
/// What is asked of the system at once, so that small frames share a buffer and a system call.
const RECEIVE_BYTES: usize = 64 << 10;
/// With less room than this left, a new buffer is taken.
const ROOM_BYTES_MIN: usize = 4 << 10;

/// A length over [`FRAME_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge {
    pub(super) bytes: u64,
}

/// A frame on its way out. Its bytes do not move while it does.
#[derive(Debug)]
pub(super) struct OutgoingFrame {
    /// What is left of length and parts, the next one last, none of them empty.
    rest: Vec<Bytes>,
}

impl OutgoingFrame {
    /// A frame made of `parts` in order.
    pub(super) fn new(mut parts: Vec<Bytes>) -> Result<OutgoingFrame, TooLarge> {
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        let length = match u32::try_from(bytes) {
            Ok(length) if bytes <= FRAME_BYTES_MAX => length,
            _ => return Err(TooLarge { bytes: bytes as u64 }),
        };
        parts.retain(|part| !part.is_empty());
        parts.reverse();
        parts.push(Bytes::copy_from_slice(&length.to_le_bytes()));
        Ok(OutgoingFrame { rest: parts })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What is left, in order.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Bytes> {
        self.rest.iter().rev()
    }

    /// Leaves the first `written` bytes behind.
    pub(super) fn advance(&mut self, mut written: usize) {
        while let Some(part) = self.rest.last_mut() {
            if written < part.len() {
                part.advance(written);
                return;
            }
            written -= part.len();
            self.rest.pop();
        }
        assert!(written == 0, "no more was written than there is");
    }
}

/// Received bytes that are not yet whole frames. Frames are slices of its buffers.
#[derive(Debug, Default)]
pub(super) struct FrameBuffer {
    bytes: BytesMut,
}

impl FrameBuffer {
    /// Splits the next frame off, or `None` when more bytes are needed.
    pub(super) fn next_frame(&mut self) -> Result<Option<Bytes>, TooLarge> {
        let Some(length) = self.announced()? else { return Ok(None) };
        if self.bytes.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.bytes.advance(PREFIX_BYTES);
        Ok(Some(self.bytes.split_to(length).freeze()))
    }

    /// Takes the buffer out to receive behind what it holds, with room for the rest of the frame begun.
    pub(super) fn take_with_room(&mut self) -> BytesMut {
        let length = self.announced().ok().flatten().unwrap_or(0);
        let missing = (PREFIX_BYTES + length).saturating_sub(self.bytes.len());
        let room = self.bytes.capacity() - self.bytes.len();
        if room < missing.max(ROOM_BYTES_MIN) {
            self.bytes.reserve(missing.max(RECEIVE_BYTES));
        }
        std::mem::take(&mut self.bytes)
    }

    /// Puts the buffer back.
    pub(super) fn put_back(&mut self, bytes: BytesMut) {
        assert!(self.bytes.is_empty(), "the buffer was taken out");
        self.bytes = bytes;
    }

    /// Tells whether the peer may end here: no frame is begun.
    pub(super) fn is_between_frames(&self) -> bool {
        self.bytes.is_empty()
    }

    fn announced(&self) -> Result<Option<usize>, TooLarge> {
        let Some(prefix) = self.bytes.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*prefix);
        match usize::try_from(length) {
            Ok(bytes) if bytes <= FRAME_BYTES_MAX => Ok(Some(bytes)),
            _ => Err(TooLarge { bytes: u64::from(length) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(buffer: &mut FrameBuffer, bytes: &[u8]) {
        let mut taken = buffer.take_with_room();
        taken.extend_from_slice(bytes);
        buffer.put_back(taken);
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_arrive() {
        let frames = [vec![1; 3], vec![], vec![2; 70_000], vec![3; 1]];
        let mut stream = Vec::new();
        for frame in &frames {
            let outgoing = OutgoingFrame::new(vec![Bytes::from(frame.clone())]).unwrap();
            stream.extend(outgoing.parts().flatten());
        }

        for step in [1, 2, 3, 4096, 100_000] {
            let mut buffer = FrameBuffer::default();
            let mut received = Vec::new();
            for bytes in stream.chunks(step) {
                receive(&mut buffer, bytes);
                while let Some(frame) = buffer.next_frame().unwrap() {
                    received.push(frame.to_vec());
                }
            }
            assert_eq!(received, frames);
            assert!(buffer.is_between_frames());
        }
    }

    #[test]
    fn oversized_length_takes_no_memory() {
        let mut buffer = FrameBuffer::default();
        receive(&mut buffer, &u32::MAX.to_le_bytes());

        assert_eq!(buffer.next_frame(), Err(TooLarge { bytes: u64::from(u32::MAX) }));
        assert!(buffer.take_with_room().capacity() <= 2 * RECEIVE_BYTES);
    }

    #[test]
    fn begun_frame_gets_room_for_its_rest() {
        let mut buffer = FrameBuffer::default();
        receive(&mut buffer, &1_000_000_u32.to_le_bytes());

        let taken = buffer.take_with_room();

        assert!(taken.capacity() - taken.len() >= 1_000_000);
    }

    #[test]
    fn frame_over_the_limit_is_not_offered() {
        let part = Bytes::from(vec![0; FRAME_BYTES_MAX]);

        assert!(OutgoingFrame::new(vec![part.clone()]).is_ok());
        let over = OutgoingFrame::new(vec![part, Bytes::from_static(b"x")]).unwrap_err();
        assert_eq!(over, TooLarge { bytes: FRAME_BYTES_MAX as u64 + 1 });
    }

    #[test]
    fn short_writes_leave_exactly_the_rest() {
        let parts = vec![Bytes::from_static(b"ab"), Bytes::new(), Bytes::from_static(b"cdefg")];
        let mut outgoing = OutgoingFrame::new(parts).unwrap();
        let mut sent = Vec::new();

        for step in [1, 4, 2, 3, 1] {
            let next: Vec<u8> = outgoing.parts().flatten().copied().take(step).collect();
            outgoing.advance(next.len());
            sent.extend(next);
        }

        assert_eq!(sent, b"\x07\0\0\0abcdefg");
        assert!(outgoing.is_empty());
    }
}
