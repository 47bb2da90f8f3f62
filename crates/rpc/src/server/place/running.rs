//! Placed calls from when they come until they are answered.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body_util::{BodyExt, Full, Limited};
use pathcall_place::select::Config;
use pathcall_place::{KindId, Paths, Role, Strategy};
use pathcall_proto::manifest::Placed;
use tokio::sync::Semaphore;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower::ServiceExt;

use super::PlaceStats;
use super::about::About;
use super::turn::Place;
use crate::delegate::call::Inner as Call;
use crate::delegate::handlers::Handler;
use crate::headers::ROLE;
use crate::server::services::Services;
use crate::server::{Admission, Credentials};

/// All placed methods of a server.
pub(in crate::server) struct Places {
    /// By path.
    methods: HashMap<&'static str, Method>,
    applications: Vec<Arc<Place>>,
    /// What the accelerator answers.
    acc: Routes,
    /// What it does of methods that servers may pass on, by path.
    handlers: BTreeMap<&'static str, Handler>,
    request_bytes_max: usize,
    about: About,
    /// Of the host's nodes, by [`Role`]: calls that each works on at once.
    slots: [Semaphore; 2],
    #[cfg(unix)]
    _door: Option<pathcall_place::door::Door>,
}

/// A placed method.
#[derive(Debug)]
struct Method {
    place: Arc<Place>,
    kind: KindId,
    key: u32,
}

impl Places {
    pub(super) fn new(
        (acc, handlers): (Routes, BTreeMap<&'static str, Handler>),
        request_bytes_max: usize,
        slots: [usize; 2],
    ) -> Self {
        Self {
            methods: HashMap::new(),
            applications: Vec::new(),
            acc,
            handlers,
            request_bytes_max,
            about: About::default(),
            slots: slots.map(|slots| Semaphore::new(slots.min(Semaphore::MAX_PERMITS))),
            #[cfg(unix)]
            _door: None,
        }
    }

    /// Says at a socket where calls went, and why.
    #[cfg(unix)]
    pub(super) fn open_door(&mut self, path: &std::path::Path) -> std::io::Result<()> {
        use pathcall_place::door::{Door, Question};
        let applications = self.applications.clone();
        let door = Door::open(path, move |question| match question {
            Question::Explain(count) => told(&applications, count).concat(),
            Question::Status => applications.iter().map(|place| place.status()).collect(),
        })?;
        self._door = Some(door);
        Ok(())
    }

    /// The last calls, the newest last: which way each took, and why. A line each.
    pub(in crate::server) fn explain(&self, count: usize) -> Vec<String> {
        told(&self.applications, count)
    }

    /// Adds an application with its methods.
    pub(super) fn add(&mut self, paths: Paths, strategy: Strategy, config: Config, methods: &[&'static Placed]) {
        let place = Place::new(paths, strategy, config);
        for method in methods {
            // The build script has looked.
            let Some(kind) = place.paths.kind(method.request) else { continue };
            let key = method.key;
            self.methods.insert(method.path, Method { place: Arc::clone(&place), kind, key });
        }
        self.applications.push(place);
    }

    /// Whether calls of the method with this path are placed.
    pub(in crate::server) fn has(&self, path: &str) -> bool {
        self.methods.contains_key(path)
    }

    /// Answers a call of a method that [is placed](Self::has): by `cpu`, or by the accelerator.
    pub(in crate::server) async fn call<S: Services>(
        &self,
        cpu: S,
        admission: &Admission,
        request: http::Request<Body>,
    ) -> Result<http::Response<Body>, S::Error> {
        let Some(method) = self.methods.get(request.uri().path()) else {
            return Ok(cpu.oneshot(request).await?.map(Body::new));
        };
        let (parts, body) = request.into_parts();
        let (body, address) = match self.read(&parts.headers, body, method.key).await {
            Ok(read) => read,
            Err(status) => return Ok(status.into_http()),
        };
        let mut turn = match method.place.select(method.kind, address) {
            Some(turn) => turn,
            None => return Ok(full().into_http()),
        };
        let mut failed = None;
        while let Some((role, begun)) = turn.come().await {
            let _slot = self.slots[role as usize].acquire().await;
            let request = http::Request::from_parts(parts.clone(), Body::new(Full::new(body.clone())));
            let mut response = match role {
                Role::Cpu => cpu.clone().oneshot(request).await?.map(Body::new),
                // Its handlers stand behind no checks of their own.
                Role::Acc => match admission.admit(parts.uri.path(), Credentials::of_parts(&parts)).await {
                    Err(refused) => {
                        turn.done(begun);
                        return Ok(refused.into_http());
                    }
                    Ok(()) => match self.acc.clone().oneshot(request).await {
                        Ok(response) => response,
                        Err(never) => match never {},
                    },
                },
            };
            if role == Role::Acc && is_unavailable(&response) {
                failed = Some(response);
                turn.failed();
                continue;
            }
            turn.done(begun);
            response.headers_mut().insert(ROLE, HeaderValue::from_static(role.name()));
            return Ok(response);
        }
        Ok(failed.unwrap_or_else(|| no_way().into_http()))
    }

    /// For a method that servers may pass on, if it [is placed](Self::has): a handler that has this one, or the
    /// accelerator's, do the work.
    pub(in crate::server) fn handler(self: &Arc<Self>, path: &'static str, cpu: &Handler) -> Option<Handler> {
        let (places, cpu) = (self.has(path).then(|| Arc::clone(self))?, Arc::clone(cpu));
        Some(Arc::new(move |message, call| {
            let (places, cpu) = (Arc::clone(&places), Arc::clone(&cpu));
            Box::pin(async move { places.work(path, &cpu, message, call).await })
        }))
    }

    /// Works on a request that was passed on.
    async fn work(&self, path: &'static str, cpu: &Handler, message: Bytes, call: Arc<Call>) -> Result<(), Status> {
        let Some(method) = self.methods.get(path) else { return cpu(message, call).await };
        let address = self.about.address_of(&message, method.key)?;
        let mut turn = method.place.select(method.kind, address).ok_or_else(full)?;
        let mut failed = None;
        while let Some((role, begun)) = turn.come().await {
            let _slot = self.slots[role as usize].acquire().await;
            let handler = match role {
                Role::Cpu => cpu,
                // It was looked for when the server was built.
                Role::Acc => self.handlers.get(path).ok_or_else(no_way)?,
            };
            call.label(|| format!("{path} ({role})"));
            match handler(message.clone(), Arc::clone(&call)).await {
                Err(status) if role == Role::Acc && status.code() == Code::Unavailable && !call.has_said() => {
                    failed = Some(status);
                    turn.failed();
                }
                done => {
                    turn.done(begun);
                    return done;
                }
            }
        }
        Err(failed.unwrap_or_else(no_way))
    }

    /// The request's bytes, and what it is about.
    async fn read(&self, headers: &HeaderMap, body: Body, key: u32) -> Result<(Bytes, u64), Status> {
        let max = self.request_bytes_max;
        let body = Limited::new(body, max).collect().await.map_err(|error| match error.downcast::<Status>() {
            Ok(status) => *status,
            Err(error) => Status::out_of_range(format!("a request of at most {max} bytes: {error}")),
        })?;
        let body = body.to_bytes();
        let address = self.about.address(headers, &body, key)?;
        Ok((body, address))
    }

    /// All ways of all applications.
    pub(in crate::server) fn stats(&self) -> Vec<PlaceStats> {
        self.applications.iter().flat_map(|place| place.stats()).collect()
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("methods", &self.methods.keys()).finish_non_exhaustive()
    }
}

/// Its selector has no room for a call.
fn full() -> Status {
    Status::resource_exhausted("as many calls are in progress as may be")
}

fn no_way() -> Status {
    Status::unavailable("no way through this host is left")
}

/// The last calls of some applications: those of each together, the newest last.
fn told(applications: &[Arc<Place>], count: usize) -> Vec<String> {
    applications.iter().flat_map(|place| place.told(count)).collect()
}

/// Whether a device says that it can't.
fn is_unavailable(response: &http::Response<Body>) -> bool {
    Status::from_header_map(response.headers()).is_some_and(|status| status.code() == Code::Unavailable)
}
