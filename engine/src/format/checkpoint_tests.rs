//! Tests of checkpoints: they come back whole or not at all.

use proptest::prelude::{any, prop, proptest};

use super::*;
use crate::format::FrameSequence;
use crate::format::descriptor::tests::descriptor;
use crate::id::{JournalId, NodeId, PartitionIndex, StreamId};

pub(in crate::format) fn checkpoint(sequence: u64) -> Checkpoint {
    let closed = |number: u64| ClosedSegment {
        segment: SegmentId(0xabc0 + number),
        base_offset: Offset(number * 10),
        end_offset: Offset(number * 10 + 10),
        end_position: Position(8192),
        last_chain: Chain(77 + number),
        first_time: WallTime(1000 + number),
        last_time: WallTime(1001 + number),
        state: if number == 1 { SegmentState::Quarantined } else { SegmentState::Healthy },
    };
    let epoch = |term| Epoch::named(term, NodeId::new(2).unwrap());
    Checkpoint {
        sequence,
        partition: PartitionId { stream: StreamId(0x1234 << 90), index: PartitionIndex(3) },
        stream_name: StreamName::new("orders").unwrap(),
        clean: true,
        log_start: Offset(5),
        next_offset: Offset(25),
        committed: Offset(24),
        promise: epoch(7),
        descriptor: Some(descriptor()),
        loss_generation: 3,
        epochs: vec![
            EpochStart { epoch: epoch(1), start: Offset(0) },
            EpochStart { epoch: epoch(7), start: Offset(20) },
        ],
        producers: vec![ProducerEntry {
            producer: Producer { id: 8, epoch: 1, sequence: 44 },
            base_offset: Offset(21),
            records: 2,
            append_time: WallTime(1002),
            epoch: epoch(7),
        }],
        closed: vec![closed(0), closed(1)],
        quarantined: vec![QuarantinedRange {
            segment: SegmentId(0xabc1),
            positions: Position(4096)..Position(8192),
            offsets: Offset(10)..Offset(20),
        }],
        active: Some(ActiveSegment {
            segment: SegmentId(0xdef0),
            file_bytes: 1 << 20,
            base_offset: Offset(20),
            first_time: WallTime(1002),
            last_time: WallTime(1003),
            durable: SegmentPoint {
                position: Position(12_288),
                offset: Offset(25),
                chain: Chain(0xfeed),
                group: 2,
            },
        }),
        next: Some(NextSegment { segment: SegmentId(0xdef1), file_bytes: 2 << 20 }),
        settings: StoredSettings {
            segment_bytes: 64 << 20,
            first_segment_bytes: 1 << 20,
            retention_bytes: None,
            retention_age: Some(Duration::from_secs(3600)),
        },
        journal: Some(JournalMark { journal: JournalId(0x77), from: FrameSequence(12) }),
    }
}

#[test]
fn checkpoint_comes_back() {
    let full = checkpoint(9);
    let bare = Checkpoint {
        descriptor: None,
        epochs: Vec::new(),
        producers: Vec::new(),
        closed: Vec::new(),
        quarantined: Vec::new(),
        active: None,
        next: None,
        journal: None,
        ..checkpoint(10)
    };

    for checkpoint in [full, bare] {
        assert_eq!(Checkpoint::decode(&checkpoint.encode()), Ok(checkpoint));
    }
}

#[test]
fn contradicting_checkpoint_is_refused() {
    let broken: [fn(&mut Checkpoint); 5] = [
        |checkpoint| checkpoint.log_start = Offset(25),
        |checkpoint| checkpoint.committed = Offset(26),
        |checkpoint| checkpoint.epochs.reverse(),
        |checkpoint| checkpoint.closed.reverse(),
        |checkpoint| checkpoint.active.as_mut().unwrap().durable.position = Position(1),
    ];
    for change in broken {
        let mut checkpoint = checkpoint(1);
        change(&mut checkpoint);
        let found = Checkpoint::decode(&checkpoint.encode());
        assert!(matches!(found, Err(FormatError::Field { .. })), "{found:?}");
    }
}

#[test]
fn list_longer_than_the_bytes_is_refused_before_allocating() {
    let mut fields = super::super::fields::FieldVec::default();
    fields.raw(&encode_checkpoint(&checkpoint(1))[..8 + 16 + 4]);
    fields.count(1);
    fields.raw(b"s");
    fields.raw(&[0; 1 + 3 * 8 + 8 + 4 + 8]);
    fields.u32(u32::MAX);

    let found = Checkpoint::decode(&ENVELOPE.wrap(&fields.bytes));

    assert!(matches!(found, Err(FormatError::Truncated { .. })), "{found:?}");
}

proptest! {
    #[test]
    fn random_payload_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Checkpoint::decode(&bytes);
        let _ = Checkpoint::decode(&ENVELOPE.wrap(&bytes));
    }

    #[test]
    fn changed_payload_under_a_matching_crc_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut payload = encode_checkpoint(&checkpoint(1));
        for (at, value) in changes {
            let at = at.index(payload.len());
            payload[at] = value;
        }
        let _ = Checkpoint::decode(&ENVELOPE.wrap(&payload));
    }

    #[test]
    fn flip_or_cut_is_found(at: prop::sample::Index, cut: prop::sample::Index) {
        let mut bytes = checkpoint(1).encode();
        assert!(Checkpoint::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Checkpoint::decode(&bytes).is_err());
    }
}
