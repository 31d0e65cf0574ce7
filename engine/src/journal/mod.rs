//! The journal of a shard: one sequential durable write for the small groups of any number of partitions.
//!
//! The file is written with zeros in advance and circular. A frame is needed until every group in it has become
//! durable in its segment; then its room is used again. Which groups go here is decided above, and so is when
//! they are written to their segments. `O` is whoever owns a group; nothing here asks it anything.

mod frame;
mod making;
mod replay;
mod space;
mod state;

pub(crate) use frame::{FrameBuilder, FramePiece};
pub(crate) use making::{journal_path, make_journal, remove_journal, set_journal_aside};
pub(crate) use replay::{Replay, list_journals, replay};
pub(crate) use state::{FrameHold, FrameNumber, Journal};
