//! Who answers: pings between voters on connections of their own, so that every voter knows the quorum without asking
//! a leader.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::voter::Voter;
use crate::raft::{CallError, Connection, PeerReport, Request, Response};
use crate::state::StorageId;

/// What is known of one other voter.
#[derive(Clone, Debug, Default)]
pub(super) struct Contact {
    /// When it last answered.
    pub(super) heard: Option<Instant>,
    /// Whether the last attempt to reach it failed.
    pub(super) is_broken: bool,
    /// What it said last.
    pub(super) report: PeerReport,
    /// Its directory and cluster, as it told them in the handshake.
    pub(super) greeting: Option<(StorageId, Option<Uuid>)>,
}

impl Contact {
    /// Whether it answered lately.
    pub(super) fn is_live(&self, silent: Duration) -> bool {
        !self.is_broken && self.heard.is_some_and(|heard| heard.elapsed() < silent)
    }
}

/// The contacts to all other voters, by name.
#[derive(Debug)]
pub(super) struct Contacts {
    by_name: Mutex<BTreeMap<String, Contact>>,
    changed: watch::Sender<()>,
}

impl Contacts {
    pub(super) fn new(names: impl Iterator<Item = String>) -> Contacts {
        let by_name = names.map(|name| (name, Contact::default())).collect();
        Contacts { by_name: Mutex::new(by_name), changed: watch::channel(()).0 }
    }

    /// Wakes when somebody is heard or lost.
    pub(super) fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(super) fn get(&self, name: &str) -> Option<Contact> {
        self.lock().get(name).cloned()
    }

    pub(super) fn all(&self) -> BTreeMap<String, Contact> {
        self.lock().clone()
    }

    fn update(&self, name: &str, change: impl FnOnce(&mut Contact)) {
        if let Some(contact) = self.lock().get_mut(name) {
            change(contact);
        }
        self.changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Contact>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pings one voter for ever.
pub(super) async fn run_pings(voter: Arc<Voter>, name: String) {
    let timings = voter.config.timings;
    let mut told = String::new();
    loop {
        let error = match voter.peers.connect(&name, "").await {
            Ok(connection) => {
                told.clear();
                ping_until_lost(&voter, &name, connection).await;
                // Reached a moment ago: only a failed attempt to come back says that it is gone.
                continue;
            }
            Err(error) => error,
        };
        tell_once(&error, &mut told);
        voter.contacts.update(&name, |contact| contact.is_broken = true);
        sleep(timings.ping).await;
    }
}

/// A voter that is away is worth one line, not one a ping.
fn tell_once(error: &CallError, told: &mut String) {
    let text = error.to_string();
    if *told != text {
        tracing::warn!(reason = %text, "a voter cannot be reached");
        *told = text;
    }
}

async fn ping_until_lost(voter: &Voter, name: &str, mut connection: Connection) {
    let timings = voter.config.timings;
    let greeting = Some((connection.storage, connection.cluster));
    loop {
        let ping = Request::Ping(voter.report());
        let asked = timeout(timings.voter_silent, connection.call(&ping)).await;
        let Ok(Ok(Response::Ping(report))) = asked else { return };
        voter.note_report(&report);
        voter.contacts.update(name, |contact| {
            contact.heard = Some(Instant::now());
            contact.is_broken = false;
            contact.report = report;
            contact.greeting = greeting;
        });
        tokio::select! {
            () = sleep(timings.ping) => {}
            () = connection.closed() => return,
        }
    }
}
