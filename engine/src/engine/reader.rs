//! Reads a partition batch by batch.

use std::collections::VecDeque;

use super::partition::Partition;
use crate::format::StoredBatch;
use crate::id::Offset;
use crate::partition::{Read, ReadError, Verification, Wait};

/// Asks the shard for this much at a time.
const READ_BYTES: usize = 1 << 20;

/// Hands out the batches of a partition in order, each once.
#[derive(Debug)]
pub struct Reader {
    partition: Partition,
    next_offset: Offset,
    wait: Wait,
    verification: Verification,
    ready: VecDeque<StoredBatch>,
}

impl Reader {
    pub(super) fn new(partition: Partition, from: Offset) -> Reader {
        let (wait, verification) = (Wait::No, Verification::AsConfigured);
        Reader { partition, next_offset: from, wait, verification, ready: VecDeque::new() }
    }

    /// Sets what is compared of batches that come from the disk.
    #[must_use]
    pub fn verification(mut self, verification: Verification) -> Reader {
        self.verification = verification;
        self
    }

    /// Waits at the end of the committed log for more, instead of ending there.
    #[must_use]
    pub fn tailing(mut self) -> Reader {
        self.wait = Wait::Forever;
        self
    }

    /// The offset of the next record it will hand out.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.ready.front().map_or(self.next_offset, StoredBatch::base_offset)
    }

    /// Moves to `offset`, for example behind a damaged range.
    pub fn seek(&mut self, offset: Offset) {
        self.ready.clear();
        self.next_offset = offset;
    }

    /// Returns the next batch, or `None` at the end of the committed log unless it is
    /// [`tailing`](Reader::tailing). The first one may start below the offset asked for.
    ///
    /// After an error the reader stands where it stood; [`seek`](Reader::seek) to go elsewhere.
    pub async fn next(&mut self) -> Option<Result<StoredBatch, ReadError>> {
        if self.ready.is_empty() {
            let read = Read {
                from: self.next_offset,
                bytes_max: READ_BYTES,
                wait: self.wait,
                verification: self.verification,
            };
            match self.partition.read(read).await {
                Ok(answer) => {
                    self.next_offset = answer.next_offset;
                    self.ready.extend(answer.batches);
                }
                Err(error) => return Some(Err(error)),
            }
        }
        self.ready.pop_front().map(Ok)
    }
}
