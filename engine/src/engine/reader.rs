//! Reads a partition batch by batch.

use std::collections::VecDeque;

use super::mapped::MappedSegment;
use super::partition::{Asked, Partition};
use crate::format::StoredBatch;
use crate::id::Offset;
use crate::partition::{Read, ReadAnswer, ReadError, Verification, Wait};

/// Asks the shard for this much at a time.
const READ_BYTES: usize = 1 << 20;

/// Whether closed segments are mapped, and the one that is.
#[derive(Debug)]
enum Maps {
    Off,
    /// Below `asked_until` nothing more can be mapped.
    On {
        mapped: Option<MappedSegment>,
        asked_until: Offset,
    },
}

/// Hands out the batches of a partition in order, each once.
///
/// While more is known to be there, the next read is under way when the batches of one are handed out.
#[derive(Debug)]
pub struct Reader {
    partition: Partition,
    next_offset: Offset,
    wait: Wait,
    verification: Verification,
    maps: Maps,
    ready: VecDeque<StoredBatch>,
    /// The read that goes on behind `ready`.
    asked: Option<Asked>,
}

impl Reader {
    pub(super) fn new(partition: Partition, from: Offset) -> Reader {
        let (wait, verification) = (Wait::No, Verification::AsConfigured);
        let ready = VecDeque::new();
        let maps = Maps::Off;
        Reader { partition, next_offset: from, wait, verification, maps, ready, asked: None }
    }

    /// Reads closed segments from maps on the thread that calls [`next`](Self::next), which waits for the disk then.
    /// See [`MappedSegment`] for what that costs and risks.
    #[must_use]
    pub fn mapping_closed(mut self) -> Reader {
        self.maps = Maps::On { mapped: None, asked_until: Offset::ZERO };
        self
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
        self.asked = None;
        self.next_offset = offset;
        if matches!(self.maps, Maps::On { .. }) {
            self.maps = Maps::On { mapped: None, asked_until: Offset::ZERO };
        }
    }

    /// Returns the next batch, or `None` at the end of the committed log unless it is
    /// [`tailing`](Reader::tailing). The first one may start below the offset asked for.
    ///
    /// After an error the reader stands where it stood; [`seek`](Reader::seek) to go elsewhere.
    pub async fn next(&mut self) -> Option<Result<StoredBatch, ReadError>> {
        while self.ready.is_empty() {
            match self.read_more().await {
                Ok(answer)
                    if answer.batches.is_empty() && answer.next_offset == self.next_offset =>
                {
                    return None;
                }
                Ok(answer) => {
                    self.next_offset = answer.next_offset;
                    let has_more = answer.next_offset < answer.watermarks.committed;
                    if has_more && !answer.batches.is_empty() && !self.has_map() {
                        self.asked = Some(self.partition.start_read(self.next_read()));
                    }
                    self.ready.extend(answer.batches);
                }
                Err(error) => return Some(Err(error)),
            }
        }
        self.ready.pop_front().map(Ok)
    }

    fn has_map(&self) -> bool {
        matches!(self.maps, Maps::On { mapped: Some(_), .. })
    }

    async fn read_more(&mut self) -> Result<ReadAnswer, ReadError> {
        if let Some(answer) = self.read_mapped().await? {
            return Ok(answer);
        }
        // What was asked in advance is taken only if it brought something: anything else may be out of date.
        if let Some(asked) = &mut self.asked {
            let answer = self.partition.finish_read(asked).await;
            self.asked = None;
            if let Ok(answer) = answer
                && !answer.batches.is_empty()
            {
                return Ok(answer);
            }
        }
        self.partition.read(self.next_read()).await
    }

    /// Reads from a map of the segment at hand; `None` when that is not for a map.
    async fn read_mapped(&mut self) -> Result<Option<ReadAnswer>, ReadError> {
        let from = self.next_offset;
        let Maps::On { mapped, asked_until } = &mut self.maps else { return Ok(None) };
        if mapped.as_ref().is_none_or(|mapped| !mapped.offsets().contains(&from)) {
            *mapped = None;
            if from < *asked_until || self.asked.is_some() {
                return Ok(None);
            }
            let watermarks = self.partition.watermarks();
            *mapped = self.partition.map_closed(from, self.verification).await?;
            *asked_until = watermarks.committed;
        }
        let Some(mapped) = mapped else { return Ok(None) };
        *asked_until = Offset::ZERO;
        let (batches, next_offset) = mapped.read(from, READ_BYTES)?;
        let watermarks = self.partition.watermarks();
        Ok(Some(ReadAnswer { batches, next_offset, watermarks }))
    }

    fn next_read(&self) -> Read {
        Read {
            from: self.next_offset,
            bytes_max: READ_BYTES,
            wait: self.wait,
            verification: self.verification,
        }
    }
}
