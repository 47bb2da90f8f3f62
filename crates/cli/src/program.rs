//! Command `pathcall program report`: stages and registers of the switch program, their use by applications, and an
//! estimate of the need of a hardware pipeline.

mod pipeline;

use std::fmt::Write;

use clap::{Args, Subcommand};
use pathcall_control::LISTEN_DEFAULT;
use pathcall_program::Size;
use pathcall_program::hardware::{PipelinePlan, RULES, TOFINO};
use pathcall_program::layout::{self, ARRAYS, Array, STAGES};
use pathcall_program::pipeline::PipelineProfile;
use pathcall_proto::v1::StatusReply;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::memory::{self, RegisterMemory};
use crate::security::TlsArgs;
use crate::{kernel, status};
use pathcall_console::{TextTable, print};

#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    #[command(subcommand)]
    command: ProgramCommand,
}

#[derive(Debug, Subcommand)]
enum ProgramCommand {
    /// Show stages, register arrays, memory of applications, and the use of a 12-stage pipeline
    Report(ReportArgs),
}

#[derive(Debug, Args)]
struct ReportArgs {
    /// Controller whose elements and applications are shown [default: the local one if it answers, else the program
    /// alone]
    #[arg(long, value_name = "URL")]
    controller: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Show the cost of the XDP program instead: instructions by file of `bpf/`, time by kind of frame
    #[arg(long, conflicts_with = "controller")]
    xdp: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: ProgramArgs) -> Result<(), Failure> {
    let ProgramCommand::Report(args) = args.command;
    if args.xdp {
        return Ok(print(&kernel::report(args.json)?)?);
    }
    let status = match &args.controller {
        Some(url) => Some(status::fetch_status(url, &args.tls).await?),
        None => match status::fetch_status(&format!("http://{LISTEN_DEFAULT}"), &TlsArgs::default()).await {
            Ok(status) => Some(status),
            Err(Failure::NoController { .. }) => None,
            Err(failure) => return Err(failure),
        },
    };
    let report = Report::new(status);
    Ok(print(&if args.json { format!("{:#}\n", report.json()) } else { report.text() })?)
}

/// Report on the program with the memory of each element, or with the default memory of an element.
struct Report {
    status: Option<StatusReply>,
    /// Elements with their sizes; `None` stands for the default size.
    memories: Vec<(Option<u32>, Size)>,
}

impl Report {
    fn new(status: Option<StatusReply>) -> Self {
        let elements = status.iter().flat_map(|status| &status.elements);
        let mut memories: Vec<_> = elements.map(|element| (Some(element.element), memory::size(element))).collect();
        if memories.is_empty() {
            memories.push((None, Size::default()));
        }
        Self { status, memories }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (element, size) in &self.memories {
            let name = name(*element);
            // Writing to a String can't fail.
            let _ = write!(text, "stages and register arrays, {name}\n{}\n", arrays_text(size));
            let _ = writeln!(text, "the whole program in a {}-stage pipeline, {name}: an estimate", TOFINO.stages);
            let plan = PipelinePlan::of(PipelineProfile::Whole).with_size(*size);
            let _ = writeln!(text, "{}", pipeline::plan_text(&plan, &TOFINO));
        }
        text.push_str(&pipeline::profiles_text(&TOFINO));
        let _ = write!(text, "register memory by application\n{}\n", self.applications_text());
        text.push_str("rules of the estimate\n");
        for rule in RULES {
            let _ = writeln!(text, "- {rule}");
        }
        text
    }

    fn applications_text(&self) -> String {
        let Some(status) = &self.status else { return "no controller answers: only the program is shown\n".to_owned() };
        if status.applications.is_empty() {
            return "no applications\n".to_owned();
        }
        let mut table = TextTable::new(["application", "gaid", "element", "rows", "lanes", "slots", "memory", "share"]);
        for application in &status.applications {
            let [element, rows, lanes, slots, bytes, share] = match RegisterMemory::of(application, status) {
                Some(memory) => [
                    memory.element.to_string(),
                    memory.rows.to_string(),
                    (u64::from(memory.rows) * u64::from(memory.width)).to_string(),
                    memory.slots.to_string(),
                    memory::bytes(memory.bytes),
                    memory.share(),
                ],
                None => ["none", "-", "-", "-", "-", "-"].map(str::to_owned),
            };
            let gaid = application.gaid.to_string();
            table.row([application.name.clone(), gaid, element, rows, lanes, slots, bytes, share]);
        }
        table.to_string()
    }

    fn json(&self) -> Value {
        let elements = self.memories.iter().map(|(element, size)| {
            json!({
                "element": element,
                "arrays": ARRAYS.iter().map(|array| array_json(array, size)).collect::<Vec<_>>(),
                "bytes": layout::bytes(size),
                "pipeline": pipeline::plan_json(&PipelinePlan::of(PipelineProfile::Whole).with_size(*size), &TOFINO),
            })
        });
        let applications = self.status.as_ref().map(|status| {
            let named = |application| (RegisterMemory::of(application, status), application);
            let memories = status.applications.iter().map(named).map(|(memory, application)| {
                let memory = memory.map(|memory| memory.json());
                json!({ "name": application.name, "gaid": application.gaid, "memory": memory })
            });
            memories.collect::<Vec<_>>()
        });
        json!({
            "stages": STAGES,
            "elements": elements.collect::<Vec<_>>(),
            "applications": applications,
            "profiles": pipeline::profiles_json(&TOFINO),
            "rules": RULES,
        })
    }
}

fn name(element: Option<u32>) -> String {
    element.map_or("the default memory".to_owned(), |element| format!("element {element}"))
}

fn arrays_text(size: &Size) -> String {
    let mut table = TextTable::new(["stage", "array", "registers", "bits", "memory", "of a frame"]);
    for (number, stage) in STAGES.iter().enumerate() {
        let stage = format!("{number} {stage}");
        let mut arrays = ARRAYS.iter().filter(|array| usize::from(array.stage) == number).peekable();
        if arrays.peek().is_none() {
            table.row([stage.clone(), "tables only".into(), "-".into(), "-".into(), "-".into(), "-".into()]);
        }
        for array in arrays {
            table.row([
                stage.clone(),
                array.name.into(),
                array.registers(size).to_string(),
                array.bits().to_string(),
                memory::bytes((array.registers(size) * array.bits()).div_ceil(8)),
                array.visited.to_string(),
            ]);
        }
    }
    format!("{table}all registers: {}\n", memory::bytes(layout::bytes(size)))
}

fn array_json(array: &Array, size: &Size) -> Value {
    json!({
        "name": array.name,
        "stage": array.stage,
        "registers": array.registers(size),
        "bits": array.bits(),
        "visited": array.visited,
    })
}
