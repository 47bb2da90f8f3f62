//! Hops on hosts (delegate): a call through five servers, delegated and nested.

use std::path::Path;

use pathcall_console::{TextTable, print};
use pathcall_plot::{BarRole, Comparison, ComparisonPanel};
use serde::Deserialize;
use tokio::process::Command;

use super::{FAR, Hosts, start_all};
use crate::failure::Failure;
use crate::findings::Findings;
use crate::gain::{Gain, other, outcomes};
use crate::run_report;

const SERVERS: [usize; 5] = [FAR[0], FAR[1], FAR[2], FAR[3], FAR[4]];
/// Names of the servers, in the order of a call.
const NAMES: [&str; 5] = ["middlebox", "middlebox-2", "middlebox-3", "middlebox-4", "backend-0"];
const CALLER: usize = FAR[5];
const CALLS: &str = "300";
const PORT: u16 = 7801;
const PLAIN_PORT: u16 = 7802;

const DESCRIPTION: &str = "
delegate: a read through four middleboxes to a backend, 200 us between any two hosts. Delegated, the
backend answers the caller; nested, the answer returns through all five servers.
";

/// Report of the application.
#[derive(Debug, Deserialize)]
struct Report {
    calls: u64,
    p50_us: u64,
    p99_us: u64,
    /// Hash of the results.
    digest: String,
}

/// Result of one path.
struct PathHops {
    name: &'static str,
    report: Report,
}

/// Runs the reads by each path.
pub(super) async fn run(hosts: &Hosts, program: &Path, findings: &mut Findings) -> Result<(), Failure> {
    print(DESCRIPTION)?;
    let (pathcall, plain) = (list(hosts, PORT)?, list(hosts, PLAIN_PORT)?);
    let mut commands = Vec::new();
    for (k, name) in SERVERS.into_iter().zip(NAMES) {
        for (servers, options) in [(&pathcall, &[][..]), (&plain, &["--plain"][..])] {
            let mut command = hosts.command(k, program)?;
            command.args(["serve", "--name", name, "--servers", servers]).args(options);
            commands.push((format!("server {name} of proxy"), command));
        }
    }
    let _servers = start_all(commands).await?;
    let pathcall = ["--servers", &pathcall];
    let plain = ["--servers", &plain, "--plain"];
    let delegated = read(hosts, program, "delegated", &pathcall, &[]).await?;
    let nested = read(hosts, program, "nested", &pathcall, &["--rpc"]).await?;
    let plain_nested = read(hosts, program, "plain gRPC, nested", &plain, &[]).await?;
    let direct = read(hosts, program, "one server", &pathcall, &["--direct"]).await?;
    let plain_direct = read(hosts, program, "plain gRPC, one server", &plain, &["--direct"]).await?;
    let mut table = TextTable::new(["path", "result", "calls", "p50 ms", "p99 ms"]);
    for path in [&delegated, &nested, &plain_nested, &direct, &plain_direct] {
        let reference = (plain_nested.name, &*plain_nested.report.digest);
        let result = findings.compare("hops on hosts", path.name, &path.report.digest, reference);
        let (p50, p99) = (format!("{:.2}", path.p50_ms()), format!("{:.2}", path.report.p99_us as f64 / 1e3));
        table.row([path.name.to_owned(), result.to_owned(), path.report.calls.to_string(), p50, p99]);
    }
    let gain = |ours: &PathHops, baseline: &PathHops| Gain::latency(ours.p50_ms(), baseline.p50_ms());
    let outcomes = outcomes(
        &[
            ("the median of a delegated call through five servers is", gain(&delegated, &plain_nested), "plain gRPC"),
            ("it is", gain(&delegated, &nested), "nested calls over Pathcall"),
            ("the median of a call to one server is", gain(&direct, &plain_direct), "plain gRPC"),
        ],
        None,
    );
    print(&format!("{table}{outcomes}"))?;

    let path = findings.picture("hosts-hops.svg", "a call through five servers on hosts, delegated and nested");
    let panel = |quantity: &str, bars| ComparisonPanel { quantity: quantity.to_owned(), unit: "ms", bars };
    let five = vec![
        gain(&delegated, &plain_nested).bar("Pathcall, delegated", delegated.p50_ms(), "plain gRPC"),
        other("Pathcall, nested", nested.p50_ms(), BarRole::Variant),
        other("plain gRPC, nested", plain_nested.p50_ms(), BarRole::Baseline),
    ];
    let one = vec![
        gain(&direct, &plain_direct).bar("Pathcall", direct.p50_ms(), "plain gRPC"),
        other("plain gRPC", plain_direct.p50_ms(), BarRole::Baseline),
    ];
    Comparison {
        title: &format!("A call through five servers: latency {}", gain(&delegated, &plain_nested).than("plain gRPC")),
        about: "each server and the caller on a host of its own, 200 µs from any other; reads one after the other",
        panels: &[
            panel("Median latency through five servers (less is better)", five),
            panel("Median latency of a call to one server (less is better)", one),
        ],
        notes: &[
            "Delegated: 6 messages, because the last server answers the caller itself.".to_owned(),
            "Nested: 10 messages, because the answer goes back through all servers.".to_owned(),
        ],
    }
    .draw(&path)?;
    Ok(())
}

/// All servers, as the application takes them.
fn list(hosts: &Hosts, port: u16) -> Result<String, Failure> {
    let place = |(k, name): (usize, &str)| Ok(format!("{name}={}:{port}", hosts.address(k)?));
    Ok(SERVERS.into_iter().zip(NAMES).map(place).collect::<Result<Vec<_>, Failure>>()?.join(","))
}

async fn read(
    hosts: &Hosts,
    program: &Path,
    name: &'static str,
    servers: &[&str],
    options: &[&str],
) -> Result<PathHops, Failure> {
    let mut command = Command::from(hosts.command(CALLER, program)?);
    command.args(["demo", "--json", "--calls", CALLS, "--here", &hosts.address(CALLER)?.to_string()]);
    command.args(servers).args(options);
    Ok(PathHops { name, report: run_report(format!("hops on hosts ({name})"), command, program).await? })
}

impl PathHops {
    fn p50_ms(&self) -> f64 {
        self.report.p50_us as f64 / 1e3
    }
}
