//! Command `pathcall pipe`: checks a pipe of gRPC services, and runs the sidecars of its steps and its front.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use pathcall_auth::Security;
use pathcall_pipe::{Pipe, PipeFront, sidecar};
use pathcall_rpc::delegate::{Directory, Handlers, Node, NodeConfig};
use tokio::net::TcpListener;
use tonic::transport::Endpoint;

use crate::failure::Failure;
use crate::security::TlsArgs;
use pathcall_console::{print, stopped};

#[derive(Debug, Args)]
pub(crate) struct PipeArgs {
    #[command(subcommand)]
    command: PipeCommand,
}

#[derive(Debug, Subcommand)]
enum PipeCommand {
    /// Check a pipe, and show its messages and the fields that travel
    Check {
        /// The pipe's file
        #[arg(value_name = "PIPE.yaml")]
        file: PathBuf,
    },
    /// Run the sidecar of a step beside its service
    Serve(ServeArgs),
    /// Run a front: callers' stubs connect to it
    Front(FrontArgs),
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// The pipe's file
    #[arg(value_name = "PIPE.yaml")]
    file: PathBuf,
    /// The step, by its name in the file
    #[arg(long, value_name = "NAME")]
    step: String,
    /// Service of the step, on this host
    #[arg(long, value_name = "http://HOST:PORT")]
    service: Endpoint,
    /// Run a front, too, that listens on this TCP address
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// Name of this sidecar among those of the step in the controller's directory, such as the host's name
    #[arg(long, value_name = "NAME", requires = "controller")]
    name: Option<String>,
    /// Pass the caller's credentials on to the next step
    #[arg(long)]
    forward_credentials: bool,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Debug, Args)]
struct FrontArgs {
    /// The pipe's file
    #[arg(value_name = "PIPE.yaml")]
    file: PathBuf,
    /// TCP address to listen on; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
    #[command(flatten)]
    node: NodeArgs,
}

/// Address of a node, and the addresses of the others.
#[derive(Debug, Args)]
struct NodeArgs {
    /// UDP address for delegated calls, where the other hosts of the pipe reach it; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    node: SocketAddr,
    /// Address where the others reach the node, if it differs
    #[arg(long, value_name = "IP:PORT")]
    advertise: Option<SocketAddr>,
    /// Sidecars by step; a step may have several
    #[arg(long, value_name = "STEP=HOST:PORT", value_delimiter = ',', conflicts_with = "controller")]
    directory: Vec<String>,
    /// Controller in whose directory the sidecars are
    #[arg(long, value_name = "URL")]
    controller: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
}

pub(crate) fn run(args: PipeArgs) -> Result<ExitCode, Failure> {
    let done = match args.command {
        PipeCommand::Check { file } => return check(&file),
        PipeCommand::Serve(args) => crate::block_on(serve(args)),
        PipeCommand::Front(args) => crate::block_on(front(args)),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Prints an error in the format of compilers, so that editors can jump to the line.
fn check(file: &Path) -> Result<ExitCode, Failure> {
    match Pipe::read(file) {
        Ok(pipe) => print(&pipe.to_string()).map(|()| ExitCode::SUCCESS).map_err(Failure::from),
        Err(mistake) => {
            eprintln!("{mistake}");
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn serve(args: ServeArgs) -> Result<(), Failure> {
    let ServeArgs { file, step, service, listen, name, forward_credentials, node } = args;
    let pipe = Arc::new(Pipe::read(&file)?);
    let index = pipe.step(&step).map_err(|status| Failure::Pipe(status.message().to_owned()))?;
    if service.uri().scheme_str() != Some("http") {
        return Err(Failure::Pipe(format!("invalid --service {}: write http://HOST:PORT", service.uri())));
    }
    let mut others: Vec<&str> = pipe.step_names().skip(index + 1).take(1).collect();
    if listen.is_some() && index > 0 {
        others.extend(pipe.step_names().next());
    }
    let handlers = Handlers::new().node(node.config()).security(node.tls.read()?);
    let handlers = handlers.forward_credentials(forward_credentials);
    let handlers = match (&node.controller, name) {
        (Some(url), Some(name)) => handlers.controller(url.clone(), sidecar::node_name(&pipe, index, &name)),
        (Some(_), None) => return Err(Failure::Pipe(format!("step {step} has no name in the directory; add --name"))),
        (None, _) => handlers.directory(node.listed(&pipe, &others).await?),
    };
    let handlers = sidecar::add_step(handlers, &pipe, &step, service.connect_lazy());
    let handlers = handlers.map_err(|status| Failure::Pipe(status.message().to_owned()))?;
    let running = handlers.start().await.map_err(|error| Failure::Pipe(error.to_string()))?;
    let signal = stopped()?;
    let at = running.address();
    let Some(listen) = listen else {
        print(&format!("ready: step {step} at {at}\n"))?;
        signal.await;
        return Ok(());
    };
    if node.controller.is_none() {
        let own = (sidecar::node_name(&pipe, index, "self"), at);
        running.directory().set(running.directory().nodes().into_iter().chain([own]));
    }
    let listener = bind(listen).await?;
    print(&format!("ready: step {step} at {at}, front at {}\n", url(&listener)?))?;
    let front = PipeFront::new(pipe, running.node().clone(), running.directory().clone());
    front.serve(listener, signal).await.map_err(Failure::Front)
}

async fn front(args: FrontArgs) -> Result<(), Failure> {
    let FrontArgs { file, listen, node } = args;
    let pipe = Arc::new(Pipe::read(&file)?);
    let started = Node::start(&node.config()).await;
    let (client, _requests) = started.map_err(|source| Failure::Bind { address: node.node, source })?;
    let directory = match &node.controller {
        Some(url) => followed(url, &node.tls.read()?, &client)?,
        None => node.listed(&pipe, &[pipe.step_names().next().unwrap_or_default()]).await?,
    };
    let signal = stopped()?;
    let listener = bind(listen).await?;
    print(&format!("ready: front at {}\n", url(&listener)?))?;
    PipeFront::new(pipe, client, directory).serve(listener, signal).await.map_err(Failure::Front)
}

/// Directory of a controller. With certificates, its nodes authenticate their messages.
fn followed(url: &str, security: &Security, node: &Node) -> Result<Directory, Failure> {
    Ok(match security.credentials() {
        Some(_) => Directory::authenticated(url, security, node)?,
        None => Directory::secured(url, security)?,
    })
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|source| Failure::Bind { address, source })
}

fn url(listener: &TcpListener) -> Result<String, Failure> {
    let address = listener.local_addr().map_err(Failure::Runtime)?;
    Ok(format!("http://{address}"))
}

impl NodeArgs {
    fn config(&self) -> NodeConfig {
        NodeConfig::default().listen(self.node).advertised(self.advertise)
    }

    /// Directory of the sidecars on the command line, which has the steps `needed`.
    async fn listed(&self, pipe: &Pipe, needed: &[&str]) -> Result<Directory, Failure> {
        let mut sidecars = Vec::new();
        for entry in &self.directory {
            let wrong = |why: String| Failure::Pipe(format!("invalid --directory {entry}: {why}"));
            let (step, address) = entry.split_once('=').ok_or_else(|| wrong("write STEP=HOST:PORT".to_owned()))?;
            let step = pipe.step(step).map_err(|status| wrong(status.message().to_owned()))?;
            let found = tokio::net::lookup_host(address).await.map_err(|error| wrong(error.to_string()))?;
            // The node reaches addresses of its own family only.
            let at = found.into_iter().find(|at| at.is_ipv4() == self.node.is_ipv4());
            let family = if self.node.is_ipv4() { "IPv4" } else { "IPv6" };
            sidecars.push((step, at.ok_or_else(|| wrong(format!("the host has no {family} address, as --node has")))?));
        }
        for needed in needed {
            let step = pipe.step(needed).map_err(|status| Failure::Pipe(status.message().to_owned()))?;
            if !sidecars.iter().any(|(known, _)| *known == step) {
                let message =
                    format!("calls go on to step {needed}; add --directory {needed}=HOST:PORT, or --controller URL");
                return Err(Failure::Pipe(message));
            }
        }
        Ok(sidecar::directory(pipe, &sidecars))
    }
}
