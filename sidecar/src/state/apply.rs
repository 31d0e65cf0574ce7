//! `View::apply`: the one place where the metadata changes. Deterministic: everything it uses is in the view or in
//! the command.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use uuid::Uuid;

use super::codec;
use super::command::{
    Command, CreateStream, ElectOwner, Proposal, RecordOwner, RegisterNode, STREAM_PARTITIONS_MAX,
};
use super::id::{Epoch, NodeId, PartitionId, StorageId};
use super::name;
use super::node::Node;
use super::outcome::{Done, Operation, Outcome};
use super::placement;
use super::refusal::Refusal;
use super::stream::{
    Descriptor, Election, HISTORY_MAX, Partition, Policy, Reason, Stream, StreamKind,
};
use super::view::{ConfigEntry, View};

/// How many first answers are kept; the oldest goes.
pub const OPERATIONS_MAX: usize = 4096;
/// How many nodes may ever register.
pub const NODES_MAX: u64 = 100_000;
/// How many voters a cluster may have.
pub const VOTERS_MAX: u64 = 15;
/// How many streams may live at once.
pub const STREAMS_MAX: u64 = 100_000;
/// How many partitions may live at once.
pub const PARTITIONS_MAX: u64 = 1_000_000;
/// How many tombstones are kept; deleting is refused at the limit.
pub const TOMBSTONES_MAX: u64 = 1_000_000;

impl View {
    /// Applies one entry of the log: all its proposals, in order, each with its own outcome.
    ///
    /// # Panics
    ///
    /// If `index` is not above that of the last entry: entries are applied once, in order.
    pub fn apply(&mut self, index: u64, proposals: &[Proposal]) -> Vec<Outcome> {
        assert!(index > self.index || self.index == 0, "entry {index} after {}", self.index);
        self.index = index;
        proposals.iter().map(|proposal| self.apply_one(proposal)).collect()
    }

    /// Tells what a command would answer now, changing nothing.
    #[must_use]
    pub fn dry_run(&self, command: &Command) -> Outcome {
        let mut trial = self.clone();
        trial.index += 1;
        trial.run(command).map_or_else(Outcome::Refused, Outcome::Done)
    }

    fn apply_one(&mut self, proposal: &Proposal) -> Outcome {
        if !proposal.command.is_recorded() {
            return self.run(&proposal.command).map_or_else(Outcome::Refused, Outcome::Done);
        }
        let command_crc = crc32fast::hash(&codec::encode(&proposal.command));
        if let Some(first) = self.operation(proposal.operation) {
            return if first.command_crc == command_crc {
                first.outcome.clone()
            } else {
                Outcome::Refused(Refusal::OperationReused)
            };
        }
        let outcome = self.run(&proposal.command).map_or_else(Outcome::Refused, Outcome::Done);
        self.record(Operation {
            sequence: self.operations.back().map_or(0, |last| last.sequence + 1),
            id: proposal.operation,
            command_crc,
            index: self.index,
            outcome: outcome.clone(),
        });
        outcome
    }

    fn record(&mut self, operation: Operation) {
        if self.operations.len() == OPERATIONS_MAX
            && let Some(oldest) = self.operations.pop_front()
        {
            self.derived.operation_by_id.remove(&oldest.id);
        }
        self.derived.operation_by_id.insert(operation.id, operation.sequence);
        self.operations.push_back(Arc::new(operation));
    }

    fn run(&mut self, command: &Command) -> Result<Done, Refusal> {
        match command {
            Command::Noop => Ok(Done::Nothing),
            Command::FormCluster { cluster, voters } => self.form_cluster(*cluster, voters),
            Command::RegisterNode(register) => self.register_node(register),
            Command::NodeGone { node, incarnation } => self.node_gone(*node, *incarnation),
            Command::CreateStream(create) => self.create_stream(create),
            Command::DeleteStream { stream, expected_version } => {
                self.delete_stream(*stream, *expected_version)
            }
            Command::ElectOwner(elect) => self.elect_owner(elect),
            Command::RecordOwner(record) => self.record_owner(record),
            Command::SetConfig { key, value, expected_version } => {
                self.set_config(key, value, *expected_version)
            }
        }
    }

    fn form_cluster(
        &mut self,
        cluster: Uuid,
        voters: &[(String, StorageId)],
    ) -> Result<Done, Refusal> {
        if self.cluster.is_some() {
            return Err(Refusal::AlreadyFormed);
        }
        check_limit("voters", voters.len(), VOTERS_MAX + 1)?;
        voters.iter().try_for_each(|(voter, _)| name::check_node_name(voter))?;
        self.voters = voters.iter().cloned().collect();
        self.cluster = Some(cluster);
        self.lineage = 1;
        Ok(Done::Nothing)
    }

    fn register_node(&mut self, register: &RegisterNode) -> Result<Done, Refusal> {
        name::check_node_name(&register.name)?;
        name::check_rack(&register.rack)?;
        name::check_address(&register.data_address)?;
        name::check_address(&register.admin_address)?;
        let known = self.node_by_name(&register.name).cloned();
        let (id, is_new_run) = match &known {
            None => {
                check_limit("nodes", self.nodes.len(), NODES_MAX)?;
                self.node_id_last += 1;
                (NodeId(self.node_id_last), false)
            }
            Some(node) if node.storage != register.storage => {
                return Err(Refusal::OtherStorage { name: register.name.clone() });
            }
            Some(node) if register.incarnation < node.incarnation => {
                return Err(Refusal::StaleIncarnation {
                    given: register.incarnation,
                    found: node.incarnation,
                });
            }
            Some(node) => (node.id, register.incarnation > node.incarnation),
        };
        let mut node = Node {
            id,
            name: register.name.clone(),
            rack: register.rack.clone(),
            incarnation: register.incarnation,
            storage: register.storage,
            data_address: register.data_address.clone(),
            admin_address: register.admin_address.clone(),
            gone: false,
            version: known.as_ref().map_or(self.index, |known| known.version),
            grants_index: known.as_ref().map_or(self.index, |known| known.grants_index),
        };
        if known.as_ref() != Some(&node) {
            node.version = self.index;
            self.derived.node_by_name.insert(node.name.clone(), id);
            self.nodes.insert(id, Arc::new(node));
        }
        if is_new_run {
            self.begin_run(id);
        }
        let cluster = self.cluster.unwrap_or_default();
        Ok(Done::NodeRegistered { node: id, cluster })
    }

    /// An epoch belongs to one run of a node (`PROTOCOL.md` 3): a new run gets new terms where nobody else holds
    /// the data. Partitions with more replicas are elected by whoever watches the sessions.
    fn begin_run(&mut self, node: NodeId) {
        for id in self.owned_by(node) {
            if self.partition(id).is_some_and(|p| p.descriptor.replica_set.len() == 1) {
                // A partition out of terms stays in its last epoch, which the new run is not granted.
                let _ = self.take_term(id, Reason::NewIncarnation);
            }
        }
    }

    fn node_gone(&mut self, id: NodeId, incarnation: u64) -> Result<Done, Refusal> {
        let found = self.live_run(id)?.0;
        if found != incarnation {
            return Err(Refusal::StaleIncarnation { given: incarnation, found });
        }
        let index = self.index;
        let node = self.nodes.get_mut(&id).map(Arc::make_mut).expect("looked up above");
        if !node.gone {
            node.gone = true;
            node.version = index;
        }
        Ok(Done::Nothing)
    }

    fn create_stream(&mut self, create: &CreateStream) -> Result<Done, Refusal> {
        self.check_create(create)?;
        let live = self.nodes.values().filter(|node| !node.gone);
        let owners = placement::spread(
            create.partitions,
            live.map(|node| (node.id, self.derived.owned.get(&node.id).map_or(0, |o| o.len()))),
        );
        if owners.is_empty() {
            return Err(Refusal::TooFewNodes { needed: u32::from(create.replicas), live: 0 });
        }
        self.stream_count += 1;
        let uuid = derive_uuid(self.cluster.unwrap_or_default(), self.stream_count);
        let partitions =
            owners.iter().map(|owner| Arc::new(self.first_term(*owner, create))).collect();
        for (index, owner) in (0u32..).zip(&owners) {
            self.give(*owner, PartitionId { stream: uuid, index });
        }
        let stream = Stream {
            uuid,
            name: create.name.clone(),
            kind: create.kind,
            replicas: create.replicas,
            ack_quorum: create.ack_quorum,
            policy: create.policy,
            settings: create.settings,
            version: self.index,
            created_index: self.index,
            partitions,
        };
        self.derived.partition_count += stream.partitions.len() as u64;
        self.derived.stream_by_name.insert(stream.name.clone(), uuid);
        self.streams.insert(uuid, Arc::new(stream));
        Ok(Done::StreamCreated { stream: uuid })
    }

    fn check_create(&self, create: &CreateStream) -> Result<(), Refusal> {
        name::check_stream_name(&create.name)?;
        if create.kind == StreamKind::Queue {
            return Err(Refusal::QueueNotServed);
        }
        if !(1..=STREAM_PARTITIONS_MAX).contains(&create.partitions) {
            return Err(Refusal::BadPartitionCount {
                partitions: create.partitions,
                partitions_max: STREAM_PARTITIONS_MAX,
            });
        }
        let (replicas, ack_quorum) = (create.replicas, create.ack_quorum);
        if !(1..=replicas.max(1)).contains(&ack_quorum) {
            return Err(Refusal::BadAckQuorum { ack_quorum, replicas });
        }
        if create.policy == Policy::SelfElect && !allows_self_elect(replicas, ack_quorum) {
            return Err(Refusal::SelfElectNotAllowed { replicas, ack_quorum });
        }
        if replicas != 1 {
            return Err(Refusal::ReplicasNotServed { replicas });
        }
        if self.stream_by_name(&create.name).is_some() {
            return Err(Refusal::StreamExists { name: create.name.clone() });
        }
        check_limit("streams", self.streams.len(), STREAMS_MAX)?;
        let partitions = self.derived.partition_count + u64::from(create.partitions);
        if partitions > PARTITIONS_MAX {
            return Err(Refusal::LimitReached {
                limit: "partitions".into(),
                value: PARTITIONS_MAX,
            });
        }
        Ok(())
    }

    fn first_term(&self, owner: NodeId, create: &CreateStream) -> Partition {
        let node = self.node(owner).expect("placement chooses among the nodes");
        let epoch = Epoch::named(1, owner);
        Partition {
            descriptor: Descriptor {
                term: 1,
                replica_set: vec![(owner, node.storage)],
                ack_quorum: create.ack_quorum,
                seal_sets: Vec::new(),
                policy: create.policy,
                loss_generation: 0,
                successors: Vec::new(),
            },
            epoch,
            incarnation: node.incarnation,
            version: self.index,
            history: VecDeque::from([Election {
                epoch,
                reason: Reason::Created,
                evidence: "first term of a new partition".into(),
                index: self.index,
            }]),
        }
    }

    fn delete_stream(&mut self, uuid: Uuid, expected: Option<u64>) -> Result<Done, Refusal> {
        let Some(stream) = self.streams.get(&uuid).cloned() else {
            return Err(Refusal::StreamNotFound { name: uuid.to_string() });
        };
        check_version(expected, stream.version)?;
        check_limit("tombstones", self.deleted.len(), TOMBSTONES_MAX)?;
        for (index, partition) in (0u32..).zip(&stream.partitions) {
            if let Some(owner) = partition.owner() {
                self.take(owner, PartitionId { stream: uuid, index });
            }
        }
        self.derived.partition_count -= stream.partitions.len() as u64;
        self.derived.stream_by_name.remove(&stream.name);
        self.streams.remove(&uuid);
        self.deleted.insert(uuid, self.index);
        Ok(Done::Nothing)
    }

    fn elect_owner(&mut self, elect: &ElectOwner) -> Result<Done, Refusal> {
        let partition = self.expect_epoch(elect.partition, elect.expected_epoch)?;
        if let [(sole, storage)] = partition.descriptor.replica_set[..] {
            let is_live = self.node(sole).is_some_and(|n| !n.gone && n.storage == storage);
            if !is_live {
                return Err(Refusal::TooFewNodes { needed: 1, live: 0 });
            }
        }
        let epoch = self.take_term(elect.partition, elect.reason.clone())?;
        Ok(Done::OwnerElected { epoch })
    }

    fn record_owner(&mut self, record: &RecordOwner) -> Result<Done, Refusal> {
        let partition = self.expect_epoch(record.partition, record.expected_epoch)?;
        let (found, set) = (partition.epoch, &partition.descriptor.replica_set);
        let winner = record.epoch.node().filter(|node| set.iter().any(|(id, _)| id == node));
        // A term has at most one owner at ballot 0 (`PROTOCOL.md` 1); higher ballots elected themselves.
        let is_second_named = found.node().is_some() && record.epoch.ballot() == 0;
        let is_of_term = record.epoch.term() == found.term() && record.epoch > found;
        let Some(winner) = winner.filter(|_| is_of_term && !is_second_named) else {
            return Err(Refusal::EpochMismatch { expected: record.epoch, found });
        };
        let (incarnation, _) = self.live_run(winner)?;
        if incarnation != record.incarnation {
            let given = record.incarnation;
            return Err(Refusal::StaleIncarnation { given, found: incarnation });
        }
        let reason = match record.epoch.ballot() {
            0 => partition.history.back().map_or(Reason::Requested, |last| last.reason.clone()),
            _ => Reason::SelfElected,
        };
        let evidence = name::shorten(&record.evidence);
        let election = Election { epoch: record.epoch, reason, evidence, index: self.index };
        self.set_owner(record.partition, election, incarnation, None);
        Ok(Done::OwnerElected { epoch: record.epoch })
    }

    /// Takes the next term of a partition. With one replica that replica is its owner at once: its own promise is
    /// the whole seal. With more, the term is electing until its owner is recorded.
    fn take_term(&mut self, id: PartitionId, reason: Reason) -> Result<Epoch, Refusal> {
        let partition = self.partition(id).expect("callers looked it up");
        let term = partition.descriptor.term.checked_add(1).ok_or(Refusal::TermsExhausted)?;
        let mut descriptor = partition.descriptor.clone();
        let sealed = (descriptor.replica_set.clone(), descriptor.ack_quorum);
        descriptor.term = term;
        descriptor.seal_sets = vec![sealed];
        let (epoch, incarnation, evidence) = match descriptor.replica_set[..] {
            [(sole, _)] => {
                let incarnation = self.node(sole).map_or(0, |node| node.incarnation);
                (Epoch::named(term, sole), incarnation, "the only replica")
            }
            _ => (Epoch::promise_of(term), 0, "electing"),
        };
        let election = Election { epoch, reason, evidence: evidence.into(), index: self.index };
        self.set_owner(id, election, incarnation, Some(descriptor));
        Ok(epoch)
    }

    /// Writes an election into its partition and moves the grant.
    fn set_owner(
        &mut self,
        id: PartitionId,
        election: Election,
        incarnation: u64,
        descriptor: Option<Descriptor>,
    ) {
        let index = self.index;
        let stream = self.streams.get_mut(&id.stream).map(Arc::make_mut).expect("looked up");
        let place = stream.partitions.get_mut(id.index as usize).expect("looked up");
        let partition = Arc::make_mut(place);
        assert!(election.epoch > partition.epoch, "epochs only rise");
        let old_owner = partition.owner();
        partition.epoch = election.epoch;
        partition.incarnation = incarnation;
        partition.version = index;
        if let Some(descriptor) = descriptor {
            partition.descriptor = descriptor;
        }
        if partition.history.len() == HISTORY_MAX {
            partition.history.pop_front();
        }
        let new_owner = partition.owner();
        partition.history.push_back(election);
        if let Some(owner) = old_owner {
            self.take(owner, id);
        }
        if let Some(owner) = new_owner {
            self.give(owner, id);
        }
    }

    fn set_config(
        &mut self,
        key: &str,
        value: &str,
        expected: Option<u64>,
    ) -> Result<Done, Refusal> {
        name::check_config(key, value)?;
        check_version(expected, self.config.get(key).map_or(0, |entry| entry.version))?;
        let entry = ConfigEntry { value: value.to_owned(), version: self.index };
        self.config.insert(key.to_owned(), entry);
        Ok(Done::Nothing)
    }

    fn expect_epoch(&self, id: PartitionId, expected: Epoch) -> Result<&Partition, Refusal> {
        let Some(partition) = self.partition(id) else {
            return Err(Refusal::PartitionNotFound { partition: id.to_string() });
        };
        if partition.epoch != expected {
            return Err(Refusal::EpochMismatch { expected, found: partition.epoch });
        }
        Ok(partition)
    }

    /// The latest run of a node, and whether it is gone.
    fn live_run(&self, id: NodeId) -> Result<(u64, bool), Refusal> {
        let node = self.node(id).ok_or_else(|| Refusal::NodeNotFound { name: id.to_string() })?;
        Ok((node.incarnation, node.gone))
    }

    fn owned_by(&self, node: NodeId) -> Vec<PartitionId> {
        self.derived.owned.get(&node).map_or_else(Vec::new, |owned| owned.iter().copied().collect())
    }

    fn give(&mut self, node: NodeId, partition: PartitionId) {
        Arc::make_mut(self.derived.owned.entry(node).or_default()).insert(partition);
        self.touch_grants(node);
    }

    fn take(&mut self, node: NodeId, partition: PartitionId) {
        if let Some(owned) = self.derived.owned.get_mut(&node) {
            Arc::make_mut(owned).remove(&partition);
            if owned.is_empty() {
                self.derived.owned.remove(&node);
            }
        }
        self.touch_grants(node);
    }

    fn touch_grants(&mut self, node: NodeId) {
        let index = self.index;
        if let Some(node) = self.nodes.get_mut(&node) {
            Arc::make_mut(node).grants_index = index;
        }
    }

    /// Rebuilds the look-up tables after loading.
    pub(super) fn derive(&mut self) {
        let mut derived = super::view::Derived::default();
        for node in self.nodes.values() {
            derived.node_by_name.insert(node.name.clone(), node.id);
        }
        for stream in self.streams.values() {
            derived.stream_by_name.insert(stream.name.clone(), stream.uuid);
            derived.partition_count += stream.partitions.len() as u64;
        }
        for (id, _, partition) in self.partitions() {
            if let Some(owner) = partition.owner() {
                let owned: &mut Arc<BTreeSet<_>> = derived.owned.entry(owner).or_default();
                Arc::make_mut(owned).insert(id);
            }
        }
        for operation in &self.operations {
            derived.operation_by_id.insert(operation.id, operation.sequence);
        }
        self.derived = derived;
    }
}

/// `PROTOCOL.md` 24: enough replicas must be left after the loss of one.
fn allows_self_elect(replicas: u8, ack_quorum: u8) -> bool {
    let seal = (replicas + 1).saturating_sub(ack_quorum);
    ack_quorum.max(seal) < replicas
}

fn check_limit(limit: &str, count: usize, limit_max: u64) -> Result<(), Refusal> {
    if count as u64 >= limit_max {
        return Err(Refusal::LimitReached { limit: limit.into(), value: limit_max });
    }
    Ok(())
}

fn check_version(expected: Option<u64>, found: u64) -> Result<(), Refusal> {
    match expected {
        Some(expected) if expected != found => Err(Refusal::VersionMismatch { expected, found }),
        _ => Ok(()),
    }
}

/// A uuid that depends on nothing but the cluster and a counter that never falls.
pub(super) fn derive_uuid(cluster: Uuid, counter: u64) -> Uuid {
    let (high, low) = cluster.as_u64_pair();
    let first = mix64(high ^ mix64(counter));
    let second = mix64(low ^ mix64(first ^ counter));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_be_bytes());
    bytes[8..].copy_from_slice(&second.to_be_bytes());
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The finaliser of SplitMix64: a bijection that spreads every bit.
fn mix64(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
