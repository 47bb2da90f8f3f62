//! Placed methods of a server, and their calls from arrival to answer.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http::request::Parts;
use http_body_util::Full;
use pathcall_place::model::ACCELERATORS_MAX;
use pathcall_place::select::Config;
use pathcall_place::{DeviceRole, KindId, Paths, SelectionStrategy};
use pathcall_proto::manifest::Placed;
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceExt;

use super::PlaceStats;
use super::accelerator::{self, AcceleratorFailure, is_device_failure, time_limit};
use super::ordering_key::OrderingKeyHasher;
use super::placed_call::PlacedApplication;
use crate::deadline::Deadline;
use crate::delegate::call::Inner as CallState;
use crate::delegate::handlers::Handler;
use crate::headers::ROLE;
use crate::layer::Services;
use crate::layer::{Admission, CallerCredentials};
use crate::message::body::read_request;

/// Services and handlers of an accelerator.
type AcceleratorHandlers = (Routes, BTreeMap<&'static str, Handler>);

/// All placed methods of a server.
pub(in crate::layer) struct PlacedMethods {
    /// Methods by path.
    methods: HashMap<&'static str, Method>,
    applications: Vec<Arc<PlacedApplication>>,
    /// Services of each accelerator, and its handlers of delegated methods by path.
    accelerators: [AcceleratorHandlers; ACCELERATORS_MAX],
    request_bytes_max: usize,
    /// Time for which a call waits for an accelerator.
    acc_timeout: Duration,
    ordering: OrderingKeyHasher,
    /// Slots of the host's devices, by [`DeviceRole`].
    slots: [Semaphore; DeviceRole::ALL.len()],
    #[cfg(unix)]
    _admin_socket: Option<pathcall_place::admin_socket::AdminSocket>,
}

/// Placed method.
#[derive(Debug)]
struct Method {
    application: Arc<PlacedApplication>,
    kind: KindId,
    key: u32,
}

impl PlacedMethods {
    pub(super) fn new(
        accelerators: [AcceleratorHandlers; ACCELERATORS_MAX],
        request_bytes_max: usize,
        acc_timeout: Duration,
        slots: [usize; DeviceRole::ALL.len()],
    ) -> Self {
        Self {
            methods: HashMap::new(),
            applications: Vec::new(),
            accelerators,
            request_bytes_max,
            acc_timeout,
            ordering: OrderingKeyHasher::default(),
            slots: slots.map(|slots| Semaphore::new(slots.min(Semaphore::MAX_PERMITS))),
            #[cfg(unix)]
            _admin_socket: None,
        }
    }

    /// Opens the admin socket.
    #[cfg(unix)]
    pub(super) fn open_admin_socket(&mut self, path: &std::path::Path) -> std::io::Result<()> {
        use pathcall_place::admin_socket::{AdminQuery, AdminSocket};
        let applications = self.applications.clone();
        let admin_socket = AdminSocket::open(path, move |question| match question {
            AdminQuery::Explain(count) => explain_lines(&applications, count).concat(),
            AdminQuery::Status => applications.iter().map(|application| application.status()).collect(),
        })?;
        self._admin_socket = Some(admin_socket);
        Ok(())
    }

    /// Last calls, the newest last: a line each, with path and reason.
    pub(in crate::layer) fn explain(&self, count: usize) -> Vec<String> {
        explain_lines(&self.applications, count)
    }

    /// Adds an application with its methods.
    pub(super) fn add(
        &mut self,
        paths: Paths,
        strategy: SelectionStrategy,
        config: Config,
        methods: &[&'static Placed],
    ) {
        let application = PlacedApplication::new(paths, strategy, config);
        for method in methods {
            // The build script has checked this.
            let Some(kind) = application.paths.kind(method.request) else { continue };
            let key = method.key;
            self.methods.insert(method.path, Method { application: Arc::clone(&application), kind, key });
        }
        self.applications.push(application);
    }

    /// Whether calls of the method with this path are placed.
    pub(in crate::layer) fn has(&self, path: &str) -> bool {
        self.methods.contains_key(path)
    }

    /// Answers a call of a method that [is placed](Self::has): by `cpu`, or by an accelerator.
    pub(in crate::layer) async fn call<S: Services>(
        &self,
        cpu: S,
        admission: &Admission,
        request: http::Request<Body>,
    ) -> Result<http::Response<Body>, S::Error> {
        let Some(method) = self.methods.get(request.uri().path()) else {
            return Ok(cpu.oneshot(request).await?.map(Body::new));
        };
        let (parts, body) = request.into_parts();
        let deadline = Deadline::of(&parts.headers);
        let (body, address) = match self.read(&parts, body, method.key).await {
            Ok(read) => read,
            Err(status) => return Ok(status.into_http()),
        };
        let mut placed_call = match method.application.select(method.kind, address) {
            Some(placed_call) => placed_call,
            None => return Ok(selector_full().into_http()),
        };
        let mut failed = None;
        while let Some((role, begun)) = placed_call.next_role().await {
            let request = http::Request::from_parts(parts.clone(), Body::new(Full::new(body.clone())));
            let mut response = match self.accelerator(role) {
                None => {
                    let _slot = self.slots[role as usize].acquire().await;
                    cpu.clone().oneshot(request).await?.map(Body::new)
                }
                Some((services, _)) => {
                    // The accelerator's handlers have no checks of their own.
                    let credentials = CallerCredentials::of_parts(&parts);
                    if let Err(refused) = admission.admit(parts.uri.path(), credentials).await {
                        placed_call.done(begun);
                        return Ok(refused.into_http());
                    }
                    let limit = time_limit(self.acc_timeout, deadline.left());
                    match accelerator::answer(limit, || false, self.acc_response(role, services, request)).await {
                        Ok(response) => response,
                        Err(failure) => {
                            placed_call.failed(&failure);
                            failed = Some(failure);
                            continue;
                        }
                    }
                }
            };
            placed_call.done(begun);
            response.headers_mut().insert(ROLE, HeaderValue::from_static(role.name()));
            return Ok(response);
        }
        Ok(failed.map_or_else(no_path_left, AcceleratorFailure::into_status).into_http())
    }

    /// Services and handlers of an accelerator; `None` for the processor.
    fn accelerator(&self, role: DeviceRole) -> Option<&AcceleratorHandlers> {
        self.accelerators.get(role.accelerator()?)
    }

    /// Response of an accelerator.
    async fn acc_response(
        &self,
        role: DeviceRole,
        services: &Routes,
        request: http::Request<Body>,
    ) -> Result<http::Response<Body>, AcceleratorFailure> {
        let _slot = self.slots[role as usize].acquire().await;
        let response = match services.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        // An error without a message is in the headers.
        match Status::from_header_map(response.headers()) {
            Some(status) if is_device_failure(status.code()) => Err(AcceleratorFailure::Status(status)),
            _ => Ok(response),
        }
    }

    /// Handler of a delegated method that [is placed](Self::has): it chooses between `cpu` and the accelerator's
    /// handler.
    pub(in crate::layer) fn handler(self: &Arc<Self>, path: &'static str, cpu: &Handler) -> Option<Handler> {
        let (places, cpu) = (self.has(path).then(|| Arc::clone(self))?, Arc::clone(cpu));
        Some(Arc::new(move |message, call| {
            let (places, cpu) = (Arc::clone(&places), Arc::clone(&cpu));
            Box::pin(async move { places.work(path, &cpu, message, call).await })
        }))
    }

    /// Works on a delegated request.
    async fn work(
        &self,
        path: &'static str,
        cpu: &Handler,
        message: Bytes,
        call: Arc<CallState>,
    ) -> Result<(), Status> {
        let Some(method) = self.methods.get(path) else { return cpu(message, call).await };
        let address = self.ordering.address_of(&message, method.key)?;
        let mut placed_call = method.application.select(method.kind, address).ok_or_else(selector_full)?;
        let mut failed = None;
        while let Some((role, begun)) = placed_call.next_role().await {
            call.label(|| format!("{path} ({role})"));
            let handled = match self.accelerator(role) {
                None => {
                    let _slot = self.slots[role as usize].acquire().await;
                    cpu(message.clone(), Arc::clone(&call)).await
                }
                Some((_, handlers)) => {
                    // Checked when the layer was built.
                    let handler = handlers.get(path).ok_or_else(no_path_left)?;
                    let handled = self.acc_handled(role, handler, message.clone(), &call);
                    let limit = time_limit(self.acc_timeout, call.time_left());
                    match accelerator::answer(limit, || call.has_sent(), handled).await {
                        Ok(handled) => handled,
                        Err(failure) if call.has_sent() => Err(failure.into_status()),
                        Err(failure) => {
                            placed_call.failed(&failure);
                            failed = Some(failure);
                            continue;
                        }
                    }
                }
            };
            placed_call.done(begun);
            return handled;
        }
        Err(failed.map_or_else(no_path_left, AcceleratorFailure::into_status))
    }

    /// Result of an accelerator's handler of a delegated method.
    async fn acc_handled(
        &self,
        role: DeviceRole,
        handler: &Handler,
        message: Bytes,
        call: &Arc<CallState>,
    ) -> Result<Result<(), Status>, AcceleratorFailure> {
        let _slot = self.slots[role as usize].acquire().await;
        match handler(message, Arc::clone(call)).await {
            Err(status) if is_device_failure(status.code()) => Err(AcceleratorFailure::Status(status)),
            handled => Ok(handled),
        }
    }

    /// Bytes of a request and its ordering address.
    async fn read(&self, parts: &Parts, body: Body, key: u32) -> Result<(Bytes, u64), Status> {
        let body = read_request(parts.uri.path(), body, self.request_bytes_max).await?;
        let address = self.ordering.address(&parts.headers, &body, key)?;
        Ok((body, address))
    }

    /// Counters of all paths of all applications.
    pub(in crate::layer) fn stats(&self) -> Vec<PlaceStats> {
        self.applications.iter().flat_map(|application| application.stats()).collect()
    }
}

impl fmt::Debug for PlacedMethods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlacedMethods").field("methods", &self.methods.keys()).finish_non_exhaustive()
    }
}

/// Status when the selector has no room for a call.
fn selector_full() -> Status {
    Status::resource_exhausted("too many calls in progress on this host")
}

fn no_path_left() -> Status {
    Status::unavailable("no path of this host is available")
}

/// Last calls of some applications, by application, the newest last.
fn explain_lines(applications: &[Arc<PlacedApplication>], count: usize) -> Vec<String> {
    applications.iter().flat_map(|application| application.explain_lines(count)).collect()
}
