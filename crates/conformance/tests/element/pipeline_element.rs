//! Element whose program is the P4 text in a profile, run by the interpreter: frames by UDP, tables by gRPC.
//!
//! ```text
//! hosts ◀── UDP ──▶ thread ─▶ Pipeline ◀── service Element ◀── controller
//! ```

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pathcall_conformance::p4::Pipeline;
use pathcall_conformance::{ExecutionFailure, ProgramExecution, ProgramOutcome};
use pathcall_p4::{DiagnosticReport, Sources};
use pathcall_program::pipeline::PipelineProfile;
use pathcall_program::{ApplicationCounters, Endpoint, InstalledApplication, InstalledPool, PoolCounters};
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::element_server::{Element, ElementServer};
use pathcall_proto::v1::{
    CountersReply, CountersRequest, ElementReply, InstallApplicationRequest, InstallPoolRequest, LastSeenReply,
    LastSeenRequest, ReadRegistersReply, ReadRegistersRequest, RegisterElementRequest, RemoveEndpointsRequest,
    RemoveRequest, ResetRegistersRequest, SetEndpointsRequest, SetMulticastGroupRequest,
};
use tokio::task::JoinSet;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

const FREE: &str = "127.0.0.1:0";
/// Longest wait of the thread for a frame before it looks whether to end.
const LOOK: Duration = Duration::from_millis(50);
/// Longest datagram.
const DATAGRAM_MAX: usize = 65_535;

/// Element that ends on drop.
pub(super) struct PipelineElement {
    switch: Arc<Mutex<PipelineSwitch>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _tasks: JoinSet<()>,
}

struct PipelineSwitch {
    pipeline: Pipeline,
    routes: BTreeMap<u32, SocketAddr>,
    boot_id: u64,
    /// Frames on which the execution failed.
    failures: Vec<String>,
    /// Counters of applications and pools when they were removed.
    applications: BTreeMap<u32, ApplicationCounters>,
    pools: BTreeMap<u32, PoolCounters>,
}

/// The text of a profile, with its default sizes.
fn compiled(profile: PipelineProfile) -> pathcall_p4::ir::Program {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4");
    let defined: String = profile.macros().iter().map(|name| format!("#define {name}\n")).collect();
    let (name, mut sources) = (folder.join("element.p4").to_string_lossy().into_owned(), Sources::new(Vec::new()));
    pathcall_p4::compile(&mut sources, (name, defined + "#include \"switch.p4\"\n"))
        .unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)))
}

impl PipelineElement {
    /// Starts an element with a profile's text and registers it with the controller at `controller`.
    pub(super) async fn start(profile: PipelineProfile, controller: String) -> Self {
        let (size, clones) = (profile.size(), profile.clones());
        let pipeline = Pipeline::new(&compiled(profile), profile, size, clones, false);
        let boot_id = 1 + profile as u64;
        let switch = Arc::new(Mutex::new(PipelineSwitch {
            pipeline: pipeline.unwrap_or_else(|unfit| panic!("{unfit}")),
            routes: BTreeMap::new(),
            boot_id,
            failures: Vec::new(),
            applications: BTreeMap::new(),
            pools: BTreeMap::new(),
        }));
        let socket = UdpSocket::bind(FREE).expect("a free port");
        let data = socket.local_addr().expect("bound");
        let ends = Arc::new(AtomicBool::new(false));
        let of_thread = (Arc::clone(&switch), Arc::clone(&ends));
        let thread = std::thread::spawn(move || forward(&socket, &of_thread.0, &of_thread.1));

        let mut tasks = JoinSet::new();
        let listener = tokio::net::TcpListener::bind(FREE).await.expect("a free port");
        let control = listener.local_addr().expect("bound");
        let service = ElementServer::new(ElementControl(Arc::clone(&switch)));
        let incoming = TcpIncoming::from(listener);
        tasks.spawn(async move {
            let served = tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming);
            served.await.expect("the service runs");
        });
        let request = RegisterElementRequest {
            boot_id,
            data_address: data.to_string(),
            control_address: format!("http://{control}"),
            rows: size.rows as u32,
            lanes: size.lanes as u32,
            slots: size.slots as u32,
            frame_lanes: profile.frame_lanes() as u32,
            without_map: !profile.has_map(),
            without_pools: !profile.has_calls(),
            ..RegisterElementRequest::default()
        };
        let mut client = ControllerClient::connect(controller).await.expect("a controller");
        let mut grants = client.register_element(request).await.expect("registered").into_inner();
        grants.message().await.expect("a stream").expect("a grant");
        // The open stream is the sign of life.
        tasks.spawn(async move { while let Ok(Some(_)) = grants.message().await {} });
        Self { switch, ends, thread: Some(thread), _tasks: tasks }
    }

    /// Counters of all applications that the element has had.
    pub(super) fn applications(&self) -> Vec<(u32, ApplicationCounters)> {
        let mut switch = lock(&self.switch);
        switch.note_counters();
        switch.applications.iter().map(|(gaid, counters)| (*gaid, *counters)).collect()
    }

    /// Counters of all pools that the element has had.
    pub(super) fn pools(&self) -> Vec<PoolCounters> {
        let mut switch = lock(&self.switch);
        switch.note_counters();
        switch.pools.values().copied().collect()
    }

    /// Failures of the execution, which no frame may cause.
    pub(super) fn failures(&self) -> Vec<String> {
        lock(&self.switch).failures.clone()
    }
}

impl Drop for PipelineElement {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }
}

fn lock(switch: &Mutex<PipelineSwitch>) -> MutexGuard<'_, PipelineSwitch> {
    switch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs frames through the pipeline until `ends`.
fn forward(socket: &UdpSocket, switch: &Mutex<PipelineSwitch>, ends: &AtomicBool) {
    let (began, mut buffer) = (Instant::now(), vec![0; DATAGRAM_MAX]);
    socket.set_read_timeout(Some(LOOK)).expect("a time");
    while !ends.load(Ordering::Relaxed) {
        let Ok((len, _)) = socket.recv_from(&mut buffer) else { continue };
        let now = pathcall_wire::Instant(began.elapsed().as_nanos() as u64);
        let mut switch = lock(switch);
        let out = match switch.pipeline.process(now, &buffer[..len], false) {
            Ok(ProgramOutcome::Forward(to, frame)) => vec![(to, frame)],
            Ok(ProgramOutcome::Copies(copies)) => copies,
            Ok(ProgramOutcome::Drop(_)) => Vec::new(),
            Err(failure) => {
                switch.failures.push(failure.to_string());
                Vec::new()
            }
        };
        for (to, frame) in out {
            if let Some(addr) = switch.routes.get(&to) {
                // A full buffer of a host loses the frame, as a link would.
                let _ = socket.send_to(&frame, addr);
            }
        }
    }
}

impl PipelineSwitch {
    /// Keeps the counters, which end with their application or pool.
    fn note_counters(&mut self) {
        let Ok(state) = self.pipeline.state() else { return };
        self.applications.extend(state.applications.into_iter().map(|(gaid, state)| (gaid, state.counters)));
        self.pools.extend(state.pools.into_iter().map(|(gaid, state)| (gaid, state.counters)));
    }
}

/// Service `Element`.
struct ElementControl(Arc<Mutex<PipelineSwitch>>);

type Reply<T> = Result<Response<T>, Status>;

impl ElementControl {
    fn change(
        &self,
        boot_id: u64,
        change: impl FnOnce(&mut PipelineSwitch) -> Result<(), ExecutionFailure>,
    ) -> Reply<ElementReply> {
        let mut switch = lock(&self.0);
        if boot_id != switch.boot_id {
            return Err(Status::failed_precondition("another start of this element"));
        }
        match change(&mut switch) {
            Ok(()) => Ok(Response::new(ElementReply {})),
            Err(ExecutionFailure::Refused(pathcall_program::TableChangeError::UnknownApplication(gaid))) => {
                Err(Status::not_found(format!("application {gaid}")))
            }
            Err(failure) => Err(Status::resource_exhausted(failure.to_string())),
        }
    }
}

#[tonic::async_trait]
impl Element for ElementControl {
    async fn install_application(&self, request: Request<InstallApplicationRequest>) -> Reply<ElementReply> {
        let InstallApplicationRequest { boot_id, application } = request.into_inner();
        let entry = application.ok_or_else(|| Status::invalid_argument("application: missing"))?;
        if entry.token_key.is_some() {
            return Err(Status::resource_exhausted("a pipeline computes no tokens"));
        }
        let application = InstalledApplication {
            gaid: entry.gaid,
            epoch: entry.epoch,
            owner: entry.owner,
            row_base: entry.row_base,
            rows: entry.rows,
            lane_base: entry.lane_base,
            width: entry.width,
        };
        self.change(boot_id, |switch| switch.pipeline.install(application))
    }

    async fn remove(&self, request: Request<RemoveRequest>) -> Reply<ElementReply> {
        let RemoveRequest { boot_id, gaid } = request.into_inner();
        self.change(boot_id, |switch| {
            switch.note_counters();
            switch.pipeline.remove(gaid)
        })
    }

    async fn set_endpoints(&self, request: Request<SetEndpointsRequest>) -> Reply<ElementReply> {
        let SetEndpointsRequest { boot_id, endpoints } = request.into_inner();
        self.change(boot_id, |switch| {
            for entry in endpoints {
                let addr = entry.data_address.parse().expect("the controller checks addresses");
                let (endpoint, incarnation, gaid) = (entry.endpoint, entry.incarnation, entry.gaid);
                let (slot_base, slots) = (entry.slot_base, entry.slots);
                switch.pipeline.set_endpoint(Endpoint { endpoint, incarnation, gaid, slot_base, slots })?;
                switch.routes.insert(endpoint, addr);
            }
            Ok(())
        })
    }

    async fn remove_endpoints(&self, request: Request<RemoveEndpointsRequest>) -> Reply<ElementReply> {
        let RemoveEndpointsRequest { boot_id, endpoints } = request.into_inner();
        self.change(boot_id, |switch| {
            switch.routes.retain(|endpoint, _| !endpoints.contains(endpoint));
            endpoints.iter().try_for_each(|endpoint| switch.pipeline.remove_endpoint(*endpoint))
        })
    }

    async fn set_multicast_group(&self, request: Request<SetMulticastGroupRequest>) -> Reply<ElementReply> {
        let SetMulticastGroupRequest { boot_id, gaid, endpoints } = request.into_inner();
        self.change(boot_id, |switch| switch.pipeline.set_group(gaid, &endpoints))
    }

    async fn install_pool(&self, request: Request<InstallPoolRequest>) -> Reply<ElementReply> {
        let InstallPoolRequest { boot_id, gaid, version, servers, token_key } = request.into_inner();
        if token_key.is_some() {
            return Err(Status::resource_exhausted("a pipeline computes no tokens"));
        }
        self.change(boot_id, |switch| switch.pipeline.install_pool(&InstalledPool { gaid, version, servers }))
    }

    async fn read_registers(&self, request: Request<ReadRegistersRequest>) -> Reply<ReadRegistersReply> {
        let ReadRegistersRequest { gaid, row, rows } = request.into_inner();
        let state = lock(&self.0).pipeline.state().map_err(|failure| Status::internal(failure.to_string()))?;
        let state = state.applications.get(&gaid).ok_or_else(|| Status::not_found(format!("application {gaid}")))?;
        let width = state.lanes.len() / state.rows.len().max(1);
        let values = state.lanes.iter().skip(row as usize * width).take(rows as usize * width);
        Ok(Response::new(ReadRegistersReply { width: width as u32, values: values.copied().collect() }))
    }

    async fn reset_registers(&self, request: Request<ResetRegistersRequest>) -> Reply<ElementReply> {
        let ResetRegistersRequest { boot_id, gaid } = request.into_inner();
        self.change(boot_id, |switch| switch.pipeline.reset(gaid))
    }

    async fn counters(&self, _: Request<CountersRequest>) -> Reply<CountersReply> {
        let state = lock(&self.0).pipeline.state().map_err(|failure| Status::internal(failure.to_string()))?;
        let element = state.counters.iter().map(|(name, count)| (name.to_owned(), count)).collect();
        Ok(Response::new(CountersReply { element, ..CountersReply::default() }))
    }

    async fn last_seen(&self, _: Request<LastSeenRequest>) -> Reply<LastSeenReply> {
        Ok(Response::new(LastSeenReply::default()))
    }
}
