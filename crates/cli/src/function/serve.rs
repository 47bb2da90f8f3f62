//! Command `pathcall function serve`: runs one server of a function until it is stopped.

use clap::Args;
use pathcall_live::server::{self, ServeReport, ServerSetup};
use pathcall_netfn::handler;

use super::group::ControllerAddress;
use super::{ParsedFunction, Source, place};
use crate::failure::Failure;
use pathcall_console::{print, stopped};

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub(super) source: Source,
    /// Name of the server in the topology
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Interface on which the element's requests arrive
    #[arg(long, value_name = "IFACE")]
    iface: String,
    #[command(flatten)]
    at: ControllerAddress,
}

pub(super) async fn run(args: &ServeArgs, read: ParsedFunction) -> Result<(), Failure> {
    let ParsedFunction { sources, program, split, .. } = read;
    let split = split.ok_or_else(|| pathcall_live::Error::NoHandler(program.name.clone()))?;
    let reading = &args.source.reading;
    let digest = pathcall_live::digest(&program, reading.element_entries, reading.phv);
    // Texts stay on this thread; the closure needs only the positions of the C code.
    let pieces = program.handler.iter().flat_map(|handler| [handler.state.at, handler.body.at]);
    let places: Vec<_> = pieces.map(|at| (at, place(&sources, at))).collect();
    let setup = ServerSetup {
        name: args.name.clone(),
        interface: args.iface.clone(),
        controller: args.at.controller.clone(),
        security: args.at.tls.read()?,
        locate: Box::new(move |at| places.iter().find(|(known, _)| *known == at)?.1.clone()),
        handler: handler::Config::default(),
        cache: handler::cache_dir(),
        program,
        split,
        digest,
    };
    let line = format!("ready: server {} at {}, controller {}\n", args.name, args.iface, args.at.controller);
    // Standard output may be closed already.
    let ready = || drop(print(&line));
    let ServeReport { stats, too_long, unsent, sessions } = server::serve(setup, ready, stopped()?).await?;
    print(&format!(
        "{} requests, {} ended by the handler, {} lost in traps, {} no requests; {too_long} too long, {unsent} not \
         sent back; began {sessions} times\n",
        stats.requests, stats.ended, stats.trapped, stats.refused
    ))?;
    Ok(())
}
