//! Tests of segments on a simulated disk, among them scenarios L1, L3, L4, L24, L30 and L32.

use super::closing::{load_footer, load_index, rebuild_footer};
use super::reader::{PayloadCheck, SegmentCursor, SegmentRead, Sharing};
use super::scan::{CorruptRange, ScanRange, Tail};
use super::survey::{DurableClaim, durable_claim};
use super::test_segments::{
    FILE_BYTES, NOTHING_DURABLE, PARTITION, TestSegment, check_records, directory, epoch,
    file_bytes, flip,
};
use super::{MakeError, OpenSegmentError, SparseIndex, make_segment, open_segment};
use super::{segment_id_of_name, segment_path};
use crate::format::{DurableMark, NextSegment, SegmentHeader, SegmentPoint};
use crate::id::{Offset, Position, SegmentId};
use crate::io::arena::Arena;
use crate::io::clock::WallTime;
use crate::io::disk::{Disk, DiskFile, DiskOperation, OpenMode};
use crate::io::simulated::{Fault, FaultKind, PowerLoss};

#[test]
fn groups_come_back_in_order_from_every_offset() {
    let mut segment = TestSegment::new(FILE_BYTES);
    for batches in [&[1][..], &[3, 1, 2], &[40], &[1, 1]] {
        segment.append(batches);
    }

    let (records, damaged) = segment.read_all();

    assert_eq!((records, damaged), (50 - 1, Vec::new()));
    for from in 100..149 {
        let batches = segment.read(Offset(from), segment.writer.index()).unwrap();
        assert!(batches[0].base_offset() <= Offset(from));
        assert!(batches[0].next_offset() > Offset(from));
        batches.iter().for_each(check_records);
    }
    assert!(segment.read(Offset(149), segment.writer.index()).unwrap().is_empty());
}

#[test]
fn walk_finds_the_clean_end_with_everything_needed_to_go_on() {
    let mut segment = TestSegment::new(FILE_BYTES);
    segment.append(&[0, 2]);
    segment.epoch = epoch(2);
    segment.append(&[0]);
    let last = segment.append(&[5]);

    let report = segment.scan(NOTHING_DURABLE);

    assert_eq!((report.end, report.tail), (last.after, Tail::Clean));
    assert_eq!((report.groups, report.is_chain_known), (3, true));
    assert!(report.corrupt.is_empty());
    let starts = |starts: &[crate::format::EpochStart]| -> Vec<_> {
        starts.iter().map(|start| (start.epoch.term(), start.start.0)).collect()
    };
    assert_eq!(starts(&report.epochs), [(1, 100), (2, 102)]);
    assert_eq!(starts(&report.markers), [(1, 100), (2, 102)]);
    assert_eq!(report.index.entries(), segment.writer.index().entries());
    assert_eq!(report.first_time, segment.writer.first_time());
    assert_eq!(report.last_time, segment.writer.last_time());
}

#[test]
fn markers_are_read_only_when_asked_for() {
    let mut segment = TestSegment::new(FILE_BYTES);
    segment.append(&[0, 2]);
    segment.append(&[0]);
    let cursor = SegmentCursor::first(Offset(100));
    let read = SegmentRead {
        from: Offset(100),
        cursor,
        end: segment.end(),
        bytes_max: 1 << 20,
        markers: true,
        payloads: PayloadCheck::Now,
        sharing: Sharing::Lend,
    };

    let with = segment.runtime.block_on(segment.reader().read(read)).unwrap();
    let without = segment
        .runtime
        .block_on(segment.reader().read(SegmentRead { markers: false, ..read }))
        .unwrap();

    let markers: Vec<_> = with.batches.iter().map(|batch| batch.is_marker()).collect();
    assert_eq!(markers, [true, false]);
    assert_eq!(without.batches.len(), 1);
}

// L1: the file of a segment is cut by 7 bytes in its last group; the index is of no use.
#[test]
fn cut_file_loses_the_last_batch_and_says_so() {
    let mut segment = TestSegment::new(FILE_BYTES);
    let mut groups: Vec<_> = (0..10).map(|_| segment.append(&[1])).collect();
    let last = groups.pop().unwrap();
    let content_end = content_end(&segment, &last);
    segment.storage.cut(&segment.path(), content_end - 7).unwrap();

    let report = segment.scan(segment.durable);

    assert_eq!(report.end, groups[8].after);
    assert_eq!(report.end.offset, last.base_offset);
    let bytes = content_end - 7 - last.position.0;
    assert_eq!(report.tail, Tail::CutShort { bytes, durable: Offset(110) });
    assert!(report.corrupt.is_empty());
}

#[test]
fn file_cut_between_groups_is_noticed() {
    let mut segment = TestSegment::new(FILE_BYTES);
    let first = segment.append(&[1]);
    segment.append(&[1]);
    segment.storage.cut(&segment.path(), first.after.position.0).unwrap();

    let report = segment.scan(segment.durable);

    assert_eq!(report.end, first.after);
    assert_eq!(report.tail, Tail::CutShort { bytes: 0, durable: Offset(102) });
}

// L3
#[test]
fn lost_footer_is_rebuilt_with_the_same_answers() {
    let mut segment = TestSegment::new(FILE_BYTES);
    for number in 0..60 {
        segment.append(&[1, number % 5, 3]);
    }
    let closed = segment.close();
    let end = closed.end_position;
    let footer = segment
        .runtime
        .block_on(load_footer(&segment.disk, &segment.file, &closed))
        .unwrap()
        .expect("the footer was written");
    assert!(footer.entries.len() > 2, "the test has an index to lose");
    let path = segment.path();
    assert!(file_bytes(&segment, &path) < FILE_BYTES);

    for damage in 0..3 {
        match damage {
            0 => flip(&segment, end.0 + 30),
            1 => segment.storage.corrupt(&path, end, &[0; 4096]).unwrap(),
            _ => segment.storage.cut(&path, end.0).unwrap(),
        }
        let load = |file| load_footer(&segment.disk, file, &closed);
        assert_eq!(segment.runtime.block_on(load(&segment.file)).unwrap(), None);
        let rebuild = rebuild_footer(&segment.disk, &segment.file, &closed);
        let (rebuilt, report) = segment.runtime.block_on(rebuild).unwrap();

        assert_eq!(rebuilt, footer);
        assert_eq!((report.end.chain, report.tail), (closed.last_chain, Tail::Clean));
        let index =
            segment.runtime.block_on(load_index(&segment.disk, &segment.file, &closed)).unwrap();
        assert_eq!(index.entries(), footer.entries);
        assert!(segment.read_all().1.is_empty());
    }
}

#[test]
fn footer_about_another_end_is_not_believed() {
    let mut segment = TestSegment::new(FILE_BYTES);
    segment.append(&[1]);
    let mut closed = segment.close();
    closed.end_offset = Offset(100);

    let footer =
        segment.runtime.block_on(load_footer(&segment.disk, &segment.file, &closed)).unwrap();

    assert_eq!(footer, None);
}

// L4
#[test]
fn flipped_bit_hides_one_batch_and_nothing_else() {
    let mut segment = TestSegment::new(FILE_BYTES);
    let groups: Vec<_> = (0..20).map(|_| segment.append(&[2, 1, 3])).collect();
    let closed = segment.close();
    let hurt = groups[10];
    // Behind the group's header, the first batch's header and into its first record.
    flip(&segment, hurt.position.0 + 96 + 80 + 10);

    let (records, damaged) = segment.read_all();

    let base = hurt.base_offset;
    assert_eq!(damaged, [base..Offset(base.0 + 2)]);
    assert_eq!(records, 20 * 6 - 2);
    let rebuild = rebuild_footer(&segment.disk, &segment.file, &closed);
    let (_, report) = segment.runtime.block_on(rebuild).unwrap();
    let offsets = base..hurt.after.offset;
    let positions = hurt.position..hurt.after.position;
    assert_eq!(report.corrupt, [CorruptRange { positions, offsets }]);
    assert_eq!((report.end.chain, report.end.offset), (closed.last_chain, closed.end_offset));
}

#[test]
fn damaged_headers_hide_the_rest_of_their_group() {
    let mut segment = TestSegment::new(FILE_BYTES);
    let groups: Vec<_> = (0..6).map(|_| segment.append(&[2, 1])).collect();
    flip(&segment, groups[1].position.0 + 50);
    flip(&segment, groups[3].position.0 + 96 + 50);
    flip(&segment, groups[5].position.0);

    let (records, damaged) = segment.read_all();

    let range = |number: usize| groups[number].base_offset..groups[number].after.offset;
    assert_eq!(damaged, [range(1), range(3), range(5)]);
    assert_eq!(records, 3 * 3);
}

// L30, first half: groups 1, 2 and 4 are on disk, 3 is not.
#[test]
fn group_behind_a_hole_never_comes_back() {
    let mut segment = TestSegment::new(FILE_BYTES);
    segment.append(&[2]);
    let (second, second_place) = segment.frame(&[1]);
    let (_, third_place) = segment.frame(&[4]);
    let (fourth, fourth_place) = segment.frame(&[3]);
    segment.write(fourth.clone(), &fourth_place);
    segment.write(second, &second_place);

    let report = segment.scan(segment.durable);

    assert_eq!(report.end, second_place.after);
    let torn_bytes = fourth_place.after.position.0 - third_place.position.0;
    assert_eq!(report.tail, Tail::Torn { bytes: torn_bytes });
    assert!(report.corrupt.is_empty());

    // Second half: another group of the third's size goes into its place; the fourth stays dead.
    let active = crate::format::ActiveSegment {
        segment: segment.writer.segment(),
        file_bytes: FILE_BYTES,
        base_offset: Offset(100),
        first_time: WallTime(1),
        last_time: WallTime(1),
        durable: report.end,
    };
    segment.writer = super::SegmentWriter::resume(&active, SparseIndex::default());
    segment.epoch = epoch(2);
    let replaced = segment.append(&[4]);
    assert_eq!(replaced.after.position, third_place.after.position);
    assert_eq!(replaced.after.offset, third_place.after.offset);

    let report = segment.scan(NOTHING_DURABLE);

    assert_eq!(report.end, replaced.after);
    assert!(matches!(report.tail, Tail::Torn { .. }));
}

#[test]
fn torn_group_is_cut_and_a_flipped_acknowledged_one_is_not() {
    let mut segment = TestSegment::new(FILE_BYTES);
    let first = segment.append(&[2]);
    let second = segment.append(&[3, 1]);
    let third = segment.append(&[1]);

    // Nothing says that the last group had been durable.
    flip(&segment, third.position.0 + 100);
    let torn = segment.scan(NOTHING_DURABLE);
    assert_eq!((torn.end, torn.corrupt.len()), (second.after, 0));
    assert!(matches!(torn.tail, Tail::Torn { .. }));

    // The checkpoint does: the group is kept as damaged, and the log goes on behind it.
    let known = segment.scan(segment.durable);
    assert_eq!(known.end.offset, third.after.offset);
    assert_eq!(known.end.position, third.after.position);
    assert_eq!(known.corrupt.len(), 1);
    assert!(!known.is_chain_known);
    flip(&segment, third.position.0 + 100);

    // The third group says it of the second.
    flip(&segment, second.position.0 + 100);
    let flipped = segment.scan(NOTHING_DURABLE);
    assert_eq!((flipped.end, flipped.tail), (third.after, Tail::Clean));
    let positions = first.after.position..second.after.position;
    let offsets = first.after.offset..second.after.offset;
    assert_eq!(flipped.corrupt, [CorruptRange { positions, offsets }]);
}

#[test]
fn durable_group_ahead_of_a_hole_survives_damage_before_it() {
    let mut segment = TestSegment::new(FILE_BYTES);
    let hurt = segment.append(&[2]);
    let durable = segment.append(&[1]);
    let (_, hole) = segment.frame(&[1]);
    let (late, late_place) = segment.frame(&[1]);
    segment.write(late, &late_place);
    flip(&segment, hurt.position.0 + 100);

    let report = segment.scan(NOTHING_DURABLE);

    assert_eq!(report.end, durable.after);
    assert_eq!(report.corrupt.len(), 1);
    assert_eq!(report.end.position, hole.position);
    assert!(matches!(report.tail, Tail::Torn { .. }));
}

#[test]
fn whole_group_behind_damage_and_a_hole_is_not_taken() {
    let mut segment = TestSegment::new(FILE_BYTES);
    segment.append(&[2]);
    let hurt = segment.append(&[1]);
    let (_, hole) = segment.frame(&[1]);
    let (late, late_place) = segment.frame(&[1]);
    segment.write(late, &late_place);
    flip(&segment, hurt.position.0 + 100);

    let report = segment.scan(NOTHING_DURABLE);

    let positions = hurt.position..hole.position;
    let offsets = hurt.base_offset..hurt.after.offset;
    assert_eq!(report.corrupt, [CorruptRange { positions, offsets }]);
    assert_eq!((report.end.position, report.end.offset), (hole.position, hurt.after.offset));
    assert!(!report.is_chain_known);
    assert!(matches!(report.tail, Tail::Torn { .. }));
}

#[test]
fn bytes_behind_the_last_batch_of_a_group_are_zeros() {
    let mut segment = TestSegment::new(FILE_BYTES);

    let group = segment.append(&[1]);

    let bytes = segment.storage.read_file(&segment.path()).unwrap();
    let content_end = usize::try_from(content_end(&segment, &group)).unwrap();
    assert!(content_end < usize::try_from(group.after.position.0).unwrap());
    assert!(bytes[content_end..].iter().all(|byte| *byte == 0));
}

#[test]
fn next_segment_goes_on_from_the_chain_and_vouches_for_the_one_before() {
    let mut segment = TestSegment::new(FILE_BYTES);
    segment.append(&[2]);
    let last = segment.append(&[3]);
    let mut next = segment.roll();
    let rolled = next.append(&[1]);
    let second = next.append(&[2]);
    let range = |chain, is_chain_known, durable| ScanRange {
        segment: next.writer.segment(),
        start: SegmentPoint { chain, ..next.start },
        is_chain_known,
        durable,
        end: None,
    };

    let seeded = next.scan_range(range(next.start.chain, true, NOTHING_DURABLE));
    let wrong = next.scan_range(range(crate::format::Chain(1), true, NOTHING_DURABLE));
    let claim = next
        .runtime
        .block_on(durable_claim(&next.disk, &next.file, next.writer.segment(), u64::MAX))
        .unwrap();

    assert_eq!(seeded.end, second.after);
    // The second group says that the first was durable: a wrong chain in front of it is damage.
    assert_eq!(wrong.corrupt.len(), 1);
    let own = DurableMark { offset: rolled.after.offset, position: rolled.after.position };
    assert_eq!(claim, DurableClaim { own, before: last.after.offset, is_empty: false });
    flip(&segment, last.position.0 + 100);
    let torn = segment.scan(NOTHING_DURABLE);
    assert_eq!((torn.end.offset, torn.corrupt.len()), (last.base_offset, 0));
    let vouched = segment.scan(DurableMark { offset: claim.before, ..NOTHING_DURABLE });
    assert_eq!((vouched.end.offset, vouched.corrupt.len()), (last.after.offset, 1));
    assert_eq!(vouched.end.position, last.after.position);
    let unchained = next.scan_range(range(vouched.end.chain, vouched.is_chain_known, claim.own));
    assert_eq!((unchained.end, unchained.corrupt.len()), (second.after, 0));
}

#[test]
fn group_of_another_segment_is_not_taken() {
    let mut segment = TestSegment::new(FILE_BYTES);
    let mut other = segment.roll();
    let (group, place) = other.frame(&[1]);
    segment.write(group, &place);

    let report = segment.scan(NOTHING_DURABLE);

    assert_eq!(report.groups, 0);
    assert_eq!(report.tail, Tail::Clean, "it is what a recycled file held before");
    segment.writer = other.writer;
}

#[test]
fn group_that_does_not_fit_changes_nothing_and_the_next_segment_takes_it() {
    let mut segment = TestSegment::new(5 * 4096);
    segment.append(&[1]);
    let before = segment.writer.point();
    let mut extent = segment.disk.arena().allocate(1 << 20).unwrap();

    assert!(segment.writer.fits(3 * 4096));
    let refused = segment.writer.frame(&mut extent, 4 * 4096, segment.durable).unwrap_err();

    assert_eq!((refused.needed_bytes, refused.left_bytes), (4 * 4096, 3 * 4096));
    assert_eq!(segment.writer.point(), before);
    assert_eq!(extent.len(), 1 << 20);
    // A group longer than the whole segment goes into an empty one, and the file grows.
    let mut next = segment.roll();
    next.append(&[60, 60, 60, 60, 60]);
    assert!(next.writer.point().position.0 > next.writer.file_bytes());
    assert_eq!(next.scan(NOTHING_DURABLE).end, next.writer.point());
    assert!(!next.writer.fits(4096));
}

// L14, seeking: the first record at or after a time, exactly.
#[test]
fn time_is_found_exactly() {
    let mut segment = TestSegment::new(4 * FILE_BYTES);
    for _ in 0..80 {
        segment.append(&[2, 1, 2]);
    }
    let at = |time: u64| {
        let time = WallTime(time);
        let first = SegmentCursor::first(Offset(100));
        let cursor = segment.writer.index().locate_time(time).map_or(first, Into::into);
        let find = segment.reader();
        segment.runtime.block_on(find.offset_at(time, cursor, segment.end())).unwrap()
    };

    // A batch's time is 1,000,000 above its base offset.
    assert_eq!(at(0), Some(Offset(100)));
    assert_eq!(at(1_000_102), Some(Offset(102)));
    assert_eq!(at(1_000_104), Some(Offset(105)));
    assert_eq!(at(1_000_498), Some(Offset(498)));
    assert_eq!(at(1_000_499), None);
}

#[test]
fn reading_ends_where_it_is_told_to() {
    let mut segment = TestSegment::new(FILE_BYTES);
    let first = segment.append(&[2, 2]);
    segment.append(&[2]);
    let mut end = segment.end();
    let cursor = SegmentCursor::first(Offset(100));
    let read = |end| {
        let read = SegmentRead {
            from: Offset(100),
            cursor,
            end,
            bytes_max: 1 << 20,
            markers: false,
            payloads: PayloadCheck::Now,
            sharing: Sharing::Lend,
        };
        segment.runtime.block_on(segment.reader().read(read)).unwrap()
    };

    end.offset = Offset(103);
    assert_eq!(read(end).next_offset, Offset(102));
    end.position = first.after.position;
    end.offset = Offset(104);
    let answer = read(end);
    assert_eq!(answer.next_offset, Offset(104));
    let behind = SegmentCursor { position: first.after.position, offset: Offset(104) };
    assert_eq!(answer.cursor, behind);
}

#[test]
fn batches_keep_their_bytes_after_the_reader_is_gone() {
    let mut segment = TestSegment::new(FILE_BYTES);
    segment.append(&[2, 2]);
    let room = segment.disk.arena().available_bytes();

    let batches = segment.read(Offset(100), &SparseIndex::default()).unwrap();

    assert!(segment.disk.arena().available_bytes() < room);
    batches.iter().for_each(check_records);
    drop(batches);
    assert_eq!(segment.disk.arena().available_bytes(), room);
}

#[test]
fn made_segment_survives_power_loss_with_its_name_and_length() {
    let segment = TestSegment::new(3 * FILE_BYTES + 8192);
    segment.storage.lose_power(PowerLoss::LoseUnsynced);
    let disk = segment.storage.disk(Arena::new(1 << 20));

    let open = open_segment(&disk, directory(), PARTITION, SegmentId(0xabc), OpenMode::Write);
    let (file, header) = segment.runtime.block_on(open).unwrap();

    assert_eq!(header.file_bytes, 3 * FILE_BYTES + 8192);
    let length = segment.runtime.block_on(file.length()).unwrap();
    assert_eq!(length, header.file_bytes);
}

// L24, the segment's part: an unreadable or foreign header is named, and nothing is changed.
#[test]
fn file_with_a_bad_header_is_not_opened() {
    let segment = TestSegment::new(FILE_BYTES);
    let open = |id| {
        let open = open_segment(&segment.disk, directory(), PARTITION, id, OpenMode::Read);
        segment.runtime.block_on(open)
    };
    let foreign = segment_path(directory(), SegmentId(1));
    let path = segment.path();

    segment.runtime.block_on(segment.disk.rename(&path, &foreign)).unwrap();
    assert!(matches!(open(SegmentId(1)), Err(OpenSegmentError::Foreign { .. })));
    segment.storage.flip_bit(&foreign, Position(40)).unwrap();
    assert!(matches!(open(SegmentId(1)), Err(OpenSegmentError::Header { .. })));
    assert!(matches!(open(SegmentId(2)), Err(OpenSegmentError::Disk(_))));
}

#[test]
fn segment_that_finds_no_room_leaves_nothing_behind() {
    let segment = TestSegment::new(FILE_BYTES);
    let header = SegmentHeader {
        partition: PARTITION,
        segment: SegmentId(2),
        file_bytes: 64 << 20,
        created: WallTime(1),
    };
    let path = segment_path(directory(), SegmentId(2));
    let full = Fault::new(DiskOperation::Write, FaultKind::NoSpace).under(path).after(5);
    segment.storage.inject(full);

    let made = segment.runtime.block_on(make_segment(&segment.disk, directory(), &header));

    assert!(matches!(made, Err(MakeError::Disk(error)) if error.is_full()));
    assert_eq!(segment.storage.files(directory()), [segment.path()]);
}

#[test]
fn names_of_segments_are_told_from_other_names() {
    let path = segment_path(directory(), SegmentId(0xabc));
    let name = path.file_name().unwrap().to_str().unwrap();

    assert_eq!(name, "0000000000000abc.segment");
    assert_eq!(segment_id_of_name(name), Some(SegmentId(0xabc)));
    for other in ["checkpoint", "abc.segment", "000000000000ABCD.segment", "0000000000000abc.tmp"] {
        assert_eq!(segment_id_of_name(other), None);
    }
}

/// Where the last byte of a group's last batch lies, padding left out.
fn content_end(segment: &TestSegment, group: &super::ReservedWrite) -> u64 {
    let bytes = segment.storage.read_file(&segment.path()).unwrap();
    let start = usize::try_from(group.position.0).unwrap();
    let (header, _) = crate::format::GroupHeader::decode(&bytes[start..]).unwrap();
    group.position.0 + u64::from(header.length_bytes)
}

#[test]
fn writer_with_large_numbers_rolls_before_anything_overflows() {
    let made = NextSegment { segment: SegmentId(1), file_bytes: 5 << 30 };
    let active = crate::format::ActiveSegment {
        segment: made.segment,
        file_bytes: made.file_bytes,
        base_offset: Offset(1),
        first_time: WallTime(1),
        last_time: WallTime(1),
        durable: SegmentPoint {
            position: Position((5 << 30) - 8192),
            offset: Offset(1 << 40),
            group: 1 << 20,
            ..SegmentPoint::default()
        },
    };
    let mut segment = TestSegment::new(FILE_BYTES);
    segment.writer = super::SegmentWriter::resume(&active, SparseIndex::default());

    let (_, reserved) = segment.frame(&[2]);

    assert_eq!(reserved.position, Position((5 << 30) - 8192));
    assert_eq!(reserved.after.offset, Offset((1 << 40) + 2));
    assert!(!segment.writer.fits(8192));
}
