//! The numbers of the log as newtypes: offsets, positions, epochs and names of things.
//!
//! Owns no behaviour beyond order, arithmetic and text form.

use std::fmt;
use std::str::FromStr;

/// The bytes of one disk block: every group starts and ends on such a boundary.
///
/// Source: `statx(STATX_DIOALIGN)` asks for 512 or 4096 on every device we met; 4096 serves both.
pub const BLOCK_BYTES: usize = 4096;

/// The number of a record in its partition, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    /// The first offset of every partition.
    pub const ZERO: Offset = Offset(0);

    /// Returns the offset `records` further on, or `None` past the end of the number space.
    #[must_use]
    pub fn checked_add(self, records: u64) -> Option<Offset> {
        self.0.checked_add(records).map(Offset)
    }

    /// Counts the records from `start` (inclusive) to this offset (exclusive).
    ///
    /// # Panics
    ///
    /// If `start` is above this offset: watermarks never cross.
    #[must_use]
    pub fn records_since(self, start: Offset) -> u64 {
        assert!(start <= self, "offset {start} is above {self}");
        self.0 - start.0
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a byte in a file, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// The first byte of a file.
    pub const ZERO: Position = Position(0);

    /// Returns the position `bytes` further on.
    ///
    /// # Panics
    ///
    /// Past 2^64 - 1: no file is that long, so it is our mistake.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Position {
        Position(self.0.checked_add(bytes).expect("a position past 2^64"))
    }

    /// Tells whether the position is on a block boundary.
    #[must_use]
    pub fn is_block_aligned(self) -> bool {
        self.0.is_multiple_of(BLOCK_BYTES as u64)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A process that serves records; from 1. Fits 24 bits, the room it has in an [`Epoch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// The highest node id.
    pub const MAX: u32 = (1 << 24) - 1;
    /// The node of a standalone engine.
    pub const STANDALONE: NodeId = NodeId(1);

    /// Makes a node id; `None` for 0 and for ids over [`NodeId::MAX`].
    #[must_use]
    pub fn new(id: u32) -> Option<NodeId> {
        (1..=Self::MAX).contains(&id).then_some(NodeId(id))
    }

    /// Returns the bare number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// `(term, ballot, node)`, ordered in that order and packed in a `u64` (32/8/24 bits).
///
/// The term comes from the sidecar; ballot 0 is the owner it named, higher ballots elect themselves
/// (`PROTOCOL.md` 1). Node 0 stands for "nobody yet": `(t, 0, 0)` is the promise asked for term `t`,
/// below every epoch an owner of that term can have.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// Below every epoch anybody was ever granted.
    pub const NONE: Epoch = Epoch(0);

    /// The epoch in which the sidecar named `node` the owner of `term`.
    #[must_use]
    pub fn named(term: u32, node: NodeId) -> Epoch {
        Epoch(u64::from(term) << 32 | u64::from(node.0))
    }

    /// The epoch in which `node` elected itself at `ballot` of `term`.
    #[must_use]
    pub fn self_elected(term: u32, ballot: u8, node: NodeId) -> Epoch {
        Epoch(u64::from(term) << 32 | u64::from(ballot) << 24 | u64::from(node.0))
    }

    /// The promise the sidecar asks for in term `term`: `(term, 0, 0)`.
    #[must_use]
    pub fn promise_of(term: u32) -> Epoch {
        Epoch(u64::from(term) << 32)
    }

    /// Unpacks the form that is stored and sent. Every `u64` is an epoch.
    #[must_use]
    pub fn from_packed(packed: u64) -> Epoch {
        Epoch(packed)
    }

    /// Packs the epoch; the order of packed epochs is the order of epochs.
    #[must_use]
    pub fn packed(self) -> u64 {
        self.0
    }

    /// Returns the term.
    #[must_use]
    pub fn term(self) -> u32 {
        let [a, b, c, d, ..] = self.0.to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the ballot: 0 for an owner named by the sidecar.
    #[must_use]
    pub fn ballot(self) -> u8 {
        self.0.to_be_bytes()[4]
    }

    /// Returns the node, or `None` in `(term, ballot, 0)`.
    #[must_use]
    pub fn node(self) -> Option<NodeId> {
        let [.., a, b, c] = self.0.to_be_bytes();
        NodeId::new(u32::from_be_bytes([0, a, b, c]))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.term(), self.ballot(), self.0 & 0xff_ffff)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch({self})")
    }
}

/// The name of a stream that is never reused: a uuid as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u128);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The name of one copy of a partition's storage: a wiped or copied disk gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageId(pub u128);

impl fmt::Display for StorageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The random name of a segment, never used for another file; it seeds the chain of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The random name of a shard's journal; every run has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalId(pub u64);

impl fmt::Display for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The number of a partition in its stream, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionIndex(pub u32);

impl fmt::Display for PartitionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One partition of one stream, by ids that are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// The stream.
    pub stream: StreamId,
    /// The partition's number in it.
    pub index: PartitionIndex,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stream, self.index)
    }
}

/// One partition as people write it: `orders/3`.
///
/// A stream name is 1 to [`StreamName::BYTES_MAX`] bytes of `a-z A-Z 0-9 . _ -` and does not start with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionName {
    /// The stream's name.
    pub stream: StreamName,
    /// The partition's number in it.
    pub index: PartitionIndex,
}

/// The name people gave a stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamName(String);

impl StreamName {
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = 200;

    /// Checks and makes a name.
    ///
    /// # Errors
    ///
    /// [`NameError`] says what is wrong with it; choose another.
    pub fn new(name: impl Into<String>) -> Result<StreamName, NameError> {
        let name = name.into();
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > Self::BYTES_MAX {
            return Err(NameError::TooLong { bytes: name.len(), bytes_max: Self::BYTES_MAX });
        }
        if name.starts_with('.') {
            return Err(NameError::LeadingDot);
        }
        match name.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-".contains(*c))) {
            Some(character) => Err(NameError::Character { character }),
            None => Ok(StreamName(name)),
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stream, self.index)
    }
}

impl FromStr for PartitionName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<PartitionName, NameError> {
        let (stream, index) = text.rsplit_once('/').ok_or(NameError::NoPartition)?;
        let index = index
            .parse()
            .map_err(|source| NameError::PartitionNumber { text: index.to_owned(), source })?;
        Ok(PartitionName { stream: StreamName::new(stream)?, index: PartitionIndex(index) })
    }
}

/// Why a stream or partition name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// No characters at all.
    #[error("the stream name is empty")]
    Empty,
    /// Over the limit.
    #[error("the stream name has {bytes} bytes; at most {bytes_max} are allowed")]
    TooLong {
        /// How long it was.
        bytes: usize,
        /// How long it may be.
        bytes_max: usize,
    },
    /// A leading dot would hide the stream's directory.
    #[error("a stream name does not start with a dot")]
    LeadingDot,
    /// A character outside the allowed set.
    #[error("{character:?} is not allowed in a stream name; use a-z A-Z 0-9 . _ -")]
    Character {
        /// The first such character.
        character: char,
    },
    /// No `/` and number behind the stream's name.
    #[error("a partition is written STREAM/NUMBER, for example orders/3")]
    NoPartition,
    /// What stands behind the `/` is no partition number.
    #[error("{text:?} is not a partition number")]
    PartitionNumber {
        /// What stood there.
        text: String,
        /// Why it is no number.
        source: std::num::ParseIntError,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_epochs_order_by_term_then_ballot_then_node() {
        let node = |id| NodeId::new(id).unwrap();

        let ordered = [
            Epoch::NONE,
            Epoch::promise_of(1),
            Epoch::named(1, node(1)),
            Epoch::named(1, node(NodeId::MAX)),
            Epoch::self_elected(1, 1, node(1)),
            Epoch::self_elected(1, 255, node(1)),
            Epoch::promise_of(2),
            Epoch::named(u32::MAX, node(7)),
        ];

        assert!(ordered.is_sorted());
        let last = ordered[7];
        assert_eq!((last.term(), last.ballot(), last.node()), (u32::MAX, 0, NodeId::new(7)));
        assert_eq!(ordered[5].ballot(), 255);
        assert_eq!(Epoch::promise_of(3).node(), None);
    }

    #[test]
    fn names_that_could_leave_the_data_directory_are_refused() {
        for name in ["", ".", "..", ".hidden", "a/b", "a\0b", "naïve", &"x".repeat(201)] {
            assert!(StreamName::new(name).is_err(), "{name:?}");
        }
        assert_eq!("s/0".parse::<PartitionName>().unwrap().to_string(), "s/0");
        assert!("s".parse::<PartitionName>().is_err());
        assert!("s/-1".parse::<PartitionName>().is_err());
    }
}
