//! [`Transport`] over tokio's sockets: for threads without a ring. Its futures may move between threads.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Mutex;

use crate::io::frame::{FrameBuffer, OutgoingFrame, TooLarge};
use crate::io::sockets::{self, failed};
use crate::io::transport::{Connection, FRAME_BYTES_MAX, Listener, Transport, TransportError};

/// The parts of a frame offered to the system in one call.
const SLICES_MAX: usize = 64;

/// Opens and accepts connections inside any tokio runtime with I/O enabled.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioTransport;

impl TokioTransport {
    /// The transport.
    #[must_use]
    pub fn new() -> TokioTransport {
        TokioTransport
    }
}

impl Transport for TokioTransport {
    type Listener = TokioListener;
    type Connection = TokioConnection;

    async fn listen(&self, address: SocketAddr) -> Result<TokioListener, TransportError> {
        let (socket, local) = sockets::listen(address).map_err(failed("listen", address))?;
        socket.set_nonblocking(true).map_err(failed("listen", local))?;
        let listener = TcpListener::from_std(socket.into()).map_err(failed("listen", local))?;
        Ok(TokioListener { listener, local })
    }

    async fn connect(&self, address: SocketAddr) -> Result<TokioConnection, TransportError> {
        let socket = sockets::open(address).map_err(failed("connect", address))?;
        socket.set_nonblocking(true).map_err(failed("connect", address))?;
        let socket = TcpSocket::from_std_stream(socket.into());
        let stream = socket.connect(address).await.map_err(failed("connect", address))?;
        Ok(TokioConnection::new(stream, address))
    }
}

/// Accepts connections on a tokio socket.
#[derive(Debug)]
pub struct TokioListener {
    listener: TcpListener,
    local: SocketAddr,
}

impl Listener for TokioListener {
    type Connection = TokioConnection;

    fn local_address(&self) -> SocketAddr {
        self.local
    }

    async fn accept(&self) -> Result<TokioConnection, TransportError> {
        let (stream, peer) = self.listener.accept().await.map_err(failed("accept", self.local))?;
        stream.set_nodelay(true).map_err(failed("accept", self.local))?;
        Ok(TokioConnection::new(stream, peer))
    }
}

/// A connection on a tokio socket.
#[derive(Clone, Debug)]
pub struct TokioConnection {
    shared: Arc<ConnectionState>,
}

#[derive(Debug)]
struct ConnectionState {
    stream: TcpStream,
    peer: SocketAddr,
    receiver: Mutex<FrameBuffer>,
    sender: Mutex<()>,
}

impl TokioConnection {
    fn new(stream: TcpStream, peer: SocketAddr) -> TokioConnection {
        let (receiver, sender) = (Mutex::default(), Mutex::default());
        TokioConnection { shared: Arc::new(ConnectionState { stream, peer, receiver, sender }) }
    }

    fn too_large(&self, over: TooLarge) -> TransportError {
        TransportError::FrameTooLarge {
            address: self.shared.peer,
            bytes: over.bytes,
            bytes_max: FRAME_BYTES_MAX as u64,
        }
    }
}

impl Connection for TokioConnection {
    fn peer(&self) -> SocketAddr {
        self.shared.peer
    }

    async fn send(&self, parts: Vec<Bytes>) -> Result<(), TransportError> {
        let frame = OutgoingFrame::new(parts).map_err(|over| self.too_large(over))?;
        let _turn = self.shared.sender.lock().await;
        // Dropped half way, the frame would be followed by another's bytes.
        let mut broken_off = ShutDown { connection: Some(self) };
        write_all(&self.shared.stream, frame).await.map_err(failed("send", self.shared.peer))?;
        broken_off.connection = None;
        Ok(())
    }

    async fn receive(&self) -> Result<Option<Bytes>, TransportError> {
        let mut frames = self.shared.receiver.lock().await;
        loop {
            let next = frames.next_frame().map_err(|over| {
                self.close();
                self.too_large(over)
            })?;
            if next.is_some() {
                return Ok(next);
            }
            let stream = &self.shared.stream;
            stream.readable().await.map_err(failed("receive", self.shared.peer))?;
            let mut bytes = frames.take_with_room();
            let answer = stream.try_read_buf(&mut bytes);
            frames.put_back(bytes);
            match answer {
                Ok(0) if frames.is_between_frames() => return Ok(None),
                Ok(0) => {
                    let ended = std::io::ErrorKind::UnexpectedEof.into();
                    return Err(failed("receive", self.shared.peer)(ended));
                }
                Ok(_received) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed("receive", self.shared.peer)(error)),
            }
        }
    }

    fn close(&self) {
        sockets::shut_down(&self.shared.stream);
    }
}

async fn write_all(stream: &TcpStream, mut frame: OutgoingFrame) -> std::io::Result<()> {
    while !frame.is_empty() {
        stream.writable().await?;
        let slices: Vec<_> =
            frame.parts().take(SLICES_MAX).map(|part| IoSlice::new(part)).collect();
        match stream.try_write_vectored(&slices) {
            Ok(written) => frame.advance(written),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Closes a connection when it is dropped still set.
struct ShutDown<'a> {
    connection: Option<&'a TokioConnection>,
}

impl Drop for ShutDown<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection {
            connection.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn assert_send<T: Send>(_future: &T) {}

    #[test]
    fn futures_may_move_between_threads() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();

        let carried = async {
            let address = (Ipv4Addr::LOCALHOST, 0).into();
            let listener = TokioTransport.listen(address).await.unwrap();
            let dialled = TokioTransport.connect(listener.local_address()).await.unwrap();
            let accepted = listener.accept().await.unwrap();
            dialled.send(vec![Bytes::from_static(b"frame")]).await.unwrap();
            accepted.receive().await.unwrap()
        };
        assert_send(&carried);
        let frame = runtime.block_on(async move { tokio::spawn(carried).await.unwrap() });

        assert_eq!(frame.as_deref(), Some(b"frame".as_slice()));
    }
}
