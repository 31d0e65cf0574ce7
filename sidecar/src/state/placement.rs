//! Chooses owners: pure, and the same on every voter.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::id::NodeId;

/// Spreads `partitions` over `nodes` (each with how many it owns already): always the one with the fewest, the
/// lowest id on a tie. Empty without nodes.
pub(crate) fn spread(partitions: u32, nodes: impl Iterator<Item = (NodeId, usize)>) -> Vec<NodeId> {
    let mut by_load: BinaryHeap<_> = nodes.map(|(node, owned)| Reverse((owned, node))).collect();
    (0..partitions)
        .map_while(|_| {
            let mut least = by_load.peek_mut()?;
            let Reverse((owned, node)) = &mut *least;
            *owned += 1;
            Some(*node)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn loads_differ_by_at_most_one_where_they_were_equal(partitions in 0u32..500, nodes in 1u32..40) {
            let placed = spread(partitions, (1..=nodes).map(|id| (NodeId(id), 7)));

            prop_assert_eq!(placed.len(), partitions as usize);
            let count = |id| placed.iter().filter(|node| node.0 == id).count();
            let most = (1..=nodes).map(count).max().unwrap();
            let least = (1..=nodes).map(count).min().unwrap();
            prop_assert!(most - least <= 1);
        }
    }

    #[test]
    fn an_emptier_node_is_filled_first() {
        let placed = spread(3, [(NodeId(1), 5), (NodeId(2), 2)].into_iter());

        assert_eq!(placed, [NodeId(2); 3]);
    }

    #[test]
    fn nobody_is_chosen_without_nodes() {
        assert!(spread(3, std::iter::empty()).is_empty());
    }
}
