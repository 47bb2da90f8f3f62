//! Demo of *delegate*: applications with delegated calls, beside the same applications with nested or hub-and-spoke
//! calls on the same nodes. Compares results.

use std::path::Path;

use serde::Deserialize;
use tokio::process::Command;

use super::findings::{Findings, names, verdict};
use super::{Programs, find as find_programs, run_report};
use crate::failure::Failure;
use pathcall_console::TextTable;
use pathcall_console::print;

const LOOKUP: &str = "lookup";
const RAYS: &str = "rays";
const PROXY: &str = "proxy";
/// Questions of the search.
const QUERIES: &str = "150";

const DESCRIPTION: &str = "
delegate: a server passes a call on to the next one, and the last one answers the caller, which saves
messages. Workloads: a search for words in documents, an image of 480 x 300 of a scene on four
servers, and a middlebox; the baseline uses the same servers with request and reply at each hop.
";

/// Programs of the demo.
pub(super) struct Demo {
    programs: Programs,
}

/// Report of an application.
#[derive(Debug, Deserialize)]
struct Report {
    calls: u64,
    calls_per_s: f64,
    p50_us: u64,
    p99_us: u64,
    /// Messages that all nodes sent.
    messages: u64,
    /// Messages that the caller sent or received.
    caller_messages: u64,
    /// Hash of the results.
    digest: String,
    /// Trace of one of the calls.
    #[serde(default)]
    trace: Option<String>,
}

/// Path of a request to the next server.
#[derive(Debug, Clone, Copy)]
enum CallPath {
    Delegate,
    Rpc,
}

/// Finds the applications in this folder.
pub(super) fn find(directory: &Path) -> Result<Demo, Failure> {
    Ok(Demo { programs: find_programs(directory, [LOOKUP, RAYS, PROXY])? })
}

impl Demo {
    /// Runs the applications, and prints the table.
    pub(super) async fn run(&self, findings: &mut Findings) -> Result<(), Failure> {
        print(DESCRIPTION)?;
        // The application fails if a pixel differs.
        let image = findings.picture("rays.png", "image, bit for bit that of a single machine");
        let mut table = TextTable::new([
            "application",
            "path",
            "result",
            "calls",
            "calls/s",
            "p50 us",
            "p99 us",
            "messages",
            "at caller",
        ]);
        let mut traces = String::new();
        let (mut saved, mut slower) = (Vec::new(), Vec::new());
        for (name, program) in &self.programs {
            let rpc = report(name, program, CallPath::Rpc, &image).await?;
            let delegate = report(name, program, CallPath::Delegate, &image).await?;
            let equal = delegate.digest == rpc.digest;
            if !equal {
                let (got, expected) = (&delegate.digest, &rpc.digest);
                findings.differs(format!("{name} (delegate): expected {expected} as with RPC, got {got}"));
            }
            if let Some(trace) = &delegate.trace {
                traces += &format!("Trace of one call of {name}:\n{trace}");
            }
            let share = 100.0 * delegate.messages as f64 / rpc.messages.max(1) as f64;
            saved.push(format!("{share:.0} % ({name})"));
            if delegate.calls_per_s <= rpc.calls_per_s {
                slower.push(*name);
            }
            table.row(row(name, CallPath::Delegate, if equal { "equal" } else { "DIFFERS" }, &delegate));
            table.row(row(name, CallPath::Rpc, "reference", &rpc));
            for (way, report) in [(CallPath::Delegate, &delegate), (CallPath::Rpc, &rpc)] {
                findings.rate(name, way.name(name), report.calls_per_s);
            }
        }
        let gains = verdict(
            &format!("delegation needs only a part of the baseline's messages: {}", saved.join(", ")),
            &format!("applications without more calls/s, where all servers share one machine: {}", names(&slower)),
        );
        Ok(print(&format!("{table}{gains}{traces}"))?)
    }
}

/// Runs one application by one path.
async fn report(name: &str, program: &Path, way: CallPath, image: &Path) -> Result<Report, Failure> {
    let mut command = Command::new(program);
    command.args([if name == RAYS { "render" } else { "demo" }, "--json"]);
    match way {
        CallPath::Rpc => drop(command.arg("--rpc")),
        CallPath::Delegate if name == RAYS => drop(command.arg("--image").arg(image)),
        CallPath::Delegate => {}
    }
    if name == LOOKUP {
        command.args(["--queries", QUERIES]);
    }
    run_report(format!("{name} ({})", way.name(name)), command, program).await
}

fn row(name: &str, way: CallPath, result: &str, report: &Report) -> [String; 9] {
    [
        name.to_owned(),
        way.name(name).to_owned(),
        result.to_owned(),
        report.calls.to_string(),
        format!("{:.0}", report.calls_per_s),
        report.p50_us.to_string(),
        report.p99_us.to_string(),
        report.messages.to_string(),
        report.caller_messages.to_string(),
    ]
}

impl CallPath {
    fn name(self, application: &str) -> &'static str {
        match self {
            Self::Delegate => "delegate",
            Self::Rpc if application == PROXY => "nested RPC",
            Self::Rpc => "hub and spoke",
        }
    }
}
