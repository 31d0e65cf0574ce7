//! One thread that reads: so many readers, each going round its own part of the log.

use std::time::Duration;

use palisade_benches::stopwatch::Stopwatch;
use palisade_engine::id::Offset;
use palisade_engine::{Partition, Read, ReadError};

use super::calls::Calls;
use super::lane::Lane;
use super::meter::Stop;

const PATIENCE: Duration = Duration::from_millis(20);

/// Offsets that one reader goes round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Offset,
    pub(crate) end: Offset,
}

/// Cuts `whole` into `parts` spans that begin at batches of `batch_records`. There may be fewer, never an empty one.
pub(crate) fn split(whole: Span, batch_records: u64, parts: u64) -> Vec<Span> {
    let batches = (whole.end.0 - whole.from.0) / batch_records;
    let parts = parts.clamp(1, batches.max(1));
    let at = |part: u64| Offset(whole.from.0 + batches * part / parts * batch_records);
    (0..parts)
        .map(|part| Span {
            from: at(part),
            end: if part + 1 == parts { whole.end } else { at(part + 1) },
        })
        .collect()
}

/// What one thread reads.
pub(crate) struct Scanner<'a> {
    pub(crate) partition: &'a Partition,
    pub(crate) spans: Vec<Span>,
    pub(crate) bytes_max: usize,
    pub(crate) record_bytes: u64,
}

struct Answer {
    next: Offset,
    records: u64,
    latency: Duration,
}

impl Scanner<'_> {
    /// Runs until `stop`, then waits for what is in flight.
    pub(crate) fn run(&self, lane: &Lane, stop: &Stop) {
        let clock = Stopwatch::start();
        let mut calls = Calls::new();
        // Reads that met a limit: tried again when another read has ended, or after a while.
        let mut again: Vec<(usize, Offset)> = Vec::new();
        for (reader, span) in self.spans.iter().enumerate() {
            calls.push(self.read(reader, span.from, &clock));
        }
        while calls.len() > 0 || !(again.is_empty() || stop.is_set()) {
            let answer = calls.wait(PATIENCE);
            if !stop.is_set() {
                for (reader, from) in again.drain(..) {
                    calls.push(self.read(reader, from, &clock));
                }
            }
            let Some((reader, from, result)) = answer else { continue };
            match result {
                Ok(done) => {
                    lane.note(done.latency, done.records, done.records * self.record_bytes);
                    let span = self.spans[reader];
                    let from = if done.next < span.end { done.next } else { span.from };
                    if !stop.is_set() {
                        calls.push(self.read(reader, from, &clock));
                    }
                }
                Err(ReadError::Busy { .. }) => {
                    lane.note_busy();
                    again.push((reader, from));
                }
                Err(error) => lane.note_error(error),
            }
        }
    }

    async fn read(
        &self,
        reader: usize,
        from: Offset,
        clock: &Stopwatch,
    ) -> (usize, Offset, Result<Answer, ReadError>) {
        let started = clock.elapsed();
        let read = Read { bytes_max: self.bytes_max, ..Read::from(from) };
        let result = self.partition.read(read).await.map(|answer| Answer {
            next: answer.next_offset,
            records: answer.next_offset.0.saturating_sub(from.0),
            latency: clock.elapsed().saturating_sub(started),
        });
        (reader, from, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_at_batches_and_cover_the_whole() {
        let whole = Span { from: Offset(100), end: Offset(100 + 10 * 7) };

        let parts = split(whole, 7, 3);

        assert_eq!(parts.first().map(|span| span.from), Some(whole.from));
        assert_eq!(parts.last().map(|span| span.end), Some(whole.end));
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].from));
        assert!(parts.iter().all(|span| (span.from.0 - 100) % 7 == 0 && span.from < span.end));
        assert_eq!(split(whole, 7, 100).len(), 10);
    }
}
