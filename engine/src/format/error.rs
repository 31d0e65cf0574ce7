//! What can be wrong with stored bytes, named by structure and condition.

/// The structures of `docs/FORMAT.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Structure {
    /// A batch of records, or a marker.
    Batch,
    /// A group of batches in a segment.
    Group,
    /// The first block of a segment file.
    SegmentHeader,
    /// The last blocks of a closed segment file.
    Footer,
    /// The first block of a journal.
    JournalHeader,
    /// One durable write of a journal.
    JournalFrame,
    /// The authoritative state of a partition.
    Checkpoint,
    /// The replica set and rules of a term.
    Descriptor,
    /// The block that says whose data directory this is.
    Identity,
}

impl std::fmt::Display for Structure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Structure::Batch => "batch",
            Structure::Group => "group header",
            Structure::SegmentHeader => "segment header",
            Structure::Footer => "segment footer",
            Structure::JournalHeader => "journal header",
            Structure::JournalFrame => "journal frame",
            Structure::Checkpoint => "checkpoint",
            Structure::Descriptor => "descriptor",
            Structure::Identity => "data directory identity",
        })
    }
}

/// Why bytes were refused. Nothing of them was used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Fewer bytes than the structure needs.
    #[error("{what}: {bytes} bytes, {needed} needed")]
    Truncated {
        /// Of which structure.
        what: Structure,
        /// How many there are.
        bytes: usize,
        /// How many there must be at least.
        needed: usize,
    },
    /// The first four bytes are those of something else, or of nothing.
    #[error("{what}: magic {found:#010x} is not ours")]
    Magic {
        /// Which structure was expected.
        what: Structure,
        /// What stands there, as a little-endian number.
        found: u32,
    },
    /// Whole and undamaged, but written by a newer release; use that release.
    #[error("{what}: version {found} is newer than {supported}, the newest this release reads")]
    NewerVersion {
        /// Which structure.
        what: Structure,
        /// Its version.
        found: u16,
        /// The newest version this release reads.
        supported: u16,
    },
    /// The header's checksum does not match: damaged or torn.
    #[error("{what}: header crc {stored:#010x}, computed {computed:#010x}")]
    HeaderCrc {
        /// Of which structure.
        what: Structure,
        /// The checksum in the bytes.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The payload's checksum does not match: damaged or torn.
    #[error("{what}: payload crc {stored:#010x}, computed {computed:#010x}")]
    PayloadCrc {
        /// Of which structure.
        what: Structure,
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the payload.
        computed: u32,
    },
    /// A field is outside its limits or contradicts another one.
    #[error("{what}: {field} is {value}")]
    Field {
        /// Of which structure.
        what: Structure,
        /// The field, as `docs/FORMAT.md` names it.
        field: &'static str,
        /// Its value; wider ones are cut to their low 64 bits.
        value: u64,
    },
}
