//! A voter's data directory: its lock and its identity file.
//!
//! | file | what |
//! |---|---|
//! | `lock` | locked exclusively by the process that uses the directory |
//! | `voter` | magic, version, CRC-32, then postcard: name, storage id, cluster |
//! | `log.redb` | the Raft log |
//! | `snapshots/` | snapshot files |

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::state::StorageId;

const MAGIC: [u8; 8] = *b"PALVOTER";
const VERSION: u32 = 1;
/// Magic, version and checksum.
const HEADER_BYTES: usize = 16;

/// Why a data directory is not usable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a directory")]
    NotADirectory { path: PathBuf },
    #[error("{path} is in use by another process")]
    Locked { path: PathBuf },
    #[error("{path} is damaged: {what}")]
    Damaged { path: PathBuf, what: String },
    #[error("{path} has version {found}, known is {supported}")]
    NewerVersion { path: PathBuf, found: u32, supported: u32 },
    #[error("{path} belongs to voter {found:?}")]
    OtherVoter { path: PathBuf, found: String },
}

/// Whose directory it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The voter's name.
    pub(crate) name: String,
    /// Drawn when the directory was first used.
    pub(crate) storage: StorageId,
    /// The cluster it has been in; such a directory never forms another.
    pub(crate) cluster: Option<Uuid>,
}

/// A locked data directory.
#[derive(Debug)]
pub(crate) struct VoterDirectory {
    path: PathBuf,
    identity: Identity,
    /// Held for as long as the directory is used.
    _lock: File,
}

impl VoterDirectory {
    /// Locks the directory, making it if there is none, and reads or makes its identity.
    pub(crate) fn open(path: &Path, name: &str) -> Result<VoterDirectory, DirectoryError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { path, source }
        };
        if path.exists() && !path.is_dir() {
            return Err(DirectoryError::NotADirectory { path: path.to_owned() });
        }
        fs::create_dir_all(path.join("snapshots")).map_err(at(path))?;
        let lock_path = path.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(at(&lock_path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(DirectoryError::Locked { path: path.to_owned() });
            }
            Err(source) => return Err(at(&lock_path)(source.into())),
        }
        let file = path.join("voter");
        let identity = match fs::read(&file) {
            Ok(bytes) => decode(&bytes, &file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A log without an identity is not an empty directory.
                if path.join("log.redb").exists() {
                    let what = "it is missing although there is a log".to_owned();
                    return Err(DirectoryError::Damaged { path: file, what });
                }
                let storage = StorageId(Uuid::new_v4());
                let identity = Identity { name: name.to_owned(), storage, cluster: None };
                replace_file(&file, &encode(&identity)).map_err(at(&file))?;
                identity
            }
            Err(source) => return Err(at(&file)(source)),
        };
        if identity.name != name {
            return Err(DirectoryError::OtherVoter { path: file, found: identity.name });
        }
        Ok(VoterDirectory { path: path.to_owned(), identity, _lock: lock })
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.path.join("log.redb")
    }

    pub(crate) fn snapshots_path(&self) -> PathBuf {
        self.path.join("snapshots")
    }

    /// Notes durably which cluster the directory is in.
    pub(crate) fn join(&mut self, cluster: Uuid) -> Result<(), DirectoryError> {
        let joined = Identity { cluster: Some(cluster), ..self.identity.clone() };
        let path = self.path.join("voter");
        replace_file(&path, &encode(&joined))
            .map_err(|source| DirectoryError::Io { path, source })?;
        self.identity = joined;
        Ok(())
    }
}

/// Writes a file aside, syncs it, renames it into place and syncs the directory.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("aside");
    let mut file = File::create(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    let directory = path.parent().expect("a file in a directory");
    File::open(directory)?.sync_all()
}

fn encode(identity: &Identity) -> Vec<u8> {
    let payload = postcard::to_stdvec(identity).expect("plain values encode");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(crc32fast::hash(&payload).to_le_bytes());
    bytes.extend(payload);
    bytes
}

fn decode(bytes: &[u8], path: &Path) -> Result<Identity, DirectoryError> {
    let damaged =
        |what: &str| DirectoryError::Damaged { path: path.to_owned(), what: what.to_owned() };
    let (header, payload) =
        bytes.split_at_checked(HEADER_BYTES).ok_or_else(|| damaged("it is cut short"))?;
    if header[..8] != MAGIC {
        return Err(damaged("it is no voter file"));
    }
    let field = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let found = field(8);
    if found != VERSION {
        let path = path.to_owned();
        return Err(DirectoryError::NewerVersion { path, found, supported: VERSION });
    }
    if crc32fast::hash(payload) != field(12) {
        return Err(damaged("it does not match its checksum"));
    }
    postcard::from_bytes(payload).map_err(|source| damaged(&source.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")).unwrap()
    }

    #[test]
    fn identity_survives_and_other_names_are_refused() {
        let scratch = scratch();
        let storage = {
            let mut directory = VoterDirectory::open(scratch.path(), "v1").unwrap();
            directory.join(Uuid::from_u128(7)).unwrap();
            directory.identity().storage
        };

        let directory = VoterDirectory::open(scratch.path(), "v1").unwrap();

        assert_eq!(directory.identity().storage, storage);
        assert_eq!(directory.identity().cluster, Some(Uuid::from_u128(7)));
        drop(directory);
        let error = VoterDirectory::open(scratch.path(), "v2").unwrap_err();
        assert!(matches!(error, DirectoryError::OtherVoter { found, .. } if found == "v1"));
    }

    #[test]
    fn two_users_a_file_and_a_damaged_identity_are_typed_errors() {
        let scratch = scratch();
        let _held = VoterDirectory::open(&scratch.path().join("a"), "v1").unwrap();
        let error = VoterDirectory::open(&scratch.path().join("a"), "v1").unwrap_err();
        assert!(matches!(error, DirectoryError::Locked { .. }));

        fs::write(scratch.path().join("file"), b"x").unwrap();
        let error = VoterDirectory::open(&scratch.path().join("file"), "v1").unwrap_err();
        assert!(matches!(error, DirectoryError::NotADirectory { .. }));

        drop(VoterDirectory::open(&scratch.path().join("b"), "v1").unwrap());
        let file = scratch.path().join("b/voter");
        let bytes = fs::read(&file).unwrap();
        for position in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[position] ^= 0x10;
            fs::write(&file, &flipped).unwrap();
            assert!(VoterDirectory::open(&scratch.path().join("b"), "v1").is_err());
        }
    }
}
