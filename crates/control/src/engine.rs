//! Engine: drives the state machine. Calls and confirmations come in; changes are committed; then answers and pushes go
//! out.
//!
//! ```text
//!   service ── messages ──▶ Engine ── changes ──▶ Store
//!   links   ── inputs   ──▶   │
//!                             └─ then: answers to calls, grants to streams, pushes to links
//! ```
//!
//! One task owns all of it, so calls take effect one after the other. Messages that wait together share one commit. If
//! the store fails, the engine ends: it must not send what it has not stored.

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
use crate::link::{Client, ElementLink};
use crate::state::{ControlCallId, ControllerState, Effects, Input, LeaseTiming, MemoryPolicy, Output};
use crate::store::{Store, StoreError};

/// Maximum number of messages that share one commit.
const BATCH_MAX: usize = 256;

/// Latest grant of a registration, once there is one; an error ends the registration.
pub(crate) type Latest<T> = Option<Result<T, Status>>;

/// Message of the service.
#[derive(Debug)]
pub(crate) enum Message {
    RegisterApplication(ControlCallId, RegisterApplicationRequest, watch::Sender<Latest<ApplicationGrant>>),
    JoinPool(ControlCallId, JoinPoolRequest, watch::Sender<Latest<PoolGrant>>),
    RegisterElement(ControlCallId, RegisterElementRequest, watch::Sender<Latest<ElementGrant>>),
    RegisterEndpoint(ControlCallId, RegisterEndpointRequest, oneshot::Sender<Result<EndpointGrant, Status>>),
    ReleaseEndpoint(ControlCallId, ReleaseEndpointRequest, oneshot::Sender<Result<(), Status>>),
    Ended(ControlCallId),
    Lookup(String, oneshot::Sender<Result<LookupReply, Status>>),
    /// Query for the name of the application or pool with an id.
    NameOf(u32, oneshot::Sender<Option<String>>),
    Status(oneshot::Sender<RegistrationStatus>),
}

/// Status, and clients of the elements whose counters are missing in it.
#[derive(Debug)]
pub(crate) struct RegistrationStatus {
    pub(crate) reply: StatusReply,
    pub(crate) elements: HashMap<u32, Client>,
}

pub(crate) struct Engine {
    state: ControllerState,
    store: Arc<Store>,
    security: Security,
    /// Start of the state machine's time.
    started: tokio::time::Instant,
    /// Each sender waits for its answer, so there are at most as many messages as calls in progress and ended streams.
    messages: mpsc::UnboundedReceiver<Message>,
    inputs: (mpsc::UnboundedSender<Input>, mpsc::UnboundedReceiver<Input>),
    applications: HashMap<ControlCallId, watch::Sender<Latest<ApplicationGrant>>>,
    elements: HashMap<ControlCallId, watch::Sender<Latest<ElementGrant>>>,
    pools: HashMap<ControlCallId, watch::Sender<Latest<PoolGrant>>>,
    endpoints: HashMap<ControlCallId, oneshot::Sender<Result<EndpointGrant, Status>>>,
    releases: HashMap<ControlCallId, oneshot::Sender<Result<(), Status>>>,
    links: HashMap<u32, ElementLink>,
    /// Answers to queries, to be sent after the commit of earlier changes.
    queries: Vec<Box<dyn FnOnce() + Send>>,
}

impl Engine {
    /// Creates the state from the store. Sends nothing before [`Engine::run`].
    pub(crate) fn start(
        store: Store,
        (timing, policy): (LeaseTiming, MemoryPolicy),
        security: Security,
        messages: mpsc::UnboundedReceiver<Message>,
    ) -> Result<(Self, Effects), Error> {
        let now = Instant::default();
        let snapshot = store.load()?;
        let (mut state, effects) = if snapshot.ids.is_some() {
            ControllerState::restore(timing, snapshot, now)?
        } else {
            // Small enough to grow for long, random enough to differ from another controller's.
            let mut state =
                ControllerState::new(timing, rand::random_range(1..1 << 30), rand::random_range(1..1 << 30));
            let effects = state.handle(now, Input::Tick);
            (state, effects)
        };
        state.set_policy(policy);
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
            queries: Vec::new(),
        };
        Ok((engine, effects))
    }

    /// Runs until no more messages can come, or the store fails.
    pub(crate) async fn run(mut self, effects: Effects) -> Result<(), StoreError> {
        self.commit_and_deliver(effects).await?;
        loop {
            let due = self.state.deadline().map(|at| self.started + Duration::from_nanos(at.0));
            let mut effects = Effects::default();
            tokio::select! {
                message = self.messages.recv() => match message {
                    Some(message) => self.handle_message(message, &mut effects),
                    None => return Ok(()),
                },
                Some(input) = self.inputs.1.recv() => self.handle(input, &mut effects),
                () = sleep_until_due(due) => self.handle(Input::Tick, &mut effects),
            }
            for _ in 1..BATCH_MAX {
                if let Ok(input) = self.inputs.1.try_recv() {
                    self.handle(input, &mut effects);
                } else if let Ok(message) = self.messages.try_recv() {
                    self.handle_message(message, &mut effects);
                } else {
                    break;
                }
            }
            self.commit_and_deliver(effects).await?;
        }
    }

    fn handle_message(&mut self, message: Message, effects: &mut Effects) {
        let input = match message {
            Message::RegisterApplication(call, request, grants) => {
                self.applications.insert(call, grants);
                if request.authenticate {
                    self.random_key(effects);
                }
                Input::RegisterApplication(call, request)
            }
            Message::JoinPool(call, request, grants) => {
                self.pools.insert(call, grants);
                if request.authenticate {
                    self.random_key(effects);
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
                return self.queries.push(Box::new(move || drop(answer.send(reply))));
            }
            Message::NameOf(gaid, answer) => {
                let name = self.state.name_of(gaid).map(str::to_owned);
                return self.queries.push(Box::new(move || drop(answer.send(name))));
            }
            Message::Status(answer) => {
                let elements = self.links.iter().map(|(&id, link)| (id, link.client())).collect();
                let status = RegistrationStatus { reply: self.state.status(), elements };
                return self.queries.push(Box::new(move || drop(answer.send(status))));
            }
        };
        self.handle(input, effects);
    }

    /// Passes a random key to the state; without one, the state refuses registrations that need a key.
    fn random_key(&mut self, effects: &mut Effects) {
        if let Some(key) = random_key() {
            self.handle(Input::Key(key), effects);
        }
    }

    fn handle(&mut self, input: Input, effects: &mut Effects) {
        let passed = self.started.elapsed();
        let more = self.state.handle(Instant::default() + passed, input);
        effects.changes.extend(more.changes);
        effects.outputs.extend(more.outputs);
    }

    /// Commits the changes, then delivers the outputs.
    async fn commit_and_deliver(&mut self, effects: Effects) -> Result<(), StoreError> {
        let Effects { changes, outputs } = effects;
        if !changes.is_empty() {
            let store = Arc::clone(&self.store);
            let commit = tokio::task::spawn_blocking(move || store.commit(&changes));
            match commit.await {
                Ok(committed) => committed?,
                Err(ended) => match ended.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime is shutting down. Changes that may not be stored are not sent.
                    Err(_) => return Ok(()),
                },
            }
        }
        for output in outputs {
            self.deliver(output);
        }
        for answer in self.queries.drain(..) {
            answer();
        }
        Ok(())
    }

    /// Delivers an output; receivers that have been dropped are skipped.
    fn deliver(&mut self, output: Output) {
        match output {
            Output::Application(call, answer) => send_grant(&mut self.applications, call, answer.map_err(Status::from)),
            Output::Pool(call, answer) => send_grant(&mut self.pools, call, answer.map_err(Status::from)),
            Output::Element(call, answer) => send_grant(&mut self.elements, call, answer.map_err(Status::from)),
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
                match ElementLink::open(element, boot_id, &control_address, &self.security, self.inputs.0.clone()) {
                    Ok(link) => drop(self.links.insert(element, link)),
                    // No push is confirmed then, so the element is removed like one that does not answer.
                    Err(error) => tracing::warn!(element, %error, "invalid control address of an element"),
                }
            }
            Output::Push { element, seq, push } => {
                if let Some(link) = self.links.get(&element) {
                    link.push(seq, push);
                }
            }
            Output::AskLastFrames { element, boot_id } => {
                if let Some(link) = self.links.get_mut(&element) {
                    link.ask_last_frames(element, boot_id, self.inputs.0.clone());
                }
            }
            Output::Close { element, reason } => {
                tracing::warn!(element, reason, "an element is out of service");
                self.links.remove(&element);
            }
            Output::RackWithoutElement { pool, rack } => tracing::warn!(
                pool,
                rack,
                "no element of this rack is in service: callers there use the element of another rack, if there is one"
            ),
        }
    }
}

/// Random key of the system, if available.
pub(crate) fn random_key() -> Option<TokenKey> {
    match (SysRng.try_next_u64(), SysRng.try_next_u64()) {
        (Ok(k0), Ok(k1)) => Some(TokenKey { k0, k1 }),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "no random bytes for a key");
            None
        }
    }
}

fn send_grant<T>(
    to: &mut HashMap<ControlCallId, watch::Sender<Latest<T>>>,
    call: ControlCallId,
    answer: Result<T, Status>,
) {
    let ends = answer.is_err();
    if let Some(grants) = to.get(&call) {
        grants.send_replace(Some(answer));
    }
    if ends {
        to.remove(&call);
    }
}

async fn sleep_until_due(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Adds the counters of the elements that answer in time.
pub(crate) async fn read_counters(status: RegistrationStatus, bound: Duration) -> StatusReply {
    let RegistrationStatus { mut reply, elements } = status;
    let deadline = tokio::time::Instant::now() + bound;
    let mut reads = tokio::task::JoinSet::new();
    for (element, mut client) in elements {
        reads.spawn(async move {
            let read = timeout_at(deadline, client.counters(pathcall_proto::v1::CountersRequest {})).await;
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
