//! Network element in user space: the switch program on a UDP socket.
//!
//! ```text
//!              frames                                    calls (gRPC)
//!   hosts ◀──────────────▶ plane ◀── commands ── control ◀──────────── controller, operator
//!                          │  own thread            register ─────────▶ controller
//!                          ├─ link: UDP in batches; memory shared with endpoints of this host
//!                          └─ switch: the program and its routes, endpoint → UDP address
//! ```
//!
//! Hosts address their frames to the element (overlay mode). The element processes each frame in place and forwards it
//! to the endpoint that the program names, or to all callers of an application. The XDP program in the kernel can also
//! process frames in transit to an endpoint (inline mode).
//!
//! [`run`] starts an element. `plane` is the data thread: only this thread touches program and socket, so frames and
//! table changes take effect one after the other and no frame takes a lock. `switch` processes frames and commands,
//! `routes` is its table of addresses, `hedge_timer` the timer of the hedges that it holds, `kernel` the same program as
//! XDP, `control` serves the gRPC service `Element`, and `register` keeps the element registered with its controller.

#![warn(missing_docs)]

mod control;
mod error;
mod hedge_timer;
mod kernel;
mod plane;
mod polling;
mod register;
mod routes;
mod switch;
#[cfg(test)]
mod tests;

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
pub use kernel::AttachedInterface;
pub use pathcall_auth::Security;
pub use register::Registration;

use control::Control;
use plane::PlaneThread;

/// Default address of the control service.
pub const CONTROL_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7701);
/// Default address for frames.
pub const DATA_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7702);
/// Default number of bytes in the receive buffer from which frames are marked as congested. The mark comes well before
/// the receive buffer (`RECV_BUFFER_BYTES`) is full of small frames, which take several times their length there.
pub const CONGESTION_BYTES_DEFAULT: usize = 512 << 10;

/// Interval of keep-alive pings on the control service, and the longest wait for an answer.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Streams that one connection may have open.
const STREAMS_MAX: u32 = 1024;

/// Longest wait for calls in progress at shutdown.
pub const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Configuration of an element.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// UDP address for frames; port 0 takes a free port.
    pub data: SocketAddr,
    /// TCP address of the control service; port 0 takes a free port.
    pub control: SocketAddr,
    /// Controller to register with: `http://host:port`, or `https://host:port` with certificates. An element without a
    /// controller is configured by calls to its control service.
    pub controller: Option<String>,
    /// IP address under which others reach this element, where it listens on all addresses.
    pub advertise: Option<IpAddr>,
    /// Rack of the element, whose servers and callers use it for their pools. Empty: none is named.
    pub rack: String,
    /// Memory of the program.
    pub size: Size,
    /// Bytes in the receive buffer from which frames are marked as congested.
    pub congestion_bytes: usize,
    /// Poll for frames without ever waiting: the shortest delay, at the cost of one processor.
    pub busy_poll: bool,
    /// Endpoints on this host may share memory with the element.
    pub shared_memory: bool,
    /// Processor of the data thread, counted from 0. Default: any.
    pub cpu: Option<usize>,
    /// Interfaces to which the XDP program is attached. Default: none.
    pub xdp: Vec<String>,
    /// Interfaces of `xdp` that have another root program, which calls this one.
    pub rooted: Vec<String>,
    /// The XDP program also processes frames in transit to an endpoint.
    pub inline: bool,
    /// Authentication of callers of the control service.
    pub security: Security,
}

/// Setters, one for each field.
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

    /// Sets [`Self::rack`].
    #[must_use]
    pub fn rack(mut self, rack: impl Into<String>) -> Self {
        self.rack = rack.into();
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
            rack: String::new(),
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

/// Handle of a running element. Dropping the handle stops the element.
#[derive(Debug)]
pub struct Handle {
    data: SocketAddr,
    control: SocketAddr,
    url: String,
    boot_id: u64,
    registration: watch::Receiver<Registration>,
    /// Dropping this sender ends the control service once its calls are answered.
    stop: oneshot::Sender<()>,
    service: JoinSet<()>,
    /// Dropping this task ends the registration.
    _register: JoinSet<()>,
    plane: PlaneThread,
}

/// Starts an element: binds both sockets, then serves until the handle is dropped or shut down.
///
/// # Errors
/// Returns an error if an address can't be bound or the configuration is invalid; nothing is left running.
pub fn run(config: Config) -> BoxFuture<Handle, Error> {
    Box::pin(async move {
        let controller = match &config.controller {
            Some(url) => Some((register::controller(url, &config.security)?, config.advertised_addresses()?)),
            None => None,
        };
        let listener =
            TcpListener::bind(config.control).await.map_err(|e| Error::bind(Port::Control, config.control, e))?;
        let control = listener.local_addr().map_err(|e| Error::bind(Port::Control, config.control, e))?;
        let security = config.security.clone();
        security.check("control service of an element", control)?;
        let plane = PlaneThread::start(&config).await?;
        let data = plane.local_addr();

        // Each start has its own boot id: the tables are empty again, and changes meant for an earlier start must be
        // refused. 0 means "unknown".
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
                rows: clamp_to_u32(config.size.rows),
                lanes: clamp_to_u32(config.size.lanes),
                slots: clamp_to_u32(config.size.slots),
                rack: config.rack.clone(),
                element: 0,
                // The kernel's program cannot hold a frame.
                holds_hedges: config.xdp.is_empty(),
                frame_lanes: 0,
                without_map: false,
                without_pools: false,
            };
            register.spawn(register::keep_registered(controller, request, known));
            register.spawn(plane::keep_switch_id(plane.handle(), registration.clone()));
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

    /// URL of the control service: `http://ip:port`, or `https://ip:port` with certificates.
    #[must_use]
    pub fn control_url(&self) -> &str {
        &self.url
    }

    /// Interfaces that the XDP program is attached to.
    #[must_use]
    pub fn attached(&self) -> &[AttachedInterface] {
        self.plane.attached()
    }

    /// Takes the XDP program, for root programs that call it. `None` without such a program, or if it was taken before.
    #[cfg(feature = "xdp")]
    pub fn take_program(&mut self) -> Option<pathcall_xdp::function::SwitchProgramRef> {
        self.plane.take_program()
    }

    /// Identifier of this start of the element.
    #[must_use]
    pub fn boot_id(&self) -> u64 {
        self.boot_id
    }

    /// Registration with the controller, now and after every change.
    #[must_use]
    pub fn registration(&self) -> watch::Receiver<Registration> {
        self.registration.clone()
    }

    /// Stops the element: answers calls in progress (and aborts them after [`DRAIN_MAX`]), sends queued frames, and
    /// frees both ports before returning.
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

/// IP addresses under which others reach the element.
struct AdvertisedAddresses {
    data: IpAddr,
    control: IpAddr,
}

impl Config {
    fn advertised_addresses(&self) -> Result<AdvertisedAddresses, Error> {
        let advertised_addresses = |port, addr: SocketAddr| match self.advertise {
            Some(ip) => Ok(ip),
            None if addr.ip().is_unspecified() => Err(Error::Unspecified { port, addr }),
            None => Ok(addr.ip()),
        };
        Ok(AdvertisedAddresses {
            data: advertised_addresses(Port::Data, self.data)?,
            control: advertised_addresses(Port::Control, self.control)?,
        })
    }
}

/// Clamps a size to the range of the control contract.
fn clamp_to_u32(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}
