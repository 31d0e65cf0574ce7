//! Tests of segments in files that were other segments' before: nothing of the former life is taken for log.

use super::closing::{load_footer, load_index, rebuild_footer};
use super::scan::Tail;
use super::survey::durable_claim;
use super::test_segments::{
    FILE_BYTES, NOTHING_DURABLE, PARTITION, TestSegment, directory, file_bytes, flip,
};
use super::writer::SegmentWriter;
use super::{recycled_path, reuse_segment};
use crate::format::{
    Chain, DurableMark, FIRST_GROUP_POSITION, NextSegment, SegmentHeader, SegmentPoint,
};
use crate::id::{BLOCK_BYTES, Offset, Position, SegmentId};
use crate::io::clock::WallTime;
use crate::io::disk::{Disk, DiskFile, WriteMode};

const NEW: SegmentId = SegmentId(0x123);

/// Twenty groups, closed, in a file that then becomes the segment [`NEW`] of `file_bytes`. It begins at the very offset
/// and chain at which the former one began: its groups lie where the former ones lay, number for number.
fn recycled(file_bytes: u64) -> TestSegment {
    let mut former = TestSegment::new(FILE_BYTES);
    for _ in 0..20 {
        former.append(&[3, 1]);
    }
    former.close();
    let header =
        SegmentHeader { partition: PARTITION, segment: NEW, file_bytes, created: WallTime(2) };
    let waiting = recycled_path(directory(), former.writer.segment());
    let path = former.path();
    let TestSegment { runtime, storage, disk, epoch, .. } = former;
    let file = runtime.block_on(async {
        disk.rename(&path, &waiting).await.unwrap();
        disk.sync_directory(directory()).await.unwrap();
        reuse_segment(&disk, directory(), &waiting, &header).await.unwrap()
    });
    let made = NextSegment { segment: NEW, file_bytes };
    let writer = SegmentWriter::begin(made, Offset(100), Chain(5));
    let start = writer.point();
    let durable = DurableMark::default();
    TestSegment { runtime, storage, disk, file, writer, durable, epoch, start }
}

#[test]
fn walk_ends_cleanly_in_front_of_the_former_groups() {
    let mut segment = recycled(FILE_BYTES);
    assert_eq!(segment.scan(NOTHING_DURABLE).end, segment.start);
    for groups in 1..20 {
        let last = segment.append(&[3, 1]);

        let report = segment.scan(NOTHING_DURABLE);

        assert_eq!((report.end, report.groups), (last.after, groups));
        assert_eq!((report.tail, report.corrupt.len()), (Tail::Clean, 0));
    }
    assert_eq!(segment.read_all(), (19 * 4, Vec::new()));
}

/// Without the right id in front of them the former groups would follow: the test above can fail.
#[test]
fn former_groups_lie_where_the_next_ones_go() {
    let mut segment = recycled(FILE_BYTES);
    let last = segment.append(&[3, 1]);

    let block = segment.disk.arena().allocate(BLOCK_BYTES).unwrap();
    let block = segment.runtime.block_on(segment.file.read(block, last.after.position)).unwrap();
    let (header, _) = crate::format::GroupHeader::decode(block.as_slice()).unwrap();

    assert_eq!((header.segment, header.number), (SegmentId(0xabc), 1));
    assert_eq!((header.base_offset, header.position), (last.after.offset, last.after.position));
}

#[test]
fn torn_group_is_told_from_what_the_file_held_before() {
    let mut segment = recycled(FILE_BYTES);
    let last = segment.append(&[3, 1]);
    let (group, torn) = segment.frame(&[40]);
    let head = segment.file.write(group.slice(0..BLOCK_BYTES), torn.position, WriteMode::Durable);
    segment.runtime.block_on(head).unwrap();

    let report = segment.scan(NOTHING_DURABLE);

    assert_eq!(report.end, last.after);
    assert_eq!(report.tail, Tail::Torn { bytes: torn.bytes as u64 });
}

#[test]
fn damage_is_not_papered_over_with_former_groups() {
    let mut segment = recycled(FILE_BYTES);
    let groups: Vec<_> = (0..4).map(|_| segment.append(&[3, 1])).collect();
    flip(&segment, groups[1].position.0 + 200);

    let report = segment.scan(segment.durable);

    assert_eq!(report.end, groups[3].after);
    assert_eq!(report.corrupt.len(), 1);
    assert_eq!(report.corrupt[0].positions, groups[1].position..groups[2].position);
    assert_eq!(report.corrupt[0].offsets, groups[1].base_offset..groups[2].base_offset);
}

#[test]
fn damage_at_the_end_loses_its_groups_and_gains_none() {
    let mut segment = recycled(FILE_BYTES);
    let groups: Vec<_> = (0..3).map(|_| segment.append(&[3, 1])).collect();
    flip(&segment, groups[2].position.0 + 8);

    let report = segment.scan(segment.durable);

    assert_eq!(report.groups, 2);
    assert_eq!(report.corrupt[0].offsets, groups[2].base_offset..segment.durable.offset);
    assert_eq!(report.end.offset, segment.durable.offset);
}

#[test]
fn former_footer_and_claims_are_not_believed() {
    let mut segment = recycled(FILE_BYTES);

    let claim = durable_claim(&segment.disk, &segment.file, NEW, u64::MAX);
    let claim = segment.runtime.block_on(claim).unwrap();
    assert_eq!((claim.own, claim.before), (NOTHING_DURABLE, Offset::ZERO));
    assert!(claim.is_empty, "what another segment left is nothing of this one");

    // It ends where the former one ended, and its own footer is missing.
    for _ in 0..20 {
        segment.append(&[3, 1]);
    }
    let point: SegmentPoint = segment.writer.point();
    let length = file_bytes(&segment, &segment.path());
    assert!(point.position.0 < length, "the former footer is behind it");
    let closed = crate::format::ClosedSegment {
        segment: NEW,
        base_offset: segment.start.offset,
        end_offset: point.offset,
        end_position: point.position,
        last_chain: point.chain,
        first_time: segment.writer.first_time(),
        last_time: segment.writer.last_time(),
        state: crate::format::SegmentState::Healthy,
    };
    let load = load_footer(&segment.disk, &segment.file, &closed);
    assert_eq!(segment.runtime.block_on(load).unwrap(), None);
    let rebuild = rebuild_footer(&segment.disk, &segment.file, &closed);
    let (footer, report) = segment.runtime.block_on(rebuild).unwrap();
    assert_eq!(footer, segment.writer.footer());
    assert_eq!((report.groups, report.corrupt.len()), (20, 0));
    assert_eq!(segment.close(), closed);
    let index = segment.runtime.block_on(load_index(&segment.disk, &segment.file, &closed));
    assert_eq!(index.unwrap().entries(), segment.writer.index().entries());
}

#[test]
fn shorter_file_is_filled_up_with_zeros_and_a_longer_one_is_kept() {
    let long = recycled(FILE_BYTES);
    let bytes = long.storage.read_file(&long.path()).unwrap();
    assert_eq!(bytes.len() as u64, FILE_BYTES);
    assert!(bytes[bytes.len() - BLOCK_BYTES..].iter().all(|byte| *byte == 0));

    let short = recycled(4 * BLOCK_BYTES as u64);
    assert!(file_bytes(&short, &short.path()) > 4 * BLOCK_BYTES as u64);
    assert_eq!(short.scan(NOTHING_DURABLE).end.position, FIRST_GROUP_POSITION);
    assert_eq!(short.start.position, Position(BLOCK_BYTES as u64));
}
