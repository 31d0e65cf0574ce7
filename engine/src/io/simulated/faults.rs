//! Faults a test plans for the simulated disk: which operation fails, where, when, and how.
//!
//! Only matches and counts; the disk's state carries the failure out.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::io::disk::DiskOperation;

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The device fails (EIO).
    Io,
    /// The file system has no room (ENOSPC).
    NoSpace,
    /// The process has no file descriptors left (EMFILE).
    OpenFiles,
    /// The operation never resolves and never takes effect.
    Hang,
    /// The operation takes that much longer.
    Delay(Duration),
}

impl FaultKind {
    pub(super) fn error(self) -> Option<io::Error> {
        match self {
            FaultKind::Io => Some(rustix::io::Errno::IO.into()),
            FaultKind::NoSpace => Some(rustix::io::Errno::NOSPC.into()),
            FaultKind::OpenFiles => Some(rustix::io::Errno::MFILE.into()),
            FaultKind::Hang | FaultKind::Delay(_) => None,
        }
    }
}

/// A planned fault. It strikes the next operation that matches, once, unless told otherwise.
#[derive(Clone, Debug)]
pub struct Fault {
    operation: DiskOperation,
    kind: FaultKind,
    under: Option<PathBuf>,
    extension: Option<String>,
    spared: u64,
    is_for_ever: bool,
}

impl Fault {
    /// Plans `kind` for the next `operation` anywhere.
    #[must_use]
    pub fn new(operation: DiskOperation, kind: FaultKind) -> Fault {
        Fault { operation, kind, under: None, extension: None, spared: 0, is_for_ever: false }
    }

    /// Only on this path and what lies under it. A file keeps the path it was opened by.
    #[must_use]
    pub fn under(self, path: impl Into<PathBuf>) -> Fault {
        Fault { under: Some(path.into()), ..self }
    }

    /// Only on files whose name ends in `.extension`.
    #[must_use]
    pub fn with_extension(self, extension: &str) -> Fault {
        Fault { extension: Some(extension.to_owned()), ..self }
    }

    /// Spares the first `spared` operations that match.
    #[must_use]
    pub fn after(self, spared: u64) -> Fault {
        Fault { spared, ..self }
    }

    /// Strikes every operation that matches from then on.
    #[must_use]
    pub fn for_ever(self) -> Fault {
        Fault { is_for_ever: true, ..self }
    }

    fn matches(&self, operation: DiskOperation, path: &Path) -> bool {
        self.operation == operation
            && self.under.as_ref().is_none_or(|under| path.starts_with(under))
            && self
                .extension
                .as_ref()
                .is_none_or(|extension| path.extension().is_some_and(|e| e == extension.as_str()))
    }
}

/// The faults still to come.
#[derive(Debug, Default)]
pub(super) struct FaultPlan(Vec<Fault>);

impl FaultPlan {
    pub(super) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What strikes this operation, the fault planned first.
    pub(super) fn strike(&mut self, operation: DiskOperation, path: &Path) -> Option<FaultKind> {
        let matching = self.0.iter_mut().enumerate().filter(|(_, f)| f.matches(operation, path));
        for (index, fault) in matching {
            if fault.spared > 0 {
                fault.spared -= 1;
                continue;
            }
            let kind = fault.kind;
            if !fault.is_for_ever {
                self.0.remove(index);
            }
            return Some(kind);
        }
        None
    }
}
