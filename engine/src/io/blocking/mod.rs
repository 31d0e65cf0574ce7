//! The machine without io_uring: system calls that block, made on a few helper threads.

mod disk;

pub use disk::BlockingDisk;
