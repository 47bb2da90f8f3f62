//! `dpc-instructions`: instructions of a call of one hop, where there is nothing to gain, beside the twin's.
//!
//! Counted by valgrind, in user mode, of client and server together: both run on the same sessions, sockets and
//! runtime, in a process of their own that makes calls and nothing else. Two lengths of it are subtracted from each
//! other, so that what starts and ends is not counted.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use pathcall_sim::delegate::shapes::hops;

use super::plan::{Pattern, Plan, Servers};
use super::ways::nodes::{self, Nodes};
use super::ways::twins::{self, Twins};
use super::ways::{Way, calls};
use crate::harness::{Bench, Better, Figure, Metric, Side};
use crate::net::FREE;

pub(super) const FIGURE: Figure =
    Figure { name: "dpc-instructions", about: "instructions of a call of one hop, client and server", run };

const CALLS: usize = 4_000;
const CALLS_QUICK: usize = 300;
/// Calls that are made in either length.
const FIRST: usize = 500;
const MORE_AT_MOST: f64 = 1.1;

fn run(bench: &mut Bench) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        bench.says("not made: there is no valgrind, which counts instructions");
        return Ok(());
    }
    let calls = bench.size(CALLS, CALLS_QUICK);
    let metric = Metric::new("1 hop", "RPC twin", "instructions", Better::Lower).expect(MORE_AT_MOST);
    let count = |side| {
        let (short, long) = (counted(side, FIRST)?, counted(side, FIRST + calls)?);
        Ok([(long - short) as f64 / calls as f64])
    };
    bench.compare([metric], || count(Side::Ours), || count(Side::Peer))
}

/// Instructions of a process that makes so many calls.
fn counted(side: Side, calls: usize) -> Result<u64> {
    let side = if side == Side::Ours { "ours" } else { "peer" };
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe()?).args(["--only", side, "--one-hop", &calls.to_string()]);
    let output = command.output().context("valgrind does not start")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind: {said}");
    let count = said.lines().find_map(|line| line.split_once("I refs:").or(line.split_once("I   refs:")));
    let (_, count) = count.with_context(|| format!("expected a count of instructions, got {said}"))?;
    Ok(count.trim().replace(',', "").parse()?)
}

/// Makes calls of one hop, one after the other: delegate's, or the twin's.
pub(crate) fn one_hop(side: Side, count: usize) -> Result<()> {
    let plan = Plan::new(vec![Pattern::new("1 hop", hops(1))])?;
    let servers = Servers::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match side {
            Side::Ours => {
                let all = [nodes::serve(FREE, plan.clone(), servers.clone()).await?; 2];
                servers.are(all.into());
                whole(Nodes::start(FREE, plan, servers).await?, count).await
            }
            Side::Peer => {
                servers.are([twins::serve(FREE).await?; 2].into());
                whole(Twins::start(FREE, plan, servers).await?, count).await
            }
        }
    })
}

async fn whole(way: impl Way, count: usize) -> Result<()> {
    calls(way, 0, count, 1).await?.whole().map(drop)
}
