//! Tests of batches: what goes in comes out, and nothing else is ever let in.

use bytes::Bytes;
use proptest::prelude::{any, prop, proptest};

use super::super::record_batch::{BatchError, RECORD_PREFIX_BYTES, RecordBatch};
use super::super::stored_batch::StoredBatch;
use super::{
    BATCH_BYTES_MAX, BATCH_HEADER_BYTES, BatchHeader, BatchKind, BatchStamp, ENVELOPE, Producer,
};
use crate::format::FormatError;
use crate::id::{Epoch, NodeId, Offset};
use crate::io::clock::WallTime;

fn stamp(base_offset: u64) -> BatchStamp {
    BatchStamp {
        base_offset: Offset(base_offset),
        epoch: Epoch::named(3, NodeId::new(7).unwrap()),
        append_time: WallTime(1_700_000_000_000_000),
        client_time: WallTime(5),
        producer: Producer { id: 9, epoch: 2, sequence: 11 },
    }
}

fn encode(records: &[&[u8]], stamp: &BatchStamp) -> Vec<u8> {
    let mut builder = RecordBatch::builder();
    for record in records {
        builder.push(record).unwrap();
    }
    let batch = builder.finish();
    let mut bytes = vec![0xaa; batch.bytes()];
    assert_eq!(batch.write_into(&mut bytes, stamp), bytes.len());
    bytes
}

#[test]
fn records_come_back_with_their_offsets_and_stamp() {
    let bytes = Bytes::from(encode(&[b"one", b"", b"three"], &stamp(40)));

    let batch = StoredBatch::decode(&bytes).unwrap();

    let records: Vec<_> = batch.iter().map(|(offset, record)| (offset.0, record)).collect();
    assert_eq!(records, [(40, &b"one"[..]), (41, b""), (42, b"three")]);
    assert_eq!(batch.header().stamp, stamp(40));
    assert_eq!(batch.next_offset(), Offset(43));
    assert_eq!(batch.record_bytes(Offset(42)).unwrap(), "three");
    assert_eq!(batch.record_bytes(Offset(43)), None);
}

#[test]
fn bytes_behind_the_batch_are_left_out() {
    let mut bytes = encode(&[b"one"], &stamp(0));
    let batch_bytes = bytes.len();
    bytes.extend([1; 99]);

    let batch = StoredBatch::decode(&Bytes::from(bytes)).unwrap();

    assert_eq!(batch.bytes().len(), batch_bytes);
}

#[test]
fn batch_over_the_limit_is_refused_and_keeps_what_it_had() {
    let mut builder = RecordBatch::builder();
    builder.push(b"small").unwrap();
    let before = builder.bytes();

    let refused = builder.push(&vec![0; BATCH_BYTES_MAX - before - RECORD_PREFIX_BYTES + 1]);

    let bytes = BATCH_BYTES_MAX + 1;
    assert_eq!(refused, Err(BatchError::BatchTooLarge { bytes, bytes_max: BATCH_BYTES_MAX }));
    assert_eq!((builder.records(), builder.bytes()), (1, before));
    builder.push(&vec![0; BATCH_BYTES_MAX - before - RECORD_PREFIX_BYTES]).unwrap();
    let batch = builder.finish();
    let mut bytes = vec![0; BATCH_BYTES_MAX];
    batch.write_into(&mut bytes, &stamp(1));
    assert_eq!(StoredBatch::decode(&Bytes::from(bytes)).unwrap().records(), 2);
}

#[test]
fn newer_version_is_told_apart_from_a_flipped_version() {
    let mut newer = encode(&[b"one"], &stamp(0));
    let envelope = super::Envelope { version: 2, ..ENVELOPE };
    envelope.seal(&mut newer[..BATCH_HEADER_BYTES]);
    let mut flipped = encode(&[b"one"], &stamp(0));
    flipped[4] ^= 2;

    let what = ENVELOPE.what;
    let expected = FormatError::NewerVersion { what, found: 2, supported: 1 };
    assert_eq!(BatchHeader::decode(&newer), Err(expected));
    assert!(matches!(BatchHeader::decode(&flipped), Err(FormatError::HeaderCrc { .. })));
}

#[test]
fn marker_takes_no_offset() {
    let mut bytes = vec![0; BATCH_HEADER_BYTES + 3];
    assert_eq!(BatchHeader::write_marker(&mut bytes, b"abc", &stamp(8)), bytes.len());

    let batch = StoredBatch::decode(&Bytes::from(bytes)).unwrap();

    assert!(batch.is_marker());
    assert_eq!((batch.base_offset(), batch.next_offset()), (Offset(8), Offset(8)));
    assert_eq!(batch.payload(), "abc");
    assert_eq!(batch.iter().count(), 0);
}

#[test]
fn offsets_past_the_number_space_are_refused() {
    let bytes = encode(&[b"one", b"two"], &stamp(u64::MAX - 1));

    let found = BatchHeader::decode(&bytes);

    assert!(matches!(found, Err(FormatError::Field { field: "base offset", .. })));
}

#[test]
fn records_that_do_not_add_up_are_refused_although_every_crc_matches() {
    for (records, payload) in [(1, &[9, 0, 0, 0, 1][..]), (1, &[0, 0, 0, 0, 1]), (2, &[0; 9])] {
        let mut bytes = vec![0; BATCH_HEADER_BYTES + payload.len()];
        bytes[BATCH_HEADER_BYTES..].copy_from_slice(payload);
        let crc = crc32fast::hash(payload);
        BatchHeader::write(&mut bytes, BatchKind::Records, records, crc, &stamp(0));

        assert!(StoredBatch::decode(&Bytes::from(bytes)).is_err());
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = StoredBatch::decode(&Bytes::from(bytes.clone()));
        let mut framed = b"PBAT\x01\x00\x50\x00".to_vec();
        framed.extend(bytes);
        let _ = StoredBatch::decode(&Bytes::from(framed));
    }

    #[test]
    fn flipped_bit_is_always_found(record in prop::collection::vec(any::<u8>(), 0..200), bit: prop::sample::Index) {
        let mut bytes = encode(&[&record, b"tail"], &stamp(5));
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(StoredBatch::decode(&Bytes::from(bytes)).is_err());
    }

    #[test]
    fn cut_batch_is_always_found(record in prop::collection::vec(any::<u8>(), 0..200), cut: prop::sample::Index) {
        let bytes = encode(&[&record], &stamp(5));
        let cut = cut.index(bytes.len());
        assert!(StoredBatch::decode(&Bytes::from(bytes).slice(..cut)).is_err());
    }

    #[test]
    fn sealed_random_fields_never_panic(mut header in prop::collection::vec(any::<u8>(), 120)) {
        ENVELOPE.seal(&mut header[..BATCH_HEADER_BYTES]);
        let _ = StoredBatch::decode(&Bytes::from(header));
    }
}
