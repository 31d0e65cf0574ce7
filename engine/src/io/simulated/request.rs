//! One operation asked of the simulated disk, what answers it, and the cell the answer arrives in.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::names::Inode;
use crate::id::Position;
use crate::io::arena::{Extent, SharedExtent};
use crate::io::disk::{DirectoryEntry, DiskError, DiskOperation, DiskSpace, OpenMode, WriteMode};

/// A file as one process holds it open. Dropping it only notes the fact: it may happen anywhere.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) handle: u64,
    pub(super) inode: Inode,
    pub(super) path: PathBuf,
    pub(super) is_writable: bool,
    pub(super) closed: Rc<RefCell<Vec<u64>>>,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.closed.borrow_mut().push(self.handle);
    }
}

/// What is asked. It owns its buffers until it is answered.
#[derive(Debug)]
pub(super) enum Request {
    Open { path: PathBuf, mode: OpenMode },
    Read { file: Rc<OpenFile>, buffer: Extent, position: Position },
    Write { file: Rc<OpenFile>, bytes: SharedExtent, position: Position, mode: WriteMode },
    Sync { file: Rc<OpenFile> },
    Length { file: Rc<OpenFile> },
    SetLength { file: Rc<OpenFile>, length_bytes: u64 },
    CreateDirectory { path: PathBuf },
    List { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf },
    Remove { path: PathBuf, is_directory: bool },
    SyncDirectory { path: PathBuf },
    Space { path: PathBuf },
}

impl Request {
    pub(super) fn operation(&self) -> DiskOperation {
        match self {
            Request::Open { .. } => DiskOperation::Open,
            Request::Read { .. } => DiskOperation::Read,
            Request::Write { .. } => DiskOperation::Write,
            Request::Sync { .. } => DiskOperation::Sync,
            Request::Length { .. } | Request::SetLength { .. } => DiskOperation::Length,
            Request::CreateDirectory { .. } => DiskOperation::CreateDirectory,
            Request::List { .. } => DiskOperation::List,
            Request::Rename { .. } => DiskOperation::Rename,
            Request::Remove { .. } => DiskOperation::Remove,
            Request::SyncDirectory { .. } => DiskOperation::SyncDirectory,
            Request::Space { .. } => DiskOperation::Space,
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Request::Read { file, .. }
            | Request::Write { file, .. }
            | Request::Sync { file }
            | Request::Length { file }
            | Request::SetLength { file, .. } => &file.path,
            Request::Open { path, .. }
            | Request::CreateDirectory { path }
            | Request::List { path }
            | Request::Rename { from: path, .. }
            | Request::Remove { path, .. }
            | Request::SyncDirectory { path }
            | Request::Space { path } => path,
        }
    }

    pub(super) fn position(&self) -> Option<Position> {
        match self {
            Request::Read { position, .. } | Request::Write { position, .. } => Some(*position),
            _ => None,
        }
    }

    /// The inode and bytes a write covers.
    pub(super) fn written_range(&self) -> Option<(Inode, std::ops::Range<u64>)> {
        match self {
            Request::Write { file, bytes, position, .. } => {
                Some((file.inode, position.0..position.0 + bytes.as_slice().len() as u64))
            }
            _ => None,
        }
    }
}

/// What answers a request.
#[derive(Debug)]
pub(super) enum Answer {
    Done,
    Opened(OpenFile),
    Read(Extent),
    Length(u64),
    Entries(Vec<DirectoryEntry>),
    Space(DiskSpace),
}

/// Where an answer arrives. Nobody may be there any more to take it.
#[derive(Debug, Default)]
pub(super) struct Completion {
    answer: RefCell<Option<Result<Answer, DiskError>>>,
    waker: RefCell<Option<Waker>>,
}

impl Completion {
    pub(super) fn fill(&self, answer: Result<Answer, DiskError>) {
        *self.answer.borrow_mut() = Some(answer);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Answer, DiskError>> {
        match self.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                self.waker.replace(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}
