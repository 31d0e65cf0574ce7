//! The ring as a shard uses it.

use std::path::Path;
use std::sync::Arc;

use super::disk::Caching;
use super::*;
use crate::io::disk::Disk;
use crate::io::environment::{Environment, ShardMain, ThreadOptions};
use crate::io::transport::Transport;
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
