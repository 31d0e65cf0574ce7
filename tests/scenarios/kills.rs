//! L6, L8, for real: a process that appends is killed, and the next one finds all it had acknowledged.

use palisade_engine::engine::Engine;
use palisade_engine::partition::AppendOptions;
use palisade_tests::real::run_real;
use palisade_tests::world::name;
use palisade_tests::{Child, RealWorld, Workload, World, batch, read_log};

use crate::TARGET;

/// The child's part: appends for ever, and says each acknowledged end.
#[test]
fn child_appends_until_it_is_killed() {
    let Some(directory) = Child::directory() else { return };
    let engine = Engine::open(RealWorld::config(&directory)).expect("the engine opens");
    let partition = run_real(engine.open_partition(&name("s/0"))).expect("the partition opens");
    let mut end = partition.watermarks().log_end.0;
    let mut workload = Workload::new(end);
    loop {
        let records = workload.some();
        let append = partition.append(batch(&records), AppendOptions::default());
        let appended = append.wait().expect("nothing is wrong");
        assert_eq!(appended.base_offset.0, end);
        end += records.len() as u64;
        Child::say(&end.to_string());
    }
}

#[test]
fn l6_l8_acknowledged_records_survive_the_death_of_the_process() {
    let world = RealWorld::new(TARGET);
    let mut known = Vec::new();
    // The first child dies right after its first acknowledgement: new file, new directory entry.
    for acknowledgements in [1, 40, 150] {
        let child = Child::start("kills::child_appends_until_it_is_killed", world.directory());
        let mut acknowledged = 0;
        for _ in 0..acknowledgements {
            acknowledged = child.next().parse().expect("it says an offset");
        }
        for word in child.kill() {
            // The last word may have been cut short by the kill.
            acknowledged = word.parse::<u64>().unwrap_or(0).max(acknowledged);
        }

        let engine = world.open();

        assert!(engine.report().partitions[0].recovery.is_some());
        let partition = world.partition(&engine);
        let log = world.run(read_log(&partition)).expect("it is readable").whole();
        assert!(log.len() as u64 >= acknowledged, "{} < {acknowledged}", log.len());
        assert!(log.starts_with(&known), "what was served before has changed");
        known = log;
        drop((partition, engine));
    }
}
