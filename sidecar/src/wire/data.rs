//! The data port's requests and answers, and the frame that carries them.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | [`WIRE_VERSION`] |
//! | 4 | length of the head, little endian |
//! | n | the head: request number and message, postcard |
//! | rest | payload bytes, as they lie in batches; never re-encoded record by record |

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::hello::{Hello, HelloAnswer};
use super::session::{MetadataPoint, PartitionKey, StreamOwners};
use super::{WIRE_VERSION, WireError};

/// The longest head, in bytes.
pub const HEAD_BYTES_MAX: usize = 4 << 20;

const PREFIX_BYTES: usize = 5;

/// Encodes the head of a frame; its payload, if any, follows as further parts.
///
/// # Panics
///
/// If the message is over [`HEAD_BYTES_MAX`]: its lists are bounded where they are made.
#[must_use]
pub fn head<T: Serialize>(request: u64, message: &T) -> Bytes {
    let mut bytes = Vec::with_capacity(128);
    bytes.extend_from_slice(&[WIRE_VERSION, 0, 0, 0, 0]);
    let mut bytes = postcard::to_extend(&(request, message), bytes)
        .expect("every wire type has a postcard form");
    let head_bytes = bytes.len() - PREFIX_BYTES;
    assert!(head_bytes <= HEAD_BYTES_MAX, "a head of {head_bytes} bytes");
    let length = u32::try_from(head_bytes).expect("bounded just above");
    bytes[1..PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
    bytes.into()
}

/// Takes a frame apart into its request number, message and payload.
///
/// # Errors
///
/// [`WireError`]: another version, or no such message.
pub fn split<T: DeserializeOwned>(frame: Bytes) -> Result<(u64, T, Bytes), WireError> {
    let &version = frame.first().ok_or(WireError::Empty)?;
    if version != WIRE_VERSION {
        return Err(WireError::Version { found: version, supported: WIRE_VERSION });
    }
    let length = frame[1..].first_chunk::<4>().ok_or(WireError::Closed)?;
    let length = u32::from_le_bytes(*length);
    let head_bytes = usize::try_from(length).unwrap_or(usize::MAX);
    let found = u64::from(length);
    if head_bytes > HEAD_BYTES_MAX {
        return Err(WireError::TooLarge { what: "a head", found, limit: HEAD_BYTES_MAX as u64 });
    }
    let end = PREFIX_BYTES + head_bytes;
    let limit = frame.len() as u64;
    let head = frame.get(PREFIX_BYTES..end);
    let head = head.ok_or(WireError::TooLarge { what: "a head", found, limit })?;
    let ((request, message), rest) = postcard::take_from_bytes(head)?;
    if !rest.is_empty() {
        return Err(WireError::Trailing { bytes: rest.len() });
    }
    Ok((request, message, frame.slice(end..)))
}

/// What a client asks of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// The first message of a connection.
    Hello(Hello),
    /// Append the payload as one batch.
    Append(AppendRequest),
    /// Read committed batches.
    Read(ReadRequest),
    /// Where a partition starts and ends.
    Watermarks(PartitionKey),
    /// Who owns the partitions of a stream.
    Owners {
        /// The stream's name.
        stream: String,
    },
}

/// Append the payload as one batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppendRequest {
    /// The partition.
    pub partition: PartitionKey,
    /// The records in the payload.
    pub records: u32,
    /// CRC-32 of the payload, from the client's thread.
    pub payload_crc: u32,
    /// When to answer.
    pub durability: Durability,
    /// Append only if this is the log end.
    pub expected_offset: Option<u64>,
    /// What the client's clock says, in microseconds since 1970; 0 is unknown. Informational only.
    pub client_time_us: u64,
    /// Who sends it, for telling a repeated batch.
    pub producer: Option<Producer>,
}

/// Who sends a batch, and which of its batches it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// The producer; random, so that no two have the same. Not 0.
    pub id: u64,
    /// Which run of it; a later one fences those before.
    pub epoch: u32,
    /// The number of the batch in its run, from 0.
    pub sequence: u64,
}

/// When an append is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    /// In memory.
    Accepted,
    /// Synced by the owner.
    Local,
    /// Synced by `w` replicas, the lease checked again.
    #[default]
    Committed,
}

/// Read committed batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRequest {
    /// The partition.
    pub partition: PartitionKey,
    /// The first offset wanted; the first batch may begin below it.
    pub from: u64,
    /// Stop at about so many bytes; one batch at least comes, if there is any.
    pub bytes_max: u32,
    /// How long to wait for a record to come, in milliseconds; 0 does not wait.
    pub wait_ms: u32,
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// The connection may be used, or ends here.
    Hello(HelloAnswer),
    /// The batch is as durable as was asked.
    Appended(Appended),
    /// The batches of the payload.
    Read(ReadAnswer),
    /// Where the partition starts and ends.
    Watermarks(Watermarks),
    /// Who owns the partitions.
    Owners(StreamOwners),
    /// It was not done.
    Failed(DataError),
}

/// An appended batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appended {
    /// The offset of its first record.
    pub base_offset: u64,
    /// Its records.
    pub records: u32,
    /// The epoch it was appended in, packed.
    pub epoch: u64,
    /// The server's time, in microseconds since 1970.
    pub append_time_us: u64,
}

/// Batches, whose payloads follow the head back to back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadAnswer {
    /// One entry a batch.
    pub batches: Vec<BatchHead>,
    /// Where to go on.
    pub next_offset: u64,
    /// The partition's watermarks at the time of the answer.
    pub watermarks: Watermarks,
    /// How old the node's last word from the metadata majority is, in milliseconds.
    pub metadata_age_ms: u64,
}

/// One batch of a [`ReadAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchHead {
    /// The offset of its first record.
    pub base_offset: u64,
    /// Its records.
    pub records: u32,
    /// The epoch it was appended in, packed.
    pub epoch: u64,
    /// When the server appended it, in microseconds since 1970.
    pub append_time_us: u64,
    /// The length of its payload.
    pub payload_bytes: u32,
    /// CRC-32 of its payload.
    pub payload_crc: u32,
}

/// The four watermarks of a partition, exclusive ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermarks {
    /// The first offset that is still there.
    pub log_start: u64,
    /// The end of what the owner has synced.
    pub durable: u64,
    /// The end of what readers may see.
    pub committed: u64,
    /// The end of what was accepted.
    pub log_end: u64,
}

/// Why a request was not done. Unless a variant says otherwise, nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// Another node owns the partition, or nobody does; ask for owners again.
    #[error("this node does not own the partition")]
    NotOwner,
    /// The node's lease has run out and the stream is `fail-closed`.
    #[error("the lease of the owner has run out")]
    LeaseExpired,
    /// The epoch has ended; another owner was named.
    #[error("fenced: epoch {promised:x} is promised")]
    Fenced {
        /// The promise, packed.
        promised: u64,
    },
    /// A limit is reached; try again.
    #[error("busy; retry in {retry_after_ms} ms")]
    Busy {
        /// When.
        retry_after_ms: u64,
    },
    /// Split the batch.
    #[error("a batch of {bytes} bytes; at most {bytes_max} are allowed")]
    BatchTooLarge {
        /// How large it was.
        bytes: u64,
        /// How large it may be.
        bytes_max: u64,
    },
    /// A batch holds at least one record.
    #[error("a batch without records")]
    EmptyBatch,
    /// The payload does not have the shape or the checksum its head promises.
    #[error("malformed: {reason}")]
    Malformed {
        /// What is wrong, for people.
        reason: String,
    },
    /// The append was conditional and the condition does not hold.
    #[error("expected offset {expected}; the log ends at {log_end}")]
    OffsetMismatch {
        /// What was expected.
        expected: u64,
        /// Where the log ends.
        log_end: u64,
    },
    /// The owner's disk has no room; retry once it has.
    #[error("the disk is full: {available_bytes} bytes left")]
    DiskFull {
        /// What is left.
        available_bytes: u64,
    },
    /// The partition takes no appends until it was reopened and verified. If this answers an append, it is
    /// unknown whether that was written.
    #[error("the partition has stopped: {reason}")]
    Stopped {
        /// Which device error stopped it, for people.
        reason: String,
    },
    /// The append was written, but not acknowledged in its epoch: it may or may not be in the log.
    #[error("unknown outcome")]
    Unknown,
    /// The records before `log_start` were dropped.
    #[error("the log starts at {log_start}")]
    BelowLogStart {
        /// Read from here.
        log_start: u64,
    },
    /// No committed record has that offset yet.
    #[error("committed ends at {committed}")]
    BeyondEnd {
        /// Where it ends.
        committed: u64,
    },
    /// Stored bytes are damaged.
    #[error("corrupt: {reason}; the next readable offset is {next_offset}")]
    Corrupt {
        /// File and position, for people.
        reason: String,
        /// Read on from here.
        next_offset: u64,
    },
    /// No such stream, as of `at`.
    #[error("no such stream as of index {}", at.index)]
    UnknownStream {
        /// The state that has none.
        at: MetadataPoint,
    },
    /// Nobody who knows could be reached; try another node.
    #[error("unavailable: {reason}")]
    Unavailable {
        /// What was tried, for people.
        reason: String,
    },
    /// The node is stopping; another answer will come from its next run.
    #[error("the node is stopping")]
    Stopping,
    /// Batches of the producer before this one are missing.
    #[error("the producer's sequence {expected} is due, not {got}")]
    OutOfOrder {
        /// The sequence that is due; 0 if the producer is not known, or not any more.
        expected: u64,
        /// What was sent.
        got: u64,
    },
    /// A later run of the producer has appended.
    #[error("run {epoch} of the producer has begun")]
    ProducerFenced {
        /// The later run.
        epoch: u32,
    },
    /// The batch is in the log, appended too long ago to know at which offset.
    #[error("sequence {got} was appended before; the oldest one remembered is {oldest}")]
    AlreadyAppended {
        /// The oldest sequence that is remembered.
        oldest: u64,
        /// What was sent.
        got: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_comes_out_of_its_frame_uncopied() {
        let payload = Bytes::from_static(b"payload");
        let frame: Vec<u8> =
            [head(9, &Request::Watermarks(PartitionKey { stream: 1, index: 2 })), payload].concat();
        let frame = Bytes::from(frame);

        let (request, message, rest) = split::<Request>(frame.clone()).unwrap();

        assert_eq!(request, 9);
        assert_eq!(message, Request::Watermarks(PartitionKey { stream: 1, index: 2 }));
        assert_eq!(rest, "payload");
        assert_eq!(rest.as_ptr(), frame[frame.len() - 7..].as_ptr());
    }

    #[test]
    fn a_head_longer_than_its_frame_is_refused() {
        let mut frame = head(9, &Request::Owners { stream: "s".to_owned() }).to_vec();
        frame[1] += 1;

        assert!(matches!(
            split::<Request>(frame.into()),
            Err(WireError::TooLarge { what: "a head", .. })
        ));
    }
}
