//! The file of a checkpoint: two slots, written in turn, each half of the file. Which to write next, and
//! which to believe; pure over the file's bytes.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | half the file | slot 0: the checkpoint with the last even sequence, then zeros |
//! | half the file | half the file | slot 1: the checkpoint with the last odd sequence, then zeros |
//!
//! A crash while one slot is written leaves the other. A slot that is damaged *later* looks the same: what
//! must never be forgotten (a promise) is written to both slots, under two sequences, before it is answered.

use super::checkpoint::{CHECKPOINT_BYTES_MAX, Checkpoint};
use super::error::FormatError;
use crate::id::{BLOCK_BYTES, Position};

/// The bytes of a slot in a new partition's file.
pub const SLOT_BYTES_MIN: usize = 2 * BLOCK_BYTES;

/// Where a checkpoint goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotWrite {
    /// Over one slot of the file, with one durable write.
    InPlace {
        /// Where the slot starts.
        position: Position,
        /// The encoded checkpoint, padded to whole blocks.
        bytes: Vec<u8>,
    },
    /// Into a new, larger file that then takes this one's name.
    NewFile {
        /// The whole file.
        bytes: Vec<u8>,
    },
}

/// What a file of two slots says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BelievedCheckpoint {
    /// The checkpoint with the highest sequence that is whole.
    pub checkpoint: Checkpoint,
    /// What is wrong with the other slot, if it is neither whole nor empty: a write that a crash tore, or
    /// damage. Worth a line in the log.
    pub damaged: Option<FormatError>,
}

/// Why no slot of a checkpoint's file is believed. The partition is put aside: its promises are unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SlotsError {
    /// Neither slot is whole.
    #[error("no slot is whole: first {first}; second {second}")]
    BothDamaged {
        /// What is wrong with the first slot.
        first: FormatError,
        /// What is wrong with the second slot.
        second: FormatError,
    },
    /// A newer release has written here; the older slot is not the state any more.
    #[error("{newer}")]
    Newer {
        /// The version found and the one supported.
        newer: FormatError,
    },
    /// Both slots carry the same sequence.
    #[error("both slots carry the sequence {sequence}")]
    SameSequence {
        /// That sequence.
        sequence: u64,
    },
}

/// Decides where `checkpoint` goes in a file of `file_bytes`; 0 when there is no file yet.
///
/// # Panics
///
/// If it is longer than [`CHECKPOINT_BYTES_MAX`]: its lists have limits far below.
#[must_use]
pub fn place_checkpoint(checkpoint: &Checkpoint, file_bytes: u64) -> SlotWrite {
    let mut bytes = checkpoint.encode();
    assert!(bytes.len() <= CHECKPOINT_BYTES_MAX);
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    let slot_bytes = file_bytes / 2;
    let is_second = !checkpoint.sequence.is_multiple_of(2);
    if bytes.len() as u64 <= slot_bytes {
        let position = Position(if is_second { slot_bytes } else { 0 });
        return SlotWrite::InPlace { position, bytes };
    }
    let slot_bytes = (2 * bytes.len()).next_power_of_two().max(SLOT_BYTES_MIN);
    let mut file = vec![0; 2 * slot_bytes];
    let start = if is_second { slot_bytes } else { 0 };
    file[start..start + bytes.len()].copy_from_slice(&bytes);
    SlotWrite::NewFile { bytes: file }
}

/// Decides which slot of the whole `file` to believe: the highest sequence that is whole.
///
/// # Errors
///
/// [`SlotsError`]: none; put the partition aside and keep every byte.
pub fn believe_slots(file: &[u8]) -> Result<BelievedCheckpoint, SlotsError> {
    let (first, second) = file.split_at(file.len() / 2);
    let newer = |slot: &Result<Checkpoint, FormatError>| match slot {
        Err(newer @ FormatError::NewerVersion { .. }) => Some(newer.clone()),
        _ => None,
    };
    let (first_slot, second_slot) = (decode_slot(first, 0), decode_slot(second, 1));
    if let Some(newer) = newer(&first_slot).or_else(|| newer(&second_slot)) {
        return Err(SlotsError::Newer { newer });
    }
    match (first_slot, second_slot) {
        (Ok(one), Ok(other)) if one.sequence == other.sequence => {
            Err(SlotsError::SameSequence { sequence: one.sequence })
        }
        (Ok(one), Ok(other)) => {
            let checkpoint = if one.sequence > other.sequence { one } else { other };
            Ok(BelievedCheckpoint { checkpoint, damaged: None })
        }
        (Ok(checkpoint), Err(error)) => {
            Ok(BelievedCheckpoint { checkpoint, damaged: damage_of(second, error) })
        }
        (Err(error), Ok(checkpoint)) => {
            Ok(BelievedCheckpoint { checkpoint, damaged: damage_of(first, error) })
        }
        (Err(first), Err(second)) => Err(SlotsError::BothDamaged { first, second }),
    }
}

fn decode_slot(slot: &[u8], parity: u64) -> Result<Checkpoint, FormatError> {
    let checkpoint = Checkpoint::decode(slot)?;
    if checkpoint.sequence % 2 != parity {
        let sequence = checkpoint.sequence;
        return Err(super::checkpoint::ENVELOPE.field("sequence of the other slot", sequence));
    }
    Ok(checkpoint)
}

fn damage_of(slot: &[u8], error: FormatError) -> Option<FormatError> {
    slot.iter().any(|byte| *byte != 0).then_some(error)
}

#[cfg(test)]
mod tests {
    use super::super::checkpoint::tests::checkpoint;
    use super::*;

    fn write(file: &mut Vec<u8>, checkpoint: &Checkpoint) {
        match place_checkpoint(checkpoint, file.len() as u64) {
            SlotWrite::NewFile { bytes } => *file = bytes,
            SlotWrite::InPlace { position, bytes } => {
                let start = usize::try_from(position.0).unwrap();
                file[start..start + bytes.len()].copy_from_slice(&bytes);
            }
        }
    }

    #[test]
    fn last_written_checkpoint_is_believed() {
        let mut file = Vec::new();
        for sequence in 1..6 {
            write(&mut file, &checkpoint(sequence));

            let believed = believe_slots(&file).unwrap();

            assert_eq!(believed.checkpoint.sequence, sequence);
            assert_eq!(believed.damaged, None);
        }
        assert_eq!(file.len(), 2 * SLOT_BYTES_MIN);
    }

    #[test]
    fn torn_write_leaves_the_checkpoint_before_it() {
        let mut file = Vec::new();
        (1..4).for_each(|sequence| write(&mut file, &checkpoint(sequence)));
        let mut torn = file.clone();
        write(&mut torn, &checkpoint(4));
        torn[100..SLOT_BYTES_MIN].fill(0);

        let believed = believe_slots(&torn).unwrap();

        assert_eq!(believed.checkpoint, checkpoint(3));
        assert!(believed.damaged.is_some());
    }

    #[test]
    fn damage_in_both_slots_is_never_guessed_around() {
        let mut file = Vec::new();
        (1..3).for_each(|sequence| write(&mut file, &checkpoint(sequence)));
        file[30] ^= 1;
        file[SLOT_BYTES_MIN + 30] ^= 1;

        assert!(matches!(believe_slots(&file), Err(SlotsError::BothDamaged { .. })));
        assert!(matches!(believe_slots(&[]), Err(SlotsError::BothDamaged { .. })));
    }

    #[test]
    fn slot_of_a_newer_release_hides_the_older_slot() {
        let mut file = Vec::new();
        (1..3).for_each(|sequence| write(&mut file, &checkpoint(sequence)));
        let mut envelope = super::super::checkpoint::ENVELOPE;
        envelope.version += 1;
        envelope.seal(&mut file[..24]);

        assert!(matches!(believe_slots(&file), Err(SlotsError::Newer { .. })));
    }

    #[test]
    fn checkpoint_that_outgrows_its_slot_goes_to_a_larger_file() {
        let mut file = Vec::new();
        write(&mut file, &checkpoint(1));
        let mut grown = checkpoint(2);
        let last = *grown.closed.last().unwrap();
        grown.closed.extend(vec![
            super::super::ClosedSegment {
                base_offset: last.end_offset,
                ..last
            };
            1
        ]);
        grown.epochs.clear();
        let entry = grown.producers[0];
        grown.producers = vec![entry; 1000];

        write(&mut file, &grown);

        assert!(file.len() > 2 * 48_000);
        assert_eq!(believe_slots(&file).unwrap().checkpoint, grown);
        write(&mut file, &checkpoint(3));
        assert_eq!(believe_slots(&file).unwrap().checkpoint, checkpoint(3));
    }
}
