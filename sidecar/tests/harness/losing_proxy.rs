//! Stands between a client and a node's data port, and loses answers to appends: the connection breaks instead.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use palisade_sidecar::wire::WireError;
use palisade_sidecar::wire::data::{Response, head, split};
use palisade_sidecar::wire::frame::{DATA_FRAME_BYTES_MAX, read_frame, write_frame};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct LosingProxy {
    pub(crate) address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    to_lose: AtomicU64,
    lost: AtomicU64,
}

impl LosingProxy {
    pub(crate) async fn start(node: SocketAddr) -> LosingProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let shared = counts.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut from_client, to_client) = client.into_split();
                let Ok(node) = TcpStream::connect(node).await else { continue };
                let (from_node, mut to_node) = node.into_split();
                let counts = shared.clone();
                tokio::spawn(async move {
                    // Either end breaks both ways.
                    tokio::select! {
                        _ = tokio::io::copy(&mut from_client, &mut to_node) => {}
                        _ = pass_answers(from_node, to_client, address, &counts) => {}
                    }
                });
            }
        });
        LosingProxy { address, counts }
    }

    /// Loses the next `count` answers to appends.
    pub(crate) fn lose_next(&self, count: u64) {
        self.counts.to_lose.store(count, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }
}

/// Ends with the first answer that is lost.
async fn pass_answers(
    mut from_node: OwnedReadHalf,
    mut to_client: OwnedWriteHalf,
    address: SocketAddr,
    counts: &Counts,
) -> Result<(), WireError> {
    while let Some(frame) = read_frame(&mut from_node, DATA_FRAME_BYTES_MAX).await? {
        let (number, mut response, payload) = split::<Response>(frame)?;
        match &mut response {
            // The client must come this way again.
            Response::Owners(owners) => {
                owners.owners.iter_mut().for_each(|owner| owner.address = address.to_string());
            }
            Response::Appended(_) if counts.to_lose.load(Ordering::Relaxed) > 0 => {
                counts.to_lose.fetch_sub(1, Ordering::Relaxed);
                counts.lost.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            _ => {}
        }
        write_frame(&mut to_client, &[head(number, &response), payload]).await?;
    }
    Ok(())
}
