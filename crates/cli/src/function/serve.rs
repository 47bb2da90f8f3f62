//! `pathcall function serve`: one server of a function, until it is told to stop.

use clap::Args;
use pathcall_function::handler;
use pathcall_live::server::{self, Served, Setup};

use super::group::At;
use super::{Read, Source, place};
use crate::failure::Failure;
use pathcall_console::{print, stopped};

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub(super) source: Source,
    /// The server, as the topology names it
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Where the element's requests come in
    #[arg(long, value_name = "IFACE")]
    iface: String,
    #[command(flatten)]
    at: At,
}

pub(super) async fn run(args: &ServeArgs, read: Read) -> Result<(), Failure> {
    let Read { sources, program, split, .. } = read;
    let split = split.ok_or_else(|| pathcall_live::Error::NoHandler(program.name.clone()))?;
    let reading = &args.source.reading;
    let digest = pathcall_live::digest(&program, reading.element_entries, reading.phv);
    // Texts stay on this thread: what is asked for is where the pieces of C are.
    let pieces = program.handler.iter().flat_map(|handler| [handler.state.at, handler.body.at]);
    let places: Vec<_> = pieces.map(|at| (at, place(&sources, at))).collect();
    let setup = Setup {
        name: args.name.clone(),
        interface: args.iface.clone(),
        controller: args.at.controller.clone(),
        security: args.at.tls.read()?,
        places: Box::new(move |at| places.iter().find(|(known, _)| *known == at)?.1.clone()),
        handler: handler::Config::default(),
        cache: handler::cache_dir(),
        program,
        split,
        digest,
    };
    let line = format!("ready: server {} at {}, controller {}\n", args.name, args.iface, args.at.controller);
    // Nobody may be reading any more.
    let ready = || drop(print(&line));
    let Served { stats, too_long, unsent, sessions } = server::serve(setup, ready, stopped()?).await?;
    print(&format!(
        "{} requests, {} ended by the handler, {} lost in traps, {} no requests; {too_long} too long, {unsent} not \
         sent back; began {sessions} times\n",
        stats.requests, stats.ended, stats.trapped, stats.refused
    ))?;
    Ok(())
}
