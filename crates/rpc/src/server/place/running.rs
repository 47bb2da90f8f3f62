//! Placed calls from when they come until they are answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant as Clock;

use bytes::Bytes;
use http::HeaderValue;
use http_body_util::{BodyExt, Full, Limited};
use pathcall_place::explain::Log;
use pathcall_place::select::Config;
use pathcall_place::{Decision, Go, KindId, Outcome, Paths, Released, Request, Role, Selector, Strategy, Ticket};
use pathcall_proto::manifest::Placed;
use pathcall_wire::Instant;
use tokio::sync::{Semaphore, oneshot};
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower::{Service, ServiceExt};

use super::PlaceStats;
use super::about::About;
use crate::headers::ROLE;

/// Calls of an application that are remembered.
const EXPLAINED_MAX: usize = 1024;

/// All placed methods of a server.
#[derive(Debug)]
pub(in crate::server) struct Places {
    /// By path.
    methods: HashMap<&'static str, Method>,
    applications: Vec<Arc<Place>>,
    /// What the accelerator answers.
    acc: Routes,
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

/// An application on this host.
#[derive(Debug)]
struct Place {
    paths: Paths,
    began: Clock,
    selecting: Mutex<Selecting>,
}

#[derive(Debug)]
struct Selecting {
    selector: Selector,
    log: Log,
    /// By [`Ticket::index`]: who waits to be sent. `None` is said to a call that is given up.
    waiting: Vec<Option<oneshot::Sender<Option<Go>>>>,
}

impl Places {
    pub(super) fn new(acc: Routes, request_bytes_max: usize, slots: [usize; 2]) -> Self {
        Self {
            methods: HashMap::new(),
            applications: Vec::new(),
            acc,
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
    pub(super) fn add(&mut self, mut paths: Paths, strategy: Strategy, config: Config, methods: &[&'static Placed]) {
        // Calls on one path are tasks of their own, and may overtake each other.
        paths.paths.iter_mut().for_each(|path| path.fifo = false);
        let selecting = Selecting {
            selector: Selector::new(&paths, strategy, config),
            log: Log::new(EXPLAINED_MAX),
            waiting: std::iter::repeat_with(|| None).take(config.in_flight_max as usize).collect(),
        };
        let place = Arc::new(Place { paths, began: Clock::now(), selecting: Mutex::new(selecting) });
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
    pub(in crate::server) async fn call<S, B>(
        &self,
        cpu: S,
        request: http::Request<Body>,
    ) -> Result<http::Response<Body>, S::Error>
    where
        S: Service<http::Request<Body>, Response = http::Response<B>> + Clone,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Some(method) = self.methods.get(request.uri().path()) else {
            return Ok(cpu.oneshot(request).await?.map(Body::new));
        };
        let (parts, body) = request.into_parts();
        let (body, address) = match self.read(body, method.key).await {
            Ok(read) => read,
            Err(status) => return Ok(status.into_http()),
        };
        let mut turn = match method.place.select(method.kind, address) {
            Some(turn) => turn,
            None => return Ok(Status::resource_exhausted("as many calls are in progress as may be").into_http()),
        };
        let mut failed = None;
        while let Some((role, begun)) = turn.come().await {
            let _slot = self.slots[role as usize].acquire().await;
            let request = http::Request::from_parts(parts.clone(), Body::new(Full::new(body.clone())));
            let mut response = match role {
                Role::Cpu => cpu.clone().oneshot(request).await?.map(Body::new),
                Role::Acc => match self.acc.clone().oneshot(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
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
        Ok(failed.unwrap_or_else(|| Status::unavailable("no way through this host is left").into_http()))
    }

    /// The request's bytes, and what it is about.
    async fn read(&self, body: Body, key: u32) -> Result<(Bytes, u64), Status> {
        let max = self.request_bytes_max;
        let body = Limited::new(body, max).collect().await.map_err(|error| match error.downcast::<Status>() {
            Ok(status) => *status,
            Err(error) => Status::out_of_range(format!("a request of at most {max} bytes: {error}")),
        })?;
        let body = body.to_bytes();
        let address = self.about.address(&body, key)?;
        Ok((body, address))
    }

    /// All ways of all applications.
    pub(in crate::server) fn stats(&self) -> Vec<PlaceStats> {
        self.applications.iter().flat_map(|place| place.stats()).collect()
    }
}

/// The last calls of some applications: those of each together, the newest last.
fn told(applications: &[Arc<Place>], count: usize) -> Vec<String> {
    let lines = |place: &Arc<Place>| -> Vec<String> {
        let selecting = place.lock();
        selecting.log.last(count, &place.paths).map(|line| format!("{} {line}\n", place.paths.application)).collect()
    };
    applications.iter().flat_map(lines).collect()
}

/// Whether a device says that it can't.
fn is_unavailable(response: &http::Response<Body>) -> bool {
    Status::from_header_map(response.headers()).is_some_and(|status| status.code() == Code::Unavailable)
}

impl Place {
    fn now(&self) -> Instant {
        Instant(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Held only for a moment, by code that does not panic.
    fn lock(&self) -> MutexGuard<'_, Selecting> {
        self.selecting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call's turn; `None`: too many are there.
    fn select(self: &Arc<Self>, kind: KindId, address: u64) -> Option<Turn> {
        let (now, mut selecting) = (self.now(), self.lock());
        let Selecting { selector, log, .. } = &mut *selecting;
        log.before(now, &self.paths, selector, kind);
        let (ticket, go) = match selector.select(now, &Request { kind, address, message: address }) {
            Decision::Go(go) => (go.ticket, Some(go)),
            Decision::Wait { ticket } => (ticket, None),
            Decision::Full => return None,
        };
        let record = log.asked(now, address, kind, go.is_none());
        let next = match go {
            Some(go) => {
                log.chose(record, go.path, go.why);
                Next::Go(go)
            }
            None => Next::Wait(selecting.wait(ticket)),
        };
        Some(Turn { place: Arc::clone(self), ticket, record, next })
    }

    /// What the ways have come to, a line each.
    fn status(&self) -> String {
        self.stats().iter().map(|way| format!("{way}\n")).collect()
    }

    fn stats(&self) -> Vec<PlaceStats> {
        let selecting = self.lock();
        let kinds = self
            .paths
            .kinds
            .iter()
            .flat_map(|kind| (kind.first.0..kind.first.0 + kind.count).map(move |id| (kind, id)));
        let stats = kinds.map(|(kind, id)| {
            let id = pathcall_place::PathId(id);
            let path = self.paths.path(id);
            PlaceStats {
                application: self.paths.application.clone(),
                request: kind.name.clone(),
                path: path.name.clone(),
                role: path.role,
                traverse_ns: path.traverse_ns,
                toll_ns: path.toll_ns,
                state: selecting.selector.state(id),
            }
        });
        stats.collect()
    }
}

impl Selecting {
    fn wait(&mut self, ticket: Ticket) -> oneshot::Receiver<Option<Go>> {
        let (tell, told) = oneshot::channel();
        self.waiting[ticket.index()] = Some(tell);
        told
    }

    /// Notes how a call ended, and sends those that may go now.
    fn end(&mut self, now: Instant, ticket: Ticket, outcome: Outcome) {
        self.selector.done(now, ticket, outcome);
        self.drain(now);
    }

    /// Sends those that may go now.
    fn drain(&mut self, now: Instant) {
        while let Some(released) = self.selector.poll(now) {
            let (ticket, go) = match released {
                Released::Go(go) => (go.ticket, Some(go)),
                Released::GivenUp { ticket } => (ticket, None),
            };
            // One that is dropped meanwhile says so itself.
            if let Some(tell) = self.waiting[ticket.index()].take() {
                let _ = tell.send(go);
            }
        }
    }
}

/// A call's turn on its host; dropped before it is over, the call is abandoned.
struct Turn {
    place: Arc<Place>,
    ticket: Ticket,
    /// Its number in the log.
    record: u64,
    next: Next,
}

enum Next {
    Go(Go),
    Wait(oneshot::Receiver<Option<Go>>),
    Over,
}

impl Turn {
    /// Who is to answer, and since when it is so; `None`: it is given up.
    async fn come(&mut self) -> Option<(Role, Clock)> {
        let go = match &mut self.next {
            Next::Go(go) => Some(*go),
            // Whoever would tell lives as long as this.
            Next::Wait(told) => {
                let go = told.await.ok().flatten();
                go.inspect(|go| self.place.lock().log.chose(self.record, go.path, go.why))
            }
            Next::Over => None,
        };
        match go {
            Some(go) => {
                self.next = Next::Go(go);
                Some((self.place.paths.path(go.path).role, Clock::now()))
            }
            None => {
                // Nobody else does it: what has to come after it need not wait.
                if !matches!(self.next, Next::Over) {
                    self.end(Outcome::Abandoned);
                }
                self.next = Next::Over;
                None
            }
        }
    }

    /// It is answered.
    fn done(&mut self, begun: Clock) {
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = self.place.now();
        let mut selecting = self.place.lock();
        selecting.log.ended(self.record, None, took);
        selecting.end(now, self.ticket, Outcome::Done { intra_ns: Some(took), total_ns: took });
        drop(selecting);
        self.next = Next::Over;
    }

    /// The device can't; somebody else is asked, or the same one again.
    fn failed(&mut self) {
        let path = if let Next::Go(go) = &self.next { Some(go.path) } else { None };
        let now = self.place.now();
        let mut selecting = self.place.lock();
        selecting.log.failed(self.record, path, "the accelerator says UNAVAILABLE");
        self.next = Next::Wait(selecting.wait(self.ticket));
        selecting.end(now, self.ticket, Outcome::Failed);
    }

    fn end(&self, outcome: Outcome) {
        let now = self.place.now();
        self.place.lock().end(now, self.ticket, outcome);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !matches!(self.next, Next::Over) {
            self.end(Outcome::Abandoned);
        }
    }
}
