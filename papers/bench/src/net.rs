//! Environment of figures of calls: controller and element as in `pathcall up`, services with and without Pathcall, and
//! processor times.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pathcall::Manifest;
use pathcall_element::Registration;
use pathcall_proto::v1::StatusRequest;
use pathcall_proto::v1::controller_client::ControllerClient;
use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};

pub(crate) const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// HTTP/2 windows of the plain peers, which are never exhausted.
const HTTP2_WINDOW: u32 = 64 << 20;
/// HTTP/2 frame size of the plain peers.
const HTTP2_FRAME: u32 = 1 << 20;

/// Runtime shared by all parties of a figure.
pub(crate) fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Controller and element, connected to each other, on free ports.
pub(crate) struct Network {
    controller: pathcall_control::Handle,
    element: pathcall_element::Handle,
}

impl Network {
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(pathcall_element::Config::default()).await
    }

    /// Starts a network with this configuration of the element.
    pub(crate) async fn start_with(element: pathcall_element::Config) -> Result<Self> {
        let listener = pathcall_control::bind(FREE).await?;
        let controller = pathcall_control::serve(listener, pathcall_control::Config::default()).await?;
        let config = element.data(FREE).control(FREE).controller(Some(controller.url()));
        let element = pathcall_element::run(config).await?;
        let mut registration = element.registration();
        let known = registration.wait_for(|registration| matches!(registration, Registration::Known { .. }));
        known.await.context("the element did not connect to its controller")?;
        Ok(Self { controller, element })
    }

    pub(crate) fn url(&self) -> String {
        self.controller.url()
    }

    pub(crate) async fn shutdown(self) {
        self.element.shutdown().await;
        self.controller.shutdown().await;
    }
}

/// Service for tonic's router.
pub(crate) trait Grpc:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
    + NamedService
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Grpc for S where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Serves without Pathcall; returns the URL.
pub(crate) async fn serve_plain(service: impl Grpc) -> Result<String> {
    serve_plain_at(FREE, service).await
}

/// Serves without Pathcall at a given address.
pub(crate) async fn serve_plain_at(address: SocketAddr, service: impl Grpc) -> Result<String> {
    let (incoming, url) = listen(address).await?;
    let server = tonic::transport::Server::builder()
        .initial_stream_window_size(HTTP2_WINDOW)
        .initial_connection_window_size(HTTP2_WINDOW)
        .max_frame_size(HTTP2_FRAME)
        .add_service(service);
    tokio::spawn(server.serve_with_incoming(incoming));
    Ok(url)
}

/// Connects to a service without Pathcall.
pub(crate) async fn connect_plain(url: &str) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(url.to_owned())?
        .initial_stream_window_size(HTTP2_WINDOW)
        .initial_connection_window_size(HTTP2_WINDOW);
    Ok(endpoint.connect().await?)
}

/// Service with Pathcall's layer.
pub(crate) struct PathcallService {
    pub(crate) url: String,
    pub(crate) owner: pathcall::Layer,
}

/// Serves with Pathcall: through the network's element, or in software without a network.
pub(crate) async fn serve(
    manifest: &'static Manifest,
    network: Option<&Network>,
    rows: u32,
    service: impl Grpc,
) -> Result<PathcallService> {
    serve_at(FREE, manifest, network.map(Network::url), rows, service).await
}

/// Serves with Pathcall at a given address; in software without a controller.
pub(crate) async fn serve_at(
    address: SocketAddr,
    manifest: &'static Manifest,
    controller: Option<String>,
    rows: u32,
    service: impl Grpc,
) -> Result<PathcallService> {
    let (incoming, url) = listen(address).await?;
    let mut builder = pathcall::Layer::builder(manifest).advertise(&url).memory(rows);
    if let Some(controller) = &controller {
        builder = builder.controller(controller);
    }
    let owner = builder.build().await?;
    if let Some(controller) = controller {
        all_have_memory(controller).await?;
    }
    let server = tonic::transport::Server::builder().layer(owner.clone()).add_service(service);
    tokio::spawn(server.serve_with_incoming(incoming));
    Ok(PathcallService { url, owner })
}

/// Checks that each application has memory in an element: otherwise the server would do its work in software, and the
/// figure would be wrong.
async fn all_have_memory(controller: String) -> Result<()> {
    let mut client = ControllerClient::connect(controller).await?;
    let applications = client.status(StatusRequest {}).await?.into_inner().applications;
    let without = applications.into_iter().filter(|application| application.memory.is_none());
    let without: Vec<_> = without.map(|application| application.name).collect();
    ensure!(without.is_empty(), "no element has memory for {}", without.join(", "));
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<(TcpIncoming, String)> {
    let listener = TcpListener::bind(address).await.context("cannot bind a server's port")?;
    let url = format!("http://{}", listener.local_addr()?);
    Ok((TcpIncoming::from(listener).with_nodelay(Some(true)), url))
}

/// Stopwatch of wall time, and of processor time of all threads.
pub(crate) struct Stopwatch {
    began: Instant,
    cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), cpu: cpu() }
    }

    /// Microseconds of processor time since the start, per call.
    pub(crate) fn cpu_us(&self, calls: usize) -> f64 {
        self.read().1.as_secs_f64() * 1e6 / calls as f64
    }

    /// Wall time and processor time since the start.
    pub(crate) fn read(&self) -> (Duration, Duration) {
        (self.began.elapsed(), cpu().saturating_sub(self.cpu))
    }
}

/// Processor time of all threads of this process, in user and kernel mode.
fn cpu() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

/// Processor time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}

/// Processor time of another process, with a resolution of 10 ms.
pub(crate) fn process_cpu(process: u32) -> Result<Duration> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    // The name, in parentheses, may contain any character; user and system time are the 14th and 15th field.
    let (_, fields) = text.rsplit_once(')').with_context(|| format!("{path}: no name"))?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks: u64 = ticks.sum::<Result<u64, _>>().with_context(|| format!("{path}: no times"))?;
    Ok(Duration::from_millis(ticks * 10))
}

fn duration(time: Timespec) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Median and 99th percentile, in microseconds.
pub(crate) fn percentiles(mut took: Vec<Duration>) -> Result<[f64; 2]> {
    ensure!(!took.is_empty(), "no calls");
    took.sort_unstable();
    Ok([0.5, 0.99].map(|share| took[(took.len() as f64 * share) as usize].as_secs_f64() * 1e6))
}
