//! Golden files: one of each structure and version, kept for good. Each is decoded to the value it was written
//! from, and that value encodes to the very same bytes.
//!
//! A change of the format adds files of the new version; `PALISADE_WRITE_GOLDEN=1 cargo test -p palisade-engine
//! --test golden` writes those that are missing, and never touches one that exists.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use palisade_engine::format::{
    ActiveSegment, BatchHeader, BatchStamp, Chain, Checkpoint, ClosedSegment, Descriptor,
    DirectoryMode, DurableMark, EpochStart, FRAME_HEADER_BYTES, Footer, FrameEntry, FrameHeader,
    FrameSequence, GROUP_HEADER_BYTES, GroupHeader, Identity, IndexEntry, JournalHeader,
    JournalMark, Member, NextSegment, Policy, Producer, ProducerEntry, QuarantinedRange,
    RecordBatch, ReplicaSet, SegmentHeader, SegmentPoint, SegmentState, StoredBatch,
    StoredSettings, believe_slots, place_checkpoint,
};
use palisade_engine::id::{
    BLOCK_BYTES, Epoch, JournalId, NodeId, Offset, PartitionId, PartitionIndex, Position,
    SegmentId, StorageId, StreamId, StreamName,
};
use palisade_engine::io::clock::WallTime;

/// The chain behind the segment's seed and one crc, computed apart from this crate.
const GOLDEN_CHAIN: u64 = 0xc897_7871_6a08_4bc3;

const JOURNAL: JournalId = JournalId(0x0f0e_0d0c_0b0a_0908);

const PARTITION: PartitionId = PartitionId {
    stream: StreamId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
    index: PartitionIndex(5),
};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap_or_else(|error| panic!("golden file {name}: {error}"))
}

fn node(id: u32) -> NodeId {
    NodeId::new(id).unwrap()
}

fn stamp() -> BatchStamp {
    BatchStamp {
        base_offset: Offset(1000),
        epoch: Epoch::self_elected(9, 2, node(3)),
        append_time: WallTime(1_700_000_000_123_456),
        client_time: WallTime(1_700_000_000_000_000),
        producer: Producer { id: 77, epoch: 4, sequence: 12 },
    }
}

fn batch() -> Vec<u8> {
    let mut builder = RecordBatch::builder();
    for record in [&b"first"[..], b"", b"third record"] {
        builder.push(record).unwrap();
    }
    let batch = builder.finish();
    let mut bytes = vec![0; batch.bytes()];
    batch.write_into(&mut bytes, &stamp());
    bytes
}

fn descriptor() -> Descriptor {
    let member = |id| Member { node: node(id), storage: StorageId(0xfeed << 64 | u128::from(id)) };
    Descriptor {
        term: 9,
        set: ReplicaSet { members: vec![member(1), member(2), member(3)], ack_quorum: 2 },
        seal_sets: vec![ReplicaSet { members: vec![member(1), member(2)], ack_quorum: 2 }],
        policy: Policy::SelfElect,
        loss_generation: 1,
        successors: vec![node(2), node(3)],
    }
}

fn marker() -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let stamp = BatchStamp { base_offset: Offset(1003), ..stamp() };
    let length = BatchHeader::write_marker(&mut bytes, &descriptor().encode(), &stamp);
    bytes.truncate(length);
    bytes
}

fn group_header(length_bytes: usize) -> GroupHeader {
    GroupHeader {
        segment: SegmentId(0x1234_5678_9abc_def0),
        position: Position(8192),
        number: 1,
        batches: 2,
        length_bytes: u32::try_from(length_bytes).unwrap(),
        base_offset: Offset(1000),
        next_offset: Offset(1003),
        durable: DurableMark { offset: Offset(1000), position: Position(8192) },
        chain: Chain::seed(SegmentId(0x1234_5678_9abc_def0), Chain(0)).with_crc(0xc0ff_ee00),
    }
}

fn group() -> Vec<u8> {
    let mut bytes = vec![0; GROUP_HEADER_BYTES];
    bytes.extend(batch());
    bytes.extend(marker());
    group_header(bytes.len()).write(&mut bytes);
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    bytes
}

fn segment_header() -> SegmentHeader {
    SegmentHeader {
        partition: PARTITION,
        segment: SegmentId(0x1234_5678_9abc_def0),
        file_bytes: 1 << 20,
        created: WallTime(1_700_000_000_000_000),
    }
}

fn segment_header_block() -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    segment_header().write(&mut block);
    block
}

fn footer() -> Footer {
    let entry = |offset, position, time| IndexEntry {
        offset: Offset(offset),
        position: Position(position),
        time: WallTime(time),
    };
    Footer {
        segment: SegmentId(0x1234_5678_9abc_def0),
        base_offset: Offset(900),
        end_offset: Offset(1500),
        end_position: Position(204_800),
        last_chain: Chain(0xdead_beef_cafe_f00d),
        first_time: WallTime(1_700_000_000_000_001),
        last_time: WallTime(1_700_000_000_000_999),
        entries: vec![
            entry(900, 4096, 1_700_000_000_000_001),
            entry(1200, 69_632, 1_700_000_000_000_500),
        ],
    }
}

fn closed() -> ClosedSegment {
    let footer = footer();
    ClosedSegment {
        segment: footer.segment,
        base_offset: footer.base_offset,
        end_offset: footer.end_offset,
        end_position: footer.end_position,
        last_chain: footer.last_chain,
        first_time: footer.first_time,
        last_time: footer.last_time,
        state: SegmentState::Quarantined,
    }
}

fn checkpoint(sequence: u64) -> Checkpoint {
    Checkpoint {
        sequence,
        partition: PARTITION,
        stream_name: StreamName::new("orders").unwrap(),
        clean: false,
        log_start: Offset(950),
        next_offset: Offset(1600),
        committed: Offset(1590),
        promise: Epoch::self_elected(9, 2, node(3)),
        descriptor: Some(descriptor()),
        loss_generation: 1,
        epochs: vec![
            EpochStart { epoch: Epoch::named(3, node(1)), start: Offset(0) },
            EpochStart { epoch: Epoch::self_elected(9, 2, node(3)), start: Offset(1003) },
        ],
        producers: vec![ProducerEntry {
            producer: stamp().producer,
            base_offset: Offset(1000),
            records: 3,
            append_time: stamp().append_time,
            epoch: stamp().epoch,
        }],
        closed: vec![closed()],
        quarantined: vec![QuarantinedRange {
            segment: closed().segment,
            positions: Position(8192)..Position(12_288),
            offsets: Offset(1000)..Offset(1003),
        }],
        active: Some(ActiveSegment {
            segment: SegmentId(0x0fed_cba9_8765_4321),
            file_bytes: 2 << 20,
            base_offset: Offset(1500),
            first_time: WallTime(1_700_000_000_001_000),
            last_time: WallTime(1_700_000_000_002_000),
            durable: SegmentPoint {
                position: Position(16_384),
                offset: Offset(1600),
                chain: Chain(0x0102_0304_0506_0708),
                group: 3,
            },
        }),
        next: Some(NextSegment { segment: SegmentId(0x5555_aaaa_5555_aaaa), file_bytes: 4 << 20 }),
        settings: StoredSettings {
            segment_bytes: 64 << 20,
            first_segment_bytes: 1 << 20,
            retention_bytes: Some(10 << 30),
            retention_age: Some(Duration::from_secs(7 * 24 * 3600)),
        },
        journal: Some(JournalMark { journal: JOURNAL, from: FrameSequence(17) }),
    }
}

/// What version 1 had no field for.
fn checkpoint_v1(sequence: u64) -> Checkpoint {
    Checkpoint { journal: None, ..checkpoint(sequence) }
}

fn journal_header() -> JournalHeader {
    JournalHeader {
        journal: JOURNAL,
        file_bytes: 64 << 20,
        created: WallTime(1_700_000_000_000_000),
    }
}

fn journal_header_block() -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    journal_header().write(&mut block);
    block
}

fn journal_entries() -> [FrameEntry; 2] {
    let other = PartitionId { index: PartitionIndex(6), ..PARTITION };
    [PARTITION, other].map(|partition| FrameEntry {
        partition,
        batches_bytes: u32::try_from(batch().len()).unwrap(),
        base_offset: stamp().base_offset,
    })
}

fn frame_header() -> FrameHeader {
    FrameHeader {
        entries: 2,
        journal: JOURNAL,
        sequence: FrameSequence(18),
        position: Position(20_480),
        durable: FrameSequence(17),
        tail: FrameSequence(3),
        table_at: u32::try_from(FRAME_HEADER_BYTES + 2 * batch().len()).unwrap(),
    }
}

fn frame() -> Vec<u8> {
    let mut frame = vec![0; BLOCK_BYTES];
    let batch = batch();
    for place in 0..2 {
        let at = FRAME_HEADER_BYTES + place * batch.len();
        frame[at..at + batch.len()].copy_from_slice(&batch);
    }
    frame_header().write(&mut frame, journal_entries().into_iter());
    frame
}

fn identity() -> Identity {
    Identity {
        mode: DirectoryMode::Cluster { cluster: 0xabcd << 100 },
        node: node(3),
        storage: StorageId(0x9999 << 90 | 1),
    }
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("batch.v1.bin", batch()),
        ("marker.v1.bin", marker()),
        ("descriptor.v1.bin", descriptor().encode()),
        ("group.v1.bin", group()),
        ("segment_header.v1.bin", segment_header_block()),
        ("footer.v1.bin", footer().encode()),
        ("checkpoint.v2.bin", checkpoint(7).encode()),
        ("identity.v1.bin", identity().encode()),
        ("journal_header.v1.bin", journal_header_block()),
        ("journal_frame.v1.bin", frame()),
    ]
}

#[test]
fn no_golden_file_is_missing() {
    let may_write = std::env::var_os("PALISADE_WRITE_GOLDEN").is_some();
    for (name, bytes) in files() {
        if may_write && !path(name).exists() {
            std::fs::write(path(name), bytes).unwrap();
        }
        assert!(path(name).exists(), "{name} is missing; PALISADE_WRITE_GOLDEN=1 writes it");
    }
}

#[test]
fn values_encode_to_their_golden_bytes() {
    for (name, bytes) in files() {
        assert!(golden(name) == bytes, "{name} differs");
    }
}

#[test]
fn golden_batches_decode_to_their_records_and_descriptor() {
    let records = StoredBatch::decode(&Bytes::from(golden("batch.v1.bin"))).unwrap();
    let marker = StoredBatch::decode(&Bytes::from(golden("marker.v1.bin"))).unwrap();

    assert_eq!(records.header().stamp, stamp());
    let read: Vec<_> = records.iter().map(|(offset, record)| (offset.0, record)).collect();
    assert_eq!(read, [(1000, &b"first"[..]), (1001, b""), (1002, b"third record")]);
    assert_eq!(marker.descriptor().unwrap(), Some(descriptor()));
    assert_eq!(marker.base_offset(), Offset(1003));
    assert_eq!(Descriptor::decode(&golden("descriptor.v1.bin")).unwrap(), descriptor());
}

#[test]
fn golden_segment_decodes() {
    let bytes = golden("group.v1.bin");
    let (header, _) = GroupHeader::decode(&bytes).unwrap();
    assert_eq!(header, group_header(GROUP_HEADER_BYTES + batch().len() + marker().len()));
    // The chain decides which groups are believed; it is part of the format.
    assert_eq!(header.chain, Chain(GOLDEN_CHAIN));

    assert_eq!(SegmentHeader::decode(&golden("segment_header.v1.bin")).unwrap(), segment_header());
    assert_eq!(Footer::decode(&golden("footer.v1.bin")).unwrap(), footer());
}

#[test]
fn golden_checkpoint_and_identity_decode() {
    assert_eq!(Checkpoint::decode(&golden("checkpoint.v1.bin")).unwrap(), checkpoint_v1(7));
    assert_eq!(Checkpoint::decode(&golden("checkpoint.v2.bin")).unwrap(), checkpoint(7));
    assert_eq!(Identity::decode(&golden("identity.v1.bin")).unwrap(), identity());
    let file = match place_checkpoint(&checkpoint(7), 0) {
        palisade_engine::format::SlotWrite::NewFile { bytes } => bytes,
        in_place => panic!("{in_place:?}"),
    };
    let slot_bytes = file.len() / 2;
    assert_eq!(
        file[slot_bytes..][..golden("checkpoint.v2.bin").len()],
        golden("checkpoint.v2.bin")
    );
    assert_eq!(believe_slots(&file).unwrap().checkpoint, checkpoint(7));
}

#[test]
fn golden_journal_decodes() {
    let header = JournalHeader::decode(&golden("journal_header.v1.bin")).unwrap();
    assert_eq!(header, journal_header());
    let frame = FrameHeader::decode_table(&golden("journal_frame.v1.bin")).unwrap();
    assert_eq!(frame, (frame_header(), journal_entries().to_vec()));
}

#[test]
fn golden_bytes_with_any_bit_flipped_are_refused() {
    let batch = golden("batch.v1.bin");
    for bit in 0..batch.len() * 8 {
        let mut flipped = batch.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(StoredBatch::decode(&Bytes::from(flipped)).is_err(), "bit {bit}");
    }
}
