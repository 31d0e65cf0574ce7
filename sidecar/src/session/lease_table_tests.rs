//! The lease table against scripted readings.

use super::*;

const RULES: LeaseRules = LeaseRules {
    lease: Duration::from_millis(4000),
    node_silent: Duration::from_millis(1500),
    tick_gap_max: Duration::from_millis(1000),
};

fn at(milliseconds: u64) -> Reading {
    Reading::at(Duration::from_millis(milliseconds))
}

fn run(node: u32) -> Run {
    Run { node, incarnation: 1 }
}

/// A leader since `start` with `nodes` registered runs.
fn leader(nodes: u32, start: u64) -> LeaseTable {
    let mut table = LeaseTable::new(RULES);
    table.lead(1, at(start), (1..=nodes).map(run));
    for node in 1..=nodes {
        table.register(run(node), at(start));
    }
    table
}

/// Ticks every 250 ms over the range with those runs renewing, and gathers who was declared gone when.
fn tick_through(
    table: &mut LeaseTable,
    range: std::ops::Range<u64>,
    renewing: &[u32],
) -> Vec<(u64, u32)> {
    let mut gone = Vec::new();
    for now in range.step_by(250) {
        for node in renewing {
            table.renew(run(*node), at(now)).unwrap();
        }
        let decision = table.tick(at(now), at(now));
        gone.extend(decision.gone.iter().map(|run| (now, run.node)));
    }
    gone
}

#[test]
fn a_silent_node_is_suspected_early_and_gone_only_after_the_drift_margin() {
    let mut table = leader(10, 0);
    let others: Vec<u32> = (2..=10).collect();

    assert!(tick_through(&mut table, 0..1501, &others).is_empty());
    assert!(table.suspected().is_empty());
    assert!(tick_through(&mut table, 1750..2000, &others).is_empty());
    assert_eq!(table.suspected(), [run(1)]);

    // 4000 * 1.01 / 0.99 is a little over 4080.
    let gone = tick_through(&mut table, 2000..6000, &others);
    assert_eq!(gone, [(4250, 1)]);
    assert!(RULES.wait() > Duration::from_micros(4_080_808));
    assert!(RULES.wait() < Duration::from_micros(4_080_900));
}

#[test]
fn the_wait_counts_from_the_last_answer() {
    let mut table = leader(10, 0);
    let all: Vec<u32> = (1..=10).collect();

    assert!(tick_through(&mut table, 0..3001, &all).is_empty());
    let gone = tick_through(&mut table, 3250..9000, &all[1..]);

    assert_eq!(gone, [(7250, 1)]);
}

#[test]
fn a_new_leader_gives_every_member_a_whole_lease() {
    let mut table = LeaseTable::new(RULES);
    table.lead(1, at(0), (1..=10).map(run));
    table.depose();

    table.lead(2, at(60_000), (1..=10).map(run));
    for node in 2..=10 {
        table.register(run(node), at(60_000));
    }
    let others: Vec<u32> = (2..=10).collect();

    assert_eq!(tick_through(&mut table, 60_000..66_000, &others), [(64_250, 1)]);
}

#[test]
fn a_member_that_came_to_light_late_is_counted_from_then() {
    let mut table = leader(9, 0);
    let others: Vec<u32> = (1..=9).collect();
    tick_through(&mut table, 0..2000, &others);

    table.adopt(run(10), at(2000));
    table.adopt(run(10), at(3000));
    table.adopt(run(1), at(3000));

    assert_eq!(tick_through(&mut table, 2250..9000, &others), [(6250, 10)]);
}

#[test]
fn confirming_the_same_term_again_extends_nothing() {
    let mut table = leader(10, 0);
    let others: Vec<u32> = (2..=10).collect();
    tick_through(&mut table, 0..4000, &others);

    table.lead(1, at(4000), (1..=10).map(run));

    assert_eq!(tick_through(&mut table, 4000..5000, &others), [(4250, 1)]);
}

#[test]
fn one_who_does_not_lead_decides_and_renews_nothing() {
    let mut table = leader(3, 0);
    table.depose();

    assert_eq!(table.renew(run(1), at(1)), Err(NotRenewed::NotLeading));
    assert_eq!(table.tick(at(100_000), at(100_000)), Decision::default());
}

#[test]
fn a_run_that_is_being_declared_gone_is_never_renewed() {
    let mut table = leader(10, 0);
    let others: Vec<u32> = (2..=10).collect();
    tick_through(&mut table, 0..4500, &others);

    assert_eq!(table.renew(run(1), at(4500)), Err(NotRenewed::Condemned));
    table.register(run(1), at(4500));
    assert_eq!(table.renew(run(1), at(4501)), Err(NotRenewed::Condemned));
    assert_eq!(table.condemned(), [run(1)]);

    let next = Run { node: 1, incarnation: 2 };
    table.register(next, at(4600));
    assert_eq!(table.renew(next, at(4601)), Ok(()));
    assert_eq!(table.renew(run(1), at(4602)), Err(NotRenewed::NotRegistered));
}

#[test]
fn renewals_without_a_registration_here_are_refused() {
    let mut table = LeaseTable::new(RULES);
    table.lead(1, at(0), [run(1)].into_iter());

    assert_eq!(table.renew(run(1), at(1)), Err(NotRenewed::NotRegistered));
    assert_eq!(table.renew(run(7), at(1)), Err(NotRenewed::NotRegistered));
}

#[test]
fn when_many_lapse_at_once_the_leader_first_doubts_itself() {
    let mut table = leader(10, 0);
    let others: Vec<u32> = (4..=10).collect();

    let gone = tick_through(&mut table, 0..8001, &others);
    assert!(gone.is_empty(), "{gone:?}");

    // A whole lease after the doubt began at 4250, and confirmed since, it stops doubting.
    let gone = tick_through(&mut table, 8250..9000, &others);
    assert_eq!(gone, [(8500, 1), (8500, 2), (8500, 3)]);
}

#[test]
fn a_doubt_without_a_fresh_majority_round_lasts() {
    let mut table = leader(10, 0);
    let mut gone = Vec::new();

    for now in (0..60_000).step_by(250) {
        gone.extend(table.tick(at(now), at(0)).gone);
    }

    assert!(gone.is_empty(), "{gone:?}");
}

#[test]
fn nodes_that_are_heard_during_the_doubt_are_not_lost() {
    let mut table = leader(10, 0);
    let others: Vec<u32> = (4..=10).collect();
    tick_through(&mut table, 0..6000, &others);

    let all: Vec<u32> = (1..=10).collect();

    assert!(tick_through(&mut table, 6000..30_000, &all).is_empty());
}

#[test]
fn a_leader_that_stood_still_blames_itself() {
    let mut table = leader(3, 0);
    tick_through(&mut table, 0..1000, &[1, 2, 3]);

    // Nothing ran for 15 s; the renewals of that time are still unread.
    let decision = table.tick(at(16_000), at(16_000));

    assert!(decision.gone.is_empty());
    assert!(tick_through(&mut table, 16_250..30_000, &[1, 2, 3]).is_empty());
}

#[test]
fn a_closed_connection_is_suspected_at_once_and_keeps_its_lease() {
    let mut table = leader(10, 0);
    table.disconnect(run(1));

    let decision = table.tick(at(250), at(250));

    assert_eq!(decision.suspected, [run(1)]);
    assert!(decision.gone.is_empty());
}
