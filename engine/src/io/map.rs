//! A file mapped into memory, to read. A page that is not in memory is read when it is touched, by the thread that
//! touches it; a media error there, or a file cut short, is SIGBUS.

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::{Advice, Mmap, MmapOptions};

/// The first bytes of a file.
#[derive(Debug)]
pub(crate) struct FileMap {
    map: Mmap,
}

impl FileMap {
    /// Maps the first `length_bytes` of the file. Whoever asks makes sure that nobody changes them while the map
    /// lives.
    ///
    /// # Errors
    ///
    /// The system's; `UnexpectedEof` for a file that is shorter.
    pub(crate) fn open(path: &Path, length_bytes: u64) -> io::Result<FileMap> {
        let file = File::open(path)?;
        if file.metadata()?.len() < length_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let length = usize::try_from(length_bytes).map_err(io::Error::other)?;
        let mut options = MmapOptions::new();
        options.len(length);
        // SAFETY: the bytes of a closed segment are never written again while somebody holds it (`SegmentHold`, kept
        // beside the map), and the lock on the data directory keeps other processes' engines out.
        let map = unsafe { options.map(&file) }?;
        // Only a hint: without it the kernel reads less ahead.
        map.advise(Advice::Sequential).ok();
        Ok(FileMap { map })
    }
}

impl AsRef<[u8]> for FileMap {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}
