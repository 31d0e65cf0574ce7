//! Random damage to a segment: nothing panics, nothing vanishes in silence, nothing unwritten is read.

use proptest::prelude::{ProptestConfig, Strategy, any, prop, proptest};
use proptest::prop_oneof;

use super::scan::Tail;
use super::test_segments::{FILE_BYTES, NOTHING_DURABLE, TestSegment, flip};
use crate::id::{Offset, Position};

#[derive(Clone, Debug)]
enum Damage {
    Flip(prop::sample::Index),
    Cut(prop::sample::Index),
    Zero(prop::sample::Index, u8),
}

fn damages() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<prop::sample::Index>().prop_map(Damage::Flip),
        any::<prop::sample::Index>().prop_map(Damage::Cut),
        (any::<prop::sample::Index>(), 1..5_u8).prop_map(|(at, blocks)| Damage::Zero(at, blocks)),
    ]
}

fn inflict(segment: &TestSegment, damage: &Damage) {
    let path = segment.path();
    let written = usize::try_from(segment.writer.point().position.0).unwrap();
    let file = segment.storage.read_file(&path).unwrap().len();
    match damage {
        Damage::Flip(at) if file >= written => flip(segment, at.index(written) as u64),
        Damage::Cut(at) => segment.storage.cut(&path, at.index(file.max(1)) as u64).unwrap(),
        Damage::Zero(at, blocks) if file >= written => {
            let position = Position((at.index(written) / 4096 * 4096) as u64);
            let zeros = vec![0; 4096 * usize::from(*blocks)];
            segment.storage.corrupt(&path, position, &zeros).unwrap();
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Whatever is done to the file: neither the walk nor the reader panics, every record read is one that was
    // written, and every offset is read or reported.
    #[test]
    fn damage_is_reported_and_never_read(
        groups in prop::collection::vec(prop::collection::vec(0..12_u32, 1..4), 1..12),
        durable_groups in 0..12_usize,
        damage in prop::collection::vec(damages(), 1..4),
    ) {
        let mut segment = TestSegment::new(FILE_BYTES);
        let mut known = NOTHING_DURABLE;
        for (number, batches) in groups.iter().enumerate() {
            segment.append(batches);
            if number < durable_groups {
                known = segment.durable;
            }
        }
        damage.iter().for_each(|damage| inflict(&segment, damage));

        let report = segment.scan(known);

        let written = segment.writer.point();
        assert!(report.end.offset <= written.offset);
        assert!(report.end.position <= written.position);
        let unreadable = |offset: Offset| report.corrupt.iter().any(|range| range.offsets.contains(&offset));
        if !matches!(report.tail, Tail::CutShort { .. }) {
            assert!(report.end.offset >= known.offset, "durable records vanish in silence");
        }
        // What the walk calls sound is what the reader reads.
        let (records, damaged) = segment.read_all();
        assert!(records <= written.offset.0 - 100);
        for offset in (100..report.end.offset.0).map(Offset) {
            let is_damaged = damaged.iter().any(|range| range.contains(&offset));
            assert!(!is_damaged || unreadable(offset), "offset {offset}");
        }
    }

    // Any subset of the window in flight may have landed: the walk ends at the first hole.
    #[test]
    fn walk_ends_at_the_first_hole(landed in prop::collection::vec(any::<bool>(), 1..8)) {
        let mut segment = TestSegment::new(FILE_BYTES);
        let mut expected = segment.append(&[2]).after;
        let mut is_whole = true;
        for is_landed in landed {
            let (group, place) = segment.frame(&[1, 2]);
            if is_landed {
                segment.write(group, &place);
            }
            is_whole &= is_landed;
            if is_whole {
                expected = place.after;
            }
        }

        let report = segment.scan(segment.durable);

        assert_eq!(report.end, expected);
        assert!(report.corrupt.is_empty());
    }
}
