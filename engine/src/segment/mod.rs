//! Segment files: made in advance, written group by group, read back, walked after a crash, closed.
//!
//! Knows nothing of partitions: what is committed, when to roll and what to keep is decided above. Generic
//! over the disk.

pub mod group_walk;
pub mod index;
pub mod maker;
pub mod writer;

pub use index::SparseIndex;
pub use maker::{
    MakeError, OpenSegmentError, make_segment, open_segment, segment_id_of_name, segment_path,
};
pub use writer::{ReservedWrite, SegmentFull, SegmentWriter};
