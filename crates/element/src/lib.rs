//! A network element in user space: the switch program between two ends of a UDP socket.
//!
//! ```text
//!              frames                                    calls (gRPC)
//!   hosts ◀──────────────▶ plane ◀── commands ── control ◀──────────── controller, operator
//!                          │  own thread            register ─────────▶ controller
//!                          ├─ link: UDP in batches; memory shared with endpoints of this host
//!                          └─ switch: the program and its routes, endpoint → UDP address
//! ```
//!
//! Hosts address their frames to the element (overlay mode); it works on them in place and sends
//! them on to the endpoint that the program names, or to all of an application's callers. The program
//! in the kernel may work on those, too, that pass by on their way to an endpoint (inline mode). In the
//! order data meets them: [`run`] starts an element; `plane` is the data thread, the only one that
//! touches program and socket, so frames and changes of the tables take effect one after the other
//! and no frame takes a lock; `switch` is what it does to a frame and what commands change; `routes`
//! its table of addresses; `kernel` the same program in the kernel, where that is asked for; `control` answers the
//! calls of service `Element`; `register` keeps the element known to its controller.

#![warn(missing_docs)]

mod control;
mod error;
mod kernel;
mod plane;
mod polling;
mod register;
mod routes;
mod switch;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use pathcall_program::Size;
use pathcall_proto::v1::RegisterElementRequest;
use pathcall_proto::v1::element_server::ElementServer;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tonic::codegen::BoxFuture;
use tonic::service::Routes;
use tonic::transport::Server;

pub use error::{Error, Port};
pub use kernel::Attached;
pub use pathcall_auth::Security;
pub use register::Registration;

use control::Control;
use plane::PlaneThread;

/// Where an element listens for calls if not told otherwise.
pub const CONTROL_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7701);
/// Where an element listens for frames if not told otherwise.
pub const DATA_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7702);
/// Bytes waiting to be received from which on frames are marked as congested, if not told
/// otherwise: well before the receive buffer (`RECV_BUFFER_BYTES`) is full of small frames, which
/// take several times their length there.
pub const CONGESTION_BYTES_DEFAULT: usize = 512 << 10;

/// How often a silent connection of the control service is asked whether its other end lives, and how long that may take.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Calls that one connection may have open.
const STREAMS_MAX: u32 = 1024;

/// How long calls in progress may take to end when an element is shut down.
pub const DRAIN_MAX: Duration = Duration::from_secs(5);

/// What an element is started with.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// UDP address for frames; port 0 takes a free port.
    pub data: SocketAddr,
    /// TCP address of the control service; port 0 takes a free port.
    pub control: SocketAddr,
    /// `http://host:port`, or with certificates `https://host:port`, of the controller to register with; an element without one is set up by
    /// whoever calls its control service.
    pub controller: Option<String>,
    /// The IP address that others reach this element by, where it listens on all addresses.
    pub advertise: Option<IpAddr>,
    /// Memory of the program.
    pub size: Size,
    /// Bytes waiting to be received from which on frames are marked as congested.
    pub congestion_bytes: usize,
    /// Never wait for frames, always look for them: the shortest delay, for a whole processor.
    pub busy_poll: bool,
    /// Whether endpoints on this host may share memory with the element.
    pub shared_memory: bool,
    /// The processor that works on frames, counted from 0; any, unless given.
    pub cpu: Option<usize>,
    /// Interfaces that the program is attached to in the kernel (XDP); none, unless given.
    pub xdp: Vec<String>,
    /// Those of `xdp` that a root program of somebody else's is attached to: it calls the program there.
    pub rooted: Vec<String>,
    /// Whether the program in the kernel works on frames, too, that pass by on their way to an endpoint.
    pub inline: bool,
    /// Who may call the control service.
    pub security: Security,
}

/// Each field by a method.
impl Config {
    /// Sets [`Self::data`].
    #[must_use]
    pub fn data(mut self, data: SocketAddr) -> Self {
        self.data = data;
        self
    }

    /// Sets [`Self::control`].
    #[must_use]
    pub fn control(mut self, control: SocketAddr) -> Self {
        self.control = control;
        self
    }

    /// Sets [`Self::controller`].
    #[must_use]
    pub fn controller(mut self, controller: Option<String>) -> Self {
        self.controller = controller;
        self
    }

    /// Sets [`Self::advertise`].
    #[must_use]
    pub fn advertise(mut self, advertise: Option<IpAddr>) -> Self {
        self.advertise = advertise;
        self
    }

    /// Sets [`Self::size`].
    #[must_use]
    pub fn size(mut self, size: Size) -> Self {
        self.size = size;
        self
    }

    /// Sets [`Self::congestion_bytes`].
    #[must_use]
    pub fn congestion_bytes(mut self, congestion_bytes: usize) -> Self {
        self.congestion_bytes = congestion_bytes;
        self
    }

    /// Sets [`Self::busy_poll`].
    #[must_use]
    pub fn busy_poll(mut self, busy_poll: bool) -> Self {
        self.busy_poll = busy_poll;
        self
    }

    /// Sets [`Self::shared_memory`].
    #[must_use]
    pub fn shared_memory(mut self, shared_memory: bool) -> Self {
        self.shared_memory = shared_memory;
        self
    }

    /// Sets [`Self::cpu`].
    #[must_use]
    pub fn cpu(mut self, cpu: Option<usize>) -> Self {
        self.cpu = cpu;
        self
    }

    /// Sets [`Self::xdp`].
    #[must_use]
    pub fn xdp(mut self, xdp: Vec<String>) -> Self {
        self.xdp = xdp;
        self
    }

    /// Sets [`Self::rooted`].
    #[must_use]
    pub fn rooted(mut self, rooted: Vec<String>) -> Self {
        self.rooted = rooted;
        self
    }

    /// Sets [`Self::inline`].
    #[must_use]
    pub fn inline(mut self, inline: bool) -> Self {
        self.inline = inline;
        self
    }

    /// Sets [`Self::security`].
    #[must_use]
    pub fn security(mut self, security: Security) -> Self {
        self.security = security;
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: DATA_DEFAULT,
            control: CONTROL_DEFAULT,
            controller: None,
            advertise: None,
            size: Size::default(),
            congestion_bytes: CONGESTION_BYTES_DEFAULT,
            busy_poll: false,
            shared_memory: true,
            cpu: None,
            xdp: Vec::new(),
            rooted: Vec::new(),
            inline: false,
            security: Security::default(),
        }
    }
}

/// A running element; dropping it stops it.
#[derive(Debug)]
pub struct Handle {
    data: SocketAddr,
    control: SocketAddr,
    url: String,
    boot_id: u64,
    registration: watch::Receiver<Registration>,
    /// Dropping it ends the control service once its calls are answered.
    stop: oneshot::Sender<()>,
    service: JoinSet<()>,
    /// Dropping it ends the registration.
    _register: JoinSet<()>,
    plane: PlaneThread,
}

/// Starts an element: binds both sockets, then serves until the handle is dropped or shut down.
///
/// # Errors
/// When an address can't be bound or the configuration can't work; nothing is left running.
pub fn run(config: Config) -> BoxFuture<Handle, Error> {
    Box::pin(async move {
        let controller = match &config.controller {
            Some(url) => Some((register::controller(url, &config.security)?, config.reached_by()?)),
            None => None,
        };
        let listener =
            TcpListener::bind(config.control).await.map_err(|e| Error::bind(Port::Control, config.control, e))?;
        let control = listener.local_addr().map_err(|e| Error::bind(Port::Control, config.control, e))?;
        let security = config.security.clone();
        security.check("control service of an element", control)?;
        let plane = PlaneThread::start(&config).await?;
        let data = plane.local_addr();

        // Another start is another boot: tables are empty again, and changes meant for the last one
        // must not reach this one. 0 stays free for "unknown".
        let boot_id = rand::random_range(1..=u64::MAX);
        let (known, registration) = watch::channel(Registration::default());
        let mut register = JoinSet::new();
        if let Some((controller, reached)) = controller {
            let request = RegisterElementRequest {
                boot_id,
                data_address: SocketAddr::new(reached.data, data.port()).to_string(),
                control_address: format!(
                    "{}://{}",
                    security.scheme(),
                    SocketAddr::new(reached.control, control.port())
                ),
                rows: saturate(config.size.rows),
                lanes: saturate(config.size.lanes),
                slots: saturate(config.size.slots),
            };
            register.spawn(register::keep_registered(controller, request, known));
            register.spawn(plane::keep_known(plane.handle(), registration.clone()));
        }

        let (stop, stopped) = oneshot::channel();
        let service = ElementServer::new(Control::new(boot_id, plane.handle()));
        let server = Server::builder()
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE))
            .max_concurrent_streams(STREAMS_MAX);
        let (url, routes) = (format!("{}://{control}", security.scheme()), Routes::new(service));
        let mut service = JoinSet::new();
        service.spawn(async move {
            let stopped = async { drop(stopped.await) };
            if let Err(error) = security.serve(server, routes, listener, stopped).await {
                tracing::error!(%control, %error, "the element's control service ended");
            }
        });
        tracing::info!(%data, %control, boot_id, "element started");
        Ok(Handle { data, control, url, boot_id, registration, stop, service, _register: register, plane })
    })
}

impl Handle {
    /// UDP address that frames are received on.
    #[must_use]
    pub fn data_addr(&self) -> SocketAddr {
        self.data
    }

    /// TCP address of the control service.
    #[must_use]
    pub fn control_addr(&self) -> SocketAddr {
        self.control
    }

    /// `http://ip:port` of the control service, or `https://ip:port` where certificates are shown.
    #[must_use]
    pub fn control_url(&self) -> &str {
        &self.url
    }

    /// The interfaces that the program is attached to in the kernel.
    #[must_use]
    pub fn attached(&self) -> &[Attached] {
        self.plane.attached()
    }

    /// The program in the kernel, for root programs that are to call it; none: there is none, or somebody has it.
    #[cfg(feature = "xdp")]
    pub fn take_program(&mut self) -> Option<pathcall_xdp::function::SwitchProgram> {
        self.plane.take_program()
    }

    /// What tells this start of the element from any other.
    #[must_use]
    pub fn boot_id(&self) -> u64 {
        self.boot_id
    }

    /// Whether the controller knows the element, now and on every change.
    #[must_use]
    pub fn registration(&self) -> watch::Receiver<Registration> {
        self.registration.clone()
    }

    /// Stops: answers the calls that have begun (those that take longer than [`DRAIN_MAX`] are cut
    /// off), sends the frames that are queued, and frees both ports before it returns.
    pub async fn shutdown(self) {
        let Self { stop, mut service, _register, plane, .. } = self;
        drop(_register);
        drop(stop);
        if tokio::time::timeout(DRAIN_MAX, service.join_next()).await.is_err() {
            service.shutdown().await;
        }
        plane.stop().await;
    }
}

/// The IP addresses that others reach the element by.
struct ReachedBy {
    data: IpAddr,
    control: IpAddr,
}

impl Config {
    fn reached_by(&self) -> Result<ReachedBy, Error> {
        let reached_by = |port, addr: SocketAddr| match self.advertise {
            Some(ip) => Ok(ip),
            None if addr.ip().is_unspecified() => Err(Error::Unspecified { port, addr }),
            None => Ok(addr.ip()),
        };
        Ok(ReachedBy { data: reached_by(Port::Data, self.data)?, control: reached_by(Port::Control, self.control)? })
    }
}

/// A size as the contract carries it.
fn saturate(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}
