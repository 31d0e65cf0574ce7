//! Snapshots as files: written aside, synced, renamed, the directory synced; only then may the log be purged.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic `PALSNAP1` |
//! | 4 | version |
//! | 4 | CRC-32 of everything behind it |
//! | 8 | bytes of the meta part |
//! | n | postcard: last log id, membership, snapshot id |
//! | m | the view: version byte, postcard |

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use openraft::SnapshotMeta;

use super::directory::replace_file;
use super::types::{RaftId, VoterNode};
use crate::state::{DecodeError, View};

const MAGIC: [u8; 8] = *b"PALSNAP1";
const VERSION: u32 = 1;
/// Magic, version and checksum.
const CHECKED_FROM: usize = 16;
/// The above and the length of the meta part.
const HEADER_BYTES: usize = 24;

pub(crate) type Meta = SnapshotMeta<RaftId, VoterNode>;

/// Why a snapshot is refused. It is kept where it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("the snapshot is cut short")]
    CutShort,
    #[error("it is no snapshot")]
    NotASnapshot,
    #[error("the snapshot has version {found}; this program knows up to {supported}")]
    NewerVersion { found: u32, supported: u32 },
    #[error("the snapshot does not match its checksum")]
    Checksum,
    #[error("the snapshot's meta part does not decode: {source}")]
    Meta {
        #[from]
        source: postcard::Error,
    },
    #[error("the snapshot's view does not decode: {source}")]
    View {
        #[from]
        source: DecodeError,
    },
    #[error("{path} is damaged: {source}")]
    Damaged { path: PathBuf, source: Box<SnapshotError> },
    #[error("a snapshot task ended early: {source}")]
    Task {
        #[from]
        source: tokio::task::JoinError,
    },
    #[error("the snapshot is not the one it was announced as")]
    OtherSnapshot,
}

/// Encodes a snapshot as it is kept and sent.
pub(crate) fn encode(meta: &Meta, view: &View) -> Vec<u8> {
    let meta = postcard::to_stdvec(meta).expect("plain values encode");
    let mut bytes = Vec::new();
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend((meta.len() as u64).to_le_bytes());
    bytes.extend(meta);
    bytes.extend(view.encode());
    let crc = crc32fast::hash(&bytes[CHECKED_FROM..]);
    bytes[12..CHECKED_FROM].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Checks and decodes a snapshot.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Meta, View), SnapshotError> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(SnapshotError::CutShort)?;
    if header[..8] != MAGIC {
        return Err(SnapshotError::NotASnapshot);
    }
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    if word(8) != VERSION {
        return Err(SnapshotError::NewerVersion { found: word(8), supported: VERSION });
    }
    if crc32fast::hash(&bytes[CHECKED_FROM..]) != word(12) {
        return Err(SnapshotError::Checksum);
    }
    let meta_bytes = u64::from(word(16)) | u64::from(word(20)) << 32;
    let (meta, view) = usize::try_from(meta_bytes)
        .ok()
        .and_then(|meta_bytes| bytes[HEADER_BYTES..].split_at_checked(meta_bytes))
        .ok_or(SnapshotError::CutShort)?;
    Ok((postcard::from_bytes(meta)?, View::decode(view)?))
}

/// Writes a snapshot durably and removes older ones.
pub(crate) fn store(directory: &Path, meta: &Meta, bytes: &[u8]) -> Result<PathBuf, SnapshotError> {
    let (index, term) = meta.last_log_id.map_or((0, 0), |id| (id.index, id.leader_id.term));
    let path = directory.join(format!("{index:020}-{term:020}.snapshot"));
    replace_file(&path, bytes)
        .map_err(|source| SnapshotError::Io { path: path.clone(), source })?;
    for older in list(directory)?.into_iter().filter(|older| *older < path) {
        // A file left behind costs space only; the newest is the one that is read.
        let _ = fs::remove_file(older);
    }
    Ok(path)
}

/// Loads the newest snapshot, if there is one.
///
/// A damaged one is an error, not a reason to fall back: what it held may have been purged from the log.
pub(crate) fn load(directory: &Path) -> Result<Option<(Meta, View, PathBuf)>, SnapshotError> {
    let Some(path) = list(directory)?.pop() else { return Ok(None) };
    let bytes =
        fs::read(&path).map_err(|source| SnapshotError::Io { path: path.clone(), source })?;
    match decode(&bytes) {
        Ok((meta, view)) => Ok(Some((meta, view, path))),
        Err(error) => Err(SnapshotError::Damaged { path, source: Box::new(error) }),
    }
}

/// All snapshot files, oldest first.
fn list(directory: &Path) -> Result<Vec<PathBuf>, SnapshotError> {
    let at = |source| SnapshotError::Io { path: directory.to_owned(), source };
    let mut paths = Vec::new();
    for file in fs::read_dir(directory).map_err(at)? {
        let path = file.map_err(at)?.path();
        if path.extension().is_some_and(|extension| extension == "snapshot") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
