//! Tests of the simulated network and its transport.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join;

use super::*;
use crate::io::conformance::check_transport;
use crate::io::runtime::Runtime;
use crate::io::simulated::SimulatedRuntime;

const MILLISECOND: Duration = Duration::from_millis(1);
const SEEDS: u64 = 100;

struct Bed {
    runtime: SimulatedRuntime,
    network: SimulatedNetwork,
}

fn host(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

fn server() -> SocketAddr {
    SocketAddr::new(host(1), 7000)
}

impl Bed {
    fn new(seed: u64) -> Bed {
        let runtime = SimulatedRuntime::new(seed);
        let network = SimulatedNetwork::new(&runtime);
        Bed { runtime, network }
    }

    /// A connection from host 2 to host 1: the client's end, the server's, and the listener.
    fn connect(&self) -> (SimulatedConnection, SimulatedConnection, SimulatedListener) {
        self.runtime.block_on(async {
            let listener = self.network.transport(host(1)).listen(server()).await.unwrap();
            let client = self.network.transport(host(2));
            let (client, accepted) = join(client.connect(server()), listener.accept()).await;
            (client.unwrap(), accepted.unwrap(), listener)
        })
    }

    fn send(&self, connection: &SimulatedConnection, text: &'static str) {
        self.runtime.block_on(connection.send(vec![Bytes::from_static(text.as_bytes())])).unwrap();
    }

    fn receive(&self, connection: &SimulatedConnection) -> Option<Bytes> {
        self.runtime.block_on(connection.receive()).unwrap()
    }
}

#[test]
fn simulated_transport_keeps_the_rules_of_transports() {
    for seed in 0..3 {
        let bed = Bed::new(seed);
        let transport = bed.network.transport(host(1));
        bed.runtime.block_on(check_transport(&transport, SocketAddr::new(host(1), 0)));
    }
}

#[test]
fn frames_arrive_whole_and_in_order_both_ways() {
    for seed in 0..SEEDS {
        let bed = Bed::new(seed);
        let (client, accepted, _listener) = bed.connect();
        for text in ["one", "two", "three"] {
            bed.send(&client, text);
            bed.send(&accepted, text);
        }

        for connection in [&client, &accepted] {
            let received = [(); 3].map(|()| bed.receive(connection).unwrap());
            assert_eq!(received, ["one", "two", "three"], "seed {seed}");
        }
        assert_eq!(client.peer(), server());
        assert_eq!(accepted.peer().ip(), host(2));
    }
}

#[test]
fn frame_is_its_parts_joined_and_may_be_empty() {
    let bed = Bed::new(1);
    let (client, accepted, _listener) = bed.connect();

    let parts = ["he", "", "llo"].map(|part| Bytes::from_static(part.as_bytes())).to_vec();
    bed.runtime.block_on(client.send(parts)).unwrap();
    bed.runtime.block_on(client.send(Vec::new())).unwrap();

    assert_eq!(bed.receive(&accepted).unwrap(), "hello");
    assert_eq!(bed.receive(&accepted).unwrap(), "");
}

#[test]
fn oversized_frame_is_refused() {
    let bed = Bed::new(1);
    let (client, _accepted, _listener) = bed.connect();

    let frame = vec![Bytes::from(vec![0; FRAME_BYTES_MAX]), Bytes::from_static(b"x")];
    let refused = bed.runtime.block_on(client.send(frame)).unwrap_err();

    assert!(matches!(refused, TransportError::FrameTooLarge { .. }));
}

#[test]
fn nobody_listening_refuses_and_a_taken_address_is_in_use() {
    let bed = Bed::new(2);
    let transport = bed.network.transport(host(1));

    let refused = bed.runtime.block_on(bed.network.transport(host(2)).connect(server()));
    let listener = bed.runtime.block_on(transport.listen(server())).unwrap();
    let taken = bed.runtime.block_on(transport.listen(server()));
    let foreign = bed.runtime.block_on(transport.listen(SocketAddr::new(host(9), 1)));
    drop(listener);
    let again = bed.runtime.block_on(transport.listen(server()));
    let any = bed.runtime.block_on(transport.listen(SocketAddr::new(host(1), 0))).unwrap();

    let kind = |error: TransportError| match error {
        TransportError::Io { source, .. } => source.kind(),
        error => panic!("{error}"),
    };
    assert_eq!(kind(refused.unwrap_err()), ErrorKind::ConnectionRefused);
    assert_eq!(kind(taken.unwrap_err()), ErrorKind::AddrInUse);
    assert_eq!(kind(foreign.unwrap_err()), ErrorKind::AddrNotAvailable);
    assert!(again.is_ok());
    assert_ne!(any.local_address().port(), 0);
}

#[test]
fn close_lets_what_was_sent_arrive_and_then_ends() {
    let bed = Bed::new(3);
    let (client, accepted, _listener) = bed.connect();
    bed.send(&client, "last");

    client.close();

    assert_eq!(bed.receive(&accepted).unwrap(), "last");
    assert_eq!(bed.receive(&accepted), None);
    assert_eq!(bed.receive(&client), None);
    assert!(bed.runtime.block_on(client.send(Vec::new())).is_err());
}

#[test]
fn last_clone_dropped_closes_and_the_network_forgets() {
    let bed = Bed::new(3);
    let (client, accepted, _listener) = bed.connect();
    let clone = client.clone();
    drop(client);
    bed.send(&clone, "still open");
    drop(clone);

    assert_eq!(bed.receive(&accepted).unwrap(), "still open");
    assert_eq!(bed.receive(&accepted), None);
    drop(accepted);
    bed.runtime.run_for(MILLISECOND * 10);
    assert!(bed.network.state().links.is_empty());
}

#[test]
fn sending_to_one_who_left_resets() {
    let bed = Bed::new(4);
    let (client, accepted, _listener) = bed.connect();
    drop(accepted);

    bed.send(&client, "to nobody");
    bed.runtime.run_for(MILLISECOND * 10);

    assert!(bed.runtime.block_on(client.send(Vec::new())).is_err());
}

#[test]
fn cut_holds_one_direction_until_it_heals() {
    let bed = Bed::new(5);
    let (client, accepted, _listener) = bed.connect();
    bed.network.cut(host(2), host(1));

    bed.send(&client, "one");
    bed.send(&client, "two");
    bed.send(&accepted, "other way");
    assert_eq!(bed.receive(&client).unwrap(), "other way");
    bed.runtime.run_for(Duration::from_secs(60));
    assert!(accepted.receive().now_or_never().is_none());
    bed.network.heal(host(2), host(1));

    assert_eq!(bed.receive(&accepted).unwrap(), "one");
    assert_eq!(bed.receive(&accepted).unwrap(), "two");
}

#[test]
fn connecting_across_a_cut_waits_for_it_to_heal() {
    let bed = Bed::new(5);
    let listener = bed.runtime.block_on(bed.network.transport(host(1)).listen(server())).unwrap();
    let is_connected = Rc::new(Cell::new(false));
    let (transport, seen) = (bed.network.transport(host(2)), is_connected.clone());
    bed.network.cut_both(host(1), host(2));

    bed.runtime.spawn(Box::pin(async move {
        let _connection = transport.connect(server()).await.unwrap();
        seen.set(true);
    }));
    bed.runtime.run_for(Duration::from_secs(60));
    let during = is_connected.get();
    bed.network.heal_all();
    bed.runtime.block_on(listener.accept()).unwrap();
    bed.runtime.run_for(MILLISECOND);

    assert!(!during);
    assert!(is_connected.get());
}

#[test]
fn reset_fails_both_ends() {
    let bed = Bed::new(6);
    let (client, accepted, _listener) = bed.connect();

    bed.network.reset(host(1), host(2));

    for connection in [&client, &accepted] {
        assert!(bed.runtime.block_on(connection.receive()).is_err());
        assert!(bed.runtime.block_on(connection.send(Vec::new())).is_err());
    }
}

#[test]
fn peers_of_a_killed_process_see_an_end_or_a_reset() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let bed = Bed::new(seed);
        let (client, _accepted, _listener) = bed.connect();
        bed.network.kill_process(host(1));
        seen.insert(bed.runtime.block_on(client.receive()).is_ok());
        let connect = bed.network.transport(host(2));
        assert!(bed.runtime.block_on(connect.connect(server())).is_err(), "seed {seed}");
    }

    assert_eq!(seen, BTreeSet::from([false, true]));
}

#[test]
fn peers_of_a_machine_without_power_hear_nothing_until_it_is_back() {
    let bed = Bed::new(7);
    let (client, _accepted, _listener) = bed.connect();

    bed.network.lose_power(host(1));
    bed.send(&client, "anybody?");
    bed.runtime.run_for(Duration::from_secs(60));
    let during = client.receive().now_or_never();
    bed.network.start(host(1));

    assert!(during.is_none());
    assert!(bed.runtime.block_on(client.receive()).is_err());
}

#[test]
fn sender_waits_for_a_receiver_that_does_not_read() {
    let bed = Bed::new(8);
    let (client, accepted, _listener) = bed.connect();
    let sent = Rc::new(RefCell::new(Vec::new()));
    for number in 0..4_u8 {
        let (client, sent) = (client.clone(), sent.clone());
        bed.runtime.spawn(Box::pin(async move {
            let frame = Bytes::from(vec![number; WINDOW_BYTES / 2]);
            client.send(vec![frame]).await.unwrap();
            sent.borrow_mut().push(number);
        }));
        bed.runtime.run_for(MILLISECOND);
    }
    bed.runtime.run_for(Duration::from_secs(1));
    let before = sent.borrow().clone();

    let received = [(); 4].map(|()| bed.receive(&accepted).unwrap()[0]);

    assert_eq!(before, [0, 1]);
    assert_eq!(received, [0, 1, 2, 3]);
}

#[test]
fn delay_of_a_link_is_as_set() {
    let bed = Bed::new(9);
    let (client, accepted, _listener) = bed.connect();
    bed.network.set_delay(host(2), host(1), MILLISECOND * 50..MILLISECOND * 60);
    let before = bed.runtime.now();

    bed.send(&client, "slow");
    bed.receive(&accepted).unwrap();

    let taken = bed.runtime.now() - before;
    assert!((MILLISECOND * 50..=MILLISECOND * 60).contains(&taken), "{taken:?}");
}

#[test]
fn same_seed_gives_the_same_network() {
    let run = |seed| {
        let bed = Bed::new(seed);
        let (client, accepted, _listener) = bed.connect();
        for _ in 0..20 {
            bed.send(&client, "ping");
            bed.receive(&accepted).unwrap();
        }
        (bed.runtime.fingerprint(), bed.runtime.now())
    };

    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
