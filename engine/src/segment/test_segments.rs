//! One segment on a simulated disk, for tests: every record's bytes follow from its offset.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::closing::close_segment;
use super::reader::{
    PayloadCheck, SegmentCursor, SegmentEnd, SegmentRead, SegmentReadError, SegmentReader, Sharing,
};
use super::scan::{ScanRange, ScanReport, scan_segment};
use super::writer::{ReservedWrite, SegmentWriter};
use super::{SparseIndex, make_segment, segment_path};
use crate::format::{
    BatchHeader, BatchStamp, Chain, ClosedSegment, DurableMark, FIRST_GROUP_POSITION,
    GROUP_HEADER_BYTES, NextSegment, RecordBatch, SegmentHeader, SegmentPoint, SegmentState,
    StoredBatch,
};
use crate::id::{
    BLOCK_BYTES, Epoch, NodeId, Offset, PartitionId, PartitionIndex, Position, SegmentId, StreamId,
};
use crate::io::arena::{Arena, SharedExtent};
use crate::io::clock::WallTime;
use crate::io::disk::{Disk, DiskFile, WriteMode};
use crate::io::simulated::{SimulatedDisk, SimulatedFile, SimulatedRuntime, SimulatedStorage};

pub(super) const PARTITION: PartitionId =
    PartitionId { stream: StreamId(0x77), index: PartitionIndex(3) };

pub(super) const FILE_BYTES: u64 = 1 << 20;

pub(super) const NOTHING_DURABLE: DurableMark =
    DurableMark { offset: Offset::ZERO, position: Position::ZERO };

/// Where the partition's files are.
pub(super) fn directory() -> &'static Path {
    Path::new("/partition")
}

/// The bytes of the record at `offset`: no two are the same, and some are long.
pub(super) fn record_at(offset: Offset) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(offset.0);
    let length = random.usize(8..if offset.0 % 7 == 3 { 6000 } else { 300 });
    let mut record = offset.0.to_le_bytes().to_vec();
    record.resize_with(length, || random.u8(..));
    record
}

pub(super) fn epoch(term: u32) -> Epoch {
    Epoch::named(term, NodeId::STANDALONE)
}

/// A segment that is being written.
pub(super) struct TestSegment {
    pub(super) runtime: Rc<SimulatedRuntime>,
    pub(super) storage: SimulatedStorage,
    pub(super) disk: SimulatedDisk,
    pub(super) file: SimulatedFile,
    pub(super) writer: SegmentWriter,
    pub(super) durable: DurableMark,
    pub(super) epoch: Epoch,
    pub(super) start: SegmentPoint,
}

impl TestSegment {
    pub(super) fn new(file_bytes: u64) -> TestSegment {
        let runtime = Rc::new(SimulatedRuntime::new(1));
        let storage = SimulatedStorage::new(&runtime);
        let disk = storage.disk(Arena::new(16 << 20));
        runtime.block_on(disk.create_directory(directory())).unwrap();
        runtime.block_on(disk.sync_directory(Path::new("/"))).unwrap();
        let made = NextSegment { segment: SegmentId(0xabc), file_bytes };
        let writer = SegmentWriter::begin(made, Offset(100), Chain(5));
        TestSegment::start(runtime, storage, disk, made, writer)
    }

    /// The segment after `self`, whose groups are durable as far as `self` knows.
    pub(super) fn roll(&self) -> TestSegment {
        let made =
            NextSegment { segment: SegmentId(0xdef), file_bytes: 2 * self.writer.file_bytes() };
        let point = self.writer.point();
        let writer = SegmentWriter::begin(made, point.offset, point.chain);
        let (runtime, storage) = (self.runtime.clone(), self.storage.clone());
        let mut next = TestSegment::start(runtime, storage, self.disk.clone(), made, writer);
        next.durable.offset = self.durable.offset;
        next
    }

    fn start(
        runtime: Rc<SimulatedRuntime>,
        storage: SimulatedStorage,
        disk: SimulatedDisk,
        made: NextSegment,
        writer: SegmentWriter,
    ) -> TestSegment {
        let header = SegmentHeader {
            partition: PARTITION,
            segment: made.segment,
            file_bytes: made.file_bytes,
            created: WallTime(1),
        };
        let file = runtime.block_on(make_segment(&disk, directory(), &header)).unwrap();
        let start = writer.point();
        let durable = DurableMark::default();
        TestSegment { runtime, storage, disk, file, writer, durable, epoch: epoch(1), start }
    }

    pub(super) fn path(&self) -> PathBuf {
        segment_path(directory(), self.writer.segment())
    }

    /// Frames a group of batches with so many records each, and does not write it.
    pub(super) fn frame(&mut self, batches: &[u32]) -> (SharedExtent, ReservedWrite) {
        let mut extent = self.disk.arena().allocate(1 << 20).unwrap();
        extent.as_mut_slice().fill(0xee);
        let mut filled = GROUP_HEADER_BYTES;
        let mut offset = self.writer.point().offset;
        for records in batches {
            let bytes = &mut extent.as_mut_slice()[filled..];
            filled += write_batch(bytes, *records, &stamp(offset, self.epoch));
            offset = Offset(offset.0 + u64::from(*records));
        }
        let reserved = self.writer.frame(&mut extent, filled, self.durable).unwrap();
        (extent.freeze(), reserved)
    }

    pub(super) fn write(&self, group: SharedExtent, reserved: &ReservedWrite) {
        let write = self.file.write(group, reserved.position, WriteMode::Durable);
        self.runtime.block_on(write).unwrap();
    }

    /// Notes that everything up to `reserved` is durable.
    pub(super) fn complete(&mut self, reserved: &ReservedWrite) {
        let after = reserved.after;
        self.durable = DurableMark { offset: after.offset, position: after.position };
    }

    pub(super) fn append(&mut self, batches: &[u32]) -> ReservedWrite {
        let (group, reserved) = self.frame(batches);
        self.write(group, &reserved);
        self.complete(&reserved);
        reserved
    }

    /// Walks the segment from its start, knowing only what `durable` says.
    pub(super) fn scan(&self, durable: DurableMark) -> ScanReport {
        let segment = self.writer.segment();
        let start = self.start;
        let range = ScanRange { segment, start, is_chain_known: true, durable, end: None };
        self.scan_range(range)
    }

    pub(super) fn scan_range(&self, range: ScanRange) -> ScanReport {
        let mut seen = range.start.offset;
        let visit = |batch: &BatchHeader| {
            assert!(batch.stamp.base_offset >= seen);
            seen = batch.next_offset();
        };
        self.runtime.block_on(scan_segment(&self.disk, &self.file, range, visit)).unwrap()
    }

    pub(super) fn close(&self) -> ClosedSegment {
        let footer = self.writer.footer();
        self.runtime.block_on(close_segment(&self.disk, &self.file, &footer)).unwrap();
        ClosedSegment {
            segment: footer.segment,
            base_offset: footer.base_offset,
            end_offset: footer.end_offset,
            end_position: footer.end_position,
            last_chain: footer.last_chain,
            first_time: footer.first_time,
            last_time: footer.last_time,
            state: SegmentState::Healthy,
        }
    }

    pub(super) fn end(&self) -> SegmentEnd {
        let point = self.writer.point();
        SegmentEnd { position: point.position, offset: point.offset }
    }

    pub(super) fn read(
        &self,
        from: Offset,
        index: &SparseIndex,
    ) -> Result<Vec<StoredBatch>, SegmentReadError> {
        let first = SegmentCursor::first(self.start.offset);
        let cursor = index.locate(from).map_or(first, SegmentCursor::from);
        let read = SegmentRead {
            from,
            cursor,
            end: self.end(),
            bytes_max: 3000,
            markers: false,
            payloads: PayloadCheck::Now,
            sharing: Sharing::Lend,
        };
        let reader = self.reader();
        let answer = self.runtime.block_on(reader.read(read))?;
        let last = answer.batches.last();
        assert_eq!(answer.next_offset, last.map_or(from, StoredBatch::next_offset));
        Ok(answer.batches)
    }

    pub(super) fn reader(&self) -> SegmentReader<SimulatedDisk> {
        SegmentReader::new(self.disk.clone(), self.file.clone(), self.writer.segment())
    }

    /// Reads everything readable from the segment's start; checks each record against what was written, and
    /// that no offset is passed over without an error. Returns the offsets read and those reported damaged.
    pub(super) fn read_all(&self) -> (u64, Vec<std::ops::Range<Offset>>) {
        let (mut records, mut damaged) = (0, Vec::new());
        let mut next = self.start.offset;
        while next < self.end().offset {
            match self.read(next, self.writer.index()) {
                Ok(batches) => {
                    assert!(!batches.is_empty(), "reading at {next} stalls");
                    for batch in &batches {
                        assert_eq!(batch.base_offset(), next);
                        check_records(batch);
                        next = batch.next_offset();
                        records += u64::from(batch.records());
                    }
                }
                Err(SegmentReadError::Corrupt { path, positions, offsets }) => {
                    assert_eq!(path, self.path());
                    assert!(positions.start < positions.end);
                    assert!(positions.start >= FIRST_GROUP_POSITION);
                    assert_eq!(offsets.start.max(next), next);
                    assert!(offsets.end > next, "reading resumes behind the damage");
                    next = offsets.end;
                    damaged.push(offsets);
                }
                Err(error) => panic!("{error}"),
            }
        }
        (records, damaged)
    }
}

pub(super) fn check_records(batch: &StoredBatch) {
    for (offset, record) in batch {
        assert_eq!(record, record_at(offset), "record {offset} was never written");
    }
}

pub(super) fn stamp(base_offset: Offset, epoch: Epoch) -> BatchStamp {
    let append_time = WallTime(1_000_000 + base_offset.0);
    BatchStamp { base_offset, epoch, append_time, ..BatchStamp::default() }
}

fn write_batch(target: &mut [u8], records: u32, stamp: &BatchStamp) -> usize {
    if records == 0 {
        return BatchHeader::write_marker(target, b"descriptor", stamp);
    }
    let mut builder = RecordBatch::builder();
    for record in 0..u64::from(records) {
        builder.push(&record_at(Offset(stamp.base_offset.0 + record))).unwrap();
    }
    builder.finish().write_into(target, stamp)
}

/// Flips the lowest bit of the byte at `position`.
pub(super) fn flip(segment: &TestSegment, position: u64) {
    segment.storage.flip_bit(&segment.path(), Position(position)).unwrap();
}

pub(super) fn file_bytes(segment: &TestSegment, path: &Path) -> u64 {
    segment.storage.read_file(path).unwrap().len() as u64
}

const _: () = assert!(BLOCK_BYTES > GROUP_HEADER_BYTES);
