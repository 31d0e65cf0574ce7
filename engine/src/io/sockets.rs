//! Socket options both real transports share.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::transport::TransportError;

/// Connections the system holds that nobody has accepted yet.
const BACKLOG: i32 = 1024;

/// A TCP socket for `address`; small frames are sent at once, not gathered.
pub(super) fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

/// A listening socket. The address of a process that just ended can be used at once; one in use cannot.
pub(super) fn listen(address: SocketAddr) -> io::Result<(Socket, SocketAddr)> {
    let socket = open(address)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let local = socket.local_addr()?.as_socket().unwrap_or(address);
    Ok((socket, local))
}

/// Ends both directions: every operation that waits on the socket, and every later one, ends at once.
pub(super) fn shut_down(socket: &impl AsFd) {
    // Fails only where there is nothing to end: not connected, or reset by the peer.
    if let Err(error) = SockRef::from(socket).shutdown(Shutdown::Both) {
        tracing::trace!(%error, "the connection had ended before");
    }
}

/// Says that `operation` failed.
pub(super) fn failed(
    operation: &'static str,
    address: SocketAddr,
) -> impl FnOnce(io::Error) -> TransportError {
    move |source| TransportError::Io { operation, address, source }
}
