//! What one node was pushed, and the pushes that bring it to a newer state. Pure.
//!
//! A session starts with the full set; then come only differences. Points rise strictly within a session.

use std::collections::BTreeMap;

use crate::state::{GrantView, Policy as StatePolicy, StreamSettings};
use crate::wire::session::{
    GRANTS_PER_PUSH_MAX, GrantChange, GrantFrame, MetadataPoint, PartitionKey, Policy, Push,
    Replica, Retention, Revocation, SealSet,
};

/// The grants one session holds, as pushed.
#[derive(Debug, Default)]
pub struct GrantSet {
    held: BTreeMap<PartitionKey, GrantFrame>,
    pushed: Option<MetadataPoint>,
}

impl GrantSet {
    /// The state of the last push.
    #[must_use]
    pub fn pushed(&self) -> Option<MetadataPoint> {
        self.pushed
    }

    /// How many grants are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Tells whether no grant is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Brings the node to the state `at`, in which it holds exactly `grants`. No push if it is there already.
    #[must_use]
    pub fn bring_to(&mut self, at: MetadataPoint, grants: Vec<GrantFrame>) -> Vec<Push> {
        if self.pushed.is_some_and(|pushed| at <= pushed) {
            return Vec::new();
        }
        let grants: BTreeMap<_, _> =
            grants.into_iter().map(|grant| (grant.partition, grant)).collect();
        let pushes = match self.pushed {
            None => full(at, &grants),
            Some(_) => delta(at, &self.held, &grants),
        };
        self.held = grants;
        self.pushed = Some(at);
        pushes
    }

    /// Brings the node to the state `at`, in which its grants are what they were.
    #[must_use]
    pub fn advance(&mut self, at: MetadataPoint) -> Option<Push> {
        let pushed = self.pushed?;
        if at <= pushed {
            return None;
        }
        self.pushed = Some(at);
        let change = GrantChange::Delta { granted: Vec::new(), revoked: Vec::new() };
        Some(Push { at, change, more: false })
    }
}

fn full(at: MetadataPoint, grants: &BTreeMap<PartitionKey, GrantFrame>) -> Vec<Push> {
    let all: Vec<GrantFrame> = grants.values().cloned().collect();
    if all.is_empty() {
        return vec![Push { at, change: GrantChange::Full(all), more: false }];
    }
    let parts = all.chunks(GRANTS_PER_PUSH_MAX).map(|part| GrantChange::Full(part.to_vec()));
    numbered(at, parts.collect())
}

fn delta(
    at: MetadataPoint,
    before: &BTreeMap<PartitionKey, GrantFrame>,
    after: &BTreeMap<PartitionKey, GrantFrame>,
) -> Vec<Push> {
    let granted: Vec<GrantFrame> = after
        .values()
        .filter(|grant| before.get(&grant.partition) != Some(*grant))
        .cloned()
        .collect();
    let revoked: Vec<Revocation> = before
        .values()
        .filter(|grant| !after.contains_key(&grant.partition))
        .map(|grant| Revocation { partition: grant.partition, epoch: grant.epoch })
        .collect();
    let mut parts = Vec::new();
    for part in revoked.chunks(GRANTS_PER_PUSH_MAX) {
        parts.push(GrantChange::Delta { granted: Vec::new(), revoked: part.to_vec() });
    }
    for part in granted.chunks(GRANTS_PER_PUSH_MAX) {
        parts.push(GrantChange::Delta { granted: part.to_vec(), revoked: Vec::new() });
    }
    if parts.is_empty() {
        parts.push(GrantChange::Delta { granted: Vec::new(), revoked: Vec::new() });
    }
    numbered(at, parts)
}

fn numbered(at: MetadataPoint, parts: Vec<GrantChange>) -> Vec<Push> {
    let last = parts.len() - 1;
    let pushes = parts.into_iter().enumerate();
    pushes.map(|(part, change)| Push { at, change, more: part < last }).collect()
}

/// Puts a grant of the metadata into a frame.
pub(super) fn frame_of(grant: GrantView) -> GrantFrame {
    let descriptor = grant.descriptor;
    let replicas_of = |set: &[(crate::state::NodeId, crate::state::StorageId)]| -> Vec<Replica> {
        set.iter()
            .map(|(node, storage)| Replica { node: node.0, storage_id: storage.0.as_u128() })
            .collect()
    };
    GrantFrame {
        partition: PartitionKey {
            stream: grant.partition.stream.as_u128(),
            index: grant.partition.index,
        },
        stream_name: grant.stream_name,
        epoch: grant.epoch.packed(),
        replicas: replicas_of(&descriptor.replica_set),
        ack_quorum: descriptor.ack_quorum,
        policy: policy_of(grant.policy),
        loss_generation: descriptor.loss_generation,
        seal_sets: descriptor
            .seal_sets
            .iter()
            .map(|(set, ack_quorum)| SealSet {
                replicas: replicas_of(set),
                ack_quorum: *ack_quorum,
            })
            .collect(),
        successors: descriptor.successors.iter().map(|node| node.0).collect(),
        retention: retention_of(grant.settings),
    }
}

fn policy_of(policy: StatePolicy) -> Policy {
    match policy {
        StatePolicy::FailClosed => Policy::FailClosed,
        StatePolicy::ServeSettled => Policy::ServeSettled,
        StatePolicy::SelfElect => Policy::SelfElect,
    }
}

fn retention_of(settings: StreamSettings) -> Retention {
    let unless_zero = |value: u64| (value != 0).then_some(value);
    Retention {
        bytes: unless_zero(settings.retention_bytes),
        age_ms: unless_zero(settings.retention_ms),
        segment_bytes: unless_zero(settings.segment_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u64) -> MetadataPoint {
        MetadataPoint { lineage: 0, index }
    }

    fn grant(index: u32, epoch: u64) -> GrantFrame {
        GrantFrame {
            partition: PartitionKey { stream: 1, index },
            stream_name: "s".to_owned(),
            epoch,
            replicas: vec![Replica { node: 1, storage_id: 9 }],
            ack_quorum: 1,
            policy: Policy::ServeSettled,
            loss_generation: 0,
            seal_sets: vec![],
            successors: vec![],
            retention: Retention::default(),
        }
    }

    #[test]
    fn a_session_starts_with_the_full_set_even_if_it_is_empty() {
        let mut set = GrantSet::default();

        let pushes = set.bring_to(at(5), vec![]);

        assert_eq!(pushes.len(), 1);
        assert_eq!(pushes[0].change, GrantChange::Full(vec![]));
        assert!(!pushes[0].more);
    }

    #[test]
    fn later_pushes_carry_only_what_changed() {
        let mut set = GrantSet::default();
        let _ = set.bring_to(at(5), vec![grant(0, 1), grant(1, 1), grant(2, 1)]);

        let pushes = set.bring_to(at(6), vec![grant(0, 1), grant(1, 2), grant(3, 1)]);

        let revoked = Revocation { partition: grant(2, 1).partition, epoch: 1 };
        assert_eq!(pushes.len(), 2);
        assert_eq!(
            pushes[0].change,
            GrantChange::Delta { granted: vec![], revoked: vec![revoked] }
        );
        assert_eq!(
            pushes[1].change,
            GrantChange::Delta { granted: vec![grant(1, 2), grant(3, 1)], revoked: vec![] }
        );
        assert!(pushes[0].more && !pushes[1].more);
    }

    #[test]
    fn an_older_state_is_never_pushed() {
        let mut set = GrantSet::default();
        let _ = set.bring_to(at(5), vec![grant(0, 1)]);

        assert!(set.bring_to(at(5), vec![]).is_empty());
        assert!(set.bring_to(at(4), vec![]).is_empty());
        assert!(set.advance(at(5)).is_none());
        assert_eq!(set.advance(at(6)).unwrap().at, at(6));
        assert_eq!(set.len(), 1);
    }

    #[test]
    fn a_large_set_comes_in_parts_of_one_state() {
        let mut set = GrantSet::default();
        let many = u32::try_from(GRANTS_PER_PUSH_MAX).unwrap() + 1;

        let pushes = set.bring_to(at(5), (0..many).map(|index| grant(index, 1)).collect());

        assert_eq!(pushes.len(), 2);
        assert!(pushes[0].more && !pushes[1].more);
        assert!(pushes.iter().all(|push| push.at == at(5)));
    }
}
