//! What this process has used of the machine: processor time and context switches of all its threads.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Counters since the start of the process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) switches: u64,
}

impl Usage {
    pub(crate) fn now() -> Usage {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Usage { cpu: Duration::new(seconds, nanos), switches: switches() }
    }

    /// What was used since `earlier`. Switches of threads that have ended meanwhile are lost.
    pub(crate) fn since(self, earlier: Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }
}

/// Adds up both kinds of switches over the threads there are now. Source: proc_pid_status(5).
fn switches() -> u64 {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return 0 };
    let of_task = |status: String| -> u64 {
        let lines = status.lines().filter_map(|line| line.split_once("_ctxt_switches:"));
        lines.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("status")).ok())
        .map(of_task)
        .sum()
}
