//! A simulated machine, and the sweep that crashes it at every operation of its device.

use std::cell::Cell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use palisade_engine::engine::{Engine, EngineConfig, OpenError};
use palisade_engine::id::Position;
use palisade_engine::io::runtime::Runtime;
use palisade_engine::io::simulated::{
    PowerLoss, SimulatedMachine, SimulatedRuntime, SimulatedStorage,
};

use crate::world::{World, small_segments};

/// The data directory on every simulated machine.
pub const DIRECTORY: &str = "/data";

const ARENA_BYTES: usize = 8 << 20;

/// Virtual time after which something is taken to hang.
const PATIENCE: Duration = Duration::from_secs(600);

/// How a machine goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is killed; its writes in flight may land later.
    Kill,
    /// The power goes, and with it everything that was not synced.
    LoseUnsynced,
    /// The power goes; what was not synced is there in part, torn, or not at all.
    Mixed,
}

impl Crash {
    /// All kinds.
    pub const ALL: [Crash; 3] = [Crash::Kill, Crash::LoseUnsynced, Crash::Mixed];
}

/// A simulated machine with one data directory.
#[derive(Debug)]
pub struct SimulatedWorld {
    seed: u64,
    runtime: SimulatedRuntime,
    machine: SimulatedMachine,
    runs: Cell<u64>,
}

impl SimulatedWorld {
    /// An empty machine; everything about it follows from the seed.
    #[must_use]
    pub fn new(seed: u64) -> SimulatedWorld {
        let runtime = SimulatedRuntime::new(seed);
        let machine = SimulatedMachine::alone(&runtime);
        SimulatedWorld { seed, runtime, machine, runs: Cell::new(0) }
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &SimulatedMachine {
        &self.machine
    }

    /// Its device.
    #[must_use]
    pub fn storage(&self) -> &SimulatedStorage {
        self.machine.storage()
    }

    /// The simulation it runs in.
    #[must_use]
    pub fn runtime(&self) -> &SimulatedRuntime {
        &self.runtime
    }

    /// Opens the engine from inside a simulation that runs already; the device may stand still before it is open.
    pub async fn run_open(&self) -> Engine {
        let config = self.next_config();
        let environment = self.machine.environment(ARENA_BYTES);
        Engine::open_on(vec![environment], config).await.expect("the engine opens")
    }

    fn next_config(&self) -> EngineConfig {
        let mut config = EngineConfig::new(DIRECTORY);
        self.runs.set(self.runs.get() + 1);
        // Segment ids come from the seed, and are never used twice.
        config.seed = Some(self.seed.wrapping_mul(1_000) + self.runs.get());
        config.settings = small_segments();
        config
    }

    /// Runs `work` until the planned crash or to its end. Returns whether the crash came.
    pub fn run_to_crash(&self, work: impl Future<Output = ()>) -> bool {
        let crashed = self.storage().crashed();
        match self.run(async { matches!(select(crashed, pin!(work)).await, Either::Left(_)) }) {
            true => true,
            false => {
                self.storage().cancel_crash();
                false
            }
        }
    }

    /// Takes the machine down.
    pub fn crash(&self, crash: Crash) {
        match crash {
            Crash::Kill => self.machine.kill_process(),
            Crash::LoseUnsynced => self.machine.lose_power(PowerLoss::LoseUnsynced),
            Crash::Mixed => self.machine.lose_power(PowerLoss::Mixed),
        }
    }
}

impl World for SimulatedWorld {
    fn open_as(&self, change: impl FnOnce(&mut EngineConfig)) -> Result<Engine, OpenError> {
        let mut config = self.next_config();
        change(&mut config);
        self.run(Engine::open_on(vec![self.machine.environment(ARENA_BYTES)], config))
    }

    fn run<F: Future>(&self, work: F) -> F::Output {
        self.runtime.block_on(async {
            match select(pin!(work), self.runtime.sleep(PATIENCE)).await {
                Either::Left((output, _)) => output,
                Either::Right(_) => panic!("seed {}: no end in {PATIENCE:?}", self.seed),
            }
        })
    }

    fn kill(&self, engine: Engine) {
        self.machine.kill_process();
        drop(engine);
        // What may land late has landed: the next process meets files that stand still.
        self.runtime.run_for(Duration::from_secs(1));
    }

    fn files(&self) -> Vec<PathBuf> {
        self.storage().files(Path::new(DIRECTORY))
    }

    fn read_file(&self, path: &Path) -> Vec<u8> {
        self.storage().read_file(path).expect("the file is there")
    }

    fn overwrite(&self, path: &Path, position: u64, bytes: &[u8]) {
        self.storage().corrupt(path, Position(position), bytes).expect("the file is there");
    }

    fn set_length(&self, path: &Path, length_bytes: u64) {
        self.storage().cut(path, length_bytes).expect("the file is there");
    }
}

/// Says on a panic which run it was.
#[derive(Debug)]
pub struct RunName(String);

impl RunName {
    /// Names the run until dropped.
    #[must_use]
    pub fn new(name: String) -> RunName {
        RunName(name)
    }
}

impl Drop for RunName {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed in the run with {}", self.0);
        }
    }
}

/// Runs `scenario` with a crash planned at each operation of the device that it asks for, in turn.
///
/// `scenario` gets a new machine, the number of the operation to crash at, counted from where it plans the
/// crash with [`crash_in`], and the kind of crash. It returns whether the crash came; the first time it does
/// not, every operation has had its turn.
pub fn crash_everywhere(scenario: impl Fn(&SimulatedWorld, u64, Crash) -> bool) {
    for crash in Crash::ALL {
        let mut operation = 1;
        loop {
            let name = format!("seed {operation}, {crash:?} at operation {operation}");
            let _name = RunName::new(name);
            if !scenario(&SimulatedWorld::new(operation), operation, crash) {
                break;
            }
            operation += 1;
        }
        assert!(operation > 1, "{crash:?}: the first operation was never reached");
    }
}

/// Plans a crash `operation` operations of the device from now.
pub fn crash_in(world: &SimulatedWorld, operation: u64) {
    world.storage().crash_at(world.storage().operations() + operation);
}
