//! The simulated network as a test holds it: hosts, delays, cuts in one direction, resets.
//!
//! Moves frames between the two ends of a link, in order; the ends themselves are in `transport`.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;

use super::runtime::{Scheduler, SimulatedRuntime};
use super::transport::SimulatedTransport;

/// How long a frame is on its way when nothing else was said.
const DELAY_DEFAULT: Range<Duration> = Duration::from_micros(30)..Duration::from_micros(500);

/// The first port given to those who ask for any.
const FIRST_FREE_PORT: u16 = 49_152;

/// One of the two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    pub(super) fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// What travels.
#[derive(Debug)]
pub(super) enum Packet {
    Frame(Bytes),
    /// The sender sends no more.
    End,
    /// The connection is over at once.
    Reset,
}

/// How an end came to be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndState {
    Open,
    /// Closed from here.
    Closed,
    /// Broken off by the other side or by the network.
    Reset,
    /// Its process or machine is no more.
    Gone,
}

/// What one end has, and what is on its way to it.
#[derive(Debug)]
pub(super) struct End {
    pub(super) address: SocketAddr,
    pub(super) state: EndState,
    pub(super) inbox: VecDeque<Bytes>,
    /// The other side sends no more.
    pub(super) is_ended: bool,
    /// Bytes sent to this end and not received by its owner: what fills the sender's window.
    pub(super) unread_bytes: usize,
    /// On their way here, with the instant they may arrive.
    transit: VecDeque<(Duration, Packet)>,
    pub(super) receiver: Option<Waker>,
    /// Sends from this end that wait for their turn or for room, first come first served.
    pub(super) sends: VecDeque<u64>,
    pub(super) senders: Vec<Waker>,
}

impl End {
    fn new(address: SocketAddr) -> End {
        End {
            address,
            state: EndState::Open,
            inbox: VecDeque::new(),
            is_ended: false,
            unread_bytes: 0,
            transit: VecDeque::new(),
            receiver: None,
            sends: VecDeque::new(),
            senders: Vec::new(),
        }
    }

    pub(super) fn wake_all(&mut self) {
        self.senders.drain(..).chain(self.receiver.take()).for_each(Waker::wake);
    }

    fn reset(&mut self, random: &mut Rng) {
        if self.state == EndState::Open {
            self.state = EndState::Reset;
            // What has arrived but was not received may be lost with the connection.
            if random.bool() {
                self.inbox.clear();
            }
        }
        self.wake_all();
    }
}

/// A connection: the client's end and the server's.
#[derive(Debug)]
pub(super) struct Link {
    ends: [End; 2],
}

impl Link {
    pub(super) fn end(&mut self, side: Side) -> &mut End {
        &mut self.ends[side as usize]
    }

    fn is_over(&self) -> bool {
        let is_left = |end: &End| matches!(end.state, EndState::Closed | EndState::Gone);
        self.ends.iter().all(|end| is_left(end) && end.transit.is_empty())
    }
}

/// Somebody who listens.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) id: u64,
    pub(super) pending: VecDeque<u64>,
    pub(super) waker: Option<Waker>,
}

#[derive(Debug)]
pub(super) struct NetworkState {
    pub(super) random: Rng,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) listeners: BTreeMap<SocketAddr, Listening>,
    delays: BTreeMap<(IpAddr, IpAddr), Range<Duration>>,
    cuts: BTreeSet<(IpAddr, IpAddr)>,
    down: BTreeSet<IpAddr>,
    /// The process that runs on each host, by number.
    processes: BTreeMap<IpAddr, u64>,
    free_port: u16,
    last_id: u64,
    waiting_for_change: Vec<Waker>,
}

impl NetworkState {
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn take_port(&mut self) -> u16 {
        let port = self.free_port;
        self.free_port = port.checked_add(1).unwrap_or(FIRST_FREE_PORT);
        port
    }

    pub(super) fn process_of(&self, host: IpAddr) -> u64 {
        self.processes.get(&host).copied().unwrap_or(0)
    }

    pub(super) fn passes(&self, from: IpAddr, to: IpAddr) -> bool {
        !self.cuts.contains(&(from, to)) && !self.down.contains(&from) && !self.down.contains(&to)
    }

    pub(super) fn wait_for_change(&mut self, waker: &Waker) {
        self.waiting_for_change.push(waker.clone());
    }

    pub(super) fn draw_delay(&mut self, from: IpAddr, to: IpAddr) -> Duration {
        let range = self.delays.get(&(from, to)).cloned().unwrap_or(DELAY_DEFAULT);
        let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).expect("short");
        let (least, most) = (nanoseconds(range.start), nanoseconds(range.end));
        Duration::from_nanos(self.random.u64(least..=most.max(least)))
    }

    pub(super) fn add_link(&mut self, client: SocketAddr, server: SocketAddr) -> u64 {
        let id = self.next_id();
        self.links.insert(id, Link { ends: [End::new(client), End::new(server)] });
        id
    }
}

/// A network between simulated hosts. `Clone` shares it.
#[derive(Clone, Debug)]
pub struct SimulatedNetwork {
    scheduler: Rc<Scheduler>,
    state: Rc<RefCell<NetworkState>>,
}

impl SimulatedNetwork {
    /// Makes a network on which everybody reaches everybody.
    #[must_use]
    pub fn new(runtime: &SimulatedRuntime) -> SimulatedNetwork {
        let scheduler = runtime.scheduler();
        let random = scheduler.fork_random();
        let state = NetworkState {
            random,
            links: BTreeMap::new(),
            listeners: BTreeMap::new(),
            delays: BTreeMap::new(),
            cuts: BTreeSet::new(),
            down: BTreeSet::new(),
            processes: BTreeMap::new(),
            free_port: FIRST_FREE_PORT,
            last_id: 0,
            waiting_for_change: Vec::new(),
        };
        SimulatedNetwork { scheduler, state: Rc::new(RefCell::new(state)) }
    }

    /// Gives the process that runs on `host` now its transport.
    #[must_use]
    pub fn transport(&self, host: IpAddr) -> SimulatedTransport {
        SimulatedTransport::new(self.clone(), host, self.state.borrow().process_of(host))
    }

    /// Sets how long frames are on their way from one host to another.
    pub fn set_delay(&self, from: IpAddr, to: IpAddr, delay: Range<Duration>) {
        self.state.borrow_mut().delays.insert((from, to), delay);
    }

    /// Lets nothing through from one host to another. What is sent meanwhile waits, as TCP's retries do.
    pub fn cut(&self, from: IpAddr, to: IpAddr) {
        self.state.borrow_mut().cuts.insert((from, to));
    }

    /// Cuts both directions.
    pub fn cut_both(&self, one: IpAddr, other: IpAddr) {
        self.cut(one, other);
        self.cut(other, one);
    }

    /// Ends a cut in one direction: what waited goes on, in order.
    pub fn heal(&self, from: IpAddr, to: IpAddr) {
        self.state.borrow_mut().cuts.remove(&(from, to));
        self.go_on();
    }

    /// Ends every cut.
    pub fn heal_all(&self) {
        self.state.borrow_mut().cuts.clear();
        self.go_on();
    }

    /// Breaks every connection between two hosts off, on both sides, at once. Frames on their way are lost.
    pub fn reset(&self, one: IpAddr, other: IpAddr) {
        let mut state = self.state.borrow_mut();
        let NetworkState { links, random, .. } = &mut *state;
        for link in links.values_mut() {
            let hosts = (link.ends[0].address.ip(), link.ends[1].address.ip());
            if hosts == (one, other) || hosts == (other, one) {
                for end in &mut link.ends {
                    end.transit.clear();
                    end.reset(random);
                }
            }
        }
    }

    /// Ends the process on `host`: its listeners go, its peers learn it unless they are cut off.
    pub fn kill_process(&self, host: IpAddr) {
        for (link, side) in self.leave(host) {
            let is_orderly = self.state.borrow_mut().random.bool();
            let packet = if is_orderly { Packet::End } else { Packet::Reset };
            self.send_packet(link, side, packet);
        }
    }

    /// Ends the machine: its peers hear nothing, and when it is back what they send is answered by a reset.
    pub fn lose_power(&self, host: IpAddr) {
        for (link, side) in self.leave(host) {
            let mut state = self.state.borrow_mut();
            if let Some(link) = state.links.get_mut(&link) {
                link.end(side.other()).transit.clear();
            }
        }
        self.state.borrow_mut().down.insert(host);
    }

    /// Brings a host that lost power back to the network.
    pub fn start(&self, host: IpAddr) {
        self.state.borrow_mut().down.remove(&host);
        self.go_on();
    }

    pub(super) fn scheduler(&self) -> &Rc<Scheduler> {
        &self.scheduler
    }

    pub(super) fn state(&self) -> RefMut<'_, NetworkState> {
        self.state.borrow_mut()
    }

    /// Puts a packet on its way from one end to the other.
    pub(super) fn send_packet(&self, link_id: u64, from: Side, packet: Packet) {
        let mut state = self.state.borrow_mut();
        let Some(link) = state.links.get_mut(&link_id) else { return };
        let (sender, receiver) = (link.end(from).address.ip(), link.end(from.other()).address.ip());
        let delay = state.draw_delay(sender, receiver);
        let now = self.scheduler.virtual_time().now();
        let link = state.links.get_mut(&link_id).expect("just found");
        let transit = &mut link.end(from.other()).transit;
        let last = transit.back().map_or(Duration::ZERO, |(arrival, _)| *arrival);
        let arrival = last.max(now + delay);
        transit.push_back((arrival, packet));
        drop(state);
        self.deliver_after(arrival - now, link_id, from.other());
    }

    /// Forgets a link that both ends have left.
    pub(super) fn forget_if_over(&self, link_id: u64) {
        let mut state = self.state.borrow_mut();
        if state.links.get(&link_id).is_some_and(Link::is_over) {
            state.links.remove(&link_id);
        }
    }

    fn deliver_after(&self, delay: Duration, link: u64, to: Side) {
        let network = self.clone();
        self.scheduler.call_after(delay, move || network.deliver(link, to));
    }

    /// Hands over what has arrived at one end, in order, unless the way is cut.
    fn deliver(&self, link_id: u64, to: Side) {
        let now = self.scheduler.virtual_time().now();
        let is_refused = {
            let mut state = self.state.borrow_mut();
            let Some(link) = state.links.get_mut(&link_id) else { return };
            let hosts = (link.end(to.other()).address.ip(), link.end(to).address.ip());
            if !state.passes(hosts.0, hosts.1) {
                return;
            }
            let NetworkState { links, random, .. } = &mut *state;
            let end = links.get_mut(&link_id).expect("just found").end(to);
            let mut is_refused = false;
            while end.transit.front().is_some_and(|(arrival, _)| *arrival <= now) {
                let (_, packet) = end.transit.pop_front().expect("just seen");
                is_refused |= receive_packet(end, packet, random);
            }
            is_refused
        };
        if is_refused {
            self.send_packet(link_id, to, Packet::Reset);
        }
        self.forget_if_over(link_id);
    }

    /// Delivers what waited for a cut or a down host to end.
    fn go_on(&self) {
        let links: Vec<u64> = {
            let mut state = self.state.borrow_mut();
            state.waiting_for_change.drain(..).for_each(Waker::wake);
            state.links.keys().copied().collect()
        };
        for link in links {
            self.deliver(link, Side::Client);
            self.deliver(link, Side::Server);
        }
    }

    /// Takes the running process off a host and returns the ends it had open.
    fn leave(&self, host: IpAddr) -> Vec<(u64, Side)> {
        let mut state = self.state.borrow_mut();
        *state.processes.entry(host).or_default() += 1;
        state.listeners.retain(|address, _| address.ip() != host);
        let mut left = Vec::new();
        for (id, link) in &mut state.links {
            for side in [Side::Client, Side::Server] {
                let end = link.end(side);
                if end.address.ip() == host && end.state != EndState::Gone {
                    if end.state == EndState::Open {
                        left.push((*id, side));
                    }
                    end.state = EndState::Gone;
                }
            }
        }
        left
    }
}

/// Gives one packet to an end; tells whether the end refuses it with a reset.
fn receive_packet(end: &mut End, packet: Packet, random: &mut Rng) -> bool {
    let is_frame = matches!(packet, Packet::Frame(_));
    match (end.state, packet) {
        (EndState::Open, Packet::Frame(frame)) => end.inbox.push_back(frame),
        (EndState::Open, Packet::End) => end.is_ended = true,
        (_, Packet::Reset) => end.reset(random),
        _ => return is_frame,
    }
    if let Some(receiver) = end.receiver.take() {
        receiver.wake();
    }
    false
}
