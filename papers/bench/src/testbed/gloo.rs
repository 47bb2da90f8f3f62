//! Gloo's all-reduce as a peer, through PyTorch: one rank on each worker's host, TCP between them.
//!
//! PyTorch belongs to the Python in `PATHCALL_PYTHON`; by default to the Python of Debian's packages.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pathcall_testbed::Testbed;

use super::workers::Workers;

/// Environment variable for the Python interpreter, and its default.
const PYTHON_VAR: &str = "PATHCALL_PYTHON";
const PYTHON: &str = "/usr/bin/python3";
const SOURCE: &str = include_str!("../../peers/allreduce.py");
/// Port of rank 0.
const PORT: &str = "29500";

/// Address at which ranks on one host meet.
const LOOPBACK: &str = "127.0.0.1";

/// Program of the peer.
pub(crate) struct Gloo {
    python: OsString,
    program: PathBuf,
}

impl Gloo {
    /// Writes the program of the peer.
    ///
    /// # Errors
    /// Returns an error if Gloo is not installed.
    pub(crate) fn find() -> Result<Self> {
        Self::write("allreduce", SOURCE)
    }

    /// Writes another program.
    ///
    /// # Errors
    /// Returns an error if Gloo is not installed.
    pub(crate) fn write(name: &str, text: &str) -> Result<Self> {
        let check = "import torch.distributed as dist, sys; sys.exit(not dist.is_gloo_available())";
        let python = std::env::var_os(PYTHON_VAR).unwrap_or_else(|| PYTHON.into());
        let none = || format!("{} has no Gloo: `apt-get install python3-torch`, or see {PYTHON_VAR}", python.display());
        let output = Command::new(&python).args(["-c", check]).output().with_context(none)?;
        ensure!(output.status.success(), none());
        let program = std::env::temp_dir().join(format!("pathcall-bench-{name}-{}.py", std::process::id()));
        std::fs::write(&program, text)?;
        Ok(Self { python, program })
    }

    /// Runs `calls` all-reduces of the workers of a testbed, one after the other; returns the time of one.
    pub(crate) fn turn(&self, testbed: &Testbed, workers: usize, values: usize, calls: usize) -> Result<Duration> {
        let mut ranks: Vec<Child> = Vec::new();
        let mut first = None;
        for (rank, k) in Workers::at(workers).enumerate() {
            let host = testbed.host(k)?;
            let meets_at = *first.get_or_insert(host.address());
            let mut command = host.command(&self.python);
            command.env("GLOO_SOCKET_IFNAME", "eth0").arg(&self.program);
            command.args([rank.to_string(), workers.to_string(), meets_at.to_string(), PORT.to_owned()]);
            command.args([values.to_string(), calls.to_string()]);
            ranks.push(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?);
        }
        let times = output_of_first(ranks)?;
        let times = times.lines().map(str::parse::<f64>).collect::<Result<Vec<_>, _>>().context("seconds by Gloo")?;
        ensure!(times.len() == calls, "{} times of {calls} all-reduces", times.len());
        Ok(Duration::from_secs_f64(times.iter().sum::<f64>() / calls as f64))
    }

    /// Runs ranks on this host; returns the output of the first.
    pub(crate) fn local(&self, ranks: usize, args: &[String]) -> Result<String> {
        let start = |rank: usize| {
            let mut command = Command::new(&self.python);
            command.env("GLOO_SOCKET_IFNAME", "lo").arg(&self.program);
            command.args([&rank.to_string(), &ranks.to_string(), LOOPBACK, PORT]).args(args);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
        };
        output_of_first((0..ranks).map(start).collect::<Result<_, _>>()?)
    }
}

/// Output of the first rank, after all ranks have succeeded.
fn output_of_first(ranks: Vec<Child>) -> Result<String> {
    // If a rank fails, the others end as well, possibly later.
    let ended = ranks.into_iter().map(Child::wait_with_output).collect::<Result<Vec<_>, _>>()?;
    for (rank, output) in ended.iter().enumerate() {
        ensure!(output.status.success(), "rank {rank}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(ended.first().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default())
}

impl Drop for Gloo {
    fn drop(&mut self) {
        // A remaining file is small, and lies in the directory for temporary files.
        let _ = std::fs::remove_file(&self.program);
    }
}
