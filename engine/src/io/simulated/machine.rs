//! A simulated machine: its device, its clocks, its address, and the process that runs on it.
//!
//! Kills and power cuts hit all of them together, as they do in the world.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::clock::SimulatedClock;
use super::disk::SimulatedDisk;
use super::file_content::PowerLoss;
use super::network::SimulatedNetwork;
use super::runtime::{Scheduler, SimulatedRuntime, TaskGroup};
use super::storage::SimulatedStorage;
use super::transport::SimulatedTransport;
use crate::io::arena::Arena;
use crate::io::environment::Environment;

/// A machine that runs one process at a time. `Clone` shares it.
#[derive(Clone, Debug)]
pub struct SimulatedMachine {
    machine: Rc<Machine>,
}

#[derive(Debug)]
struct Machine {
    scheduler: Rc<Scheduler>,
    network: SimulatedNetwork,
    host: IpAddr,
    storage: SimulatedStorage,
    clock: SimulatedClock,
    group: RefCell<TaskGroup>,
    is_down: Cell<bool>,
}

impl SimulatedMachine {
    /// Makes a machine with an empty device at `host` of `network`.
    #[must_use]
    pub fn new(
        runtime: &SimulatedRuntime,
        network: &SimulatedNetwork,
        host: IpAddr,
    ) -> SimulatedMachine {
        SimulatedMachine {
            machine: Rc::new(Machine {
                scheduler: runtime.scheduler(),
                network: network.clone(),
                host,
                storage: SimulatedStorage::new(runtime),
                clock: SimulatedClock::new(runtime),
                group: RefCell::new(runtime.group()),
                is_down: Cell::new(false),
            }),
        }
    }

    /// Makes a machine on a network of its own, at 10.0.0.1.
    #[must_use]
    pub fn alone(runtime: &SimulatedRuntime) -> SimulatedMachine {
        SimulatedMachine::new(runtime, &SimulatedNetwork::new(runtime), [10, 0, 0, 1].into())
    }

    /// What one thread of the running process stands on, with an arena of `arena_bytes`.
    ///
    /// A machine that lost power starts. Each call is one more thread of the same process.
    #[must_use]
    pub fn environment(
        &self,
        arena_bytes: usize,
    ) -> Environment<SimulatedDisk, SimulatedTransport> {
        if self.machine.is_down.replace(false) {
            self.machine.clock.reboot();
            self.machine.network.start(self.machine.host);
        }
        Environment {
            disk: self.machine.storage.disk(Arena::new(arena_bytes)),
            transport: self.machine.network.transport(self.machine.host),
            runtime: Rc::new(self.group()),
            clock: Arc::new(self.machine.clock.clone()),
        }
    }

    /// Kills the process: its tasks, connections and arenas go; what it wrote stays, what it was writing may
    /// land later. The next [`environment`](Self::environment) belongs to the next process.
    pub fn kill_process(&self) {
        self.end_process();
        self.machine.storage.kill_process();
        self.machine.network.kill_process(self.machine.host);
    }

    /// Cuts the power. `loss` says what the device keeps of what was not durable.
    pub fn lose_power(&self, loss: PowerLoss) {
        self.end_process();
        self.machine.storage.lose_power(loss);
        self.machine.network.lose_power(self.machine.host);
        self.machine.is_down.set(true);
    }

    /// The device.
    #[must_use]
    pub fn storage(&self) -> &SimulatedStorage {
        &self.machine.storage
    }

    /// The clocks.
    #[must_use]
    pub fn clock(&self) -> &SimulatedClock {
        &self.machine.clock
    }

    /// The network the machine is on.
    #[must_use]
    pub fn network(&self) -> &SimulatedNetwork {
        &self.machine.network
    }

    /// The address.
    #[must_use]
    pub fn host(&self) -> IpAddr {
        self.machine.host
    }

    /// The tasks of the running process: to spawn its main task, to stop it and let it go on.
    #[must_use]
    pub fn group(&self) -> TaskGroup {
        self.machine.group.borrow().clone()
    }

    fn end_process(&self) {
        let next = self.machine.scheduler.clone().new_group();
        let group = self.machine.group.replace(next);
        group.kill();
    }
}

/// An environment on a new machine of its own: for tests that need no crash.
#[must_use]
pub fn environment(
    runtime: &SimulatedRuntime,
    arena_bytes: usize,
) -> Environment<SimulatedDisk, SimulatedTransport> {
    SimulatedMachine::alone(runtime).environment(arena_bytes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::io::clock::Clock;
    use crate::io::disk::{Disk, OpenMode};

    #[test]
    fn killed_process_stops_and_the_next_one_finds_its_files() {
        let runtime = SimulatedRuntime::new(1);
        let machine = SimulatedMachine::alone(&runtime);
        let environment = machine.environment(1 << 20);
        let first = environment.clone();
        let ticks = Rc::new(Cell::new(0));
        let seen = ticks.clone();
        environment.runtime.spawn(Box::pin(async move {
            first.disk.open(Path::new("/file"), OpenMode::CreateNew).await.unwrap();
            loop {
                seen.set(seen.get() + 1);
                first.runtime.sleep(Duration::from_secs(1)).await;
            }
        }));
        runtime.run_for(Duration::from_millis(10_500));

        machine.kill_process();
        runtime.run_for(Duration::from_secs(10));
        let next = machine.environment(1 << 20);
        let reopened = runtime.block_on(next.disk.open(Path::new("/file"), OpenMode::Read));

        assert_eq!(ticks.get(), 11);
        assert!(reopened.is_ok());
        assert_eq!(machine.group().tasks(), 0);
    }

    #[test]
    fn machine_without_power_boots_with_new_lease_clocks_and_the_old_wall() {
        let runtime = SimulatedRuntime::new(1);
        let machine = SimulatedMachine::alone(&runtime);
        let wall = machine.clock().wall();
        runtime.run_for(Duration::from_secs(60));

        machine.lose_power(PowerLoss::Random);
        let environment = machine.environment(1 << 20);

        assert_eq!(environment.clock.now().boottime, Duration::ZERO);
        assert_eq!(environment.clock.now().monotonic_raw, Duration::ZERO);
        assert_eq!(environment.clock.wall().0 - wall.0, 60_000_000);
    }
}
