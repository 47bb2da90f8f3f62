//! Demo on hosts: the first part, in which links are the limit and not the processors of this machine.
//!
//! ```text
//! h1 ─ 100 Mbit/s ─╮          ╭─ 100 Mbit/s, 100 µs ─ h6       one rack: h1 to h5, for sums and reads
//! …                ├─ element ┤                        …       racks of their own: h6 to h11, for hops
//! h5 ──────────────╯          ╰────────────────────── h11
//! ```
//!
//! Each host is a network namespace of a testbed that [`Hosts`] builds, as root or as root of a user namespace. The
//! parts are [`sum`] (map), [`reads`] (clone) and [`hops`] (delegate), each beside plain gRPC on the same hosts.

mod hops;
mod reads;
mod sum;

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use pathcall_console::print;
use pathcall_testbed::{LinkProfile, Testbed, TestbedNode};
use tokio::process::Child;
use tokio::task::{JoinSet, spawn_blocking};

use crate::failure::Failure;
use crate::findings::{Findings, wrap};
use crate::network::UpProcess;
use crate::{Programs, find as find_programs, ready};

/// Programs of the parts.
const SUMS: &str = "training";
const READS: &str = "kv";
const HOPS: &str = "proxy";

const DESCRIPTION: &str = "Hosts: eleven network namespaces on this machine, joined by links of 100 Mbit/s at one \
element in user space. Six of the hosts are in racks of their own: 200 us between any two of them. Here the links are \
the limit, and not the processors of this machine, which all parties share.";

/// Hosts of one rack: the server first, the caller or the workers after it.
const RACK: [usize; 5] = [1, 2, 3, 4, 5];
/// Hosts in racks of their own, the caller last.
const FAR: [usize; 6] = [6, 7, 8, 9, 10, 11];
const RATE: &str = "100mbit";
/// Delay of a link: half of that between two hosts.
const DELAY: &str = "100us";
/// Ports of the element.
const PORTS: [(&str, u16); 3] = [("--listen", 7700), ("--control", 7701), ("--data", 7702)];

/// Programs of the demo.
pub(crate) struct Demo(Programs);

/// Hosts, and the process of controller and element.
struct Hosts {
    // Ends before the testbed.
    up: UpProcess,
    bed: Testbed,
}

/// Finds the applications in this folder.
pub(crate) fn find(directory: &Path) -> Result<Demo, Failure> {
    find_programs(directory, [SUMS, READS, HOPS]).map(Demo)
}

impl Demo {
    /// Builds the hosts, runs all parts on them, prints the results and draws the pictures. Where hosts can't be built,
    /// it returns the reason.
    pub(crate) async fn run(&self, pathcall: &Path, findings: &mut Findings) -> Result<Option<String>, Failure> {
        let bed = match build().await {
            Ok(bed) => bed,
            Err(error) => return Ok(Some(error.to_string())),
        };
        print(&format!("\n{}", wrap(DESCRIPTION)))?;
        let hosts = Hosts::start(bed, pathcall).await?;
        for (name, program) in &self.0 {
            match *name {
                SUMS => sum::run(&hosts, program, findings).await?,
                READS => reads::run(&hosts, program, findings).await?,
                _ => hops::run(&hosts, program, findings).await?,
            }
        }
        hosts.shutdown().await?;
        Ok(None)
    }
}

async fn build() -> Result<Testbed, pathcall_testbed::Error> {
    let rack = LinkProfile { rate: Some(RATE.parse()?), ..LinkProfile::default() };
    let far = LinkProfile { delay: DELAY.parse()?, ..rack };
    let builder = Testbed::builder().hosts(RACK.len() + FAR.len()).profile(rack);
    let builder = FAR.into_iter().fold(builder, |builder, k| builder.link(k, far));
    // A task that panicked, or was stopped with the runtime.
    let stopped = |error: tokio::task::JoinError| pathcall_testbed::Error::Io {
        doing: "building a testbed",
        source: error.into(),
    };
    spawn_blocking(move || builder.up()).await.map_err(stopped)?
}

impl Hosts {
    async fn start(bed: Testbed, pathcall: &Path) -> Result<Self, Failure> {
        let element = bed.element(1)?;
        let mut up = element.command(pathcall);
        // A testbed is an isolated network.
        up.args(["up", "--insecure"]);
        for (option, port) in PORTS {
            up.args([option, &format!("{}:{port}", element.address())]);
        }
        Ok(Self { up: UpProcess::start(up).await?, bed })
    }

    fn url(&self) -> &str {
        &self.up.url
    }

    fn host(&self, k: usize) -> Result<TestbedNode, Failure> {
        Ok(self.bed.host(k)?)
    }

    fn address(&self, k: usize) -> Result<IpAddr, Failure> {
        Ok(self.host(k)?.address().into())
    }

    /// Command of a program on host `k`.
    fn command(&self, k: usize, program: &Path) -> Result<Command, Failure> {
        Ok(self.host(k)?.command(program))
    }

    /// Bytes that have crossed the link of host `k`, in both directions.
    fn link_bytes(&self, k: usize) -> Result<u64, Failure> {
        let traffic = self.bed.link(k)?.traffic()?;
        Ok(traffic.up.bytes + traffic.down.bytes)
    }

    async fn shutdown(self) -> Result<(), Failure> {
        let Self { up, bed } = self;
        up.shutdown().await;
        bed.down()?;
        Ok(())
    }
}

/// Starts servers at the same time, and waits until all are ready. They are killed on drop.
async fn start_all(commands: Vec<(String, Command)>) -> Result<Vec<Child>, Failure> {
    let mut starting: JoinSet<_> =
        commands.into_iter().map(|(name, command)| async { (name, ready(command).await) }).collect();
    let mut children = Vec::new();
    while let Some(started) = starting.join_next().await {
        let Ok((name, started)) = started else { continue };
        match started {
            Ok((child, Some(_))) => children.push(child),
            Ok((_, None)) => return Err(Failure::NotReady { program: name }),
            Err(source) => return Err(Failure::Spawn { program: name, source }),
        }
    }
    Ok(children)
}
