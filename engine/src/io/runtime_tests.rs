//! Both real runtimes as a shard uses them: disk, transport, and the way out.

use std::any::Any;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::blocking::BlockingRuntime;
use super::probe::{Finding, probe};
use super::ring::{Caching, RingDisk, RingRuntime};
use crate::id::{BLOCK_BYTES, Position};
use crate::io::arena::{Region, SharedExtent};
use crate::io::disk::{Disk, DiskFile, OpenMode, WriteMode};
use crate::io::environment::{Environment, ShardMain, StartError, ThreadOptions};
use crate::io::runtime::LocalFuture;
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

struct CheckRuntime;

impl ShardMain for CheckRuntime {
    async fn run<D: Disk, T: Transport>(self, environment: Environment<D, T>) {
        conformance::check_runtime(&environment.runtime).await;
        wakes_come_from_any_thread().await;
    }
}

async fn wakes_come_from_any_thread() {
    for _ in 0..100 {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let other = std::thread::spawn(move || sender.send(()));
        receiver.await.unwrap();
        other.join().unwrap().unwrap();
    }
}

#[test]
fn runtimes_conform() {
    RingRuntime::run(options(1 << 20), CheckRuntime).unwrap();
    BlockingRuntime::run(options(1 << 20), CheckRuntime).unwrap();
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

const BUSY_OPERATIONS: u8 = 32;
const BUSY_BYTES: usize = 16 * BLOCK_BYTES;

/// Leaves with reads, writes and sockets in flight, held by a task, dropped, and half awaited.
struct LeaveBusy<'a> {
    path: PathBuf,
    region: &'a mut Weak<Region>,
    panics: bool,
}

impl ShardMain for LeaveBusy<'_> {
    async fn run<D: Disk, T: Transport>(self, environment: Environment<D, T>) {
        let Environment { disk, transport, runtime, .. } = &environment;
        *self.region = Arc::downgrade(disk.arena().region());
        let file = disk.open(&self.path, OpenMode::CreateNew).await.unwrap();
        let mut begun = Vec::new();
        for number in 0..BUSY_OPERATIONS {
            let position = Position(u64::from(number) * BUSY_BYTES as u64);
            let write = file.clone();
            let bytes = filled(disk, number);
            begun.push(begin(async move {
                write.write(bytes, position, WriteMode::Durable).await.unwrap();
            }));
            let read = file.clone();
            let buffer = disk.arena().allocate(BUSY_BYTES).unwrap();
            begun.push(begin(async move {
                read.read(buffer, position).await.unwrap();
            }));
        }
        drop(begun.split_off(BUSY_OPERATIONS.into()));
        for operation in begun.split_off(BUSY_OPERATIONS as usize / 2) {
            operation.await;
        }
        runtime.spawn(Box::pin(async move {
            futures_util::future::join_all(begun).await;
            std::future::pending::<()>().await;
        }));

        let listener = transport.listen(loopback()).await.unwrap();
        let dialled = transport.connect(listener.local_address()).await.unwrap();
        let accepted = listener.accept().await.unwrap();
        runtime.spawn(Box::pin(async move {
            let waits = (dialled.receive(), accepted.receive(), listener.accept());
            let ended = futures_util::future::join3(waits.0, waits.1, waits.2).await;
            drop(ended);
        }));
        runtime.turn().await;
        assert!(!self.panics, "the shard's own mistake");
    }
}

fn filled<D: Disk>(disk: &D, number: u8) -> SharedExtent {
    let mut extent = disk.arena().allocate(BUSY_BYTES).unwrap();
    extent.as_mut_slice().fill(number + 1);
    extent.freeze()
}

/// Polls an operation once, which submits it.
fn begin(operation: impl Future<Output = ()> + 'static) -> LocalFuture<()> {
    let mut operation: LocalFuture<()> = Box::pin(operation);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    if operation.as_mut().poll(&mut context).is_ready() {
        // A helper thread was quicker.
        return Box::pin(std::future::ready(()));
    }
    operation
}

// L35. Method: every write that was begun has landed whole when `run` returns, and nothing holds the arena
// any more, neither the ring nor a buffer.
fn assert_left_clean(run: impl FnOnce(LeaveBusy<'_>)) {
    let directory = conformance::scratch_directory();
    let path = directory.path().join("busy");
    let mut region = Weak::new();

    run(LeaveBusy { path: path.clone(), region: &mut region, panics: false });

    assert!(region.upgrade().is_none(), "somebody still holds the arena");
    assert_whole(&path);
}

fn assert_whole(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len(), BUSY_BYTES * usize::from(BUSY_OPERATIONS));
    for (number, piece) in (0..BUSY_OPERATIONS).zip(bytes.chunks(BUSY_BYTES)) {
        assert!(piece.iter().all(|byte| *byte == number + 1), "write {number} is not whole");
    }
}

#[test]
fn ring_is_left_with_nothing_in_flight() {
    assert_left_clean(|main| RingRuntime::run(options(16 << 20), main).unwrap());
    assert_left_clean(|main| {
        RingRuntime::run_cached(options(16 << 20), Caching::Through, main).unwrap();
    });
}

#[test]
fn blocking_runtime_is_left_with_nothing_in_flight() {
    assert_left_clean(|main| BlockingRuntime::run(options(16 << 20), main).unwrap());
}

#[test]
fn panic_goes_on_after_the_wait() {
    let directory = conformance::scratch_directory();
    let path = directory.path().join("busy");
    let mut region = Weak::new();
    let main = LeaveBusy { path: path.clone(), region: &mut region, panics: true };

    let ended = catch_unwind(AssertUnwindSafe(|| RingRuntime::run(options(16 << 20), main)));

    assert!(ended.is_err(), "the panic was swallowed");
    assert!(region.upgrade().is_none(), "somebody still holds the arena");
    assert_whole(&path);
}

/// Checks the disk, after it made sure that its arena is unregistered.
struct CheckUnregistered;

impl ShardMain for CheckUnregistered {
    async fn run<D: Disk, T: Transport>(self, environment: Environment<D, T>) {
        let disk: &dyn Any = &environment.disk;
        let disk = disk.downcast_ref::<RingDisk>().unwrap();
        assert!(!disk.is_registered(), "the memlock limit did not bind");
        let directory = conformance::scratch_directory();
        conformance::check_disk(disk, directory.path()).await;
    }
}

/// Runs the test named `name` alone in a second process and tells whether this is that process: limits
/// and capabilities belong to a process, so a test that gives some up needs its own.
fn is_second_process(name: &str) -> bool {
    const SECOND: &str = "PALISADE_TEST_SECOND_PROCESS";
    if std::env::var_os(SECOND).is_some() {
        return true;
    }
    let second = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("io::runtime_tests::{name}"), "--nocapture"])
        .env(SECOND, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&second.stdout);
    assert!(second.status.success() && output.contains("1 passed"), "{output}");
    false
}

fn limit(resource: Resource, most: u64) {
    setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).unwrap();
}

#[test]
fn little_memlock_means_unregistered_buffers() {
    if !is_second_process("little_memlock_means_unregistered_buffers") {
        return;
    }
    let directory = conformance::scratch_directory();
    limit(Resource::Memlock, 64 << 10);
    let mut held = capabilities(None).unwrap();
    held.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, held).unwrap();

    let findings = probe(directory.path(), 2 << 20);

    let is_found = findings.iter().any(|finding| {
        matches!(finding, Finding::MemlockTooLow { limit_bytes: 65_536, needed_bytes: 2_097_152 })
    });
    assert!(is_found, "{findings:?}");
    assert!(!findings.iter().any(Finding::forbids_ring), "{findings:?}");
    RingRuntime::run(options(2 << 20), CheckUnregistered).unwrap();
}

#[test]
fn ring_refused_is_a_finding_and_an_error_before_anything_runs() {
    if !is_second_process("ring_refused_is_a_finding_and_an_error_before_anything_runs") {
        return;
    }
    let directory = conformance::scratch_directory();
    limit(Resource::Nofile, 3);

    let findings = probe(directory.path(), 0);
    let started = RingRuntime::run(options(1 << 20), CheckTransport);

    assert!(
        matches!(findings[0], Finding::RingRefused { ref source } if source.raw_os_error() == Some(24)),
        "{findings:?}"
    );
    assert!(matches!(started, Err(StartError::Ring { .. })), "{started:?}");
}
