//! The descriptor of a term: its replica set, its `w`, and the sets that must be sealed before it.
//!
//! It travels with every promise, grant and marker, and is stored with the promise (`PROTOCOL.md` 1.2).
//!
//! | bytes | field |
//! |---|---|
//! | 24 | wrapped header, magic `PDSC`, version 1 |
//! | 4 | term |
//! | 1 | policy: 1 fail-closed, 2 serve-settled, 3 self-elect |
//! | 8 | loss generation |
//! | set | the term's own set |
//! | 4 + n sets | seal sets |
//! | 4 + n x 4 | successor order, node ids |
//!
//! A set is `w` (1 byte), a count (4 bytes), and per member its node (4 bytes) and storage id (16 bytes).

use super::envelope::Envelope;
use super::error::{FormatError, Structure};
use super::fields::{FieldReader, FieldVec};
use crate::id::{NodeId, StorageId};

/// The most members of a replica set.
pub const REPLICAS_MAX: usize = 16;

/// The most sets that can wait to be sealed, and so the most changes that have not settled.
pub const SEAL_SETS_MAX: usize = 64;

const ENVELOPE: Envelope = Envelope::of_payload(Structure::Descriptor, *b"PDSC", 1);

const MEMBER_BYTES: usize = 20;
const SET_BYTES_MIN: usize = 5;

/// What goes on when the metadata majority is lost (`DESIGN.md` 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Serves while the lease lasts.
    FailClosed,
    /// A settled owner goes on; nobody new takes over.
    #[default]
    ServeSettled,
    /// A successor admitted in advance may take over.
    SelfElect,
}

/// One member of a replica set: a node, and the storage it is a member with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// Its storage; the same node with another storage is no member.
    pub storage: StorageId,
}

/// The replicas of a partition and how many of them make an append committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaSet {
    /// The members, 1 to [`REPLICAS_MAX`].
    pub members: Vec<Member>,
    /// `w`: 1 to the number of members.
    pub ack_quorum: u8,
}

/// What is fixed for a term when it is committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// The term.
    pub term: u32,
    /// The term's own set.
    pub set: ReplicaSet,
    /// The sets that must be sealed before the term's owner starts.
    pub seal_sets: Vec<ReplicaSet>,
    /// What goes on when the metadata majority is lost.
    pub policy: Policy,
    /// How often an operator has accepted a loss.
    pub loss_generation: u64,
    /// Who may elect itself, in this order.
    pub successors: Vec<NodeId>,
}

impl Descriptor {
    /// Encodes the descriptor; the same value always gives the same bytes.
    ///
    /// # Panics
    ///
    /// If a set or a list is outside its limits: the caller has admitted it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.seal_sets.len() <= SEAL_SETS_MAX);
        assert!(self.successors.len() <= REPLICAS_MAX);
        let mut fields = FieldVec::default();
        fields.u32(self.term);
        fields.u8(match self.policy {
            Policy::FailClosed => 1,
            Policy::ServeSettled => 2,
            Policy::SelfElect => 3,
        });
        fields.u64(self.loss_generation);
        encode_set(&mut fields, &self.set);
        fields.count(self.seal_sets.len());
        for set in &self.seal_sets {
            encode_set(&mut fields, set);
        }
        fields.count(self.successors.len());
        for successor in &self.successors {
            fields.u32(successor.get());
        }
        ENVELOPE.wrap(&fields.bytes)
    }

    /// Decodes the descriptor at the head of `bytes`.
    ///
    /// # Errors
    ///
    /// [`FormatError`] names what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Descriptor, FormatError> {
        let mut fields = ENVELOPE.unwrap(bytes)?;
        let term = fields.u32()?;
        let policy = match fields.u8()? {
            1 => Policy::FailClosed,
            2 => Policy::ServeSettled,
            3 => Policy::SelfElect,
            other => return Err(ENVELOPE.field("policy", u64::from(other))),
        };
        let loss_generation = fields.u64()?;
        let set = decode_set(&mut fields)?;
        let seal_sets = fields.list(SET_BYTES_MIN, decode_set)?;
        let successors = fields.list(4, decode_node)?;
        fields.end()?;
        if seal_sets.len() > SEAL_SETS_MAX {
            return Err(ENVELOPE.field("seal sets", seal_sets.len() as u64));
        }
        if successors.len() > REPLICAS_MAX {
            return Err(ENVELOPE.field("successors", successors.len() as u64));
        }
        Ok(Descriptor { term, set, seal_sets, policy, loss_generation, successors })
    }
}

fn encode_set(fields: &mut FieldVec, set: &ReplicaSet) {
    assert!((1..=REPLICAS_MAX).contains(&set.members.len()));
    assert!((1..=set.members.len()).contains(&usize::from(set.ack_quorum)));
    fields.u8(set.ack_quorum);
    fields.count(set.members.len());
    for member in &set.members {
        fields.u32(member.node.get());
        fields.u128(member.storage.0);
    }
}

fn decode_set(fields: &mut FieldReader<'_>) -> Result<ReplicaSet, FormatError> {
    let ack_quorum = fields.u8()?;
    let members = fields.list(MEMBER_BYTES, |fields| {
        Ok(Member { node: decode_node(fields)?, storage: StorageId(fields.u128()?) })
    })?;
    if !(1..=REPLICAS_MAX).contains(&members.len()) {
        return Err(fields.refuse("members", members.len() as u64));
    }
    if !(1..=members.len()).contains(&usize::from(ack_quorum)) {
        return Err(fields.refuse("w", u64::from(ack_quorum)));
    }
    Ok(ReplicaSet { members, ack_quorum })
}

fn decode_node(fields: &mut FieldReader<'_>) -> Result<NodeId, FormatError> {
    let node = fields.u32()?;
    NodeId::new(node).ok_or_else(|| fields.refuse("node", u64::from(node)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::{any, prop, proptest};

    fn set(nodes: &[u32], ack_quorum: u8) -> ReplicaSet {
        let member = |id: &u32| Member {
            node: NodeId::new(*id).unwrap(),
            storage: StorageId(u128::from(*id) << 100 | 5),
        };
        ReplicaSet { members: nodes.iter().map(member).collect(), ack_quorum }
    }

    pub(in crate::format) fn descriptor() -> Descriptor {
        Descriptor {
            term: 7,
            set: set(&[1, 2, 3], 2),
            seal_sets: vec![set(&[1, 2], 1), set(&[4], 1)],
            policy: Policy::SelfElect,
            loss_generation: 3,
            successors: vec![NodeId::new(2).unwrap(), NodeId::new(3).unwrap()],
        }
    }

    #[test]
    fn descriptor_comes_back() {
        assert_eq!(Descriptor::decode(&descriptor().encode()), Ok(descriptor()));
    }

    proptest! {
        #[test]
        fn random_payload_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Descriptor::decode(&bytes);
            let _ = Descriptor::decode(&ENVELOPE.wrap(&bytes));
        }

        #[test]
        fn flip_or_cut_is_found(at: prop::sample::Index, cut: prop::sample::Index) {
            let mut bytes = descriptor().encode();
            assert!(Descriptor::decode(&bytes[..cut.index(bytes.len())]).is_err());
            let bit = at.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Descriptor::decode(&bytes).is_err());
        }
    }
}
