//! `dpc-instructions`: instructions of a call of one hop, the worst case of delegation, compared with plain calls on
//! the same transport; and through stubs, compared with plain tonic.
//!
//! valgrind counts instructions in user mode, of client and server together. Both sides run on the same sessions,
//! sockets and runtime, in a separate process that only makes calls. The difference of two run lengths removes start
//! and end of the process.

use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use pathcall_driver::node::NodeConfig;
use pathcall_models::delegate::shapes::hops;

use super::plan::{Pattern, Servers, WorkPlan};
use super::variants::baseline::{self, Baseline};
use super::variants::nodes::{self, Nodes};
use super::variants::plain::{self, Hub};
use super::variants::stubs::{self, Stubs};
use super::variants::{CallVariant, calls};
use crate::harness::{Bench, Better, Figure, Kind, Metric, Side};
use crate::net::FREE;

pub(super) const FIGURE: Figure = Figure {
    name: "dpc-instructions",
    about: "instructions of a call of one hop, client and server",
    kind: Kind::Counted,
    run,
};

const CALLS: usize = 4_000;
const CALLS_QUICK: usize = 100;
/// Calls of both run lengths.
const FIRST: usize = 500;
const FIRST_QUICK: usize = 50;
const MORE_AT_MOST: f64 = 1.1;

/// Interface of the calls: nodes and their baseline, or gRPC stubs and plain tonic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CallInterface {
    Nodes,
    Stubs,
}

fn run(bench: &mut Bench) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        bench.print_note("not made: there is no valgrind, which counts instructions");
        return Ok(());
    }
    let (first, calls) = bench.size((FIRST, CALLS), (FIRST_QUICK, CALLS_QUICK));
    let nodes = Metric::new("1 hop", "RPC twin", "instructions", Better::Lower).expect(MORE_AT_MOST);
    let stubs = Metric::new("1 hop, stubs", "tonic", "instructions", Better::Lower).expect(MORE_AT_MOST);
    for (interface, metric) in [(CallInterface::Nodes, nodes), (CallInterface::Stubs, stubs)] {
        let count = |side| {
            // Both runs at the same time: the counts do not influence each other.
            let (short, long) = thread::scope(|scope| {
                let short = scope.spawn(|| count_instructions(interface, side, first));
                let long = count_instructions(interface, side, first + calls);
                (short.join(), long)
            });
            let short = short.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok([long?.saturating_sub(short) as f64 / calls as f64])
        };
        bench.compare([metric], || count(Side::Ours), || count(Side::Peer))?;
    }
    Ok(())
}

/// Instructions of a process that makes `calls` calls.
fn count_instructions(interface: CallInterface, side: Side, calls: usize) -> Result<u64> {
    let side = if side == Side::Ours { "ours" } else { "peer" };
    let interface = if interface == CallInterface::Nodes { "nodes" } else { "stubs" };
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe()?).args(["--only", side, "--by", interface, "--one-hop", &calls.to_string()]);
    let output = command.output().context("cannot start valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind: {said}");
    let count = said.lines().find_map(|line| line.split_once("I refs:").or(line.split_once("I   refs:")));
    let (_, count) = count.with_context(|| format!("expected a count of instructions, got {said}"))?;
    Ok(count.trim().replace(',', "").parse()?)
}

/// Makes calls of one hop, one after the other.
pub(crate) fn one_hop(interface: CallInterface, side: Side, count: usize) -> Result<()> {
    let plan = WorkPlan::new(vec![Pattern::new("1 hop", hops(1))])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match (interface, side) {
            (CallInterface::Nodes, Side::Ours) => {
                let servers = Servers::default();
                servers.set([nodes::serve(&NodeConfig::default(), plan.clone(), servers.clone()).await?; 2].into());
                run_calls(Nodes::start(&NodeConfig::default(), plan, servers).await?, count).await
            }
            (CallInterface::Nodes, Side::Peer) => {
                let servers = Servers::default();
                servers.set([baseline::serve(FREE).await?; 2].into());
                run_calls(Baseline::start(FREE, plan, servers).await?, count).await
            }
            (CallInterface::Stubs, Side::Ours) => {
                let servers = Servers::default();
                let server = stubs::serve(FREE, plan.clone(), servers.clone()).await?;
                servers.set(vec![server.clone(), server]);
                run_calls(Stubs::start(FREE, plan, &servers).await?, count).await
            }
            (CallInterface::Stubs, Side::Peer) => {
                let (url, _) = plain::serve(FREE, plan.clone()).await?;
                run_calls(Hub::start(plan, &[url.clone(), url])?, count).await
            }
        }
    })
}

async fn run_calls(variant: impl CallVariant, count: usize) -> Result<()> {
    calls(variant, 0, count, 1).await?.whole().map(drop)
}
