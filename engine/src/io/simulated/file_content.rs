//! The bytes of one simulated file: what is on the medium, what was written since, what a crash leaves of it.
//!
//! Pure: it draws from the random source it is handed and knows no paths, no time and no processes.

use std::collections::BTreeMap;
use std::rc::Rc;

use fastrand::Rng;

use crate::id::BLOCK_BYTES;

/// The unit a device writes whole; a torn block is a mix of old and new ones.
const SECTOR_BYTES: usize = 512;

const BLOCK_BYTES_U64: u64 = BLOCK_BYTES as u64;

/// What of the unsynced state survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerLoss {
    /// The seed picks one of the others, mostly [`PowerLoss::Mixed`].
    Random,
    /// Each unsynced block is lost, kept or torn, and each change of a name lost or kept, one by one.
    Mixed,
    /// Nothing unsynced survives.
    LoseUnsynced,
    /// Everything written survives, as after a kill of the process alone.
    KeepUnsynced,
}

/// One block; `None` is all zeros.
type Block = Option<Rc<[u8]>>;

fn block_of(bytes: &[u8]) -> Block {
    bytes.iter().any(|byte| *byte != 0).then(|| Rc::from(bytes))
}

/// A value with its history since it was last durable.
#[derive(Clone, Debug, Default)]
struct Versions<T> {
    durable: T,
    /// Not durable yet, oldest first, each with the number of the write that made it.
    unsynced: Vec<(u64, T)>,
    /// What reads see after a failed sync: the page cache holds it as clean, so no later sync writes it.
    shown: Option<T>,
}

impl<T: Clone> Versions<T> {
    fn of(durable: T) -> Versions<T> {
        Versions { durable, unsynced: Vec::new(), shown: None }
    }

    fn visible(&self) -> &T {
        match self.unsynced.last() {
            Some((_, newest)) => newest,
            None => self.shown.as_ref().unwrap_or(&self.durable),
        }
    }

    fn push(&mut self, number: u64, value: T) {
        self.unsynced.push((number, value));
    }

    /// Takes out what was written up to `number`, oldest first.
    fn take_through(&mut self, number: u64) -> Vec<T> {
        let later = self.unsynced.partition_point(|(written, _)| *written <= number);
        self.unsynced.drain(..later).map(|(_, value)| value).collect()
    }

    fn make_durable(&mut self, number: u64) {
        if let Some(newest) = self.take_through(number).pop() {
            self.durable = newest;
            self.shown = None;
        }
    }

    /// Ends a failed sync. The value is lost to later syncs; whether reads still see it is the cache's choice.
    fn forget_unsynced(&mut self, number: u64, random: &mut Rng) {
        if let Some(newest) = self.take_through(number).pop() {
            if random.u8(..4) == 0 {
                self.durable = newest.clone();
            }
            self.shown = random.bool().then_some(newest);
        }
    }

    /// Every value the medium may hold, the durable one first.
    fn candidates(&self) -> Vec<&T> {
        std::iter::once(&self.durable).chain(self.unsynced.iter().map(|(_, value)| value)).collect()
    }

    fn settle(&mut self, survivor: T) {
        *self = Versions::of(survivor);
    }

    fn patch(&mut self, change: impl Fn(&mut T)) {
        change(&mut self.durable);
        self.unsynced.iter_mut().for_each(|(_, value)| change(value));
        self.shown.iter_mut().for_each(change);
    }
}

/// A file's blocks and length.
#[derive(Clone, Debug, Default)]
pub(super) struct FileContent {
    blocks: BTreeMap<u64, Versions<Block>>,
    length_bytes: Versions<u64>,
}

impl FileContent {
    pub(super) fn length_bytes(&self) -> u64 {
        *self.length_bytes.visible()
    }

    /// The room it takes: blocks never written take none.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES_U64
    }

    /// The room a write would add.
    pub(super) fn bytes_to_allocate(&self, position: u64, length: usize) -> u64 {
        let (first, end) = block_range(position, length);
        let present = self.blocks.range(first..end).count() as u64;
        (end - first - present) * BLOCK_BYTES_U64
    }

    /// Fills `buffer` from `position` with what reads see, up to the end of the file; returns how much.
    pub(super) fn read(&self, position: u64, buffer: &mut [u8]) -> usize {
        let rest = self.length_bytes().saturating_sub(position);
        let count = usize::try_from(rest).unwrap_or(usize::MAX).min(buffer.len());
        for (index, chunk) in buffer[..count].chunks_mut(BLOCK_BYTES).enumerate() {
            let number = position / BLOCK_BYTES_U64 + index as u64;
            match self.blocks.get(&number).and_then(|block| block.visible().as_ref()) {
                Some(block) => chunk.copy_from_slice(&block[..chunk.len()]),
                None => chunk.fill(0),
            }
        }
        count
    }

    /// Writes whole blocks, unsynced.
    pub(super) fn write(&mut self, number: u64, position: u64, bytes: &[u8]) {
        for (index, chunk) in (position / BLOCK_BYTES_U64..).zip(bytes.chunks(BLOCK_BYTES)) {
            self.blocks.entry(index).or_default().push(number, block_of(chunk));
        }
        let end = position + bytes.len() as u64;
        if end > self.length_bytes() {
            self.length_bytes.push(number, end);
        }
    }

    /// Makes the blocks of a range durable as they are, and the length with them (`RWF_DSYNC`).
    pub(super) fn make_range_durable(&mut self, number: u64, position: u64, length: usize) {
        let (first, end) = block_range(position, length);
        for (_, block) in self.blocks.range_mut(first..end) {
            block.make_durable(number);
        }
        self.length_bytes.make_durable(number);
    }

    /// A write that failed: each of its blocks holds the old bytes, the new ones, or a mix, all unsynced.
    pub(super) fn write_in_part(
        &mut self,
        number: u64,
        position: u64,
        bytes: &[u8],
        random: &mut Rng,
    ) {
        let mut old = vec![0; BLOCK_BYTES];
        for (index, chunk) in (0u64..).zip(bytes.chunks(BLOCK_BYTES)) {
            let position = position + index * BLOCK_BYTES_U64;
            match random.u8(..3) {
                0 => {}
                1 => self.write(number, position, chunk),
                _ => {
                    old.fill(0);
                    self.read(position, &mut old);
                    let sectors = [block_of(&old), block_of(chunk)];
                    let torn = mix_sectors(&sectors.iter().collect::<Vec<_>>(), random);
                    let torn = torn.map_or_else(|| vec![0; BLOCK_BYTES], |block| block.to_vec());
                    self.write(number, position, &torn);
                }
            }
        }
    }

    /// Cuts or extends, unsynced.
    pub(super) fn set_length(&mut self, number: u64, length_bytes: u64) {
        let first_cut = length_bytes / BLOCK_BYTES_U64;
        let kept = block_rest(length_bytes);
        for (index, block) in self.blocks.range_mut(first_cut..) {
            let cut = match (*index == first_cut, block.visible()) {
                (_, None) => continue,
                (true, Some(bytes)) if kept > 0 => zero_from(bytes, kept),
                _ => None,
            };
            block.push(number, cut);
        }
        self.length_bytes.push(number, length_bytes);
    }

    /// Makes everything written up to `number` durable.
    pub(super) fn sync(&mut self, number: u64) {
        self.blocks.values_mut().for_each(|block| block.make_durable(number));
        self.length_bytes.make_durable(number);
        self.drop_blocks_past_end();
    }

    /// A sync that failed: what was written up to `number` is never made durable by a later one.
    pub(super) fn fail_sync(&mut self, number: u64, random: &mut Rng) {
        self.blocks.values_mut().for_each(|block| block.forget_unsynced(number, random));
        // The kernel keeps the length in memory whatever the medium holds.
        let length = self.length_bytes();
        self.length_bytes.forget_unsynced(number, random);
        self.length_bytes.shown = Some(length);
    }

    /// Loses power: what stands on the medium afterwards is all there is.
    pub(super) fn lose_power(&mut self, loss: PowerLoss, random: &mut Rng) {
        let length = choose(&self.length_bytes.candidates(), loss, random);
        self.length_bytes.settle(length);
        for block in self.blocks.values_mut().filter(|block| !block.unsynced.is_empty()) {
            let candidates = block.candidates();
            let is_torn = loss == PowerLoss::Mixed && random.u8(..3) == 0;
            let survivor = if is_torn {
                mix_sectors(&candidates, random)
            } else {
                choose(&candidates, loss, random)
            };
            block.settle(survivor);
        }
        self.blocks.values_mut().for_each(|block| block.shown = None);
        self.drop_blocks_past_end();
    }

    /// Changes bytes in place on the medium and in the cache alike, as a bad device would.
    pub(super) fn corrupt(&mut self, position: u64, bytes: &[u8]) {
        for (index, byte) in (position..).zip(bytes) {
            let offset = block_rest(index);
            self.blocks.entry(index / BLOCK_BYTES_U64).or_default().patch(|block| {
                let mut patched =
                    block.as_ref().map_or_else(|| vec![0; BLOCK_BYTES], |b| b.to_vec());
                patched[offset] = *byte;
                *block = block_of(&patched);
            });
        }
    }

    /// Cuts the file on the medium and in the cache alike.
    pub(super) fn corrupt_length(&mut self, length_bytes: u64) {
        self.sync(u64::MAX);
        self.set_length(u64::MAX, length_bytes);
        self.sync(u64::MAX);
    }

    fn drop_blocks_past_end(&mut self) {
        if !self.length_bytes.unsynced.is_empty() {
            return;
        }
        let length = self.length_bytes();
        self.blocks
            .retain(|index, block| index * BLOCK_BYTES_U64 < length || !block.unsynced.is_empty());
        let kept = block_rest(length);
        if kept > 0
            && let Some(last) = self.blocks.get_mut(&(length / BLOCK_BYTES_U64))
        {
            last.patch(|block| {
                *block = block.as_ref().and_then(|bytes| zero_from(bytes, kept));
            });
        }
    }
}

fn block_range(position: u64, length: usize) -> (u64, u64) {
    let end = position + length as u64;
    (position / BLOCK_BYTES_U64, end.div_ceil(BLOCK_BYTES_U64))
}

/// Where in its block a byte of a file is.
fn block_rest(position: u64) -> usize {
    usize::try_from(position % BLOCK_BYTES_U64).expect("below a block")
}

fn zero_from(bytes: &[u8], kept: usize) -> Block {
    let mut cut = bytes.to_vec();
    cut[kept..].fill(0);
    block_of(&cut)
}

fn choose<T: Clone>(candidates: &[&T], loss: PowerLoss, random: &mut Rng) -> T {
    let chosen = match loss {
        PowerLoss::LoseUnsynced => 0,
        PowerLoss::KeepUnsynced => candidates.len() - 1,
        PowerLoss::Random | PowerLoss::Mixed => random.usize(..candidates.len()),
    };
    candidates[chosen].clone()
}

fn mix_sectors(candidates: &[&Block], random: &mut Rng) -> Block {
    let mut mixed = vec![0; BLOCK_BYTES];
    for (index, sector) in mixed.chunks_mut(SECTOR_BYTES).enumerate() {
        let start = index * SECTOR_BYTES;
        if let Some(block) = candidates[random.usize(..candidates.len())] {
            sector.copy_from_slice(&block[start..start + SECTOR_BYTES]);
        }
    }
    block_of(&mixed)
}
