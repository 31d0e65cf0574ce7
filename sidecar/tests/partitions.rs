//! Voters cut off from each other: every connection between two of them goes through a link that can be cut.

#![allow(clippy::unwrap_used, reason = "the links of these tests")]

mod harness;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use harness::{PATIENCE, TWO_SECONDS, Voters, admit, create, register, until};
use palisade_sidecar::role::{Answer, MetadataRole};
use palisade_sidecar::state::Refusal;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// Links by (from, to).
struct Links(BTreeMap<(usize, usize), watch::Sender<bool>>);

impl Links {
    /// Puts a link before each voter for each other one.
    async fn between(voters: &mut Voters) -> Links {
        let mut links = BTreeMap::new();
        let count = voters.configs.len();
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let (cut, is_cut) = watch::channel(false);
                tokio::spawn(carry(listener, voters.configs[to].listen, is_cut));
                voters.configs[from].peers[to].1 = address;
                links.insert((from, to), cut);
            }
        }
        Links(links)
    }

    /// Cuts or mends everything between the voters of which `is_cut` says so.
    fn set(&self, is_cut: impl Fn(usize, usize) -> bool) {
        for ((from, to), cut) in &self.0 {
            cut.send_replace(is_cut(*from, *to));
        }
    }
}

/// Carries connections while the link is whole. A cut one takes connections and says nothing.
async fn carry(listener: TcpListener, to: SocketAddr, is_cut: watch::Receiver<bool>) {
    loop {
        let Ok((mut near, _)) = listener.accept().await else { return };
        let mut is_cut = is_cut.clone();
        tokio::spawn(async move {
            if is_cut.wait_for(|cut| !cut).await.is_err() {
                return;
            }
            let Ok(mut far) = TcpStream::connect(to).await else { return };
            tokio::select! {
                _ = copy_bidirectional(&mut near, &mut far) => return,
                _ = is_cut.wait_for(|cut| *cut) => {}
            }
            // What was under way is lost without a word, as in a network that drops packets.
            let _ = is_cut.wait_for(|cut| !cut).await;
        });
    }
}

async fn linked(count: usize) -> (Voters, Links) {
    let mut voters = Voters::new(count);
    let links = Links::between(&mut voters).await;
    for place in 0..count {
        voters.start(place).await;
    }
    voters.leader().await;
    admit(voters.voter(0), register("n1", 1)).await;
    (voters, links)
}

/// Waits for a leader other than `old` among those that `sees` counts, and returns its place.
async fn next_leader(voters: &Voters, old: usize, places: &[usize]) -> usize {
    let started = Instant::now();
    loop {
        for place in places.iter().filter(|place| **place != old) {
            let majority = voters.voter(*place).quorum_status().majority;
            if majority.held && majority.leader.as_ref() == Some(&voters.configs[*place].name) {
                return *place;
            }
        }
        assert!(started.elapsed() < PATIENCE, "no new leader");
        sleep(Duration::from_millis(10)).await;
    }
}

async fn not_confirmed(voter: &MetadataRole) {
    let asked = Instant::now();
    let refused = voter.confirm_leadership(TWO_SECONDS).await;
    assert!(refused.is_err(), "{refused:?}");
    assert!(asked.elapsed() < TWO_SECONDS + Duration::from_secs(1));
}

// M6, and the rule that a cut-off leader confirms nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_refuses_confirms_nothing_and_catches_up_by_itself() {
    let (voters, links) = linked(3).await;
    let old = voters.leader().await;
    let others: Vec<usize> = (0..3).filter(|place| *place != old).collect();

    links.set(|from, to| from == old || to == old);
    let cut = Instant::now();
    // In flight when the line went: it may have been admitted, and says so at its deadline.
    let pending = voters.voter(old).propose(create("pending", 1), TWO_SECONDS).await;
    assert!(!matches!(pending, Answer::Admitted { .. }), "{pending:?}");
    until("it knows that the majority is gone", || {
        !voters.voter(old).quorum_status().majority.held
    })
    .await;
    assert!(cut.elapsed() < Duration::from_secs(4));
    let asked = Instant::now();
    let refused = voters.voter(old).propose(create("refused", 1), TWO_SECONDS).await;
    assert!(asked.elapsed() < TWO_SECONDS);
    assert!(
        matches!(refused, Answer::Refused { reason: Refusal::NoMajority, live: 1, needed: 2, .. }),
        "{refused:?}"
    );
    not_confirmed(voters.voter(old)).await;

    let new = next_leader(&voters, old, &others).await;
    admit(voters.voter(new), create("admitted", 1)).await;
    let confirmed = voters.voter(new).confirm_leadership(PATIENCE).await.unwrap();
    assert!(confirmed.term > 1);
    links.set(|_, _| false);
    let mended = Instant::now();
    until("it is current with no nudge", || {
        voters.voter(old).view().stream_by_name("admitted").is_some()
    })
    .await;

    assert!(mended.elapsed() < Duration::from_secs(5), "{:?}", mended.elapsed());
    let names = |place: usize| {
        let view = voters.voter(place).view();
        let mut names: Vec<_> = view.streams().map(|stream| stream.name.clone()).collect();
        names.sort();
        names
    };
    until("all agree", || names(old) == names(new)).await;
    assert!(!names(new).contains(&"refused".to_owned()), "what was refused never took effect");
}

// M7: the old leader sees only the bridge. One more voter is down, so the rest needs the bridge's vote, which a leader
// that goes on with its heartbeats would keep from it for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_bridge_the_old_leader_gives_way_to_a_new_one() {
    let (mut voters, links) = linked(5).await;
    let old = voters.leader().await;
    let (bridge, down) = ((old + 1) % 5, (old + 2) % 5);
    let others: Vec<usize> = (0..5).filter(|place| ![old, down].contains(place)).collect();
    voters.stop(down).await;

    links.set(|from, to| (from == old && to != bridge) || (to == old && from != bridge));
    not_confirmed(voters.voter(old)).await;
    let new = next_leader(&voters, old, &others).await;

    admit(voters.voter(new), create("admitted", 1)).await;
    not_confirmed(voters.voter(old)).await;
    links.set(|_, _| false);
    until("the old leader follows", || {
        voters.voter(old).view().stream_by_name("admitted").is_some()
    })
    .await;
    until("it sees the majority", || voters.voter(old).quorum_status().majority.held).await;
    admit(voters.voter(old), create("again", 1)).await;
}
