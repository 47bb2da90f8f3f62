//! The demo's second part: applications whose servers pass calls on, beside their twins, hub and spoke on the same
//! nodes; results compared.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tokio::process::Command;

use super::{Programs, find as find_programs, said};
use crate::cli::failure::Failure;
use crate::cli::print;
use crate::cli::table::Table;

const LOOKUP: &str = "lookup";
const RAYS: &str = "rays";
const PROXY: &str = "proxy";

/// The programs, and where the image goes.
pub(super) struct Demo {
    programs: Programs,
    image: PathBuf,
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
    Ok(Demo { programs: find_programs(directory, [LOOKUP, RAYS, PROXY])?, image: directory.join("rays.png") })
}

impl Demo {
    /// Runs them, prints the table, and says which results differ.
    pub(super) async fn run(&self) -> Result<Vec<String>, Failure> {
        let mut table = Table::new([
            "application",
            "path",
            "result",
            "calls",
            "calls/s",
            "p50 us",
            "p99 us",
            "messages",
            "at the caller",
        ]);
        let (mut differing, mut traces) = (Vec::new(), String::new());
        for (name, program) in &self.programs {
            let rpc = self.report(name, program, Way::Rpc).await?;
            let delegate = self.report(name, program, Way::Delegate).await?;
            let equal = delegate.digest == rpc.digest;
            if !equal {
                let (got, expected) = (&delegate.digest, &rpc.digest);
                differing.push(format!("{name} (delegate): expected {expected} as by RPC, got {got}"));
            }
            if let Some(trace) = &delegate.trace {
                traces += &format!("one of {name}'s calls, traced:\n{trace}");
            }
            table.row(row(name, Way::Delegate, if equal { "equal" } else { "DIFFERS" }, &delegate));
            table.row(row(name, Way::Rpc, "reference", &rpc));
        }
        // The application fails where a pixel differs.
        let image = self.image.display();
        print(&format!(
            "\n{table}{traces}image, equal bit for bit to the one that a single machine renders: {image}\n"
        ))?;
        Ok(differing)
    }

    /// One run of one application.
    async fn report(&self, name: &str, program: &Path, way: Way) -> Result<Report, Failure> {
        let mut command = Command::new(program);
        command.args([if name == RAYS { "render" } else { "demo" }, "--json"]);
        match way {
            Way::Rpc => drop(command.arg("--rpc")),
            Way::Delegate if name == RAYS => drop(command.arg("--image").arg(&self.image)),
            Way::Delegate => {}
        }
        said(format!("{name} ({})", way.name(name)), command, program).await
    }
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
