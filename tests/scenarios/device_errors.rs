//! L20, L22: a write or sync fails once. Nothing behind it is acknowledged, and no offset is used twice.

use palisade_engine::Engine;
use palisade_engine::engine::Partition;
use palisade_engine::io::disk::DiskOperation;
use palisade_engine::io::simulated::{Fault, FaultKind};
use palisade_engine::partition::{AppendError, AppendOptions};
use palisade_tests::world::name;
use palisade_tests::{Crash, RunName, SimulatedWorld, Workload, World, batch, read_log};

use crate::promises::Promises;

/// What is struck by the device.
#[derive(Clone, Copy, Debug)]
struct Strike {
    operation: DiskOperation,
    /// The extension of the files that are struck; `None` strikes the checkpoint as well.
    extension: Option<&'static str>,
}

const STRIKES: [Strike; 5] = [
    Strike { operation: DiskOperation::Write, extension: Some("segment") },
    Strike { operation: DiskOperation::Write, extension: None },
    Strike { operation: DiskOperation::Sync, extension: None },
    Strike { operation: DiskOperation::SyncDirectory, extension: None },
    Strike { operation: DiskOperation::Open, extension: None },
];

/// Appends in bursts over a few rolls until something is refused; returns what was refused.
async fn append_until_refused(
    partition: &Partition,
    promises: &mut Promises,
    workload: &mut Workload,
) -> Option<AppendError> {
    for round in 0..5 {
        let burst: Vec<_> = (0..4).map(|_| vec![workload.record(40_000)]).collect();
        if let Err(error) = promises.append_at_once(partition, burst).await {
            return Some(error);
        }
        if round % 2 == 0 && partition.roll().await.is_err() {
            break;
        }
    }
    None
}

/// After the first error every append is refused, and what is readable is what was acknowledged.
async fn assert_stopped(partition: &Partition, promises: &Promises) {
    let append = partition.append(batch(&["late".into()]), AppendOptions::default()).await;
    match append {
        Err(AppendError::Stopped { .. }) => {}
        other => panic!("a stopped partition answered {other:?}"),
    }
    let log = read_log(partition).await.expect("reads go on");
    assert!(log.whole().len() as u64 <= promises.asked_end());
}

/// Strikes the operation number `spared`. Returns `false` when there were not that many.
fn strike(strike: Strike, spared: u64, crash: Option<Crash>) -> bool {
    let world = SimulatedWorld::new(spared);
    let engine: Engine = world.open();
    let partition = world.run(engine.open_partition(&name("s/0"))).expect("nothing is wrong");
    let mut fault = Fault::new(strike.operation, FaultKind::Io).after(spared);
    if let Some(extension) = strike.extension {
        fault = fault.with_extension(extension);
    }
    world.storage().inject(fault);
    let mut promises = Promises::default();
    let mut workload = Workload::new(spared);
    let refused = world.run(append_until_refused(&partition, &mut promises, &mut workload));
    if refused.is_some() || partition.stopped().is_some() {
        world.run(assert_stopped(&partition, &promises));
    }
    let is_struck = refused.is_some() || partition.stopped().is_some();
    world.storage().clear_faults();

    match crash {
        Some(crash) => {
            world.crash(crash);
            drop((partition, engine));
        }
        None => {
            let report = world.run(engine.close()).expect("it closes");
            assert_eq!(!report.unclean.is_empty(), is_struck);
            drop((partition, engine));
            // The thread of a real shard waits for its operations in flight.
            world.runtime().run_for(std::time::Duration::from_secs(1));
        }
    }
    let engine = world.open();
    let partition = world.partition(&engine);
    promises.check(&world.run(read_log(&partition)).expect("it is readable"));
    // The retry gets offsets that nothing else has.
    world.run(promises.append(&partition, &mut workload, 2));
    promises.check(&world.run(read_log(&partition)).expect("it is readable"));
    world.close(engine);
    is_struck
}

#[test]
fn l20_l22_nothing_behind_a_failed_operation_is_acknowledged_and_no_offset_is_used_twice() {
    for kind in STRIKES {
        for crash in [None, Some(Crash::Kill), Some(Crash::LoseUnsynced), Some(Crash::Mixed)] {
            let mut spared = 0;
            let mut missed = 0;
            // Some failures are harmless (a footer of a file that is removed); past the last one all are.
            while missed < 12 {
                let name = format!("{kind:?} spared {spared}, then {crash:?}");
                let _name = RunName::new(name);
                let is_struck = strike(kind, spared, crash);
                missed = if is_struck { 0 } else { missed + 1 };
                spared += 1;
            }
            assert!(spared > 12, "{kind:?} was never struck");
        }
    }
}
