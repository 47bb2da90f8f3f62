//! Prints latency against load for each scheme: `cargo run --release -p pathcall-sim --example clone_curves`.

use std::time::{Duration, Instant};

use pathcall_endpoint::clone::Scheme;
use pathcall_sim::clone::performance::{Bed, Run, Workload, measure};

fn main() {
    let beds = [("15×6", vec![15; 6]), ("15×3 8×3", vec![15, 15, 15, 8, 8, 8])];
    let workloads =
        [("Exp(25)", Workload::exponential(25, 0.01)), ("Bimodal(25,250)", Workload::bimodal(25, 250, 0.01))];
    for (bed_name, workers) in beds {
        let bed = Bed { workers, ..Bed::default() };
        for (name, workload) in workloads {
            println!("{name}, {bed_name}: load, then p50/p99 in µs, share answered, extra, redundant to callers");
            for scheme in Scheme::ALL {
                for load in [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.2] {
                    let duration = Duration::from_secs_f64(200_000.0 / (bed.capacity(&workload) * load));
                    let began = Instant::now();
                    let got = measure(&bed, &Run { scheme, workload, load, seed: 1, duration });
                    let micros = |share| got.latency.quantile(share).as_secs_f64() * 1e6;
                    let calls = got.calls as f64;
                    println!(
                        "{scheme:<13} {load:.1} {:>8.1} {:>9.1} {:>6.3} {:>6.3} {:>8.5} {:>6.2} M calls/s",
                        micros(0.5),
                        micros(0.99),
                        got.throughput / bed.capacity(&workload),
                        got.extra as f64 / calls,
                        got.redundant as f64 / calls,
                        calls / began.elapsed().as_secs_f64() / 1e6
                    );
                }
            }
        }
    }
}
