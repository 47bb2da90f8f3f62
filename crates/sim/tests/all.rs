//! Every result of all abilities together is right.

use pathcall_sim::Ability;
use pathcall_sim::all::Sim;

#[test]
fn every_result_is_right() {
    let n = std::env::var("N").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let report = Sim::sweep(std::env::var("FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000), n, drop);
    for f in &report.findings {
        println!("{f}");
    }
    println!("{:?} {:?}", report.wall_time, report.tally);
}
