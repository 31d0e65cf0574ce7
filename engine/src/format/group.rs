//! The header of a group: how batches are framed in the segment files of this machine.
//!
//! A group starts on a block boundary and is padded with zeros to the next. Its header carries the chain over
//! everything before it, so that a group that survived beyond a hole never validates.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 12 | envelope, magic `PGRP`, version 1, header bytes 96 |
//! | 12 | 4 | batches |
//! | 16 | 8 | segment id |
//! | 24 | 8 | position of this header in the file |
//! | 32 | 8 | number of the group in its segment, from 0 |
//! | 40 | 4 | length in bytes, header included, before padding |
//! | 44 | 4 | 0 |
//! | 48 | 8 | base offset: the log end in front of the group |
//! | 56 | 8 | next offset: the log end behind it |
//! | 64 | 8 | durable offset when the group was submitted |
//! | 72 | 8 | durable position in this segment then; 0 while the durable end lay before the segment |
//! | 80 | 8 | chain over everything before the group |
//! | 88 | 8 | 0 |
//! | 96 | | batches, back to back |
//!
//! The chain behind the group mixes into that before it the header crc of each batch, which covers the crc of
//! its payload, and then this header's crc.

use super::batch::BATCH_BYTES_MAX;
use super::envelope::{ENVELOPE_BYTES, Envelope};
use super::error::{FormatError, Structure};
use super::fields::FieldWriter;
use crate::id::{BLOCK_BYTES, Offset, Position, SegmentId};

/// The bytes of a group's header: what a gather buffer leaves free at its head.
pub const GROUP_HEADER_BYTES: usize = 96;

/// The longest group, header included and padded: one batch of the longest kind fits with room to spare.
pub const GROUP_BYTES_MAX: usize = 2 * BATCH_BYTES_MAX;

const ENVELOPE: Envelope =
    Envelope { what: Structure::Group, magic: *b"PGRP", version: 1, header_bytes: 96 };

const _: () = assert!(ENVELOPE.header_bytes as usize == GROUP_HEADER_BYTES);
const _: () = assert!(GROUP_BYTES_MAX >= BATCH_BYTES_MAX + GROUP_HEADER_BYTES);

/// The running hash that ties each group to all before it in the partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain(pub u64);

impl Chain {
    /// The chain in front of the first group of a segment: it depends on the segment's random id and on
    /// everything before the segment.
    #[must_use]
    pub fn seed(segment: SegmentId, before: Chain) -> Chain {
        Chain(mix(mix(0x7061_6c69_7361_6465, segment.0), before.0))
    }

    /// The chain behind one more crc.
    #[must_use]
    pub fn with_crc(self, crc: u32) -> Chain {
        Chain(mix(self.0, u64::from(crc)))
    }
}

/// A bijection of `value` for each `state` (and the reverse), with every output bit depending on every input
/// bit. Source: the finaliser of SplitMix64.
fn mix(state: u64, value: u64) -> u64 {
    let mut mixed = state.rotate_left(29) ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// How far a log was durable, as a group saw it when it was submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurableMark {
    /// Records below it are durable.
    pub offset: Offset,
    /// Bytes of the group's own segment below it are durable; 0 while the mark lies before the segment.
    pub position: Position,
}

/// The decoded header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// The segment the group was written for.
    pub segment: SegmentId,
    /// Where in its file.
    pub position: Position,
    /// The number of the group in it.
    pub number: u64,
    /// How many batches follow.
    pub batches: u32,
    /// Header and batches, without the padding.
    pub length_bytes: u32,
    /// The log end in front of the group.
    pub base_offset: Offset,
    /// The log end behind it.
    pub next_offset: Offset,
    /// What was durable when it was submitted.
    pub durable: DurableMark,
    /// The chain over everything before it.
    pub chain: Chain,
}

impl GroupHeader {
    /// Writes the header to the head of `group` and returns its crc, which enters the chain.
    ///
    /// # Panics
    ///
    /// If `group` is shorter than [`GROUP_HEADER_BYTES`].
    pub fn write(&self, group: &mut [u8]) -> u32 {
        let header = &mut group[..GROUP_HEADER_BYTES];
        let mut fields = FieldWriter::at(header, ENVELOPE_BYTES);
        fields.u32(self.batches);
        fields.u64(self.segment.0);
        fields.u64(self.position.0);
        fields.u64(self.number);
        fields.u32(self.length_bytes);
        fields.u32(0);
        fields.u64(self.base_offset.0);
        fields.u64(self.next_offset.0);
        fields.u64(self.durable.offset.0);
        fields.u64(self.durable.position.0);
        fields.u64(self.chain.0);
        fields.u64(0);
        debug_assert!(fields.position() == GROUP_HEADER_BYTES);
        ENVELOPE.seal(header)
    }

    /// Decodes the header at the head of `bytes`; returns it with its crc. The batches are not looked at.
    ///
    /// # Errors
    ///
    /// [`FormatError`] names what is wrong; no group starts here.
    pub fn decode(bytes: &[u8]) -> Result<(GroupHeader, u32), FormatError> {
        let (mut fields, crc) = ENVELOPE.open(bytes)?;
        let batches = fields.u32()?;
        let segment = SegmentId(fields.u64()?);
        let position = Position(fields.u64()?);
        let number = fields.u64()?;
        let length_bytes = fields.u32()?;
        let reserved = fields.u32()?;
        let (base_offset, next_offset) = (Offset(fields.u64()?), Offset(fields.u64()?));
        let durable =
            DurableMark { offset: Offset(fields.u64()?), position: Position(fields.u64()?) };
        let chain = Chain(fields.u64()?);
        if reserved != 0 || fields.u64()? != 0 {
            return Err(ENVELOPE.field("reserved", u64::from(reserved)));
        }
        let header = GroupHeader {
            segment,
            position,
            number,
            batches,
            length_bytes,
            base_offset,
            next_offset,
            durable,
            chain,
        };
        header.check_limits()?;
        Ok((header, crc))
    }

    /// The length with the padding: the next group's position is that much further on.
    #[must_use]
    pub fn padded_bytes(&self) -> usize {
        (self.length_bytes as usize).next_multiple_of(BLOCK_BYTES)
    }

    /// The position behind the group and its padding.
    #[must_use]
    pub fn end_position(&self) -> Position {
        // Decoding has checked that the sum fits.
        Position(self.position.0 + self.padded_bytes() as u64)
    }

    fn check_limits(&self) -> Result<(), FormatError> {
        if !(GROUP_HEADER_BYTES + 1..=GROUP_BYTES_MAX).contains(&(self.length_bytes as usize)) {
            return Err(ENVELOPE.field("length", u64::from(self.length_bytes)));
        }
        if self.batches == 0 {
            return Err(ENVELOPE.field("batches", 0));
        }
        let position_fits = self.position.0.checked_add(self.padded_bytes() as u64).is_some();
        if !self.position.is_block_aligned() || !position_fits {
            return Err(ENVELOPE.field("position", self.position.0));
        }
        if self.next_offset < self.base_offset {
            return Err(ENVELOPE.field("next offset", self.next_offset.0));
        }
        if self.durable.offset > self.base_offset {
            return Err(ENVELOPE.field("durable offset", self.durable.offset.0));
        }
        if self.durable.position > self.position {
            return Err(ENVELOPE.field("durable position", self.durable.position.0));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop, proptest};

    fn header() -> GroupHeader {
        GroupHeader {
            segment: SegmentId(0x1122_3344_5566_7788),
            position: Position(8192),
            number: 1,
            batches: 2,
            length_bytes: 5000,
            base_offset: Offset(10),
            next_offset: Offset(12),
            durable: DurableMark { offset: Offset(10), position: Position(4096) },
            chain: Chain(99),
        }
    }

    #[test]
    fn header_comes_back() {
        let mut bytes = [0xff; 200];

        let crc = header().write(&mut bytes);

        assert_eq!(GroupHeader::decode(&bytes), Ok((header(), crc)));
        assert_eq!(header().end_position(), Position(8192 + 8192));
    }

    // L32
    #[test]
    fn offsets_and_positions_above_32_bits_come_back() {
        let mut header = header();
        header.position = Position(5 << 32);
        header.base_offset = Offset(1 << 40);
        header.next_offset = Offset((1 << 40) + (1 << 33));
        header.durable = DurableMark { offset: Offset(1 << 40), position: Position(5 << 32) };
        let mut bytes = [0; GROUP_HEADER_BYTES];

        header.write(&mut bytes);

        assert_eq!(GroupHeader::decode(&bytes).unwrap().0, header);
    }

    #[test]
    fn contradicting_fields_are_refused() {
        let broken: [fn(&mut GroupHeader); 7] = [
            |header| header.position = Position(8191),
            |header| header.position = Position(u64::MAX - 4095),
            |header| header.next_offset = Offset(9),
            |header| header.durable.offset = Offset(11),
            |header| header.durable.position = Position(12_288),
            |header| header.batches = 0,
            |header| header.length_bytes = 8 * 1024 * 1024 + 1,
        ];
        for change in broken {
            let mut bytes = [0; GROUP_HEADER_BYTES];
            let mut header = header();
            change(&mut header);
            header.write(&mut bytes);
            let found = GroupHeader::decode(&bytes);
            assert!(matches!(found, Err(FormatError::Field { .. })), "{header:?}");
        }
    }

    #[test]
    fn chain_depends_on_segment_and_on_all_before() {
        let seeds = [
            Chain::seed(SegmentId(1), Chain(0)),
            Chain::seed(SegmentId(2), Chain(0)),
            Chain::seed(SegmentId(1), Chain(1)),
            Chain::seed(SegmentId(0), Chain(1)),
            Chain::seed(SegmentId(1), Chain(0)).with_crc(0),
            Chain::seed(SegmentId(1), Chain(0)).with_crc(0).with_crc(0),
        ];
        for (place, seed) in seeds.iter().enumerate() {
            assert!(!seeds[..place].contains(seed), "{place}");
        }
    }

    proptest! {
        #[test]
        fn random_fields_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 96..200)) {
            let _ = GroupHeader::decode(&bytes);
            ENVELOPE.seal(&mut bytes[..GROUP_HEADER_BYTES]);
            let _ = GroupHeader::decode(&bytes);
        }

        #[test]
        fn flipped_or_cut_header_is_found(bit in 0..96 * 8usize, cut in 0..96usize) {
            let mut bytes = [0; GROUP_HEADER_BYTES];
            header().write(&mut bytes);
            assert!(GroupHeader::decode(&bytes[..cut]).is_err());
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(GroupHeader::decode(&bytes).is_err());
        }
    }
}
