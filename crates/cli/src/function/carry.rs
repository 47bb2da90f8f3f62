//! Options of `pathcall element --function`: a function that runs on the element.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Arg, Args};
use pathcall_live::LISTEN_DEFAULT;
use pathcall_netfn::place::PlacementStrategy;

use super::SourceOptions;

#[cfg(feature = "xdp")]
pub(crate) use with_xdp::LoadedFunction;
#[cfg(not(feature = "xdp"))]
pub(crate) use without_xdp::LoadedFunction;

#[cfg_attr(not(feature = "xdp"), allow(dead_code, reason = "read where there is a program for the kernel"))]
#[derive(Debug, Args)]
#[command(mut_args(require_function))]
pub(crate) struct ElementFunctionArgs {
    /// Function to run on the element, split between element and servers (`pathcall function serve`)
    #[arg(long, value_name = "FILE.p4c", requires = "topology")]
    function: Option<PathBuf>,
    /// Servers and networks of the function, and their interfaces
    #[arg(long, value_name = "FILE.toml", requires = "function")]
    topology: Option<PathBuf>,
    #[command(flatten)]
    reading: SourceOptions,
    /// Entries of tables that servers do not hold, one a line: TABLE KEY… ACTION ARGUMENT…
    #[arg(long, value_name = "FILE", requires = "function")]
    entries: Option<PathBuf>,
    /// Placement strategy of entries in the element: none, random, heap or threshold
    #[arg(long, value_name = "STRATEGY", default_value_t = PlacementStrategy::Threshold, requires = "function")]
    placement: PlacementStrategy,
    /// TCP address for servers and operator of the function; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", default_value_t = LISTEN_DEFAULT, requires = "function")]
    function_listen: SocketAddr,
}

/// Makes the options for reading a function require `--function`.
fn require_function(option: Arg) -> Arg {
    let reading = ["include", "define", "phv", "element_entries"];
    if reading.contains(&option.get_id().as_str()) { option.requires("function") } else { option }
}

#[cfg(feature = "xdp")]
mod with_xdp {
    use std::fs;
    use std::path::PathBuf;

    use pathcall_auth::Security;
    use pathcall_live::digest;
    use pathcall_live::element::{self, ElementSetup, Handle};
    use pathcall_netfn::scale::Topology;
    use pathcall_netfn::{live, place};
    use pathcall_p4::ir;

    use super::ElementFunctionArgs;
    use crate::failure::Failure;
    use crate::function::{ParsedFunction, entries};

    /// Parsed function with its topology.
    pub(crate) struct LoadedFunction(ElementSetup);

    impl ElementFunctionArgs {
        /// Reads the files.
        pub(crate) fn read(self) -> Result<Option<LoadedFunction>, Failure> {
            let (Some(file), Some(topology)) = (self.function, self.topology) else { return Ok(None) };
            let text = |path: &PathBuf| {
                fs::read_to_string(path).map_err(|source| Failure::File { path: path.clone(), source })
            };
            let read = ParsedFunction::new(&file, &self.reading).map_err(|mistakes| {
                eprintln!("{mistakes}");
                Failure::Function(format!("{} has errors", file.display()))
            })?;
            let wrong = |why: String| Failure::Function(why);
            let named = topology.display().to_string();
            let topology = Topology::parse(&named, &text(&topology)?).map_err(|error| wrong(error.to_string()))?;
            let program = read.program;
            let split = read.split.ok_or_else(|| pathcall_live::Error::NoHandler(program.name.clone()))?;
            let entries = match &self.entries {
                None => Vec::new(),
                Some(path) => entries::entries(&program, &text(path)?)
                    .map_err(|why| wrong(format!("{}: {why}", path.display())))?,
            };
            if let Some(given) = entries.iter().find(|given| table_of(&program, given.table).mirrored) {
                let name = &table_of(&program, given.table).name;
                return Err(wrong(format!("entries of table {name} are the servers': they are mirrored")));
            }
            let entries = entries.into_iter().map(|given| (given.table, given.entry)).collect();
            let config = live::Config {
                place: place::Config { strategy: self.placement, ..place::Config::default() },
                ..live::Config::default()
            };
            let digest = digest(&program, self.reading.element_entries, self.reading.phv);
            let listen = self.function_listen;
            Ok(Some(LoadedFunction(ElementSetup {
                program,
                split,
                digest,
                topology,
                entries,
                config,
                listen,
                switch: None,
                security: Security::default(),
            })))
        }
    }

    fn table_of(program: &ir::Program, table: ir::TableId) -> &ir::Table {
        &program.tables[table.0 as usize]
    }

    impl LoadedFunction {
        /// Interfaces that the function uses.
        pub(crate) fn interfaces(&self) -> Vec<String> {
            self.0.topology.interfaces.values().cloned().collect()
        }

        /// Starts the function beside the element's switch program.
        pub(crate) async fn start(
            mut self,
            beside: &mut pathcall_element::Handle,
            security: Security,
        ) -> Result<RunningFunction, Failure> {
            self.0.security = security;
            self.0.switch = beside.take_program();
            Ok(RunningFunction(element::start(self.0).await?))
        }
    }

    /// Function that runs on the element.
    pub(crate) struct RunningFunction(Handle);

    impl RunningFunction {
        /// Addresses of the function: `, function's controller at …, XDP on …`.
        pub(crate) fn addresses(&self) -> String {
            let attached = self.0.attached().iter().map(|attached| {
                let mode = if attached.native { "native" } else { "generic" };
                format!(", XDP on {} ({mode}, to {})", attached.interface, attached.device)
            });
            format!(", function's controller at {}{}", self.0.url(), attached.collect::<String>())
        }

        pub(crate) async fn shutdown(self) {
            self.0.shutdown().await;
        }
    }
}

#[cfg(not(feature = "xdp"))]
mod without_xdp {
    use pathcall_auth::Security;

    use super::ElementFunctionArgs;
    use crate::failure::Failure;

    /// Placeholder in builds without XDP.
    pub(crate) enum LoadedFunction {}
    pub(crate) enum RunningFunction {}

    impl ElementFunctionArgs {
        pub(crate) fn read(self) -> Result<Option<LoadedFunction>, Failure> {
            self.function.map_or(Ok(None), |_| Err(pathcall_element::Error::NoXdp.into()))
        }
    }

    #[rustfmt::skip]
    impl LoadedFunction {
        pub(crate) fn interfaces(&self) -> Vec<String> { match *self {} }
        pub(crate) async fn start(self, _: &mut pathcall_element::Handle, _: Security) -> Result<RunningFunction, Failure> { match self {} }
    }

    #[rustfmt::skip]
    impl RunningFunction {
        pub(crate) fn addresses(&self) -> String { match *self {} }
        pub(crate) async fn shutdown(self) { match self {} }
    }
}
