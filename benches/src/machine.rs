//! What a figure was measured on: without it a number means nothing.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

const UNKNOWN: &str = "unknown";

/// The machine, its software and the state of the sources at the start of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Type and options of the file system under the scratch directory.
    pub file_system: String,
    /// The block device under it, with its cache mode.
    pub device: String,
    /// The commit of the sources, `+` when changed since.
    pub commit: String,
    /// The load average of the last minute at the start: above 0.5 the machine was not idle.
    pub load: f64,
}

impl Machine {
    /// Describes the machine as `directory` sees it. What cannot be found out is `unknown`, never an error.
    #[must_use]
    pub fn of(directory: &Path) -> Machine {
        let (file_system, device) = mount_of(directory);
        Machine {
            cpu: cpu_model(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel(),
            file_system,
            device,
            commit: commit(),
            load: load(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "machine: {}, {} cores, load {:.2}", self.cpu, self.cores, self.load)?;
        writeln!(f, "kernel: {}; file system: {}", self.kernel, self.file_system)?;
        write!(f, "device: {}; commit: {}", self.device, self.commit)
    }
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or(UNKNOWN.into(), |rest| rest.trim_start_matches([' ', '\t', ':']).to_owned())
}

fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}

/// Finds the mount that holds `directory`: the entry of `/proc/self/mountinfo` with the longest matching path.
/// Source: proc_pid_mountinfo(5).
fn mount_of(directory: &Path) -> (String, String) {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found = (UNKNOWN.to_owned(), UNKNOWN.to_owned());
    let mut longest = 0;
    for line in text.lines() {
        let Some((mount, source)) = line.split_once(" - ") else { continue };
        let mount: Vec<&str> = mount.split(' ').collect();
        let source: Vec<&str> = source.split(' ').collect();
        let ([_, _, number, _, point, options, ..], [kind, name, ..]) =
            (mount.as_slice(), source.as_slice())
        else {
            continue;
        };
        if directory.starts_with(point) && point.len() >= longest {
            longest = point.len();
            found = (format!("{kind} ({options})"), device(name, number));
        }
    }
    found
}

fn device(name: &str, number: &str) -> String {
    let queue = Path::new("/sys/dev/block").join(number).join("queue");
    let read = |file| fs::read_to_string(queue.join(file)).map(|text| text.trim().to_owned());
    match (read("write_cache"), read("fua")) {
        (Ok(cache), Ok(fua)) => format!("{name} ({cache}, fua {fua})"),
        _ => name.to_owned(),
    }
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return UNKNOWN.into() };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])
        .is_none_or(|changes| !changes.is_empty());
    if changed { format!("{commit}+") } else { commit }
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

/// Processor time of the whole machine and of this process, in clock ticks, to tell how busy others were.
#[derive(Clone, Copy, Debug)]
pub struct BusyTime {
    all: u64,
    busy: u64,
    own: u64,
}

impl BusyTime {
    /// Reads the counters.
    #[must_use]
    pub fn now() -> BusyTime {
        let numbers = |text: &str| -> Vec<u64> {
            text.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect()
        };
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let cpu = numbers(stat.lines().next().unwrap_or_default());
        let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let own = numbers(own.rsplit(')').next().unwrap_or_default());
        let at = |fields: &[u64], index: usize| fields.get(index).copied().unwrap_or(0);
        // Fields of /proc/stat behind the name: user nice system idle iowait irq softirq steal. Source: proc_stat(5).
        let all = (1..=8).map(|index| at(&cpu, index)).sum();
        let idle = at(&cpu, 4) + at(&cpu, 5);
        BusyTime { all, busy: all - idle, own: at(&own, 11) + at(&own, 12) }
    }

    /// Returns which part of the machine's processor time others used since `earlier`, 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn used_by_others_since(self, earlier: BusyTime) -> f64 {
        let all = self.all.saturating_sub(earlier.all).max(1);
        let busy = self.busy.saturating_sub(earlier.busy);
        let own = self.own.saturating_sub(earlier.own);
        busy.saturating_sub(own) as f64 / all as f64
    }
}

/// Returns the bytes this process has read from block devices so far. Source: proc_pid_io(5), `read_bytes`.
///
/// # Panics
///
/// If `/proc/self/io` cannot be read: the figure that needs it would be made up.
#[must_use]
pub fn device_bytes_read() -> u64 {
    let text = fs::read_to_string("/proc/self/io").expect("/proc/self/io of a Linux kernel");
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    line.and_then(|count| count.parse().ok()).expect("a read_bytes line")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::of(Path::new("."));

        assert_ne!(machine.file_system, UNKNOWN);
        assert!(machine.kernel.starts_with("Linux"), "{machine}");
        assert!(machine.cores > 0);
    }
}
