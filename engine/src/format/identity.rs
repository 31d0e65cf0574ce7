//! The block that says whose data directory this is: a standalone engine's, or a cluster node's.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 24 | wrapped header, magic `PIDN`, version 1 |
//! | 24 | 1 | mode: 1 standalone, 2 cluster |
//! | 25 | 16 | cluster id, 0 when standalone |
//! | 41 | 4 | node id |
//! | 45 | 16 | storage id, random |
//! | 61 | | zeros to the end of the block |

use super::envelope::Envelope;
use super::error::{FormatError, Structure};
use super::fields::FieldVec;
use crate::id::{BLOCK_BYTES, NodeId, StorageId};

const ENVELOPE: Envelope = Envelope::of_payload(Structure::Identity, *b"PIDN", 1);

/// Who may open the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryMode {
    /// An engine that grants itself its partitions.
    Standalone,
    /// A node of this cluster, whose coordinator grants.
    Cluster {
        /// The cluster's id.
        cluster: u128,
    },
}

/// Whose data directory it is. Written once, when the directory is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Who may open it.
    pub mode: DirectoryMode,
    /// The node it belongs to.
    pub node: NodeId,
    /// The name of this storage; copies of partitions are members of sets under it.
    pub storage: StorageId,
}

impl Identity {
    /// Encodes the identity as one whole block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (mode, cluster) = match self.mode {
            DirectoryMode::Standalone => (1, 0),
            DirectoryMode::Cluster { cluster } => (2, cluster),
        };
        let mut fields = FieldVec::default();
        fields.u8(mode);
        fields.u128(cluster);
        fields.u32(self.node.get());
        fields.u128(self.storage.0);
        let mut block = vec![0; BLOCK_BYTES];
        ENVELOPE.wrap_into(&fields.bytes, &mut block);
        block
    }

    /// Decodes the identity at the head of `bytes`.
    ///
    /// # Errors
    ///
    /// [`FormatError`]: nothing in the directory may be touched.
    pub fn decode(bytes: &[u8]) -> Result<Identity, FormatError> {
        let mut fields = ENVELOPE.unwrap(bytes)?;
        let mode = fields.u8()?;
        let cluster = fields.u128()?;
        let mode = match mode {
            1 => DirectoryMode::Standalone,
            2 => DirectoryMode::Cluster { cluster },
            other => return Err(ENVELOPE.field("mode", u64::from(other))),
        };
        let node = fields.u32()?;
        let node = NodeId::new(node).ok_or_else(|| ENVELOPE.field("node", u64::from(node)))?;
        let storage = StorageId(fields.u128()?);
        fields.end()?;
        Ok(Identity { mode, node, storage })
    }
}
