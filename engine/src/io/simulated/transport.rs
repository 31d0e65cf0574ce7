//! [`Transport`] on a [`SimulatedNetwork`], for one process on one host.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};

use super::network::{EndState, Listening, Packet, Side, SimulatedNetwork};
use crate::io::transport::{Connection, FRAME_BYTES_MAX, Listener, Transport, TransportError};

/// How much may be sent and not received by the peer's owner before a send waits.
const WINDOW_BYTES: usize = 1 << 20;

/// The transport of one simulated process. When the process has been killed, nothing resolves any more.
#[derive(Clone, Debug)]
pub struct SimulatedTransport {
    network: SimulatedNetwork,
    host: IpAddr,
    process: u64,
}

impl SimulatedTransport {
    pub(super) fn new(network: SimulatedNetwork, host: IpAddr, process: u64) -> SimulatedTransport {
        SimulatedTransport { network, host, process }
    }

    async fn check_alive(&self) {
        if self.network.state().process_of(self.host) != self.process {
            std::future::pending::<()>().await;
        }
    }

    /// Takes a packet's time from one host to another; waits while the way is cut.
    async fn travel(&self, from: IpAddr, to: IpAddr) {
        let delay = self.network.state().draw_delay(from, to);
        self.network.scheduler().clone().sleep(delay).await;
        poll_fn(|context| {
            let mut state = self.network.state();
            if state.passes(from, to) {
                return Poll::Ready(());
            }
            state.wait_for_change(context.waker());
            Poll::Pending
        })
        .await;
    }
}

fn failed(operation: &'static str, address: SocketAddr, kind: ErrorKind) -> TransportError {
    TransportError::Io { operation, address, source: kind.into() }
}

impl Transport for SimulatedTransport {
    type Listener = SimulatedListener;
    type Connection = SimulatedConnection;

    async fn listen(&self, address: SocketAddr) -> Result<SimulatedListener, TransportError> {
        self.check_alive().await;
        let mut state = self.network.state();
        let ip = if address.ip().is_unspecified() { self.host } else { address.ip() };
        if ip != self.host {
            return Err(failed("listen", address, ErrorKind::AddrNotAvailable));
        }
        let port = if address.port() == 0 { state.take_port() } else { address.port() };
        let local = SocketAddr::new(ip, port);
        if state.listeners.contains_key(&local) {
            return Err(failed("listen", address, ErrorKind::AddrInUse));
        }
        let id = state.next_id();
        state.listeners.insert(local, Listening { id, pending: Default::default(), waker: None });
        Ok(SimulatedListener { network: self.network.clone(), local, id })
    }

    async fn connect(&self, address: SocketAddr) -> Result<SimulatedConnection, TransportError> {
        self.check_alive().await;
        self.travel(self.host, address.ip()).await;
        let connection = {
            let mut state = self.network.state();
            if state.listeners.contains_key(&address) {
                let client = SocketAddr::new(self.host, state.take_port());
                let link = state.add_link(client, address);
                let listening = state.listeners.get_mut(&address).expect("just found");
                listening.pending.push_back(link);
                if let Some(waker) = listening.waker.take() {
                    waker.wake();
                }
                Some(link)
            } else {
                None
            }
        };
        let connection = connection.map(|link| {
            SimulatedConnection::new(self.network.clone(), link, Side::Client, address)
        });
        self.travel(address.ip(), self.host).await;
        connection.ok_or_else(|| failed("connect", address, ErrorKind::ConnectionRefused))
    }
}

/// Accepts connections of one simulated process.
#[derive(Debug)]
pub struct SimulatedListener {
    network: SimulatedNetwork,
    local: SocketAddr,
    id: u64,
}

impl Listener for SimulatedListener {
    type Connection = SimulatedConnection;

    fn local_address(&self) -> SocketAddr {
        self.local
    }

    async fn accept(&self) -> Result<SimulatedConnection, TransportError> {
        poll_fn(|context| {
            let mut state = self.network.state();
            let Some(listening) = state.listeners.get_mut(&self.local) else {
                return Poll::Pending;
            };
            if listening.id != self.id {
                return Poll::Pending;
            }
            let Some(id) = listening.pending.pop_front() else {
                listening.waker = Some(context.waker().clone());
                return Poll::Pending;
            };
            let Some(link) = state.links.get_mut(&id) else {
                // It came and went before anybody looked.
                context.waker().wake_by_ref();
                return Poll::Pending;
            };
            let peer = link.end(Side::Client).address;
            drop(state);
            let network = self.network.clone();
            Poll::Ready(Ok(SimulatedConnection::new(network, id, Side::Server, peer)))
        })
        .await
    }
}

impl Drop for SimulatedListener {
    fn drop(&mut self) {
        let pending = {
            let mut state = self.network.state();
            match state.listeners.get(&self.local) {
                Some(listening) if listening.id == self.id => state
                    .listeners
                    .remove(&self.local)
                    .map(|listening| listening.pending)
                    .unwrap_or_default(),
                _ => return,
            }
        };
        for link in pending {
            // Nobody will accept it: made and dropped, it ends.
            drop(SimulatedConnection::new(self.network.clone(), link, Side::Server, self.local));
        }
    }
}

/// A connection between two simulated processes.
#[derive(Clone, Debug)]
pub struct SimulatedConnection {
    end: Rc<ConnectionEnd>,
}

#[derive(Debug)]
struct ConnectionEnd {
    network: SimulatedNetwork,
    link: u64,
    side: Side,
    peer: SocketAddr,
}

impl SimulatedConnection {
    fn new(
        network: SimulatedNetwork,
        link: u64,
        side: Side,
        peer: SocketAddr,
    ) -> SimulatedConnection {
        SimulatedConnection { end: Rc::new(ConnectionEnd { network, link, side, peer }) }
    }
}

impl ConnectionEnd {
    fn close(&self) {
        let was_open = {
            let mut state = self.network.state();
            let Some(link) = state.links.get_mut(&self.link) else { return };
            let end = link.end(self.side);
            let was_open = end.state == EndState::Open;
            if end.state != EndState::Gone {
                end.state = EndState::Closed;
            }
            end.wake_all();
            was_open
        };
        if was_open {
            self.network.send_packet(self.link, self.side, Packet::End);
        }
        self.network.forget_if_over(self.link);
    }

    /// Tells whether the send with this number may go out now, and an error when it never may.
    fn poll_send(
        &self,
        number: u64,
        frame_bytes: usize,
        waker: &std::task::Waker,
    ) -> Poll<Result<(), ErrorKind>> {
        let mut state = self.network.state();
        let Some(link) = state.links.get_mut(&self.link) else {
            return Poll::Ready(Err(ErrorKind::NotConnected));
        };
        match link.end(self.side).state {
            EndState::Open => {}
            EndState::Closed => return Poll::Ready(Err(ErrorKind::NotConnected)),
            EndState::Reset => return Poll::Ready(Err(ErrorKind::ConnectionReset)),
            EndState::Gone => return Poll::Pending,
        }
        let unread = link.end(self.side.other()).unread_bytes;
        let has_room = unread == 0 || unread + frame_bytes <= WINDOW_BYTES;
        let end = link.end(self.side);
        if end.sends.front() == Some(&number) && has_room {
            link.end(self.side.other()).unread_bytes += frame_bytes;
            return Poll::Ready(Ok(()));
        }
        end.senders.push(waker.clone());
        Poll::Pending
    }
}

impl Drop for ConnectionEnd {
    fn drop(&mut self) {
        self.close();
    }
}

/// A send's place in the queue, given up when the send is done or dropped.
struct Place<'a> {
    end: &'a ConnectionEnd,
    number: u64,
}

impl<'a> Place<'a> {
    fn take(end: &'a ConnectionEnd) -> Place<'a> {
        let mut state = end.network.state();
        let number = state.next_id();
        if let Some(link) = state.links.get_mut(&end.link) {
            link.end(end.side).sends.push_back(number);
        }
        Place { end, number }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.end.network.state();
        if let Some(link) = state.links.get_mut(&self.end.link) {
            let end = link.end(self.end.side);
            end.sends.retain(|number| *number != self.number);
            end.senders.drain(..).for_each(std::task::Waker::wake);
        }
    }
}

impl Connection for SimulatedConnection {
    fn peer(&self) -> SocketAddr {
        self.end.peer
    }

    async fn send(&self, parts: Vec<Bytes>) -> Result<(), TransportError> {
        let end = &*self.end;
        let frame_bytes: usize = parts.iter().map(Bytes::len).sum();
        if frame_bytes > FRAME_BYTES_MAX {
            return Err(TransportError::FrameTooLarge {
                address: end.peer,
                bytes: frame_bytes as u64,
                bytes_max: FRAME_BYTES_MAX as u64,
            });
        }
        let place = Place::take(end);
        let sent =
            poll_fn(|context| end.poll_send(place.number, frame_bytes, context.waker())).await;
        sent.map_err(|kind| failed("send", end.peer, kind))?;
        let mut frame = BytesMut::with_capacity(frame_bytes);
        parts.iter().for_each(|part| frame.extend_from_slice(part));
        end.network.send_packet(end.link, end.side, Packet::Frame(frame.freeze()));
        Ok(())
    }

    async fn receive(&self) -> Result<Option<Bytes>, TransportError> {
        let end = &*self.end;
        poll_fn(|context| {
            let mut state = end.network.state();
            let Some(link) = state.links.get_mut(&end.link) else {
                return Poll::Ready(Ok(None));
            };
            let own = link.end(end.side);
            match own.state {
                EndState::Closed => return Poll::Ready(Ok(None)),
                EndState::Gone => return Poll::Pending,
                EndState::Open | EndState::Reset => {}
            }
            if let Some(frame) = own.inbox.pop_front() {
                own.unread_bytes -= frame.len();
                let senders = &mut link.end(end.side.other()).senders;
                senders.drain(..).for_each(std::task::Waker::wake);
                return Poll::Ready(Ok(Some(frame)));
            }
            if own.state == EndState::Reset {
                return Poll::Ready(Err(failed("receive", end.peer, ErrorKind::ConnectionReset)));
            }
            if own.is_ended {
                return Poll::Ready(Ok(None));
            }
            own.receiver = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn close(&self) {
        self.end.close();
    }
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
