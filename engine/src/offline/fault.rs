//! One thing that is not as it should be, with the file and the place in it.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use crate::id::{Offset, Position};

/// What was found, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub path: PathBuf,
    /// The bytes, where the fault has a place.
    pub positions: Option<Range<Position>>,
    /// What it is.
    pub kind: FaultKind,
}

/// The kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// Records that had been durable do not pass their checks.
    Corrupt {
        /// Their offsets.
        offsets: Range<Offset>,
    },
    /// The file ends before records that had been durable.
    CutShort {
        /// The records that are gone.
        offsets: Range<Offset>,
    },
    /// A segment file that the checkpoint names cannot be opened, or is not what its name says.
    SegmentUnreadable {
        /// Why.
        reason: String,
    },
    /// The groups of a closed segment do not end where the checkpoint says.
    EndDiffers {
        /// Where the checkpoint says it ends.
        expected: Offset,
        /// Where the groups end.
        found: Offset,
    },
    /// No slot of the checkpoint can be believed.
    CheckpointUnreadable {
        /// Why.
        reason: String,
    },
    /// One slot of the checkpoint is damaged; the other is in force.
    CheckpointSlot {
        /// Why.
        reason: String,
    },
    /// Bytes of writes that were in flight when the engine ended; recovery drops them.
    Torn,
    /// The index at the end of a closed segment is missing or damaged; it is rebuilt when needed.
    Footer,
    /// A file that no checkpoint names.
    UnknownFile,
}

impl FaultKind {
    /// Tells whether records or promises are lost or in danger. The other kinds are what crashes leave, and
    /// recovery deals with them.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            FaultKind::Corrupt { .. }
            | FaultKind::CutShort { .. }
            | FaultKind::SegmentUnreadable { .. }
            | FaultKind::EndDiffers { .. }
            | FaultKind::CheckpointUnreadable { .. }
            | FaultKind::CheckpointSlot { .. } => true,
            FaultKind::Torn | FaultKind::Footer | FaultKind::UnknownFile => false,
        }
    }

    /// A word for scripts.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            FaultKind::Corrupt { .. } => "corrupt",
            FaultKind::CutShort { .. } => "cut_short",
            FaultKind::SegmentUnreadable { .. } => "segment_unreadable",
            FaultKind::EndDiffers { .. } => "end_differs",
            FaultKind::CheckpointUnreadable { .. } => "checkpoint_unreadable",
            FaultKind::CheckpointSlot { .. } => "checkpoint_slot",
            FaultKind::Torn => "torn",
            FaultKind::Footer => "footer",
            FaultKind::UnknownFile => "unknown_file",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(positions) = &self.positions {
            write!(f, " bytes {} to {}", positions.start, positions.end)?;
        }
        write!(f, ": {}", self.kind)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::Corrupt { offsets } => {
                write!(f, "corrupt; offsets {} to {} cannot be read", offsets.start, offsets.end)
            }
            FaultKind::CutShort { offsets } => {
                write!(f, "cut short; offsets {} to {} are gone", offsets.start, offsets.end)
            }
            FaultKind::SegmentUnreadable { reason } => write!(f, "segment unreadable: {reason}"),
            FaultKind::EndDiffers { expected, found } => {
                write!(f, "ends at offset {found}, its checkpoint says {expected}")
            }
            FaultKind::CheckpointUnreadable { reason } => {
                write!(f, "checkpoint unreadable: {reason}")
            }
            FaultKind::CheckpointSlot { reason } => {
                write!(f, "one slot is damaged, the other is in force: {reason}")
            }
            FaultKind::Torn => write!(f, "torn tail of writes in flight; recovery drops it"),
            FaultKind::Footer => write!(f, "no valid index; it is rebuilt when needed"),
            FaultKind::UnknownFile => write!(f, "no checkpoint names this file; left alone"),
        }
    }
}
