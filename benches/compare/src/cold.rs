//! Empties the page cache of a directory's files, so that what is read comes from the device.

use std::fs::File;
use std::path::Path;

use anyhow::Result;
use palisade_benches::scratch::files_below;
use rustix::fs::{Advice, fadvise};

/// Syncs every file below `directory` and drops its pages.
///
/// # Errors
///
/// The file system's.
pub fn drop_pages(directory: &Path) -> Result<()> {
    for (path, _length) in files_below(directory) {
        let file = File::open(path)?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}
