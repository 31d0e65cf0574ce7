//! Why a request of the data client was not done.

use std::sync::Arc;

use crate::wire::WireError;
use crate::wire::data::DataError;
use crate::wire::hello::HelloRefusal;

/// Why a request was not done.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No configured node could be reached.
    #[error("no node could be reached: {last}")]
    Unreachable {
        /// The last failure.
        last: Arc<WireError>,
    },
    /// A node refused the connection; another attempt would be refused too.
    #[error("{address} refused the connection: {refusal}")]
    Refused {
        /// The node.
        address: String,
        /// Why.
        refusal: HelloRefusal,
    },
    /// No node knows the stream.
    #[error("no stream {stream:?}")]
    UnknownStream {
        /// Its name.
        stream: String,
    },
    /// The stream has no such partition.
    #[error("stream {stream:?} has {partitions} partitions; there is no {partition}")]
    UnknownPartition {
        /// The stream's name.
        stream: String,
        /// The number asked for.
        partition: u32,
        /// How many there are.
        partitions: u32,
    },
    /// Nobody served the request until the deadline: nothing was written.
    #[error("not served within {waited_ms} ms: {last}")]
    NotServed {
        /// How long was tried.
        waited_ms: u64,
        /// The last refusal.
        last: String,
    },
    /// No answer came, or none that tells: an append may or may not be in the log. Read to find out.
    #[error("unknown outcome: no answer from {address}")]
    Unknown {
        /// The node.
        address: String,
    },
    /// The node refused the request. Nothing was written, unless the variant says otherwise.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The node's answer made no sense.
    #[error("bad answer: {0}")]
    Wire(Arc<WireError>),
}

impl From<WireError> for ClientError {
    fn from(error: WireError) -> ClientError {
        ClientError::Wire(Arc::new(error))
    }
}
