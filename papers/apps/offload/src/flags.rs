//! Command line flags of the applications of place.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use pathcall_place::device::discover::DeviceChoice;
use pathcall_place::model::Preset;
use pathcall_place::{Application, Hardware, SelectionStrategy};

use crate::{AppRun, AppTestbed, AppWorkload, HostLink, Report};

/// Hosts, devices and strategies.
#[derive(Debug, Clone, Args)]
pub struct Flags {
    /// Application file; by default the one of the application
    #[arg(long, value_name = "FILE")]
    pub application: Option<PathBuf>,
    /// Hardware of the requester: direct, on-path, off-path, or a file
    #[arg(long, value_name = "MODEL", default_value = "direct")]
    pub requester: String,
    /// Hardware of the responder: direct, on-path, off-path, or a file
    #[arg(long, value_name = "MODEL", default_value = "direct")]
    pub responder: String,
    /// Processor
    #[arg(long, value_name = "DEVICE", default_value = "cpu:1")]
    pub cpu: DeviceChoice,
    /// Accelerator: opencl:0, cuda:0, emulated:per-job=TIME,bytes-per-second=N; `pathcall place devices` lists them
    #[arg(long, value_name = "DEVICE", default_value = "emulated:per-job=100us")]
    pub acc: DeviceChoice,
    /// Path selection strategies, one run each
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "all-cpu,all-acc,leo", value_parser = strategy)]
    pub strategies: Vec<SelectionStrategy>,
    /// Connection of requester and responder
    #[arg(long, value_enum, default_value_t = HostLink::Itself)]
    pub between: HostLink,
    /// Maximum number of messages in progress
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub window: u32,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

impl Flags {
    /// Parameters of a run; `(name, text)` is the default application file.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is invalid.
    pub fn plan(&self, (name, text): (&str, &str)) -> Result<AppRun> {
        let application = match &self.application {
            None => Application::parse(name, text)?,
            Some(file) => Application::parse(&file.display().to_string(), &read(file)?)?,
        };
        let (cpu, acc) = (self.cpu.clone(), self.acc.clone());
        let (requester, responder) = (hardware(&self.requester)?, hardware(&self.responder)?);
        let Self { between, window, .. } = *self;
        Ok(AppRun { application, requester, responder, devices: [cpu, acc], between, window: window as usize })
    }

    /// Runs an application with each strategy.
    ///
    /// # Errors
    /// Returns the errors of [`plan`](Self::plan), [`AppTestbed::new`] and [`AppTestbed::run`].
    pub fn run(&self, file: (&str, &str), workload: &mut dyn AppWorkload) -> Result<Report> {
        let testbed = AppTestbed::new(self.plan(file)?, workload)?;
        let runs = self.strategies.iter().map(|strategy| testbed.run(workload, *strategy)).collect::<Result<_>>()?;
        Ok(Report::new(workload.name(), &testbed, runs))
    }
}

fn strategy(name: &str) -> Result<SelectionStrategy, String> {
    let known = || SelectionStrategy::NAMES.map(|(name, _)| name).join(", ");
    SelectionStrategy::named(name).ok_or_else(|| format!("expected one of {}", known()))
}

/// Preset, or a hardware model from a file.
fn hardware(model: &str) -> Result<Hardware> {
    match Preset::named(model) {
        Some(preset) => Ok(Hardware::preset(preset)),
        None => Ok(Hardware::parse(model, &read(model.as_ref())?)?),
    }
}

fn read(file: &std::path::Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
