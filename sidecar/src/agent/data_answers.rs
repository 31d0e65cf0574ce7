//! Puts the engine's answers into the data port's words. Pure.

use std::time::Duration;

use bytes::Bytes;
use palisade_engine::format::Producer;
use palisade_engine::id::Offset;
use palisade_engine::io::clock::WallTime;
use palisade_engine::partition::{
    AppendError, AppendOptions, Appended, Durability, ReadAnswer, ReadError, Watermarks,
};

use crate::wire::data::{self, AppendRequest, BatchHead, DataError, Response};

/// The options an append asks for.
pub(super) fn options_of(request: &AppendRequest) -> AppendOptions {
    AppendOptions {
        durability: match request.durability {
            data::Durability::Accepted => Durability::Accepted,
            data::Durability::Local => Durability::Local,
            data::Durability::Committed => Durability::Committed,
        },
        expected_offset: request.expected_offset.map(Offset),
        client_time: WallTime(request.client_time_us),
        producer: request.producer.map_or_else(Producer::default, |producer| {
            let data::Producer { id, epoch, sequence } = producer;
            Producer { id, epoch, sequence }
        }),
    }
}

/// An acknowledgement.
pub(super) fn appended(appended: Appended) -> Response {
    Response::Appended(data::Appended {
        base_offset: appended.base_offset.0,
        records: appended.records,
        epoch: appended.epoch.packed(),
        append_time_us: appended.append_time.0,
    })
}

/// A refused append. What the engine does not promise to be unwritten is reported as unknown.
pub(super) fn append_failed(error: AppendError) -> Response {
    Response::Failed(match error {
        AppendError::Busy { retry_after } => {
            DataError::Busy { retry_after_ms: milliseconds(retry_after) }
        }
        AppendError::LeaseExpired { .. } => DataError::LeaseExpired,
        AppendError::NotOwner => DataError::NotOwner,
        AppendError::Fenced { promised } => DataError::Fenced { promised: promised.packed() },
        AppendError::BatchTooLarge { bytes, bytes_max } => {
            DataError::BatchTooLarge { bytes: bytes as u64, bytes_max: bytes_max as u64 }
        }
        AppendError::EmptyBatch => DataError::EmptyBatch,
        AppendError::OffsetMismatch { expected, log_end } => {
            DataError::OffsetMismatch { expected: expected.0, log_end: log_end.0 }
        }
        AppendError::OutOfOrder { expected, got } => DataError::OutOfOrder { expected, got },
        AppendError::ProducerFenced { epoch } => DataError::ProducerFenced { epoch },
        AppendError::AlreadyAppended { oldest, got } => DataError::AlreadyAppended { oldest, got },
        AppendError::DiskFull { available_bytes, .. } => DataError::DiskFull { available_bytes },
        AppendError::Stopped { error } => DataError::Stopped { reason: error.to_string() },
        AppendError::Closed => DataError::Stopping,
        _ => DataError::Unknown,
    })
}

/// An answered read: the batches' payloads follow the head uncopied.
pub(super) fn read_answer(
    answer: ReadAnswer,
    metadata_age: Option<Duration>,
) -> (Response, Vec<Bytes>) {
    let mut batches = Vec::with_capacity(answer.batches.len());
    let mut payloads = Vec::with_capacity(answer.batches.len());
    for batch in answer.batches {
        let payload = batch.payload();
        batches.push(BatchHead {
            base_offset: batch.base_offset().0,
            records: batch.records(),
            epoch: batch.epoch().packed(),
            append_time_us: batch.append_time().0,
            payload_bytes: u32::try_from(payload.len()).expect("a batch is bounded"),
            payload_crc: batch.header().payload_crc,
        });
        payloads.push(payload);
    }
    let response = Response::Read(data::ReadAnswer {
        batches,
        next_offset: answer.next_offset.0,
        watermarks: watermarks(answer.watermarks),
        metadata_age_ms: metadata_age.map_or(u64::MAX, milliseconds),
    });
    (response, payloads)
}

/// A refused read.
pub(super) fn read_failed(error: ReadError) -> DataError {
    match error {
        ReadError::BelowLogStart { log_start, .. } => {
            DataError::BelowLogStart { log_start: log_start.0 }
        }
        ReadError::BeyondEnd { committed, .. } => DataError::BeyondEnd { committed: committed.0 },
        ReadError::Corrupt { ref offsets, .. } => {
            DataError::Corrupt { next_offset: offsets.end.0, reason: error.to_string() }
        }
        ReadError::LeaseExpired => DataError::LeaseExpired,
        ReadError::Busy { retry_after } => {
            DataError::Busy { retry_after_ms: milliseconds(retry_after) }
        }
        ReadError::Closed => DataError::Stopping,
        error => DataError::Stopped { reason: error.to_string() },
    }
}

/// The four watermarks.
pub(super) fn watermarks(watermarks: Watermarks) -> data::Watermarks {
    data::Watermarks {
        log_start: watermarks.log_start.0,
        durable: watermarks.durable.0,
        committed: watermarks.committed.0,
        log_end: watermarks.log_end.0,
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
