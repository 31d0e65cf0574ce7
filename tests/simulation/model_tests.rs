//! The checker is shown to fail: each broken promise is put into a log by hand.

use bytes::Bytes;

use crate::model::{Found, FoundBatch, Model, Violation};

fn record(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn batch(base_offset: u64, texts: &[&str]) -> FoundBatch {
    let records = texts.iter().map(|text| record(text)).collect();
    FoundBatch { base_offset, epoch: 1, append_time: base_offset, records }
}

fn log(batches: Vec<FoundBatch>) -> Found {
    let last = batches.last();
    let committed = last.map_or(0, |batch| batch.base_offset + batch.records.len() as u64);
    Found { log_start: 0, committed, batches }
}

/// Three appends: `a b` acknowledged as durable, `c` accepted, `d e` without an answer.
fn model() -> Model {
    let mut model = Model::default();
    let first = model.ask(vec![record("a"), record("b")]);
    let second = model.ask(vec![record("c")]);
    model.ask(vec![record("d"), record("e")]);
    model.acknowledge(first, 0, true).expect("nothing stands there");
    model.acknowledge(second, 2, false).expect("nothing stands there");
    model
}

#[test]
fn every_prefix_that_holds_the_durable_batches_is_allowed() {
    let whole = [batch(0, &["a", "b"]), batch(2, &["c"]), batch(3, &["d", "e"])];

    for batches in 1..=3 {
        assert_eq!(model().check(&log(whole[..batches].to_vec())), Ok(()));
    }
    assert_eq!(model().expected_end(), 5);
}

#[test]
fn lost_changed_and_invented_records_are_found() {
    let cases = [
        (vec![], Violation::Lost { offset: 0 }),
        (vec![batch(0, &["a", "x"])], Violation::Changed { offset: 1 }),
        (vec![batch(0, &["a", "b"]), batch(2, &["x"])], Violation::Invented { offset: 2 }),
        // A hole: the batch without an answer overtook the accepted one.
        (vec![batch(0, &["a", "b"]), batch(2, &["d", "e"])], Violation::Invented { offset: 2 }),
        // Half a batch.
        (
            vec![batch(0, &["a", "b"]), batch(2, &["c"]), batch(3, &["d"])],
            Violation::Invented { offset: 3 },
        ),
        (
            vec![batch(0, &["a", "b"]), batch(2, &["c"]), batch(3, &["d", "e"]), batch(5, &["c"])],
            Violation::Invented { offset: 5 },
        ),
    ];

    for (batches, violation) in cases {
        assert_eq!(model().check(&log(batches)), Err(violation));
    }
}

#[test]
fn gaps_and_falling_epochs_and_times_are_found() {
    let gap = log(vec![batch(0, &["a", "b"]), batch(3, &["c"])]);
    let mut short = log(vec![batch(0, &["a", "b"])]);
    short.committed = 3;
    let mut epochs = log(vec![batch(0, &["a", "b"]), batch(2, &["c"])]);
    epochs.batches[0].epoch = 2;
    let mut times = log(vec![batch(0, &["a", "b"]), batch(2, &["c"])]);
    times.batches[0].append_time = 9;

    assert_eq!(model().check(&gap), Err(Violation::Gap { expected: 2, found: 3 }));
    assert_eq!(model().check(&short), Err(Violation::Gap { expected: 3, found: 2 }));
    assert_eq!(model().check(&epochs), Err(Violation::EpochFell { offset: 2 }));
    assert_eq!(model().check(&times), Err(Violation::TimeFell { offset: 2 }));
}

#[test]
fn acknowledgement_of_another_offset_is_found() {
    let mut model = model();
    let fourth = model.ask(vec![record("f")]);
    model.acknowledge(fourth, 4, false).expect("nothing stands there");

    let whole = [batch(0, &["a", "b"]), batch(2, &["c"]), batch(3, &["d", "e"])];

    let violation = Violation::Misplaced { expected: 5, acknowledged: 4 };
    assert_eq!(model.check(&log(whole.to_vec())), Err(violation));
}

#[test]
fn what_was_served_stays_and_is_never_another() {
    let mut model = model();
    model.serve(2, record("c")).expect("nothing stands there");

    assert_eq!(model.serve(0, record("x")), Err(Violation::Changed { offset: 0 }));
    let lost = model.check(&log(vec![batch(0, &["a", "b"])]));

    assert_eq!(lost, Err(Violation::Lost { offset: 2 }));
}

#[test]
fn refused_batch_is_not_in_the_log() {
    let mut model = model();
    model.refuse(1);

    let found = log(vec![batch(0, &["a", "b"]), batch(2, &["c"])]);

    assert_eq!(model.check(&found), Err(Violation::Invented { offset: 2 }));
    assert_eq!(model.check(&log(vec![batch(0, &["a", "b"]), batch(2, &["d", "e"])])), Ok(()));
}

#[test]
fn settled_log_stays_as_it_was_read() {
    let mut model = model();
    let found = log(vec![batch(0, &["a", "b"]), batch(2, &["c"])]);
    model.settle(&found);
    model.ask(vec![record("g")]);

    let shorter = model.check(&log(vec![batch(0, &["a", "b"])]));
    let back =
        model.check(&log(vec![batch(0, &["a", "b"]), batch(2, &["c"]), batch(3, &["d", "e"])]));
    let grown = model.check(&log(vec![batch(0, &["a", "b"]), batch(2, &["c"]), batch(3, &["g"])]));

    assert_eq!(shorter, Err(Violation::Lost { offset: 2 }));
    assert_eq!(back, Err(Violation::Invented { offset: 3 }));
    assert_eq!(grown, Ok(()));
}

#[test]
fn log_starts_between_the_trim_that_was_done_and_the_one_asked_for() {
    let mut model = model();
    model.ask_trim(1);
    model.acknowledge_trim(1);
    model.ask_trim(2);
    let found = |log_start| {
        let mut found = log(vec![batch(0, &["a", "b"]), batch(2, &["c"])]);
        found.batches.retain(|batch| batch.base_offset + batch.records.len() as u64 > log_start);
        Found { log_start, ..found }
    };

    assert_eq!(model.check(&found(1)), Ok(()));
    assert_eq!(model.check(&found(2)), Ok(()));
    let starts = |found| Err(Violation::LogStart { least: 1, most: 2, found });
    assert_eq!(model.check(&found(0)), starts(0));
    assert_eq!(model.check(&found(3)), starts(3));
}

#[test]
fn cut_without_an_answer_is_done_or_not_done() {
    let mut model = Model::default();
    model.settle(&log(vec![batch(0, &["a", "b"]), batch(2, &["c"])]));
    model.ask_cut(2);

    let done = log(vec![batch(0, &["a", "b"])]);
    let not_done = log(vec![batch(0, &["a", "b"]), batch(2, &["c"])]);
    let too_much = log(vec![]);

    assert_eq!(model.check(&done), Ok(()));
    assert_eq!(model.check(&not_done), Ok(()));
    assert_eq!(model.check(&too_much), Err(Violation::Lost { offset: 0 }));
    model.answer_cut(true);
    assert_eq!(model.check(&not_done), Err(Violation::Invented { offset: 2 }));
}
