//! [`Transport`] on the ring: the only kind of socket that does not hold up a shard's file operations.
//!
//! Every socket is known to its transport, which can therefore end whatever waits on one.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::{Rc, Weak};

use bytes::{Bytes, BytesMut};
use io_uring::{opcode, types};
use socket2::{SockAddr, Socket};
use tokio::sync::Mutex;

use super::operation::{Operation, submit};
use super::outgoing::Outgoing;
use crate::io::frame::{FrameBuffer, OutgoingFrame, TooLarge};
use crate::io::in_flight::InFlight;
use crate::io::sockets::{self, failed};
use crate::io::transport::{Connection, FRAME_BYTES_MAX, Listener, Transport, TransportError};

/// `POLLIN`. Source: poll(2).
const POLLIN: u32 = 1;

/// Opens and accepts connections on a shard's ring.
#[derive(Clone, Debug)]
pub struct RingTransport {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    in_flight: InFlight,
    /// Every socket that may still be open.
    sockets: RefCell<Vec<Weak<Socket>>>,
}

impl RingTransport {
    pub(super) fn new(in_flight: InFlight) -> RingTransport {
        RingTransport { shared: Rc::new(Shared { in_flight, sockets: RefCell::default() }) }
    }

    /// Ends every connection and listener.
    pub(super) fn close(&self) {
        for socket in self.shared.sockets.borrow().iter().filter_map(Weak::upgrade) {
            sockets::shut_down(&*socket);
        }
    }

    fn keep(&self, socket: Socket) -> Rc<Socket> {
        let socket = Rc::new(socket);
        let mut sockets = self.shared.sockets.borrow_mut();
        if sockets.len() == sockets.capacity() {
            sockets.retain(|socket| socket.strong_count() > 0);
        }
        sockets.push(Rc::downgrade(&socket));
        socket
    }

    fn connection(&self, socket: Rc<Socket>, peer: SocketAddr) -> RingConnection {
        RingConnection {
            shared: Rc::new(ConnectionState {
                socket,
                peer,
                in_flight: self.shared.in_flight.clone(),
                receiver: Mutex::default(),
                sender: Mutex::default(),
            }),
        }
    }
}

impl Transport for RingTransport {
    type Listener = RingListener;
    type Connection = RingConnection;

    async fn listen(&self, address: SocketAddr) -> Result<RingListener, TransportError> {
        let (socket, local) = sockets::listen(address).map_err(failed("listen", address))?;
        socket.set_nonblocking(true).map_err(failed("listen", local))?;
        let socket = self.keep(socket);
        Ok(RingListener { transport: self.clone(), socket, local, waiting: Mutex::default() })
    }

    async fn connect(&self, address: SocketAddr) -> Result<RingConnection, TransportError> {
        let socket = self.keep(sockets::open(address).map_err(failed("connect", address))?);
        // Dropped half way, the attempt would go on for minutes.
        let broken_off = ShutDown { socket: Some(Rc::clone(&socket)) };
        // Boxed: the kernel reads it where it is, while the operation moves.
        let target = Box::new(SockAddr::from(address));
        let entry = opcode::Connect::new(
            types::Fd(socket.as_raw_fd()),
            target.as_ptr().cast(),
            target.len(),
        )
        .build();
        let buffers = (target, Rc::clone(&socket));
        // SAFETY: the entry's address is in `target` and its descriptor is that of `socket`; the operation owns
        // both, and nobody else has the box.
        let connect = unsafe { submit(&self.shared.in_flight, buffers, entry) };
        let (answer, _) = connect.await;
        answer.map_err(failed("connect", address))?;
        broken_off.disarm();
        Ok(self.connection(socket, address))
    }
}

/// Accepts connections on a shard's ring.
#[derive(Debug)]
pub struct RingListener {
    transport: RingTransport,
    socket: Rc<Socket>,
    local: SocketAddr,
    /// Waits until somebody connects; kept when an `accept` is dropped, for the next one.
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    operation: Option<Operation<Rc<Socket>>>,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("begun", &self.operation.is_some()).finish()
    }
}

impl Listener for RingListener {
    type Connection = RingConnection;

    fn local_address(&self) -> SocketAddr {
        self.local
    }

    async fn accept(&self) -> Result<RingConnection, TransportError> {
        let mut waiting = self.waiting.lock().await;
        loop {
            // Not the ring's accept: dropped half way, its new descriptor would be lost.
            match self.socket.accept() {
                Ok((socket, peer)) => {
                    drop(waiting);
                    return self.accepted(socket, &peer).map_err(failed("accept", self.local));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed("accept", self.local)(error)),
            }
            let operation = waiting.operation.get_or_insert_with(|| self.readable());
            let (answer, _) = operation.await;
            waiting.operation = None;
            answer.map_err(failed("accept", self.local))?;
        }
    }
}

impl RingListener {
    fn readable(&self) -> Operation<Rc<Socket>> {
        let entry = opcode::PollAdd::new(types::Fd(self.socket.as_raw_fd()), POLLIN).build();
        // SAFETY: the entry has no address; its descriptor is that of `socket`, which the operation owns.
        unsafe { submit(&self.transport.shared.in_flight, Rc::clone(&self.socket), entry) }
    }

    fn accepted(&self, socket: Socket, peer: &SockAddr) -> std::io::Result<RingConnection> {
        socket.set_tcp_nodelay(true)?;
        let peer = peer.as_socket().ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        Ok(self.transport.connection(self.transport.keep(socket), peer))
    }
}

impl Drop for RingListener {
    fn drop(&mut self) {
        sockets::shut_down(&*self.socket);
    }
}

/// A connection on a shard's ring.
#[derive(Clone, Debug)]
pub struct RingConnection {
    shared: Rc<ConnectionState>,
}

#[derive(Debug)]
struct ConnectionState {
    socket: Rc<Socket>,
    peer: SocketAddr,
    in_flight: InFlight,
    receiver: Mutex<Receiver>,
    sender: Mutex<()>,
}

#[derive(Default)]
struct Receiver {
    frames: FrameBuffer,
    /// A receive begun; kept when the future that began it is dropped, so that no byte is lost.
    operation: Option<Operation<(BytesMut, Rc<Socket>)>>,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("begun", &self.operation.is_some()).finish_non_exhaustive()
    }
}

impl Connection for RingConnection {
    fn peer(&self) -> SocketAddr {
        self.shared.peer
    }

    async fn send(&self, parts: Vec<Bytes>) -> Result<(), TransportError> {
        let frame = OutgoingFrame::new(parts).map_err(|over| self.shared.too_large(over))?;
        let _turn = self.shared.sender.lock().await;
        // Dropped half way, the frame would be followed by another's bytes.
        let broken_off = ShutDown { socket: Some(Rc::clone(&self.shared.socket)) };
        let mut outgoing = Outgoing::new(frame);
        while !outgoing.is_empty() {
            let entry = outgoing.write_entry(types::Fd(self.shared.socket.as_raw_fd()));
            let buffers = (outgoing, Rc::clone(&self.shared.socket));
            // SAFETY: the entry's addresses are of memory that `outgoing` owns and nobody writes; its
            // descriptor is that of `socket`. The operation owns both.
            let write = unsafe { submit(&self.shared.in_flight, buffers, entry) };
            let (answer, (returned, _)) = write.await;
            outgoing = returned;
            let written = answer.map_err(failed("send", self.shared.peer))?;
            outgoing.advance(written);
        }
        broken_off.disarm();
        Ok(())
    }

    async fn receive(&self) -> Result<Option<Bytes>, TransportError> {
        let mut receiver = self.shared.receiver.lock().await;
        let Receiver { frames, operation } = &mut *receiver;
        loop {
            if operation.is_none() {
                let next = frames.next_frame().map_err(|over| {
                    self.close();
                    self.shared.too_large(over)
                })?;
                if next.is_some() {
                    return Ok(next);
                }
            }
            let begun = operation.get_or_insert_with(|| self.shared.begin_receive(frames));
            let (answer, (mut bytes, _)) = begun.await;
            *operation = None;
            let received = match answer {
                Ok(received) => {
                    // SAFETY: the kernel wrote `received` bytes behind the initialised ones, into the spare
                    // capacity that `begin_receive` lent it.
                    unsafe { bytes.set_len(bytes.len() + received) };
                    received
                }
                Err(error) => return Err(failed("receive", self.shared.peer)(error)),
            };
            frames.put_back(bytes);
            if received == 0 {
                return self.shared.ended(frames);
            }
        }
    }

    fn close(&self) {
        sockets::shut_down(&*self.shared.socket);
    }
}

impl ConnectionState {
    fn begin_receive(&self, frames: &mut FrameBuffer) -> Operation<(BytesMut, Rc<Socket>)> {
        let mut bytes = frames.take_with_room();
        let room = bytes.spare_capacity_mut();
        let length = u32::try_from(room.len()).unwrap_or(u32::MAX);
        let fd = types::Fd(self.socket.as_raw_fd());
        let entry = opcode::Recv::new(fd, room.as_mut_ptr().cast(), length).build();
        // SAFETY: the entry writes into the spare capacity of `bytes`, which does not move with it and which
        // the operation owns alone; its descriptor is that of `socket`, owned as well.
        unsafe { submit(&self.in_flight, (bytes, Rc::clone(&self.socket)), entry) }
    }

    fn ended(&self, frames: &FrameBuffer) -> Result<Option<Bytes>, TransportError> {
        if frames.is_between_frames() {
            return Ok(None);
        }
        Err(failed("receive", self.peer)(std::io::ErrorKind::UnexpectedEof.into()))
    }

    fn too_large(&self, over: TooLarge) -> TransportError {
        TransportError::FrameTooLarge {
            address: self.peer,
            bytes: over.bytes,
            bytes_max: FRAME_BYTES_MAX as u64,
        }
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        // A receive in flight holds the socket open until the peer speaks; this ends it.
        sockets::shut_down(&*self.socket);
    }
}

/// Shuts a socket down when it is dropped before [`disarm`](ShutDown::disarm).
struct ShutDown {
    socket: Option<Rc<Socket>>,
}

impl ShutDown {
    fn disarm(mut self) {
        self.socket = None;
    }
}

impl Drop for ShutDown {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            sockets::shut_down(&**socket);
        }
    }
}
