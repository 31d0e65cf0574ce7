//! Segment files: made in advance, written group by group, read back, walked after a crash, closed.
//!
//! Knows nothing of partitions: what is committed, when to roll and what to keep is decided above. Generic
//! over the disk.

pub mod closing;
#[cfg(test)]
mod damage_tests;
pub mod group_walk;
pub mod index;
pub mod maker;
pub mod mapped;
mod read_plan;
pub mod reader;
#[cfg(test)]
mod recycled_tests;
pub mod scan;
pub mod survey;
#[cfg(test)]
mod test_segments;
#[cfg(test)]
mod tests;
mod window;
pub mod writer;

pub use closing::{
    CloseSegmentError, close_segment, load_footer, load_index, rebuild_footer, write_footer,
};
pub use index::SparseIndex;
pub(crate) use maker::make_segment_paced;
pub use maker::{
    MakeError, OpenSegmentError, is_recycled_name, make_segment, open_segment, recycled_path,
    reuse_segment, segment_id_of_name, segment_path,
};
pub use mapped::SegmentMap;
pub use reader::{
    PayloadCheck, SegmentCursor, SegmentEnd, SegmentRead, SegmentReadAnswer, SegmentReadError,
    SegmentReader, Sharing,
};
pub(crate) use reader::{READ_BYTES_MIN, piece_bytes_for};
pub use scan::{CorruptRange, ScanError, ScanRange, ScanReport, Tail, scan_segment};
pub use survey::{DurableClaim, durable_claim};
pub use writer::{ReservedWrite, SegmentFull, SegmentWriter};
