//! The whole engine on a simulated machine whose device fails, fills up or takes too long.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use palisade_engine::engine::{Coordinator, Engine, Lease};
use palisade_engine::format::{Descriptor, Member, Policy, RecordBatch, ReplicaSet};
use palisade_engine::id::{Epoch, NodeId, Offset, PartitionId, PartitionIndex, StreamId};
use palisade_engine::io::disk::DiskOperation;
use palisade_engine::io::simulated::{Fault, FaultKind, SimulatedMachine, SimulatedRuntime};
use palisade_engine::partition::{
    AppendError, AppendOptions, Grant, PartitionSettings, PartitionSpec, Read, UnknownReason,
};
use palisade_engine::{EngineConfig, Partition};

fn config() -> EngineConfig {
    let mut config = EngineConfig::new("/data");
    config.arena_bytes = 8 << 20;
    config.seed = Some(7);
    config.settings = PartitionSettings {
        segment_bytes: 64 << 10,
        first_segment_bytes: 64 << 10,
        ..PartitionSettings::default()
    };
    config
}

async fn open(machine: &SimulatedMachine) -> (Engine, Partition) {
    let engine = Engine::open_on(vec![machine.environment(8 << 20)], config()).await.unwrap();
    let log = engine.open_partition(&"orders/0".parse().unwrap()).await.unwrap();
    (engine, log)
}

async fn append(log: &Partition, bytes: usize) -> Result<Offset, AppendError> {
    let batch = RecordBatch::single(&vec![1; bytes]).unwrap();
    log.append(batch, AppendOptions::default()).await.map(|appended| appended.base_offset)
}

async fn count(log: &Partition) -> u64 {
    let mut next = log.watermarks().log_start;
    let mut count = 0;
    loop {
        let answer = log.read(Read::from(next)).await.unwrap();
        if answer.next_offset == next {
            return count;
        }
        count += answer.batches.iter().map(|batch| u64::from(batch.records())).sum::<u64>();
        next = answer.next_offset;
    }
}

// L22: one write fails, later ones would succeed.
#[test]
fn first_device_error_ends_the_appends_and_not_the_reads() {
    let runtime = SimulatedRuntime::new(1);
    let machine = SimulatedMachine::alone(&runtime);
    runtime.block_on(async {
        let (engine, log) = open(&machine).await;
        append(&log, 100).await.unwrap();
        let fault = Fault::new(DiskOperation::Write, FaultKind::Io).with_extension("segment");
        machine.storage().inject(fault);

        let failed = append(&log, 100).await.unwrap_err();
        let after = append(&log, 100).await.unwrap_err();

        let reason = UnknownReason::Device(log.stopped().unwrap());
        assert!(
            matches!(failed, AppendError::Unknown { base_offset: Some(Offset(1)), .. }),
            "{failed}"
        );
        assert!(failed.to_string().ends_with(&reason.to_string()), "{failed}");
        assert!(matches!(after, AppendError::Stopped { .. }), "{after}");
        assert_eq!(log.watermarks().log_end, Offset(1));
        assert_eq!(count(&log).await, 1);
        let report = engine.close().await.unwrap();
        assert_eq!(report.unclean, vec![log.id()]);
        let (_engine, log) = open(&machine).await;
        let log_end = log.watermarks().log_end;
        assert_eq!(append(&log, 100).await.unwrap(), log_end);
        assert_eq!(count(&log).await, log_end.0 + 1);
    });
}

// L17: full in the middle of appends; refused before an offset, and back by itself.
#[test]
fn full_disk_refuses_before_an_offset_and_resumes_by_itself() {
    let runtime = SimulatedRuntime::new(2);
    let machine = SimulatedMachine::alone(&runtime);
    let runtime_of_machine = machine.environment(8 << 20).runtime;
    runtime.block_on(async {
        let (engine, log) = open(&machine).await;
        append(&log, 10_000).await.unwrap();
        let used = machine.storage().space();
        machine.storage().set_capacity_bytes(used.total_bytes - used.available_bytes + (80 << 10));

        let mut appended = 1;
        let refused = loop {
            match append(&log, 10_000).await {
                Ok(offset) => {
                    assert_eq!(offset, Offset(appended));
                    appended += 1;
                }
                Err(AppendError::Busy { retry_after }) => {
                    runtime_of_machine.sleep(retry_after).await
                }
                Err(error) => break error,
            }
        };

        assert!(matches!(refused, AppendError::DiskFull { .. }), "{refused}");
        assert_eq!(log.watermarks().log_end, Offset(appended));
        assert_eq!(count(&log).await, appended);
        assert!(engine.partitions()[0].is_disk_full);
        log.trim(Offset(1)).await.unwrap();
        machine.storage().set_capacity_bytes(1 << 40);
        while engine.partitions()[0].is_disk_full {
            runtime_of_machine.sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(append(&log, 10_000).await.unwrap(), Offset(appended));
        engine.close().await.unwrap();
    });
}

#[test]
fn lease_that_ends_while_a_write_is_in_flight_withholds_its_acknowledgement() {
    let runtime = SimulatedRuntime::new(3);
    let machine = SimulatedMachine::alone(&runtime);
    runtime.block_on(async {
        let node = NodeId::new(3).unwrap();
        let mut config = config();
        config.coordinator = Some(Coordinator { node, cluster: 1 });
        let engine =
            Engine::open_on(vec![machine.environment(8 << 20)], config.clone()).await.unwrap();
        let id = PartitionId { stream: StreamId(9), index: PartitionIndex(0) };
        let name = "orders/0".parse().unwrap();
        let spec = PartitionSpec { id, name, settings: config.settings };
        let log = engine.create_partition(spec).await.unwrap();
        let policy = Policy::FailClosed;
        let members = vec![Member { node, storage: engine.storage() }];
        let descriptor = Descriptor {
            term: 1,
            set: ReplicaSet { members, ack_quorum: 1 },
            seal_sets: Vec::new(),
            policy,
            loss_generation: 0,
            successors: Vec::new(),
        };
        let epoch = Epoch::named(1, node);
        let gate = engine.gate();
        gate.grant(Grant { partition: id, epoch, descriptor, policy, lineage: 1, index: 1 })
            .await
            .unwrap();
        gate.applied(1, 1);
        let sent = engine.clock().now();
        gate.renew(Lease { sent, duration: Duration::from_secs(4), lineage: 1, index: 1 });
        append(&log, 100).await.unwrap();
        let slow = FaultKind::Delay(Duration::from_secs(5));
        machine.storage().inject(Fault::new(DiskOperation::Write, slow).with_extension("segment"));

        let withheld = append(&log, 100).await.unwrap_err();

        assert!(
            matches!(
                withheld,
                AppendError::Unknown {
                    base_offset: Some(Offset(1)),
                    reason: UnknownReason::LeaseExpired
                }
            ),
            "{withheld}"
        );
        assert_eq!(log.watermarks().durable, Offset(2));
        assert_eq!(engine.metrics().shards[0].withheld, 1);
    });
}
