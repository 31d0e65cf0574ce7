//! The transport seam: frames between processes, in order, over connections that may end at any moment.

use std::future::Future;
use std::net::SocketAddr;

use bytes::Bytes;

/// The longest frame anybody may send or must accept; a longer length prefix ends the connection unread.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// Opens and accepts connections. One per thread; not `Send`.
pub trait Transport: Clone + std::fmt::Debug + 'static {
    /// What accepts.
    type Listener: Listener<Connection = Self::Connection>;
    /// What carries frames.
    type Connection: Connection;

    /// Listens on `address`; port 0 takes a free one, see [`Listener::local_address`].
    ///
    /// # Errors
    ///
    /// [`TransportError`] with the address: it is in use, or not this machine's.
    fn listen(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = Result<Self::Listener, TransportError>>;

    /// Connects to `address`. The caller bounds the wait: dropping the future gives the attempt up.
    ///
    /// # Errors
    ///
    /// [`TransportError`] with the address: nobody listens there, or it cannot be reached.
    fn connect(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = Result<Self::Connection, TransportError>>;
}

/// Accepts connections.
pub trait Listener: 'static {
    /// What it accepts.
    type Connection: Connection;

    /// The address it listens on.
    fn local_address(&self) -> SocketAddr;

    /// Waits for the next connection. Dropping the future loses none.
    ///
    /// # Errors
    ///
    /// [`TransportError`]: nothing was accepted; the listener may be used again after a pause.
    fn accept(&self) -> impl Future<Output = Result<Self::Connection, TransportError>>;
}

/// Carries frames both ways. `Clone` shares one connection: one task may send while another receives.
pub trait Connection: Clone + 'static {
    /// The other side.
    fn peer(&self) -> SocketAddr;

    /// Sends one frame made of `parts` in order, without joining them first where the system allows it.
    /// At most one send at a time; a second one waits. Dropping the future before it resolves may end the
    /// connection, as the frame may have gone out in part.
    ///
    /// # Errors
    ///
    /// [`TransportError`]: the connection is over; whether the frame arrived is unknown.
    fn send(&self, parts: Vec<Bytes>) -> impl Future<Output = Result<(), TransportError>>;

    /// Receives the next frame; `None` when the peer closed between frames. One receiver at a time.
    /// Dropping the future loses nothing: the next call goes on where it was.
    ///
    /// # Errors
    ///
    /// [`TransportError`]: the connection is over, in mid frame or by an oversized length.
    fn receive(&self) -> impl Future<Output = Result<Option<Bytes>, TransportError>>;

    /// Ends the connection now: pending and later calls on it fail or return `None`.
    fn close(&self);
}

/// Why a connection could not be made or is over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The system refused or the peer broke off.
    #[error("{operation} {address}: {source}")]
    Io {
        /// `listen`, `connect`, `accept`, `send` or `receive`.
        operation: &'static str,
        /// The local address of a listener, else the peer's.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The peer announced, or the caller offered, a frame over [`FRAME_BYTES_MAX`].
    #[error(
        "a frame of {bytes} bytes on the connection to {address}; at most {bytes_max} are allowed"
    )]
    FrameTooLarge {
        /// The peer.
        address: SocketAddr,
        /// The announced length.
        bytes: u64,
        /// [`FRAME_BYTES_MAX`].
        bytes_max: u64,
    },
}
