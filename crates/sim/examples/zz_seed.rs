//! Local only.
use pathcall_sim::clone::{generate, play_traced, shrink, sweep};
fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    if args.len() == 2 {
        let report = sweep(args[0], args[1], drop);
        println!("{:#?} {:?}", report.tally, report.wall_time);
        for f in &report.findings { println!("{f}"); }
        return;
    }
    let plan = generate(args[0]);
    let small = shrink(&plan).unwrap_or(plan);
    println!("{small:#?}");
    let (outcome, text) = play_traced(&small);
    println!("{text}{outcome:#?}");
}
