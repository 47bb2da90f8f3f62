//! Element of a function: the function in the kernel, attached to the interfaces of the topology, and its controller.
//!
//! ```text
//!            root ─┬─ frames ──► switch program, if the element has one in the kernel
//! network ══►      └─ others ──► function ─┬─► network
//!            root ─┬─ frames ──► switch    └─► server
//! server  ══►      ├─ responses ► function
//!                  └─ others ──► this machine: the server's messages come by the same link
//! ```
//!
//! One thread does all work on the function in the kernel ([`start`] starts it), so that a batch of the controller is
//! in force before the next one is made.

mod connections;
mod element_thread;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pathcall_auth::Security;
use pathcall_netfn::live::{self, Controller};
use pathcall_netfn::scale::Topology;
use pathcall_p4::exec::Execution;
use pathcall_p4::ir::{Program, TableEntry, TableId};
use pathcall_p4::split::SplitFunction;
use pathcall_proto::v1::function_server::FunctionServer;
use pathcall_wire::function::{ETHERNET, RESPONSE};
use pathcall_xdp::AttachMode;
use pathcall_xdp::function::{Config, PacketRule, Root, SwitchProgramRef, XdpFunction};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::Error;
use crate::interface::Interface;
use crate::server::KEEP_ALIVE;
use crate::service::{Command, Commands, Service};
use crate::waker::Waker;
use element_thread::ElementThread;

/// Most commands queued for the thread.
const COMMANDS_MAX: usize = 1024;
/// Longest wait for calls in progress at a shutdown.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Settings of an element.
#[derive(Debug)]
pub struct ElementSetup {
    /// Program of the function.
    pub program: Program,
    /// Split program.
    pub split: SplitFunction,
    /// Digest of the program and its split: [`crate::digest`].
    pub digest: u64,
    /// Servers, networks, and their interfaces.
    pub topology: Topology,
    /// Operator's entries of tables that are not mirrored.
    pub entries: Vec<(TableId, TableEntry)>,
    /// Settings of placement and scaling.
    pub config: live::Config,
    /// TCP address for servers and operators; port 0 takes a free port.
    pub listen: SocketAddr,
    /// Switch program in the kernel, which gets the element's frames first.
    pub switch: Option<SwitchProgramRef>,
    /// Certificates and policy for servers and operators.
    pub security: Security,
}

/// Interface that the function is attached to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// Name of the interface.
    pub interface: String,
    /// Device of the topology at this interface.
    pub device: String,
    /// Native mode (in the driver), as opposed to generic mode (after the packet has its own socket buffer).
    pub native: bool,
}

/// Handle of a running element; its drop stops the element.
#[derive(Debug)]
pub struct Handle {
    address: SocketAddr,
    url: String,
    attached: Vec<Attached>,
    /// Sender that keeps the thread running.
    commands: Option<mpsc::Sender<Command>>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    stop: Option<oneshot::Sender<()>>,
    service: JoinSet<()>,
}

/// Loads and attaches the function, and listens for its servers.
///
/// # Errors
/// Errors of the function, the topology or the kernel; nothing is left attached.
pub async fn start(setup: ElementSetup) -> Result<Handle, Error> {
    let bind = |source| Error::Bind { address: setup.listen, source };
    let listener = TcpListener::bind(setup.listen).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    let security = setup.security.clone();
    security.check("controller of a function", address)?;
    let system = |doing| move |source| Error::System { doing, source };
    let waker = Waker::new().map_err(system("creating an eventfd"))?;
    let (sender, receiver) = mpsc::channel(COMMANDS_MAX);
    let commands = Commands::new(&sender, waker.clone());
    let wakes = waker.clone();
    let program = Arc::new(setup.program.clone());
    let (started, starting) = oneshot::channel();
    let work = move || match load(&setup) {
        Ok((drive, attached)) => {
            if started.send(Ok(attached)).is_ok() {
                drive.run(receiver, &wakes);
            }
        }
        Err(error) => drop(started.send(Err(error))),
    };
    // The function is loaded on the thread that uses it, as readers of its digests cannot change threads.
    let thread = thread::Builder::new().name("function-element".into()).spawn(work);
    let thread = Some(thread.map_err(system("starting a thread"))?);
    let attached = starting.await.map_err(|_| Error::Ended("element's thread"))??;

    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::builder().http2_keepalive_interval(Some(KEEP_ALIVE));
    let server = server.http2_keepalive_timeout(Some(KEEP_ALIVE * 5));
    let routes = Routes::new(FunctionServer::new(Service::new(program, commands)));
    let url = format!("{}://{address}", security.scheme());
    let mut service = JoinSet::new();
    service.spawn(async move {
        let stopped = async { drop(stopped.await) };
        if let Err(error) = security.serve(server, routes, listener, stopped).await {
            tracing::error!(%address, %error, "the service of the function ended");
        }
    });
    Ok(Handle { address, url, attached, commands: Some(sender), waker, thread, stop: Some(stop), service })
}

impl Handle {
    /// Address for servers and operators.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address as a URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Interfaces that the function is attached to.
    #[must_use]
    pub fn attached(&self) -> &[Attached] {
        &self.attached
    }

    /// Detaches the function, and frees the address.
    pub async fn shutdown(mut self) {
        self.end();
        drop(self.stop.take());
        if tokio::time::timeout(DRAIN_MAX, self.service.join_next()).await.is_err() {
            self.service.shutdown().await;
        }
        let thread = self.thread.take();
        let panicked = tokio::task::spawn_blocking(move || thread.is_some_and(|thread| thread.join().is_err())).await;
        if panicked.unwrap_or(true) {
            tracing::error!("the thread of the function panicked");
        }
    }

    /// Ends the thread, regardless of connected servers.
    fn end(&mut self) {
        if let Some(commands) = self.commands.take() {
            // If the queue is full, the thread ends when the last sender is gone.
            let _ = commands.try_send(Command::Stop);
        }
        self.waker.wake();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

fn load(setup: &ElementSetup) -> Result<(ElementThread, Vec<Attached>), Error> {
    let ElementSetup { program, split, topology, .. } = setup;
    let interface = |port: u16, device: &str| {
        topology.interfaces.get(&port).cloned().ok_or_else(|| Error::NoInterfaceInTopology(device.to_owned()))
    };
    let mut ports = Vec::new();
    let mut longest = 0;
    for network in &topology.networks {
        let name = interface(network.port, &network.name)?;
        longest = longest.max(Interface::of(&name)?.mtu);
        ports.push((name, network, PacketRule::All));
    }
    let mut address = None;
    for server in &topology.servers {
        let name = interface(server.port, &server.name)?;
        let linked = Interface::of(&name)?;
        // A request consists of the header and the whole packet.
        let least = split.layout.length + ETHERNET + longest;
        if linked.mtu < least {
            return Err(Error::Mtu { interface: name, mtu: linked.mtu, least });
        }
        address.get_or_insert(linked.mac);
        ports.push((name, server, PacketRule::EtherType(RESPONSE)));
    }

    let config = Config { testing: false, local_port: None, storage: None };
    let mut function = XdpFunction::load(&split.element, &config)?;
    for (name, device, _) in &ports {
        function.connect(name, device.port)?;
    }
    for (table, entry) in &setup.entries {
        function.insert(*table, entry)?;
    }
    let controller = Controller::new(split, topology.servers.clone(), &setup.config);
    controller.begin(&split.generated, &mut function, address.unwrap_or_default())?;

    let mut roots = Vec::new();
    let mut attached = Vec::new();
    for (name, device, rule) in ports {
        let at = match roots.iter().position(|(known, _)| *known == rule) {
            Some(at) => at,
            None => {
                let mut root = Root::load()?;
                if let Some(switch) = &setup.switch {
                    root.carry_program(switch)?;
                }
                root.carry(&function, &[rule])?;
                roots.push((rule, root));
                roots.len() - 1
            }
        };
        let native = roots[at].1.attach(&name)? == AttachMode::Native;
        attached.push(Attached { interface: name, device: device.name.clone(), native });
    }
    let roots = roots.into_iter().map(|(_, root)| root).collect();
    let ready = function.digests_ready()?;
    let events = split.generated.events;
    let drive = ElementThread::new(controller, function, (roots, ready), (setup.digest, events), program.name.clone());
    Ok((drive, attached))
}

/// Error of a wait for digests.
fn waiting(source: io::Error) -> Error {
    Error::System { doing: "waiting for digests", source }
}
