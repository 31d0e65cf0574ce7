//! Makes a journal's file: written with zeros from end to end, then its header, then its name, all durable.

use std::path::{Path, PathBuf};

use crate::format::JournalHeader;
use crate::id::{BLOCK_BYTES, JournalId, Position};
use crate::io::disk::{Disk, DiskError, DiskFile, OpenMode, WriteMode};
use crate::io::runtime::Runtime;
use crate::io::zeros::{write_zeros, zeros};

/// The directory, in the data directory, of the journals of all shards.
pub(super) const JOURNALS: &str = "journals";

const EXTENSION: &str = ".journal";

/// How long to wait for memory.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_millis(2);

/// The path of a journal's file.
pub(crate) fn journal_path(directory: &Path, journal: JournalId) -> PathBuf {
    directory.join(JOURNALS).join(format!("{journal}{EXTENSION}"))
}

/// Reads the journal's id from the name of its file; `None` for other files.
pub(super) fn journal_id_of_name(name: &str) -> Option<JournalId> {
    let digits = name.strip_suffix(EXTENSION)?;
    let is_ours =
        digits.len() == 16 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_ours.then(|| u64::from_str_radix(digits, 16).ok().map(JournalId)).flatten()
}

/// Makes the file and returns it once it and its name are durable. After an error nothing of it is left, or
/// nothing names it and the next open removes it.
pub(crate) async fn make_journal<D: Disk>(
    disk: &D,
    runtime: &dyn Runtime,
    directory: &Path,
    header: &JournalHeader,
) -> Result<D::File, DiskError> {
    let journals = directory.join(JOURNALS);
    let path = journal_path(directory, header.journal);
    disk.create_directory(&journals).await?;
    disk.sync_directory(directory).await?;
    let file = disk.open(&path, OpenMode::CreateNew).await?;
    if let Err(error) = fill(disk, runtime, &file, header).await {
        if let Err(error) = disk.remove(&path).await {
            tracing::warn!(%error, "an unfinished journal is left to the next open");
        }
        return Err(error);
    }
    disk.sync_directory(&journals).await?;
    Ok(file)
}

/// Removes a journal's file; one that is gone already is no error.
pub(crate) async fn remove_journal<D: Disk>(
    disk: &D,
    directory: &Path,
    journal: JournalId,
) -> Result<(), DiskError> {
    match disk.remove(&journal_path(directory, journal)).await {
        Err(error) if error.is_missing() => Ok(()),
        removed => removed,
    }
}

/// Moves a journal's file into `aside`, a directory of the data directory, and returns its new path.
pub(crate) async fn set_journal_aside<D: Disk>(
    disk: &D,
    directory: &Path,
    journal: JournalId,
    aside: &str,
) -> Result<PathBuf, DiskError> {
    let aside = directory.join(aside);
    disk.create_directory(&aside).await?;
    let kept = aside.join(format!("{journal}{EXTENSION}"));
    disk.rename(&journal_path(directory, journal), &kept).await?;
    disk.sync_directory(&aside).await?;
    disk.sync_directory(&directory.join(JOURNALS)).await?;
    Ok(kept)
}

async fn fill<D: Disk>(
    disk: &D,
    runtime: &dyn Runtime,
    file: &D::File,
    header: &JournalHeader,
) -> Result<(), DiskError> {
    let zeros = loop {
        match zeros(disk.arena()) {
            Some(zeros) => break zeros,
            None => runtime.sleep(RETRY_AFTER).await,
        }
    };
    write_zeros(file, &zeros, Position::ZERO, Position(header.file_bytes)).await?;
    drop(zeros);
    let mut block = loop {
        match disk.arena().allocate(BLOCK_BYTES) {
            Some(block) => break block,
            None => runtime.sleep(RETRY_AFTER).await,
        }
    };
    header.write(block.as_mut_slice());
    file.write(block.freeze(), Position::ZERO, WriteMode::Written).await?;
    file.sync().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused() {
        let path = journal_path(Path::new("/d"), JournalId(0xab));
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        assert_eq!(journal_id_of_name(name), Some(JournalId(0xab)));
        for other in ["ab.journal", "00000000000000AB.journal", "00000000000000ab.segment"] {
            assert_eq!(journal_id_of_name(other), None);
        }
    }
}
