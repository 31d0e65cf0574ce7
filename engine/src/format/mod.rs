//! Bytes on disk and on the wire: pure encoding and decoding, no I/O, no clock.
//!
//! Decoders take bytes from anywhere: they answer with [`FormatError`] and never panic. `docs/FORMAT.md`
//! shows every byte; files in `engine/tests/golden` keep each version readable for good.

pub mod batch;
pub mod checkpoint;
mod checkpoint_fields;
pub mod checkpoint_slots;
pub mod descriptor;
mod envelope;
pub mod error;
mod fields;
pub mod footer;
pub mod group;
pub mod identity;
pub mod journal;
pub mod record_batch;
pub mod segment_header;
pub mod stored_batch;

pub use batch::{
    BATCH_BYTES_MAX, BATCH_HEADER_BYTES, BatchHeader, BatchKind, BatchStamp, Producer,
};
pub use checkpoint::{
    ActiveSegment, Checkpoint, ClosedSegment, EpochStart, NextSegment, ProducerEntry,
    QuarantinedRange, SegmentPoint, SegmentState, StoredSettings,
};
pub use checkpoint_slots::{
    BelievedCheckpoint, SLOT_BYTES_MIN, SlotWrite, SlotsError, believe_slots, place_checkpoint,
};
pub use descriptor::{Descriptor, Member, Policy, REPLICAS_MAX, ReplicaSet};
pub use error::{FormatError, Structure};
pub use footer::{Footer, INDEX_ENTRIES_MAX, IndexEntry};
pub use group::{Chain, DurableMark, GROUP_BYTES_MAX, GROUP_HEADER_BYTES, GroupHeader};
pub use identity::{DirectoryMode, Identity};
pub use journal::{
    FIRST_FRAME_POSITION, FRAME_BYTES_MAX, FRAME_ENTRY_BYTES, FRAME_HEADER_BYTES, FrameEntry,
    FrameHeader, FrameSequence, JournalHeader, JournalMark,
};
pub use record_batch::{BatchError, RECORDS_PER_BATCH_MAX, RecordBatch, RecordBatchBuilder};
pub(crate) use record_batch::{check_payload, write_batch};
pub use segment_header::{FIRST_GROUP_POSITION, SegmentHeader};
pub use stored_batch::{Records, StoredBatch};
