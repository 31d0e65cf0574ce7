//! Asks the machine, before anything starts, what the ring needs and what would make it slow.
//!
//! Only reports: whoever opens the engine decides. Each finding says what is missing and what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use io_uring::{IoUring, opcode};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::disk_calls;
use crate::id::BLOCK_BYTES;

/// What the ring's disk, sockets and turns are made of.
const OPERATIONS: [(u8, &str); 9] = [
    (opcode::Nop::CODE, "NOP"),
    (opcode::ReadFixed::CODE, "READ_FIXED"),
    (opcode::WriteFixed::CODE, "WRITE_FIXED"),
    (opcode::Read::CODE, "READ"),
    (opcode::Write::CODE, "WRITE"),
    (opcode::Fsync::CODE, "FSYNC"),
    (opcode::PollAdd::CODE, "POLL_ADD"),
    (opcode::Connect::CODE, "CONNECT"),
    (opcode::Recv::CODE, "RECV"),
];

/// Where the system says who may make rings. Source: kernel sysctl documentation, since Linux 6.6.
const RING_SYSCTL: &str = "/proc/sys/kernel/io_uring_disabled";

/// One thing the machine lacks.
#[derive(Debug)]
#[non_exhaustive]
pub enum Finding {
    /// The kernel has no io_uring, or an early one.
    KernelTooOld {
        /// The running kernel.
        release: String,
        /// What it cannot do; `io_uring_setup` itself, or an operation.
        lacks: &'static str,
    },
    /// An administrator switched io_uring off.
    RingDisabled {
        /// `kernel.io_uring_disabled`: 1 without privileges, 2 for all.
        io_uring_disabled: u32,
    },
    /// A seccomp filter or a security module forbids it, as containers' default profiles do.
    RingForbidden {
        /// What the system said.
        source: io::Error,
    },
    /// The system has it but made none now.
    RingRefused {
        /// What the system said.
        source: io::Error,
    },
    /// The arenas cannot be registered with their rings.
    MemlockTooLow {
        /// The limit of locked memory.
        limit_bytes: u64,
        /// What the arenas need.
        needed_bytes: u64,
    },
    /// The data directory's file system has no `O_DIRECT`.
    DirectRefused {
        /// The data directory.
        directory: PathBuf,
    },
    /// Its device wants longer blocks than the log has.
    AlignmentTooLarge {
        /// The data directory.
        directory: PathBuf,
        /// What `statx` says `O_DIRECT` needs.
        alignment_bytes: u32,
    },
    /// No file can be made in the data directory.
    DirectoryUnusable {
        /// The data directory.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Finding {
    /// Tells whether no ring can serve here. Other findings cost speed, or stop every kind of disk.
    #[must_use]
    pub fn forbids_ring(&self) -> bool {
        match self {
            Finding::KernelTooOld { .. }
            | Finding::RingDisabled { .. }
            | Finding::RingForbidden { .. }
            | Finding::RingRefused { .. }
            | Finding::AlignmentTooLarge { .. } => true,
            Finding::MemlockTooLow { .. }
            | Finding::DirectRefused { .. }
            | Finding::DirectoryUnusable { .. } => false,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::KernelTooOld { release, lacks } => write!(
                f,
                "kernel {release} lacks io_uring's {lacks}: run Linux 5.15 or later, or choose blocking I/O"
            ),
            Finding::RingDisabled { io_uring_disabled } => write!(
                f,
                "kernel.io_uring_disabled is {io_uring_disabled}: set it to 0 \
                 (sysctl kernel.io_uring_disabled=0), or choose blocking I/O"
            ),
            Finding::RingForbidden { source } => write!(
                f,
                "io_uring_setup is forbidden ({source}), probably by a container's seccomp profile: allow \
                 io_uring_setup, io_uring_enter and io_uring_register, or choose blocking I/O"
            ),
            Finding::RingRefused { source } => write!(
                f,
                "no ring could be made ({source}): check the limits of open files and locked memory, \
                 or choose blocking I/O"
            ),
            Finding::MemlockTooLow { limit_bytes, needed_bytes } => write!(
                f,
                "{limit_bytes} bytes may be locked in memory and the arenas need {needed_bytes}, they stay \
                 unregistered and writes cost a little more: raise memlock (ulimit -l, LimitMEMLOCK=)"
            ),
            Finding::DirectRefused { directory } => write!(
                f,
                "the file system of {} has no O_DIRECT, files go through the page cache: \
                 put the data directory on ext4 or xfs",
                directory.display()
            ),
            Finding::AlignmentTooLarge { directory, alignment_bytes } => write!(
                f,
                "O_DIRECT needs blocks of {alignment_bytes} bytes under {} and the log has {BLOCK_BYTES}: \
                 use another device, or choose blocking I/O",
                directory.display()
            ),
            Finding::DirectoryUnusable { directory, source } => write!(
                f,
                "no file can be made in {} ({source}): make the directory and give this user its rights",
                directory.display()
            ),
        }
    }
}

impl std::error::Error for Finding {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Finding::RingForbidden { source }
            | Finding::RingRefused { source }
            | Finding::DirectoryUnusable { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Looks for everything the ring would lack here. Empty means full speed.
///
/// `arenas_bytes` is the sum of all shards' arenas. The data directory exists; a nameless file is made and
/// dropped in it. It blocks for a moment: call it before the shards start.
#[must_use]
pub fn probe(data_directory: &Path, arenas_bytes: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(probe_ring());
    findings.extend(probe_memlock(arenas_bytes));
    findings.extend(probe_direct(data_directory));
    findings
}

fn probe_ring() -> Option<Finding> {
    let ring = match IoUring::new(8) {
        Ok(ring) => ring,
        Err(refused) => return Some(ring_refused(refused, ring_sysctl(), kernel_release())),
    };
    let mut known = io_uring::Probe::new();
    if ring.submitter().register_probe(&mut known).is_err() {
        return Some(Finding::KernelTooOld { release: kernel_release(), lacks: "REGISTER_PROBE" });
    }
    let (_, lacks) = OPERATIONS.into_iter().find(|(code, _)| !known.is_supported(*code))?;
    Some(Finding::KernelTooOld { release: kernel_release(), lacks })
}

/// Why `io_uring_setup` failed. Source: io_uring_setup(2).
fn ring_refused(refused: io::Error, sysctl: Option<u32>, release: String) -> Finding {
    match (Errno::from_io_error(&refused), sysctl) {
        (Some(Errno::NOSYS), _) => Finding::KernelTooOld { release, lacks: "io_uring_setup" },
        (Some(Errno::PERM), Some(io_uring_disabled @ 1..)) => {
            Finding::RingDisabled { io_uring_disabled }
        }
        (Some(Errno::PERM | Errno::ACCESS), _) => Finding::RingForbidden { source: refused },
        _ => Finding::RingRefused { source: refused },
    }
}

fn ring_sysctl() -> Option<u32> {
    std::fs::read_to_string(RING_SYSCTL).ok()?.trim().parse().ok()
}

fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn probe_memlock(needed_bytes: u64) -> Option<Finding> {
    let is_unlimited = capabilities(None)
        .is_ok_and(|capabilities| capabilities.effective.contains(CapabilitySet::IPC_LOCK));
    let limit_bytes = getrlimit(Resource::Memlock).current?;
    (!is_unlimited && limit_bytes < needed_bytes)
        .then_some(Finding::MemlockTooLow { limit_bytes, needed_bytes })
}

fn probe_direct(directory: &Path) -> Option<Finding> {
    match direct_alignment(directory) {
        Ok(None) => Some(Finding::DirectRefused { directory: directory.to_path_buf() }),
        Ok(Some(alignment_bytes)) => (alignment_bytes as usize > BLOCK_BYTES).then(|| {
            Finding::AlignmentTooLarge { directory: directory.to_path_buf(), alignment_bytes }
        }),
        Err(source) => {
            Some(Finding::DirectoryUnusable { directory: directory.to_path_buf(), source })
        }
    }
}

/// What `O_DIRECT` wants positions and memory to be multiples of, `None` where it is refused. A kernel that
/// does not know (before 6.1) is taken to want what every device we met wants: a block or less.
fn direct_alignment(directory: &Path) -> io::Result<Option<u32>> {
    let file = scratch_file(directory)?;
    if !disk_calls::set_direct(&file)? {
        return Ok(None);
    }
    let asked = StatxFlags::DIOALIGN;
    let status = match rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, asked) {
        Ok(status) if status.stx_mask & asked.bits() != 0 => status,
        Ok(_) | Err(Errno::NOSYS) => return Ok(Some(1)),
        Err(failed) => return Err(failed.into()),
    };
    let alignment = status.stx_dio_offset_align.max(status.stx_dio_mem_align);
    Ok((alignment > 0).then_some(alignment))
}

/// A file that no other process sees and that is gone when closed.
fn scratch_file(directory: &Path) -> io::Result<rustix::fd::OwnedFd> {
    let access = OFlags::RDWR | OFlags::CLOEXEC;
    let permissions = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(directory, access | OFlags::TMPFILE, permissions) {
        // No nameless files there (open(2)): a name that is removed at once.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let path = directory.join(format!(".probe-{:016x}", fastrand::u64(..)));
            let file =
                rustix::fs::open(&path, access | OFlags::CREATE | OFlags::EXCL, permissions)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        answer => Ok(answer?),
    }
}

/// Raises this process's limit on open files to the most it may be: two files a partition are more than the 1,024 that
/// most systems begin with. Returns what it is now; `None` is no limit.
pub(crate) fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(%error, ?limit.current, "the limit on open files stays as it is");
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::conformance;

    fn refused(errno: Errno, sysctl: Option<u32>) -> Finding {
        ring_refused(errno.into(), sysctl, "4.19.0".to_owned())
    }

    #[test]
    fn refusals_of_the_ring_are_told_apart() {
        assert!(matches!(refused(Errno::NOSYS, None), Finding::KernelTooOld { .. }));
        assert!(matches!(
            refused(Errno::PERM, Some(2)),
            Finding::RingDisabled { io_uring_disabled: 2 }
        ));
        assert!(matches!(refused(Errno::PERM, Some(0)), Finding::RingForbidden { .. }));
        assert!(matches!(refused(Errno::PERM, None), Finding::RingForbidden { .. }));
        assert!(matches!(refused(Errno::ACCESS, Some(0)), Finding::RingForbidden { .. }));
        assert!(matches!(refused(Errno::NOMEM, Some(0)), Finding::RingRefused { .. }));
    }

    #[test]
    fn finding_names_what_is_missing_and_what_to_do() {
        let old = refused(Errno::NOSYS, None);
        assert!(old.forbids_ring());
        assert_eq!(
            old.to_string(),
            "kernel 4.19.0 lacks io_uring's io_uring_setup: run Linux 5.15 or later, or choose blocking I/O"
        );

        let memlock = Finding::MemlockTooLow { limit_bytes: 65_536, needed_bytes: 67_108_864 };
        assert!(!memlock.forbids_ring());
        assert!(memlock.to_string().contains("raise memlock"));
    }

    #[test]
    fn missing_directory_is_named() {
        let directory = conformance::scratch_directory().path().join("missing");

        let findings = probe(&directory, 0);

        let is_named = findings.iter().any(|finding| {
            matches!(finding, Finding::DirectoryUnusable { directory: named, .. } if *named == directory)
        });
        assert!(is_named, "{findings:?}");
    }

    #[test]
    fn probing_leaves_nothing_in_the_directory() {
        let directory = conformance::scratch_directory();

        let findings = probe(directory.path(), 0);

        assert!(!findings.iter().any(|finding| matches!(finding, Finding::MemlockTooLow { .. })));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn memlock_counts_only_without_the_capability() {
        let is_unlimited = capabilities(None).unwrap().effective.contains(CapabilitySet::IPC_LOCK)
            || getrlimit(Resource::Memlock).current.is_none();

        assert_eq!(probe_memlock(u64::MAX).is_none(), is_unlimited);
    }

    #[test]
    fn limit_on_open_files_is_raised_to_the_most_it_may_be() {
        let raised = raise_open_files();

        assert_eq!(raised, getrlimit(Resource::Nofile).maximum);
    }
}
