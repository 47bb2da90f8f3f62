//! `dpc-instructions`: instructions of a call of one hop, where there is nothing to gain, beside the twin's; and
//! through stubs, beside plain tonic's.
//!
//! Counted by valgrind, in user mode, of client and server together: both run on the same sessions, sockets and
//! runtime, in a process of their own that makes calls and nothing else. Two lengths of it are subtracted from each
//! other, so that what starts and ends is not counted.

use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use pathcall_models::delegate::shapes::hops;

use super::plan::{Pattern, Plan, Servers};
use super::ways::nodes::{self, Nodes};
use super::ways::plain::{self, Hub};
use super::ways::stubs::{self, Stubs};
use super::ways::twins::{self, Twins};
use super::ways::{Way, calls};
use crate::harness::{Bench, Better, Figure, Metric, Side};
use crate::net::FREE;

pub(super) const FIGURE: Figure =
    Figure { name: "dpc-instructions", about: "instructions of a call of one hop, client and server", run };

const CALLS: usize = 4_000;
const CALLS_QUICK: usize = 100;
/// Calls that are made in either length.
const FIRST: usize = 500;
const FIRST_QUICK: usize = 50;
const MORE_AT_MOST: f64 = 1.1;

/// What calls go by: nodes and their twins; or gRPC stubs, and plain tonic's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Face {
    Nodes,
    Stubs,
}

fn run(bench: &mut Bench) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        bench.says("not made: there is no valgrind, which counts instructions");
        return Ok(());
    }
    let (first, calls) = bench.size((FIRST, CALLS), (FIRST_QUICK, CALLS_QUICK));
    let nodes = Metric::new("1 hop", "RPC twin", "instructions", Better::Lower).expect(MORE_AT_MOST);
    let stubs = Metric::new("1 hop, stubs", "tonic", "instructions", Better::Lower).expect(MORE_AT_MOST);
    for (face, metric) in [(Face::Nodes, nodes), (Face::Stubs, stubs)] {
        let count = |side| {
            // At the same time: counts do not depend on it.
            let (short, long) = thread::scope(|scope| {
                let short = scope.spawn(|| counted(face, side, first));
                let long = counted(face, side, first + calls);
                (short.join(), long)
            });
            let short = short.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok([long?.saturating_sub(short) as f64 / calls as f64])
        };
        bench.compare([metric], || count(Side::Ours), || count(Side::Peer))?;
    }
    Ok(())
}

/// Instructions of a process that makes so many calls.
fn counted(face: Face, side: Side, calls: usize) -> Result<u64> {
    let side = if side == Side::Ours { "ours" } else { "peer" };
    let face = if face == Face::Nodes { "nodes" } else { "stubs" };
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe()?).args(["--only", side, "--by", face, "--one-hop", &calls.to_string()]);
    let output = command.output().context("valgrind does not start")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind: {said}");
    let count = said.lines().find_map(|line| line.split_once("I refs:").or(line.split_once("I   refs:")));
    let (_, count) = count.with_context(|| format!("expected a count of instructions, got {said}"))?;
    Ok(count.trim().replace(',', "").parse()?)
}

/// Makes calls of one hop, one after the other.
pub(crate) fn one_hop(face: Face, side: Side, count: usize) -> Result<()> {
    let plan = Plan::new(vec![Pattern::new("1 hop", hops(1))])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match (face, side) {
            (Face::Nodes, Side::Ours) => {
                let servers = Servers::default();
                servers.are([nodes::serve(FREE, plan.clone(), servers.clone()).await?; 2].into());
                whole(Nodes::start(FREE, plan, servers).await?, count).await
            }
            (Face::Nodes, Side::Peer) => {
                let servers = Servers::default();
                servers.are([twins::serve(FREE).await?; 2].into());
                whole(Twins::start(FREE, plan, servers).await?, count).await
            }
            (Face::Stubs, Side::Ours) => {
                let servers = Servers::default();
                let server = stubs::serve(FREE, plan.clone(), servers.clone()).await?;
                servers.are(vec![server.clone(), server]);
                whole(Stubs::start(FREE, plan, &servers).await?, count).await
            }
            (Face::Stubs, Side::Peer) => {
                let (url, _) = plain::serve(FREE, plan.clone()).await?;
                whole(Hub::start(plan, &[url.clone(), url])?, count).await
            }
        }
    })
}

async fn whole(way: impl Way, count: usize) -> Result<()> {
    calls(way, 0, count, 1).await?.whole().map(drop)
}
