//! How much of its memory a shard lends to readers, who may keep it for as long as they like. Pure.

/// From this length on an extent may be lent up to the whole share.
const WHOLE_SHARE_BYTES: usize = 64 << 10;

/// Whether an extent of `bytes` may be lent when `lent_bytes` are, of a share of `lent_bytes_max`.
///
/// Short extents get a part of the share in proportion to their length: each that is kept for long leaves a hole beside
/// it in which no longer one has room, and the memory between many of them would be free and of no use. To copy a short
/// one costs little.
pub(super) fn may_lend(lent_bytes: usize, lent_bytes_max: usize, bytes: usize) -> bool {
    let weight = bytes.min(WHOLE_SHARE_BYTES);
    let share = lent_bytes_max / WHOLE_SHARE_BYTES * weight;
    lent_bytes.saturating_add(bytes) <= share
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: usize = 32 << 20;

    #[test]
    fn long_extents_may_take_the_whole_share_and_no_more() {
        assert!(may_lend(SHARE - (1 << 20), SHARE, 1 << 20));
        assert!(!may_lend(SHARE - (1 << 20) + 1, SHARE, 1 << 20));
        assert!(!may_lend(0, SHARE, usize::MAX));
        assert!(!may_lend(usize::MAX, SHARE, 1));
    }

    #[test]
    fn short_extents_get_less_of_it() {
        let eighth = SHARE / 8;
        assert!(may_lend(eighth - (8 << 10), SHARE, 8 << 10));
        assert!(!may_lend(eighth, SHARE, 8 << 10));
        assert!(may_lend(eighth, SHARE, 64 << 10));
    }
}
