//! The fields of a checkpoint, one function per list. The table is in `checkpoint.rs`.

use std::time::Duration;

use super::batch::Producer;
use super::checkpoint::{
    ActiveSegment, Checkpoint, ClosedSegment, EpochStart, NextSegment, ProducerEntry,
    QuarantinedRange, SegmentPoint, SegmentState, StoredSettings,
};
use super::descriptor::Descriptor;
use super::error::FormatError;
use super::fields::{FieldReader, FieldVec};
use super::group::Chain;
use super::journal::{FrameSequence, JournalMark};
use crate::id::{
    Epoch, JournalId, Offset, PartitionId, PartitionIndex, Position, SegmentId, StreamId,
    StreamName,
};
use crate::io::clock::WallTime;

const NO_LIMIT: u64 = u64::MAX;

pub(super) fn encode_checkpoint(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut fields = FieldVec::default();
    fields.u64(checkpoint.sequence);
    fields.u128(checkpoint.partition.stream.0);
    fields.u32(checkpoint.partition.index.0);
    let name = checkpoint.stream_name.as_str().as_bytes();
    fields.count(name.len());
    fields.raw(name);
    fields.u8(u8::from(checkpoint.clean));
    fields.u64(checkpoint.log_start.0);
    fields.u64(checkpoint.next_offset.0);
    fields.u64(checkpoint.committed.0);
    fields.u64(checkpoint.promise.packed());
    let descriptor = checkpoint.descriptor.as_ref().map(Descriptor::encode).unwrap_or_default();
    fields.count(descriptor.len());
    fields.raw(&descriptor);
    fields.u64(checkpoint.loss_generation);
    fields.count(checkpoint.epochs.len());
    for entry in &checkpoint.epochs {
        fields.u64(entry.epoch.packed());
        fields.u64(entry.start.0);
    }
    fields.count(checkpoint.producers.len());
    checkpoint.producers.iter().for_each(|entry| encode_producer(&mut fields, entry));
    fields.count(checkpoint.closed.len());
    checkpoint.closed.iter().for_each(|closed| encode_closed(&mut fields, closed));
    fields.count(checkpoint.quarantined.len());
    checkpoint.quarantined.iter().for_each(|range| encode_range(&mut fields, range));
    encode_open_segments(&mut fields, checkpoint);
    encode_settings(&mut fields, &checkpoint.settings);
    fields.u8(u8::from(checkpoint.journal.is_some()));
    if let Some(mark) = checkpoint.journal {
        fields.u64(mark.journal.0);
        fields.u64(mark.from.0);
    }
    fields.bytes
}

pub(super) fn decode_checkpoint(
    fields: &mut FieldReader<'_>,
    version: u16,
) -> Result<Checkpoint, FormatError> {
    let sequence = fields.u64()?;
    let stream = StreamId(fields.u128()?);
    let partition = PartitionId { stream, index: PartitionIndex(fields.u32()?) };
    let stream_name = decode_name(fields)?;
    let clean = decode_flag(fields, "clean")?;
    let log_start = Offset(fields.u64()?);
    let next_offset = Offset(fields.u64()?);
    let committed = Offset(fields.u64()?);
    let promise = Epoch::from_packed(fields.u64()?);
    let descriptor = decode_descriptor(fields)?;
    let loss_generation = fields.u64()?;
    let epochs = fields.list(16, |fields| {
        let epoch = Epoch::from_packed(fields.u64()?);
        Ok(EpochStart { epoch, start: Offset(fields.u64()?) })
    })?;
    let producers = fields.list(48, decode_producer)?;
    let closed = fields.list(57, decode_closed)?;
    let quarantined = fields.list(40, decode_range)?;
    let active = decode_active(fields)?;
    let next = match decode_flag(fields, "next segment")? {
        true => Some(NextSegment { segment: SegmentId(fields.u64()?), file_bytes: fields.u64()? }),
        false => None,
    };
    let settings = decode_settings(fields)?;
    let has_journal = version > 1 && decode_flag(fields, "journal")?;
    let journal = match has_journal {
        true => Some(JournalMark {
            journal: JournalId(fields.u64()?),
            from: FrameSequence(fields.u64()?),
        }),
        false => None,
    };
    Ok(Checkpoint {
        sequence,
        partition,
        stream_name,
        clean,
        log_start,
        next_offset,
        committed,
        promise,
        descriptor,
        loss_generation,
        epochs,
        producers,
        closed,
        quarantined,
        active,
        next,
        settings,
        journal,
    })
}

fn decode_flag(fields: &mut FieldReader<'_>, field: &'static str) -> Result<bool, FormatError> {
    match fields.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(fields.refuse(field, u64::from(other))),
    }
}

fn decode_name(fields: &mut FieldReader<'_>) -> Result<StreamName, FormatError> {
    let name_bytes = fields.u32()?;
    let refused = fields.refuse("stream name", u64::from(name_bytes));
    let name = fields.raw(name_bytes as usize)?;
    let name = std::str::from_utf8(name).ok().and_then(|name| StreamName::new(name).ok());
    name.ok_or(refused)
}

fn decode_descriptor(fields: &mut FieldReader<'_>) -> Result<Option<Descriptor>, FormatError> {
    match fields.u32()? as usize {
        0 => Ok(None),
        bytes => Descriptor::decode(fields.raw(bytes)?).map(Some),
    }
}

fn encode_producer(fields: &mut FieldVec, entry: &ProducerEntry) {
    fields.u64(entry.producer.id);
    fields.u32(entry.producer.epoch);
    fields.u64(entry.producer.sequence);
    fields.u64(entry.base_offset.0);
    fields.u32(entry.records);
    fields.u64(entry.append_time.0);
    fields.u64(entry.epoch.packed());
}

fn decode_producer(fields: &mut FieldReader<'_>) -> Result<ProducerEntry, FormatError> {
    let (id, epoch, sequence) = (fields.u64()?, fields.u32()?, fields.u64()?);
    Ok(ProducerEntry {
        producer: Producer { id, epoch, sequence },
        base_offset: Offset(fields.u64()?),
        records: fields.u32()?,
        append_time: WallTime(fields.u64()?),
        epoch: Epoch::from_packed(fields.u64()?),
    })
}

fn encode_closed(fields: &mut FieldVec, closed: &ClosedSegment) {
    fields.u64(closed.segment.0);
    fields.u64(closed.base_offset.0);
    fields.u64(closed.end_offset.0);
    fields.u64(closed.end_position.0);
    fields.u64(closed.last_chain.0);
    fields.u64(closed.first_time.0);
    fields.u64(closed.last_time.0);
    fields.u8(match closed.state {
        SegmentState::Healthy => 1,
        SegmentState::Quarantined => 2,
    });
}

fn decode_closed(fields: &mut FieldReader<'_>) -> Result<ClosedSegment, FormatError> {
    Ok(ClosedSegment {
        segment: SegmentId(fields.u64()?),
        base_offset: Offset(fields.u64()?),
        end_offset: Offset(fields.u64()?),
        end_position: Position(fields.u64()?),
        last_chain: Chain(fields.u64()?),
        first_time: WallTime(fields.u64()?),
        last_time: WallTime(fields.u64()?),
        state: match fields.u8()? {
            1 => SegmentState::Healthy,
            2 => SegmentState::Quarantined,
            other => return Err(fields.refuse("segment state", u64::from(other))),
        },
    })
}

fn encode_range(fields: &mut FieldVec, range: &QuarantinedRange) {
    fields.u64(range.segment.0);
    fields.u64(range.positions.start.0);
    fields.u64(range.positions.end.0);
    fields.u64(range.offsets.start.0);
    fields.u64(range.offsets.end.0);
}

fn decode_range(fields: &mut FieldReader<'_>) -> Result<QuarantinedRange, FormatError> {
    Ok(QuarantinedRange {
        segment: SegmentId(fields.u64()?),
        positions: Position(fields.u64()?)..Position(fields.u64()?),
        offsets: Offset(fields.u64()?)..Offset(fields.u64()?),
    })
}

fn encode_open_segments(fields: &mut FieldVec, checkpoint: &Checkpoint) {
    fields.u8(u8::from(checkpoint.active.is_some()));
    if let Some(active) = &checkpoint.active {
        fields.u64(active.segment.0);
        fields.u64(active.file_bytes);
        fields.u64(active.base_offset.0);
        fields.u64(active.first_time.0);
        fields.u64(active.last_time.0);
        fields.u64(active.durable.position.0);
        fields.u64(active.durable.offset.0);
        fields.u64(active.durable.chain.0);
        fields.u64(active.durable.group);
    }
    fields.u8(u8::from(checkpoint.next.is_some()));
    if let Some(next) = &checkpoint.next {
        fields.u64(next.segment.0);
        fields.u64(next.file_bytes);
    }
}

fn decode_active(fields: &mut FieldReader<'_>) -> Result<Option<ActiveSegment>, FormatError> {
    if !decode_flag(fields, "active segment")? {
        return Ok(None);
    }
    Ok(Some(ActiveSegment {
        segment: SegmentId(fields.u64()?),
        file_bytes: fields.u64()?,
        base_offset: Offset(fields.u64()?),
        first_time: WallTime(fields.u64()?),
        last_time: WallTime(fields.u64()?),
        durable: SegmentPoint {
            position: Position(fields.u64()?),
            offset: Offset(fields.u64()?),
            chain: Chain(fields.u64()?),
            group: fields.u64()?,
        },
    }))
}

fn encode_settings(fields: &mut FieldVec, settings: &StoredSettings) {
    let age_us = |age: Duration| u64::try_from(age.as_micros()).unwrap_or(NO_LIMIT);
    fields.u64(settings.segment_bytes);
    fields.u64(settings.first_segment_bytes);
    fields.u64(settings.retention_bytes.unwrap_or(NO_LIMIT));
    fields.u64(settings.retention_age.map_or(NO_LIMIT, age_us));
}

fn decode_settings(fields: &mut FieldReader<'_>) -> Result<StoredSettings, FormatError> {
    let limit = |value: u64| (value != NO_LIMIT).then_some(value);
    Ok(StoredSettings {
        segment_bytes: fields.u64()?,
        first_segment_bytes: fields.u64()?,
        retention_bytes: limit(fields.u64()?),
        retention_age: limit(fields.u64()?).map(Duration::from_micros),
    })
}
