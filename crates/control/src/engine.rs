//! Drives the state: calls and confirmations in, then commit, then answers and pushes out.
//!
//! ```text
//!   service ── messages ──▶ Engine ── changes ──▶ Store
//!   links   ── inputs   ──▶   │
//!                             └─ then: answers to calls, grants to streams, pushes to links
//! ```
//!
//! One task owns everything, so calls take effect one after the other. Messages that wait together
//! share one commit. If the store fails, the engine ends: what it has not kept it must not tell.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pathcall_auth::Security;
use pathcall_proto::v1::{
    ApplicationGrant, ElementGrant, EndpointGrant, JoinPoolRequest, LookupReply, PoolGrant, RegisterApplicationRequest,
    RegisterElementRequest, RegisterEndpointRequest, ReleaseEndpointRequest, StatusReply, TokenKey,
};
use pathcall_wire::Instant;
use rand::TryRng;
use rand::rngs::SysRng;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep_until, timeout_at};
use tonic::Status;

use crate::Error;
use crate::link::{Client, Link};
use crate::state::{CallId, Effects, Input, Output, State, Timing};
use crate::store::{Store, StoreError};

/// Messages that share one commit at most.
const BATCH_MAX: usize = 256;

/// The latest grant of a registration, once there is one; an error ends it.
pub(crate) type Latest<T> = Option<Result<T, Status>>;

/// What the service asks.
#[derive(Debug)]
pub(crate) enum Message {
    RegisterApplication(CallId, RegisterApplicationRequest, watch::Sender<Latest<ApplicationGrant>>),
    JoinPool(CallId, JoinPoolRequest, watch::Sender<Latest<PoolGrant>>),
    RegisterElement(CallId, RegisterElementRequest, watch::Sender<Latest<ElementGrant>>),
    RegisterEndpoint(CallId, RegisterEndpointRequest, oneshot::Sender<Result<EndpointGrant, Status>>),
    ReleaseEndpoint(CallId, ReleaseEndpointRequest, oneshot::Sender<Result<(), Status>>),
    Ended(CallId),
    Lookup(String, oneshot::Sender<Result<LookupReply, Status>>),
    /// Of which application, or pool, an id is.
    NameOf(u32, oneshot::Sender<Option<String>>),
    Status(oneshot::Sender<Standing>),
}

/// The status, and the ways to the elements whose counters it lacks.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) reply: StatusReply,
    pub(crate) elements: HashMap<u32, Client>,
}

pub(crate) struct Engine {
    state: State,
    store: Arc<Store>,
    security: Security,
    /// When the state's time began.
    started: tokio::time::Instant,
    /// Every sender waits for its answer, so there are no more messages than calls in progress and
    /// streams that have ended.
    messages: mpsc::UnboundedReceiver<Message>,
    inputs: (mpsc::UnboundedSender<Input>, mpsc::UnboundedReceiver<Input>),
    applications: HashMap<CallId, watch::Sender<Latest<ApplicationGrant>>>,
    elements: HashMap<CallId, watch::Sender<Latest<ElementGrant>>>,
    pools: HashMap<CallId, watch::Sender<Latest<PoolGrant>>>,
    endpoints: HashMap<CallId, oneshot::Sender<Result<EndpointGrant, Status>>>,
    releases: HashMap<CallId, oneshot::Sender<Result<(), Status>>>,
    links: HashMap<u32, Link>,
    /// Answers to what was only asked, to be given after the commit of what came before.
    views: Vec<Box<dyn FnOnce() + Send>>,
}

impl Engine {
    /// Makes the state of what the store has. Nothing is told to anyone before [`Engine::run`].
    pub(crate) fn start(
        store: Store,
        timing: Timing,
        security: Security,
        messages: mpsc::UnboundedReceiver<Message>,
    ) -> Result<(Self, Effects), Error> {
        let now = Instant::default();
        let snapshot = store.load()?;
        let (state, effects) = if snapshot.ids.is_some() {
            State::restore(timing, snapshot, now)?
        } else {
            // Small enough to grow for long, random enough not to be another controller's.
            let mut state = State::new(timing, rand::random_range(1..1 << 30), rand::random_range(1..1 << 30));
            let effects = state.handle(now, Input::Tick);
            (state, effects)
        };
        let engine = Self {
            state,
            store: Arc::new(store),
            security,
            started: tokio::time::Instant::now(),
            messages,
            inputs: mpsc::unbounded_channel(),
            applications: HashMap::new(),
            elements: HashMap::new(),
            pools: HashMap::new(),
            endpoints: HashMap::new(),
            releases: HashMap::new(),
            links: HashMap::new(),
            views: Vec::new(),
        };
        Ok((engine, effects))
    }

    /// Works until no message can come any more, or until the store fails.
    pub(crate) async fn run(mut self, effects: Effects) -> Result<(), StoreError> {
        self.settle(effects).await?;
        loop {
            let due = self.state.deadline().map(|at| self.started + Duration::from_nanos(at.0));
            let mut effects = Effects::default();
            tokio::select! {
                message = self.messages.recv() => match message {
                    Some(message) => self.take(message, &mut effects),
                    None => return Ok(()),
                },
                Some(input) = self.inputs.1.recv() => self.handle(input, &mut effects),
                () = at(due) => self.handle(Input::Tick, &mut effects),
            }
            for _ in 1..BATCH_MAX {
                if let Ok(input) = self.inputs.1.try_recv() {
                    self.handle(input, &mut effects);
                } else if let Ok(message) = self.messages.try_recv() {
                    self.take(message, &mut effects);
                } else {
                    break;
                }
            }
            self.settle(effects).await?;
        }
    }

    fn take(&mut self, message: Message, effects: &mut Effects) {
        let input = match message {
            Message::RegisterApplication(call, request, grants) => {
                self.applications.insert(call, grants);
                if request.authenticate {
                    self.draw_key(effects);
                }
                Input::RegisterApplication(call, request)
            }
            Message::JoinPool(call, request, grants) => {
                self.pools.insert(call, grants);
                if request.authenticate {
                    self.draw_key(effects);
                }
                Input::JoinPool(call, request)
            }
            Message::RegisterElement(call, request, grants) => {
                self.elements.insert(call, grants);
                Input::RegisterElement(call, request)
            }
            Message::RegisterEndpoint(call, request, answer) => {
                self.endpoints.insert(call, answer);
                Input::RegisterEndpoint(call, request)
            }
            Message::ReleaseEndpoint(call, request, answer) => {
                self.releases.insert(call, answer);
                Input::ReleaseEndpoint(call, request)
            }
            Message::Ended(call) => {
                self.applications.remove(&call);
                self.elements.remove(&call);
                self.pools.remove(&call);
                Input::Ended(call)
            }
            Message::Lookup(name, answer) => {
                let reply = self.state.lookup(&name).map_err(Status::from);
                return self.views.push(Box::new(move || drop(answer.send(reply))));
            }
            Message::NameOf(gaid, answer) => {
                let name = self.state.name_of(gaid).map(str::to_owned);
                return self.views.push(Box::new(move || drop(answer.send(name))));
            }
            Message::Status(answer) => {
                let elements = self.links.iter().map(|(&id, link)| (id, link.client())).collect();
                let standing = Standing { reply: self.state.status(), elements };
                return self.views.push(Box::new(move || drop(answer.send(standing))));
            }
        };
        self.handle(input, effects);
    }

    /// Hands the state a key of the system's randomness; if there is none, it refuses who needs one.
    fn draw_key(&mut self, effects: &mut Effects) {
        if let Some(key) = draw_key() {
            self.handle(Input::Key(key), effects);
        }
    }

    fn handle(&mut self, input: Input, effects: &mut Effects) {
        let passed = self.started.elapsed();
        let more = self.state.handle(Instant::default() + passed, input);
        effects.changes.extend(more.changes);
        effects.outputs.extend(more.outputs);
    }

    /// Commits, then delivers.
    async fn settle(&mut self, effects: Effects) -> Result<(), StoreError> {
        let Effects { changes, outputs } = effects;
        if !changes.is_empty() {
            let store = Arc::clone(&self.store);
            let commit = tokio::task::spawn_blocking(move || store.commit(&changes));
            match commit.await {
                Ok(committed) => committed?,
                Err(ended) => match ended.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime is ending. What may not be kept is not told.
                    Err(_) => return Ok(()),
                },
            }
        }
        for output in outputs {
            self.deliver(output);
        }
        for answer in self.views.drain(..) {
            answer();
        }
        Ok(())
    }

    /// Who has stopped listening is not told.
    fn deliver(&mut self, output: Output) {
        match output {
            Output::Application(call, answer) => tell(&mut self.applications, call, answer.map_err(Status::from)),
            Output::Pool(call, answer) => tell(&mut self.pools, call, answer.map_err(Status::from)),
            Output::Element(call, answer) => tell(&mut self.elements, call, answer.map_err(Status::from)),
            Output::Endpoint(call, answer) => {
                if let Some(to) = self.endpoints.remove(&call) {
                    let _ = to.send(answer.map_err(Status::from));
                }
            }
            Output::Released(call, answer) => {
                if let Some(to) = self.releases.remove(&call) {
                    let _ = to.send(answer.map_err(Status::from));
                }
            }
            Output::Open { element, boot_id, control_address } => {
                tracing::info!(element, boot_id, control_address, "pushing an element's tables");
                match Link::open(element, boot_id, &control_address, &self.security, self.inputs.0.clone()) {
                    Ok(link) => drop(self.links.insert(element, link)),
                    // Nothing confirms its pushes, so it is given up like one that does not answer.
                    Err(error) => tracing::warn!(element, %error, "an element's control address can't be used"),
                }
            }
            Output::Push { element, seq, push } => {
                if let Some(link) = self.links.get(&element) {
                    link.push(seq, push);
                }
            }
            Output::Close { element, reason } => {
                tracing::warn!(element, reason, "an element is out of service");
                self.links.remove(&element);
            }
        }
    }
}

/// A key of the system's randomness, if there is any.
pub(crate) fn draw_key() -> Option<TokenKey> {
    match (SysRng.try_next_u64(), SysRng.try_next_u64()) {
        (Ok(k0), Ok(k1)) => Some(TokenKey { k0, k1 }),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "no randomness for a key");
            None
        }
    }
}

fn tell<T>(to: &mut HashMap<CallId, watch::Sender<Latest<T>>>, call: CallId, answer: Result<T, Status>) {
    let ends = answer.is_err();
    if let Some(grants) = to.get(&call) {
        grants.send_replace(Some(answer));
    }
    if ends {
        to.remove(&call);
    }
}

async fn at(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Reads the counters of the elements that answer in time.
pub(crate) async fn read_counters(standing: Standing, bound: Duration) -> StatusReply {
    let Standing { mut reply, elements } = standing;
    let give_up = tokio::time::Instant::now() + bound;
    let mut reads = tokio::task::JoinSet::new();
    for (element, mut client) in elements {
        reads.spawn(async move {
            let read = timeout_at(give_up, client.counters(pathcall_proto::v1::CountersRequest {})).await;
            (element, read.ok().and_then(Result::ok))
        });
    }
    while let Some(read) = reads.join_next().await {
        let Ok((element, Some(counters))) = read else { continue };
        if let Some(status) = reply.elements.iter_mut().find(|status| status.element == element) {
            status.counters = Some(counters.into_inner());
        }
    }
    reply
}
