//! Reads on hosts (clone): latencies of a replicated store with one slow server, and what they cost.

use std::path::Path;

use pathcall_console::{TextTable, print};
use pathcall_plot::{BarRole, Comparison, ComparisonBar, ComparisonPanel};
use serde::Deserialize;
use tokio::process::{Child, Command};

use super::{Hosts, RACK, start_all};
use crate::failure::Failure;
use crate::findings::Findings;
use crate::gain::{Gain, other, outcomes};
use crate::run_report;

const SERVERS: [usize; 4] = [RACK[0], RACK[1], RACK[2], RACK[3]];
const CALLER: usize = RACK[4];
const SLOW: usize = RACK[3];
/// Service times of a server: exponential. A scan is one call in a hundred.
const TIMES: [&str; 4] = ["--get", "exp:5ms", "--scan", "exp:20ms"];
const JITTER: &str = "none";
/// Each service time of the slow server is five times as long.
const SLOW_JITTER: &str = "1x5";
/// Rounds, in which the paths take turns; seconds of load for each path in a round, and the load as a share of the
/// capacity of four fast servers.
const ROUNDS: &str = "3";
const SECONDS: &str = "0.8";
const LOAD: &str = "0.12";
/// Name of our path in the picture.
const CLONE: &str = "Pathcall, clone";
const POOL_PORT: u16 = 5000;
const PLAIN_PORT: u16 = 5001;

const DESCRIPTION: &str = "
clone: reads of a store with four replicas on four hosts, one of which takes five times as long for
each read. About 370 reads per second; a server takes 5 ms on average, and the slow one 25 ms. Medians
of three rounds.
";

/// Report of the application: the same calls by each path.
#[derive(Debug, Deserialize)]
struct Report {
    ways: Vec<PathReads>,
}

/// Result of one path.
#[derive(Debug, Deserialize)]
struct PathReads {
    name: String,
    calls: u64,
    p50_us: f64,
    p99_us: f64,
    /// Extra requests per call; absent where none are sent.
    extra: Option<f64>,
    hedging_delay_us: Option<f64>,
    /// Hash of the results.
    digest: String,
}

/// Runs the reads by each path.
pub(super) async fn run(hosts: &Hosts, program: &Path, findings: &mut Findings) -> Result<(), Failure> {
    print(DESCRIPTION)?;
    let _servers = start(hosts, program).await?;
    let plain_urls: Vec<String> = SERVERS.iter().map(|k| url(hosts, *k, PLAIN_PORT)).collect::<Result<_, _>>()?;
    let mut command = Command::from(hosts.command(CALLER, program)?);
    command.args(["demo", "--json", "--rounds", ROUNDS, "--no-random"]);
    command.args(["--seconds", SECONDS, "--load", LOAD, "--jitter", JITTER]).args(TIMES);
    command.args(["--pool", &url(hosts, SERVERS[0], POOL_PORT)?, "--plain", &plain_urls.join(",")]);
    let Report { ways } = run_report("reads on hosts".to_owned(), command, program).await?;
    let [clone, hedging, plain] = &ways[..] else {
        return Err(Failure::Differ(format!("reads on hosts: expected three paths, got {}", ways.len())));
    };
    let mut table = TextTable::new(["path", "result", "calls", "p50 ms", "p99 ms", "extra requests"]);
    for path in &ways {
        let result = findings.compare("reads on hosts", &path.name, &path.digest, (&plain.name, &plain.digest));
        let ms = |us: f64| format!("{:.1}", us / 1e3);
        let extra = format!("{:.1} %", path.extra_percent());
        table.row([
            path.name.clone(),
            result.to_owned(),
            path.calls.to_string(),
            ms(path.p50_us),
            ms(path.p99_us),
            extra,
        ]);
    }
    let p99 = |baseline: &PathReads| Gain::latency(clone.p99_us, baseline.p99_us);
    let p50 = |baseline: &PathReads| Gain::latency(clone.p50_us, baseline.p50_us);
    let hedged_after = hedging.hedging_delay_us.unwrap_or(0.0) / 1e3;
    let price = format!(
        "servers receive {:.0} % more requests with clones, {:.1} % more with hedging (after the p95, {hedged_after:.0} ms)",
        clone.extra_percent(),
        hedging.extra_percent()
    );
    let outcomes = outcomes(
        &[
            ("the p99 latency with clones is", p99(plain), &plain.name),
            ("the p99 latency with clones is", p99(hedging), &hedging.name),
            ("the median is", p50(plain), &plain.name),
        ],
        Some(price),
    );
    print(&format!("{table}{outcomes}"))?;

    let path = findings.picture("hosts-reads.svg", "reads on hosts with a slow replica: latencies, and extra requests");
    let others =
        |of: fn(&PathReads) -> f64| [hedging, plain].map(|path| other(&path.name, of(path), BarRole::Baseline));
    let panel = |quantity: &str, unit, ours: ComparisonBar, of: fn(&PathReads) -> f64| ComparisonPanel {
        quantity: quantity.to_owned(),
        unit,
        bars: std::iter::once(ours).chain(others(of)).collect(),
    };
    let (p50_ms, p99_ms) = (|path: &PathReads| path.p50_us / 1e3, |path: &PathReads| path.p99_us / 1e3);
    let extra = other(CLONE, clone.extra_percent(), BarRole::Loss);
    let extra = ComparisonBar { note: "the price of it".to_owned(), ..extra };
    let fastest = p99(plain).bar(CLONE, p99_ms(clone), &plain.name);
    let fastest = ComparisonBar { note: format!("{}, {}", fastest.note, p99(hedging).than("hedging")), ..fastest };
    Comparison {
        title: &format!(
            "Reads with one slow replica of four: p99 {}, {:.0} % more requests",
            p99(plain).than(&plain.name),
            clone.extra_percent()
        ),
        about: "four servers of 5 ms, of which one is five times slower, and a caller, each on a host of its own",
        panels: &[
            panel("p99 latency (less is better)", "ms", fastest, p99_ms),
            panel("Median latency (less is better)", "ms", p50(plain).bar(CLONE, p50_ms(clone), &plain.name), p50_ms),
            panel("Extra requests to servers (less is better)", "%", extra, PathReads::extra_percent),
        ],
        notes: &[
            "Clone: a read goes to two servers if both are idle; the first answer cancels the other.".to_owned(),
            format!("gRPC hedging: a read is sent again after the p95 of plain gRPC, {hedged_after:.0} ms."),
        ],
    }
    .draw(&path)?;
    Ok(())
}

/// Starts the servers of the pool, and as many as plain gRPC, on the same hosts.
async fn start(hosts: &Hosts, program: &Path) -> Result<Vec<Child>, Failure> {
    let mut commands = Vec::new();
    for k in SERVERS {
        for port in [POOL_PORT, PLAIN_PORT] {
            let mut command = hosts.command(k, program)?;
            command.args(["serve", "--listen", &format!("{}:{port}", hosts.address(k)?), "--seed", &k.to_string()]);
            command.args(TIMES).args(["--jitter", if k == SLOW { SLOW_JITTER } else { JITTER }]);
            match port {
                PLAIN_PORT => command.arg("--plain"),
                _ => command.args(["--controller", hosts.url()]),
            };
            commands.push((format!("server {k} of kv"), command));
        }
    }
    start_all(commands).await
}

fn url(hosts: &Hosts, k: usize, port: u16) -> Result<String, Failure> {
    Ok(format!("http://{}:{port}", hosts.address(k)?))
}

impl PathReads {
    fn extra_percent(&self) -> f64 {
        self.extra.unwrap_or(0.0) * 100.0
    }
}
