//! The demo's part of *delegate*: applications whose servers pass calls on, beside their twins, hub and spoke on the same
//! nodes; results compared.

use std::path::Path;

use serde::Deserialize;
use tokio::process::Command;

use super::findings::Findings;
use super::{Programs, find as find_programs, said};
use crate::failure::Failure;
use pathcall_console::Table;
use pathcall_console::print;

const LOOKUP: &str = "lookup";
const RAYS: &str = "rays";
const PROXY: &str = "proxy";

const STORY: &str = "
delegate: a server passes a call on to another, and the last one answers the caller: fewer messages, and the caller is no
hub. A search over words of these sources, an image of 480 x 300 from a scene on four servers, a middlebox; beside the
same servers, where each answers whoever asked it.
";

/// The programs.
pub(super) struct Demo {
    programs: Programs,
}

/// What an application says of a run.
#[derive(Debug, Deserialize)]
struct Report {
    calls: u64,
    calls_per_s: f64,
    p50_us: u64,
    p99_us: u64,
    /// Messages that all nodes sent.
    messages: u64,
    /// Those that the caller sent or got.
    caller_messages: u64,
    /// Hash of the result.
    digest: String,
    /// Who did what for one of the calls.
    #[serde(default)]
    trace: Option<String>,
}

/// Who sends a request to the next server.
#[derive(Debug, Clone, Copy)]
enum Way {
    Delegate,
    Rpc,
}

/// The applications in this directory, all of them or none.
pub(super) fn find(directory: &Path) -> Result<Demo, Failure> {
    Ok(Demo { programs: find_programs(directory, [LOOKUP, RAYS, PROXY])? })
}

impl Demo {
    /// Runs them, and prints the table.
    pub(super) async fn run(&self, findings: &mut Findings) -> Result<(), Failure> {
        print(STORY)?;
        // The application fails where a pixel differs.
        let image = findings.picture("rays.png", "the image, bit for bit the one of a single machine");
        let mut table = Table::new([
            "application",
            "way",
            "result",
            "calls",
            "calls/s",
            "p50 us",
            "p99 us",
            "messages",
            "at the caller",
        ]);
        let mut traces = String::new();
        for (name, program) in &self.programs {
            let rpc = report(name, program, Way::Rpc, &image).await?;
            let delegate = report(name, program, Way::Delegate, &image).await?;
            let equal = delegate.digest == rpc.digest;
            if !equal {
                let (got, expected) = (&delegate.digest, &rpc.digest);
                findings.differs(format!("{name} (delegate): expected {expected} as by RPC, got {got}"));
            }
            if let Some(trace) = &delegate.trace {
                traces += &format!("one of {name}'s calls, traced:\n{trace}");
            }
            table.row(row(name, Way::Delegate, if equal { "equal" } else { "DIFFERS" }, &delegate));
            table.row(row(name, Way::Rpc, "reference", &rpc));
            for (way, report) in [(Way::Delegate, &delegate), (Way::Rpc, &rpc)] {
                findings.rate(name, way.name(name), report.calls_per_s);
            }
        }
        Ok(print(&format!("{table}{traces}"))?)
    }
}

/// One run of one application.
async fn report(name: &str, program: &Path, way: Way, image: &Path) -> Result<Report, Failure> {
    let mut command = Command::new(program);
    command.args([if name == RAYS { "render" } else { "demo" }, "--json"]);
    match way {
        Way::Rpc => drop(command.arg("--rpc")),
        Way::Delegate if name == RAYS => drop(command.arg("--image").arg(image)),
        Way::Delegate => {}
    }
    said(format!("{name} ({})", way.name(name)), command, program).await
}

fn row(name: &str, way: Way, result: &str, report: &Report) -> [String; 9] {
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

impl Way {
    fn name(self, application: &str) -> &'static str {
        match self {
            Self::Delegate => "delegate",
            Self::Rpc if application == PROXY => "nested RPC",
            Self::Rpc => "hub and spoke",
        }
    }
}
