//! Connections to voters: one lane each, opened by a handshake that checks the cluster.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::role::SESSION_MAGIC;
use crate::wire::WireError;
use crate::wire::frame::{HELLO_BYTES_MAX, receive, send, within};
use crate::wire::hello::{Hello, HelloAnswer, HelloRefusal, Welcome};

/// Why a lane to a voter was not opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// The connection failed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The voter refused the hello.
    #[error("refused: {0}")]
    Refused(HelloRefusal),
    /// The voter belongs to another cluster than this node.
    #[error("reached cluster {reached:032x}")]
    OtherCluster {
        /// Its cluster.
        reached: u128,
    },
}

/// Opens one lane to the voter at `address` within `patience`.
pub(super) async fn open(
    address: &str,
    hello: &Hello,
    patience: Duration,
) -> Result<(TcpStream, Welcome), LinkError> {
    let opening = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&SESSION_MAGIC).await?;
        send(&mut stream, hello).await?;
        let answer: HelloAnswer = receive(&mut stream, HELLO_BYTES_MAX).await?;
        Ok((stream, answer))
    };
    let (stream, answer) = within(patience, opening).await?;
    match answer {
        HelloAnswer::Welcome(welcome) => match hello.cluster {
            Some(mine) if mine != welcome.cluster => {
                Err(LinkError::OtherCluster { reached: welcome.cluster })
            }
            _ => Ok((stream, welcome)),
        },
        HelloAnswer::Refused(refusal) => Err(LinkError::Refused(refusal)),
    }
}
