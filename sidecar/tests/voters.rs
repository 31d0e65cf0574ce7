//! Voters over real sockets and directories: forming, losing the majority, coming back, restarting.

mod harness;

use std::time::Duration;

use harness::{PATIENCE, TWO_SECONDS, Voters, admit, create, register, until};
use palisade_sidecar::role::{Answer, MetadataRole, StartError};
use palisade_sidecar::state::{OperationId, Refusal};
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_majority_is_refused_with_counts_and_names_and_the_same_create_admitted_later() {
    let mut voters = Voters::formed(3).await;
    admit(voters.voter(0), register("n1", 1)).await;
    admit(voters.voter(1), create("before", 6)).await;
    until("the last voter has applied it", || {
        voters.voter(2).view().stream_by_name("before").is_some()
    })
    .await;

    voters.stop(0).await;
    voters.stop(1).await;
    let asked = Instant::now();
    let operation = OperationId::random();
    let answer = voters.voter(2).propose_as(operation, create("later", 3), TWO_SECONDS).await;

    assert!(asked.elapsed() < TWO_SECONDS, "{:?}", asked.elapsed());
    let Answer::Refused { reason, live, needed, missing, retry_after } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!((reason, live, needed), (Refusal::NoMajority, 1, 2));
    assert_eq!(missing, ["v1", "v2"]);
    assert!(retry_after > Duration::ZERO);
    let status = voters.voter(2).quorum_status();
    assert!(!status.majority.held);
    assert_eq!((status.majority.live, status.majority.needed, status.majority.margin), (1, 2, -1));
    assert_eq!(status.majority.leader, None);
    assert!(!status.stops.is_empty() && !status.continues.is_empty());
    assert!(voters.voter(2).view().stream_by_name("before").is_some(), "lists are answered");
    until("the age of what is listed grows", || voters.voter(2).quorum_status().age_ms > 300).await;

    voters.start(0).await;
    voters.start(1).await;
    let answer = voters.voter(2).propose_as(operation, create("later", 3), PATIENCE).await;
    let answer = match answer {
        // Refused while the others were still coming up: the caller tries again.
        Answer::Refused { reason: Refusal::NoMajority, .. } => {
            voters.leader().await;
            voters.voter(2).propose_as(operation, create("later", 3), PATIENCE).await
        }
        answer => answer,
    };

    assert!(matches!(answer, Answer::Admitted { .. }), "{answer:?}");
    for voter in voters.live() {
        until("all have both streams", || voter.view().streams().count() == 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_leader_is_followed_by_another_and_nothing_is_lost() {
    let mut voters = Voters::formed(3).await;
    admit(voters.voter(0), register("n1", 1)).await;
    let first = voters.leader().await;

    for round in 0..3 {
        admit(voters.live().next().unwrap(), create(&format!("s{round}"), 2)).await;
        let leader = voters.leader().await;
        voters.stop(leader).await;
        let next = voters.leader().await;
        assert_ne!(next, leader);
        assert_eq!(voters.voter(next).view().streams().count(), round + 1);
        voters.start(leader).await;
        until("it has caught up", || voters.voter(leader).view().streams().count() == round + 1)
            .await;
    }

    assert!(first < 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_there_after_all_were_restarted() {
    let mut voters = Voters::formed(3).await;
    admit(voters.voter(0), register("n1", 1)).await;
    admit(voters.voter(0), create("s", 4)).await;
    let cluster = voters.voter(0).view().cluster;
    for place in 0..3 {
        voters.stop(place).await;
    }

    for place in [2, 0, 1] {
        voters.start(place).await;
    }
    voters.leader().await;

    for place in 0..3 {
        until("the stream is back", || {
            voters.voter(place).view().stream_by_name("s").is_some_and(|s| s.partitions.len() == 4)
        })
        .await;
        assert_eq!(voters.voter(place).view().cluster, cluster, "no second cluster was formed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_leader_confirms_and_a_cut_off_one_does_not() {
    let mut voters = Voters::formed(3).await;
    let leader = voters.leader().await;

    let confirmed = voters.voter(leader).confirm_leadership(PATIENCE).await.unwrap();
    assert_eq!(confirmed.lineage, 1);
    assert!(voters.voter(leader).view().index >= confirmed.index);
    let many = (0..100).map(|_| voters.voter(leader).confirm_leadership(PATIENCE));
    assert!(futures_util::future::join_all(many).await.iter().all(Result::is_ok));
    let other = (leader + 1) % 3;
    let refused = voters.voter(other).confirm_leadership(TWO_SECONDS).await.unwrap_err();
    assert_eq!(refused.leader.unwrap().name, voters.configs[leader].name);

    for place in (0..3).filter(|place| *place != leader) {
        voters.stop(place).await;
    }
    let asked = Instant::now();
    let refused = voters.voter(leader).confirm_leadership(TWO_SECONDS).await.unwrap_err();

    assert!(asked.elapsed() <= TWO_SECONDS + Duration::from_millis(500));
    assert_eq!(refused.live, 1);
    assert!(refused.leader.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_under_the_same_operation_gets_the_first_answer_from_any_voter() {
    let voters = Voters::formed(3).await;
    admit(voters.voter(0), register("n1", 1)).await;
    let operation = OperationId::random();

    let mut answers = Vec::new();
    for voter in voters.live() {
        let answer = voter.propose_as(operation, create("s", 1), PATIENCE).await;
        let Answer::Admitted { response, .. } = answer else { panic!("{answer:?}") };
        answers.push(response);
    }

    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    let reused = voters.voter(1).propose_as(operation, create("t", 1), PATIENCE).await;
    assert!(
        matches!(reused, Answer::Refused { reason: Refusal::OperationReused, .. }),
        "{reused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_directory_under_an_old_name_is_kept_out_and_forms_nothing() {
    let mut voters = Voters::formed(3).await;
    let cluster = voters.voter(1).view().cluster;
    voters.stop(0).await;
    std::fs::remove_dir_all(voters.path(0)).unwrap();

    voters.start(0).await;
    let leader = {
        let one = voters.running[0].take();
        let leader = voters.leader().await;
        voters.running[0] = one;
        leader
    };

    admit(voters.voter(leader), register("n1", 1)).await;
    let status = voters.voter(leader).quorum_status();
    assert_eq!(status.majority.missing, ["v1"]);
    assert_eq!(voters.voter(0).view().cluster, None);
    assert_eq!(voters.voter(0).view().index, 0, "not one entry was given to it");
    assert_eq!(voters.voter(1).view().cluster, cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_configurations_and_directories_in_use_are_typed_errors() {
    let mut voters = Voters::new(1);
    voters.start(0).await;
    until("a single voter leads", || voters.voter(0).quorum_status().majority.held).await;

    let mut other = voters.configs[0].clone();
    other.listen.set_port(0);
    let error = MetadataRole::start(other.clone()).await.unwrap_err();
    assert!(matches!(error, StartError::Locked { .. }), "{error}");

    other.name = "v9".into();
    let error = MetadataRole::start(other.clone()).await.unwrap_err();
    assert!(matches!(error, StartError::NotAPeer { .. }), "{error}");

    other.peers = vec![("a/b".into(), other.listen)];
    let error = MetadataRole::start(other.clone()).await.unwrap_err();
    assert!(matches!(error, StartError::BadName { .. }), "{error}");

    voters.stop(0).await;
    let mut renamed = voters.configs[0].clone();
    renamed.name = "v2".into();
    renamed.peers[0].0 = "v2".into();
    let error = MetadataRole::start(renamed).await.unwrap_err();
    assert!(matches!(error, StartError::OtherVoter { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_and_oversized_lengths_leave_a_voter_unharmed() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let voters = Voters::formed(3).await;
    let mut random = fastrand::Rng::with_seed(7);
    let magics: [&[u8]; 3] = [b"", b"PALVOTE1", b"GET / HT"];

    for round in 0..60 {
        let mut bytes = magics[round % 3].to_vec();
        if round % 2 == 0 {
            bytes.extend(u32::MAX.to_le_bytes());
        }
        let count = random.usize(0..5000);
        bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(count));
        let address = voters.configs[round % 3].listen;
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        // The other side may close before it has read everything.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }

    admit(voters.voter(0), register("n1", 1)).await;
    admit(voters.voter(1), create("s", 1)).await;
}
