//! A node as the metadata knows it.

use serde::{Deserialize, Serialize};

use super::id::{NodeId, StorageId};

/// One node, known by name for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Its failure domain; may be empty.
    pub rack: String,
    /// Its latest run.
    pub incarnation: u64,
    /// Its data directory.
    pub storage: StorageId,
    /// Where records are served, `host:port`.
    pub data_address: String,
    /// Where its admin API listens, `host:port`.
    pub admin_address: String,
    /// Whether that run was declared gone.
    pub gone: bool,
    /// Index of the last change of this record.
    pub version: u64,
    /// Index of the last change of what [`View::grants_for`](super::View::grants_for) answers for it: push when it rises.
    pub grants_index: u64,
}
