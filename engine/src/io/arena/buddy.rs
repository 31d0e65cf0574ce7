//! Which blocks of the arena are free: buddies of 2^order blocks, split to lend and merged on return.
//!
//! Plain arithmetic on block numbers: touches no memory of the arena and allocates none after `new`.

/// Chunks have at most `2^ORDER_MAX` blocks, so that is also the longest run that can be lent.
pub(super) const ORDER_MAX: u32 = 12;

const NO_BLOCK: u32 = u32::MAX;
const NOT_FREE: u8 = u8::MAX;

/// The free blocks, as one list of chunks for each order. A chunk is named by its first block.
#[derive(Debug)]
pub(super) struct FreeBlocks {
    /// The first chunk of each list.
    heads: [u32; ORDER_MAX as usize + 1],
    /// By first block of a free chunk: its neighbours in the list.
    next: Vec<u32>,
    previous: Vec<u32>,
    /// By block: the order of the free chunk that starts there.
    order_at: Vec<u8>,
    count: u32,
}

impl FreeBlocks {
    /// All of `blocks` blocks, free.
    pub(super) fn new(blocks: u32) -> FreeBlocks {
        let length = blocks as usize;
        let mut free = FreeBlocks {
            heads: [NO_BLOCK; ORDER_MAX as usize + 1],
            next: vec![NO_BLOCK; length],
            previous: vec![NO_BLOCK; length],
            order_at: vec![NOT_FREE; length],
            count: 0,
        };
        free.give_back(0, blocks);
        free
    }

    /// How many blocks are free, in whatever pieces.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Takes a run of `blocks` blocks and returns its first one; what the buddy has beyond stays free.
    pub(super) fn take(&mut self, blocks: u32) -> Option<u32> {
        assert!(blocks > 0, "a run has blocks");
        let order = blocks.checked_next_power_of_two()?.trailing_zeros();
        let found = (order..=ORDER_MAX).find(|at| self.heads[*at as usize] != NO_BLOCK)?;

        let first = self.heads[found as usize];
        self.unlink(first, found);
        for split in (order..found).rev() {
            self.link(first + (1 << split), split);
        }

        let rest = (1 << order) - blocks;
        self.give_back(first + blocks, rest);
        Some(first)
    }

    /// Returns a run that [`take`](FreeBlocks::take) gave, or any part of one.
    pub(super) fn give_back(&mut self, first: u32, blocks: u32) {
        let end = first + blocks;
        assert!(end as usize <= self.order_at.len(), "blocks {first}..{end} are not the arena's");
        let mut at = first;
        while at < end {
            let aligned = at.trailing_zeros();
            let fitting = (end - at).ilog2();
            let order = aligned.min(fitting).min(ORDER_MAX);
            self.merge_in(at, order);
            at += 1 << order;
        }
    }

    fn merge_in(&mut self, mut first: u32, mut order: u32) {
        while order < ORDER_MAX {
            let buddy = first ^ (1 << order);
            let is_free =
                self.order_at.get(buddy as usize).is_some_and(|at| u32::from(*at) == order);
            if !is_free {
                break;
            }
            self.unlink(buddy, order);
            first = first.min(buddy);
            order += 1;
        }
        self.link(first, order);
    }

    fn link(&mut self, first: u32, order: u32) {
        let at = first as usize;
        assert!(self.order_at[at] == NOT_FREE, "block {first} was returned twice");
        let head = std::mem::replace(&mut self.heads[order as usize], first);
        self.next[at] = head;
        self.previous[at] = NO_BLOCK;
        if head != NO_BLOCK {
            self.previous[head as usize] = first;
        }
        self.order_at[at] = u8::try_from(order).expect("an order is at most ORDER_MAX");
        self.count += 1 << order;
    }

    fn unlink(&mut self, first: u32, order: u32) {
        let at = first as usize;
        assert!(u32::from(self.order_at[at]) == order, "block {first} is not free at {order}");
        let (previous, next) = (self.previous[at], self.next[at]);
        match previous {
            NO_BLOCK => self.heads[order as usize] = next,
            _ => self.next[previous as usize] = next,
        }
        if next != NO_BLOCK {
            self.previous[next as usize] = previous;
        }
        self.order_at[at] = NOT_FREE;
        self.count -= 1 << order;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_leaves_the_rest_of_its_buddy_free() {
        let mut free = FreeBlocks::new(8);

        let first = free.take(5);

        assert_eq!(first, Some(0));
        assert_eq!(free.count(), 3);
        assert_eq!(free.take(2), Some(6));
        assert_eq!(free.take(1), Some(5));
        assert_eq!(free.take(1), None);
    }

    #[test]
    fn returned_pieces_merge_to_the_whole() {
        let mut free = FreeBlocks::new(64);
        let runs: Vec<u32> = (0..16).map(|_| free.take(4).unwrap()).collect();
        assert_eq!(free.count(), 0);

        for first in runs.iter().step_by(2).chain(runs.iter().skip(1).step_by(2)) {
            free.give_back(*first + 1, 3);
            free.give_back(*first, 1);
        }

        assert_eq!(free.count(), 64);
        assert_eq!(free.take(64), Some(0));
    }

    #[test]
    fn size_that_is_no_power_of_two_is_all_usable() {
        let mut free = FreeBlocks::new(13);

        let taken: u32 =
            [8, 4, 1].iter().map(|blocks| free.take(*blocks).map_or(0, |_| *blocks)).sum();

        assert_eq!(taken, 13);
        assert_eq!(free.count(), 0);
    }

    #[test]
    fn run_over_the_largest_chunk_is_refused() {
        let mut free = FreeBlocks::new(4 << ORDER_MAX);

        assert_eq!(free.take((1 << ORDER_MAX) + 1), None);
        assert!(free.take(1 << ORDER_MAX).is_some());
        assert_eq!(free.take(u32::MAX), None);
    }

    #[test]
    #[should_panic(expected = "returned twice")]
    fn block_returned_twice_is_our_mistake() {
        let mut free = FreeBlocks::new(8);
        let first = free.take(1).unwrap();
        free.give_back(first, 1);

        free.give_back(first, 1);
    }
}
