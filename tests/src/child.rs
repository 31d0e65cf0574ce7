//! A second process: this test binary again, running one test that does the child's part.
//!
//! Waits for what the child says with a deadline, and kills it by its own id.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::real::PATIENCE;

/// Names the data directory to a child; a test without it is not a child.
const DIRECTORY: &str = "PALISADE_CHILD_DIRECTORY";

/// What the child says to its parent starts with this; the test runner's own lines do not.
const MARK: char = '@';

/// A running child.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    said: Receiver<String>,
}

impl Child {
    /// Starts this binary again to run `test` on a data directory.
    #[must_use]
    pub fn start(test: &str, directory: impl AsRef<OsStr>) -> Child {
        let binary = std::env::current_exe().expect("this binary has a path");
        let mut process = Command::new(binary)
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the system gives a process");
        let output = process.stdout.take().expect("it is piped");
        let (say, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some((_, word)) = line.split_once(MARK)
                    && say.send(word.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Child { process, said }
    }

    /// The next thing it says.
    #[must_use]
    pub fn next(&self) -> String {
        self.said.recv_timeout(PATIENCE).expect("the child says something within the deadline")
    }

    /// Sends SIGKILL and waits for its end. Returns what it had said and nobody had heard.
    #[must_use]
    pub fn kill(mut self) -> Vec<String> {
        self.process.kill().expect("it is our child");
        self.process.wait().expect("it is our child");
        self.said.iter().collect()
    }

    /// The data directory, in the child; `None` in an ordinary run of the test.
    #[must_use]
    pub fn directory() -> Option<std::path::PathBuf> {
        std::env::var_os(DIRECTORY).map(Into::into)
    }

    /// Tells the parent something, from the child.
    pub fn say(word: &str) {
        println!("\n{MARK}{word}");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Already gone after `kill`; after a failed test it must not stay behind.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
