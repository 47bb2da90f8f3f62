//! Extra requests while all servers are ten times as slow, in virtual time: none within a second, and again afterwards.

use std::time::Duration;

use pathcall_models::clone::{CloneResults, CloneRun, CloneTestbed, HEDGED_AFTER, Scheme, Workload, measure};

/// Start and end of the slow time, in tenths of a second; a run has [`STEPS`].
const SLOW: (usize, usize) = (20, 60);
const STEPS: usize = 100;
/// Steps after a change in which extra requests may change.
const SECOND: usize = 10;

fn tenths(tenths: usize) -> Duration {
    Duration::from_millis(100 * tenths as u64)
}

/// Runs calls of 2 ms at six servers with eight workers each.
fn run(scheme: Scheme, load: f64) -> CloneResults {
    let testbed = CloneTestbed {
        workers: vec![8; 6],
        slow: Some((tenths(SLOW.0), tenths(SLOW.1))),
        product: true,
        step: tenths(1),
        ..CloneTestbed::default()
    };
    let workload = Workload::exponential(2_000, 0.01);
    measure(
        &testbed,
        &CloneRun { scheme, workload, load, hedged_after: HEDGED_AFTER, seed: 1, duration: tenths(STEPS) },
    )
}

fn sum(timeline: &[u64], from: usize, until: usize) -> u64 {
    timeline.iter().take(until).skip(from).sum()
}

/// Checks the schemes at a load. `until`: end of the backlog of the slow time.
fn check(load: f64, until: usize) {
    // Share of the calls that are answered by the end.
    let answered = |results: &CloneResults| sum(&results.timeline, 0, STEPS) as f64 / results.calls as f64;
    let random = answered(&run(Scheme::Random, load));
    let learned = [Scheme::LearnedHedging, Scheme::Automatic];
    let fixed = [Scheme::Clone, Scheme::CloneShortest, Scheme::Hedging, Scheme::ClientClone];
    for scheme in fixed.into_iter().chain(learned) {
        let results = run(scheme, load);
        let extra = |from, until| sum(&results.extra_timeline, from, until);
        let (before, slow) = (extra(SECOND, SLOW.0), extra(SLOW.0 + SECOND, SLOW.1));
        let (onset, after) = (extra(SLOW.0, SLOW.0 + SECOND), extra(until + SECOND, STEPS));
        let calls = results.calls as f64 * (SLOW.1 - SLOW.0 - SECOND) as f64 / STEPS as f64;
        println!(
            "{scheme} at {load}: {before} extra requests before, {onset} at the start, {slow} of {calls:.0} calls while \
             slow, {after} after; {:.4} of the calls answered, random {random:.4}; {:?}",
            answered(&results),
            results.extra_timeline
        );
        assert!((slow as f64) < 0.005 * calls, "{scheme} at {load}");
        assert!(answered(&results) >= 0.998 * random && before > 0, "{scheme} at {load}");
        if scheme == Scheme::Automatic {
            // It compares policies, of which some send no extra requests, and does so again after the slow time.
            continue;
        }
        let usual = before as f64 / (SLOW.0 - SECOND) as f64;
        assert!(after as f64 / (STEPS - until - SECOND) as f64 > 0.5 * usual, "{scheme} at {load}");
    }
}

#[test]
fn no_extra_request_is_sent_while_idle_servers_are_slow() {
    check(0.05, SLOW.1);
}

#[test]
fn no_extra_request_is_sent_while_busy_servers_are_slow() {
    check(0.12, SLOW.1 + 10);
}
