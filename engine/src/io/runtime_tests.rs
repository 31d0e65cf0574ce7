//! Both real runtimes as a shard uses them: disk, transport, and the way out.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use super::blocking::BlockingRuntime;
use super::ring::{Caching, RingRuntime};
use crate::io::disk::Disk;
use crate::io::environment::{Environment, ShardMain, ThreadOptions};
use crate::io::transport::{Connection, Listener, Transport, TransportError};
use crate::io::{SystemClock, conformance};

fn options(arena_bytes: usize) -> ThreadOptions {
    ThreadOptions { arena_bytes, clock: Arc::new(SystemClock) }
}

struct CheckDisk<'a> {
    directory: &'a Path,
}

impl ShardMain for CheckDisk<'_> {
    async fn run<D: Disk, T: Transport>(self, environment: Environment<D, T>) {
        conformance::check_disk(&environment.disk, self.directory).await;
    }
}

#[test]
fn direct_disk_conforms() {
    let directory = conformance::scratch_directory();

    RingRuntime::run(options(2 << 20), CheckDisk { directory: directory.path() }).unwrap();
}

#[test]
fn cached_disk_conforms() {
    let directory = conformance::scratch_directory();

    let main = CheckDisk { directory: directory.path() };
    RingRuntime::run_cached(options(2 << 20), Caching::Through, main).unwrap();
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

struct CheckTransport;

impl ShardMain for CheckTransport {
    async fn run<D: Disk, T: Transport>(self, environment: Environment<D, T>) {
        conformance::check_transport(&environment.transport, loopback()).await;
    }
}

#[test]
fn ring_transport_conforms() {
    RingRuntime::run(options(1 << 20), CheckTransport).unwrap();
}

#[test]
fn blocking_transport_conforms() {
    BlockingRuntime::run(options(1 << 20), CheckTransport).unwrap();
}

/// A peer that speaks nonsense, then one that breaks off in mid frame.
struct BadPeers;

impl ShardMain for BadPeers {
    async fn run<D: Disk, T: Transport>(self, environment: Environment<D, T>) {
        let listener = environment.transport.listen(loopback()).await.unwrap();

        let mut peer = std::net::TcpStream::connect(listener.local_address()).unwrap();
        peer.write_all(&u32::MAX.to_le_bytes()).unwrap();
        let connection = listener.accept().await.unwrap();
        assert_eq!(connection.peer(), peer.local_addr().unwrap());
        let refused = connection.receive().await.unwrap_err();
        let TransportError::FrameTooLarge { bytes, .. } = refused else {
            panic!("not for its length: {refused}");
        };
        assert_eq!(bytes, u64::from(u32::MAX));
        assert!(connection.send(vec![]).await.is_err(), "the connection is over");

        let mut peer = std::net::TcpStream::connect(listener.local_address()).unwrap();
        peer.write_all(&[10, 0, 0, 0, 1]).unwrap();
        drop(peer);
        let connection = listener.accept().await.unwrap();
        let broken = connection.receive().await.unwrap_err();
        let TransportError::Io { source, .. } = broken else { panic!("not an end: {broken}") };
        assert_eq!(source.kind(), std::io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn bad_peers_end_only_their_own_connection() {
    RingRuntime::run(options(1 << 20), BadPeers).unwrap();
    BlockingRuntime::run(options(1 << 20), BadPeers).unwrap();
}
