//! What every application of place can be told.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use pathcall_place::device::discover::Choice;
use pathcall_place::model::Preset;
use pathcall_place::{Application, Hardware, Strategy};

use crate::{Bed, Between, Plan, Report, Workload};

/// Which hosts, devices and strategies.
#[derive(Debug, Clone, Args)]
pub struct Flags {
    /// The application's file; its own unless given
    #[arg(long, value_name = "FILE")]
    pub application: Option<PathBuf>,
    /// Hardware of the host that asks: direct, on-path, off-path, or a file
    #[arg(long, value_name = "MODEL", default_value = "direct")]
    pub requester: String,
    /// Hardware of the host that answers
    #[arg(long, value_name = "MODEL", default_value = "direct")]
    pub responder: String,
    /// The processor
    #[arg(long, value_name = "DEVICE", default_value = "cpu:1")]
    pub cpu: Choice,
    /// The accelerator: opencl:0, cuda:0, emulated:per-job=TIME,bytes-per-second=N; `pathcall place devices` names them
    #[arg(long, value_name = "DEVICE", default_value = "emulated:per-job=100us")]
    pub acc: Choice,
    /// How paths are chosen, in turn
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "all-cpu,all-acc,leo", value_parser = strategy)]
    pub strategies: Vec<Strategy>,
    /// What is between requester and responder
    #[arg(long, value_enum, default_value_t = Between::Itself)]
    pub between: Between,
    /// Messages under way at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub window: u32,
    /// One line of JSON
    #[arg(long)]
    pub json: bool,
}

impl Flags {
    /// What is run: `(name, text)` is the application's own file.
    ///
    /// # Errors
    /// A file can't be read, or has a mistake in it.
    pub fn plan(&self, (name, text): (&str, &str)) -> Result<Plan> {
        let application = match &self.application {
            None => Application::parse(name, text)?,
            Some(file) => Application::parse(&file.display().to_string(), &read(file)?)?,
        };
        let (cpu, acc) = (self.cpu.clone(), self.acc.clone());
        let (requester, responder) = (hardware(&self.requester)?, hardware(&self.responder)?);
        let Self { between, window, .. } = *self;
        Ok(Plan { application, requester, responder, devices: [cpu, acc], between, window: window as usize })
    }

    /// Runs an application with each strategy.
    ///
    /// # Errors
    /// As [`plan`](Self::plan) and [`Bed::new`]; or no answer comes.
    pub fn run(&self, file: (&str, &str), workload: &mut dyn Workload) -> Result<Report> {
        let bed = Bed::new(self.plan(file)?, workload)?;
        let runs = self.strategies.iter().map(|strategy| bed.run(workload, *strategy)).collect::<Result<_>>()?;
        Ok(Report::new(workload.name(), &bed, runs))
    }
}

fn strategy(name: &str) -> Result<Strategy, String> {
    let known = || Strategy::WORDS.map(|(name, _)| name).join(", ");
    Strategy::named(name).ok_or_else(|| format!("expected one of {}", known()))
}

/// A model that comes with Pathcall, or of a file.
fn hardware(model: &str) -> Result<Hardware> {
    match Preset::named(model) {
        Some(preset) => Ok(Hardware::preset(preset)),
        None => Ok(Hardware::parse(model, &read(model.as_ref())?)?),
    }
}

fn read(file: &std::path::Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
