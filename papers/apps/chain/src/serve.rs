//! Servers for replica and master.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use apps_report::nodes::{self, NodeServer};
use pathcall::delegate::{CallOptions, DelegatedCall, Handlers, Node, NodeConfig};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{interval, timeout};
use tonic::{Request, Status};

use crate::master::Master;
use crate::pb::chain_client::ChainClient;
use crate::pb::delegated::{ChainPass, ChainRead, ChainRecall, ChainWrite, MasterRenew, MasterWatch};
use crate::pb::master_client::MasterClient;
use crate::pb::{self, History, Member, PassRequest, RecallRequest, RenewRequest, Value, View};
use crate::replica::{NextStep, Refusal, Replica};

/// Wait for earlier updates before a recall: a node processes several updates at the same time, so updates overtake
/// each other.
const OVERTAKEN: Duration = Duration::from_millis(5);
/// Time for the start of nodes.
const START: Duration = Duration::from_secs(10);

/// Call options for a chain with this lease.
#[must_use]
pub fn options(lease: Duration) -> CallOptions {
    CallOptions::default().ping_period(lease / 5).timeout(lease)
}

/// Starts the master of a chain of `members`, from head to tail.
///
/// # Errors
/// Returns an error if the node's port is in use.
pub async fn master(members: Vec<Member>, lease: Duration, listener: TcpListener) -> Result<NodeServer> {
    let began = Instant::now();
    let master = Master::new(START, members, lease);
    let views = Arc::new(watch::Sender::new(master.view().clone()));
    let master = Arc::new(Mutex::new(master));

    let (removing, told) = (Arc::clone(&master), Arc::clone(&views));
    tokio::spawn(async move {
        let mut ticks = interval(lease / 16);
        loop {
            ticks.tick().await;
            let mut master = locked(&removing);
            if master.remove_expired(began.elapsed()) {
                told.send_replace(master.view().clone());
            }
        }
    });
    let renew = move |request: RenewRequest, call: DelegatedCall<View>| {
        let view = locked(&master).renew(began.elapsed(), request.id).cloned();
        async move {
            match view {
                Some(view) => call.reply(view).await,
                None => Ok(()),
            }
        }
    };
    let watched = move |request: pb::WatchRequest, call: DelegatedCall<View>| {
        let mut views = views.subscribe();
        async move {
            let view = views.wait_for(|view| view.number >= request.number).await.map(|view| view.clone());
            call.reply(view.map_err(|_| Status::unavailable("the master is stopping"))?).await
        }
    };
    let handlers = Handlers::new().handle::<MasterRenew, _, _>(renew).handle::<MasterWatch, _, _>(watched);
    nodes::host_on(&pb::PATHCALL, handlers, listener).await
}

/// Running node of the chain.
struct NodeState {
    replica: Mutex<Replica>,
    /// Number of the replica's last update.
    applied: watch::Sender<u64>,
    /// Delegate node for calls to other nodes.
    node: Node,
    options: CallOptions,
    /// Start of the replica's clock.
    began: Instant,
    peers: Mutex<BTreeMap<u32, ChainClient<pathcall::Channel>>>,
}

/// Starts a node of the master at this URL.
///
/// # Errors
/// Returns an error if the port is in use or the URL is invalid.
pub async fn node(
    id: u32,
    master: &str,
    lease: Duration,
    config: NodeConfig,
    listen: SocketAddr,
) -> Result<NodeServer> {
    let own = config.clone().listen(SocketAddr::new(config.listen.ip(), 0));
    let server = Arc::new(NodeState {
        replica: Mutex::new(Replica::new(id)),
        applied: watch::Sender::new(0),
        node: Node::start(&own).await.context("cannot start a node for calls to other nodes")?.0,
        options: options(lease),
        began: Instant::now(),
        peers: Mutex::default(),
    });
    let master = MasterClient::new(nodes::channel(master, &pb::PATHCALL, &server.node, server.options)?);
    tokio::spawn(Arc::clone(&server).renew(id, master, lease));

    let [write, pass, read, recall] = [0; 4].map(|_| Arc::clone(&server));
    let handlers = Handlers::new()
        .node(config)
        .handle::<ChainWrite, _, _>(move |request: pb::WriteRequest, call| {
            let server = Arc::clone(&write);
            async move {
                let update = request.update.ok_or_else(|| refused(Refusal::MissingField("update")))?;
                let next = server.change(|replica| replica.write(update))?;
                server.continue_with(next, request.nested, &call).await
            }
        })
        .handle::<ChainPass, _, _>(move |request, call| Arc::clone(&pass).pass(request, call))
        .handle::<ChainRead, _, _>(move |request: pb::ReadRequest, call| {
            let value = locked(&read.replica).read(read.began.elapsed(), &request.key).map_err(refused);
            async move { call.reply(Value { value: value? }).await }
        })
        .handle::<ChainRecall, _, _>(move |request: RecallRequest, call: DelegatedCall<History>| {
            let history = locked(&recall.replica).history(request.view, request.after).map_err(refused);
            async move { call.reply(history?).await }
        });
    nodes::host(&pb::PATHCALL, handlers, listen).await
}

impl NodeState {
    /// Renews the lease, and adopts new views.
    async fn renew(self: Arc<Self>, id: u32, mut master: MasterClient<pathcall::Channel>, lease: Duration) {
        let mut ticks = interval(lease / 5);
        loop {
            ticks.tick().await;
            let mut request = Request::new(RenewRequest { id });
            request.set_timeout(lease);
            let asked = self.began.elapsed();
            // Without an answer the lease expires; there is nothing else to do.
            let Ok(replies) = master.renew(request).await else { continue };
            if let Ok(Some(view)) = replies.into_inner().message().await {
                locked(&self.replica).adopt(view, asked + lease);
            }
        }
    }

    async fn pass(self: Arc<Self>, request: PassRequest, call: DelegatedCall<Value>) -> Result<(), Status> {
        let number = request.entry.as_ref().map_or(0, |entry| entry.number);
        // Update that must be applied first.
        let before = if request.repeat { number } else { number.saturating_sub(1) };
        loop {
            match self.change(|replica| replica.pass(request.clone()))? {
                NextStep::Missing { from, after } => {
                    let mut applied = self.applied.subscribe();
                    let comes = applied.wait_for(|applied| *applied >= before);
                    if timeout(OVERTAKEN, comes).await.is_err() {
                        self.recall(from, RecallRequest { view: request.view, after }).await?;
                        // A node does not pass on an update that it lacks.
                        if *self.applied.borrow() < before {
                            return Err(Status::unavailable(format!("node {from} lacks update {before}")));
                        }
                    }
                }
                next => return self.continue_with(next, request.nested, &call).await,
            }
        }
    }

    /// Recalls missing updates from the predecessor.
    async fn recall(&self, from: u32, request: RecallRequest) -> Result<(), Status> {
        let view = request.view;
        let history = self.peer(from)?.recall(request).await?.into_inner().message().await?;
        let history = history.ok_or_else(|| Status::unavailable("no history from the predecessor"))?;
        self.change(|replica| replica.learn(view, history))
    }

    async fn continue_with(&self, next: NextStep, nested: bool, call: &DelegatedCall<Value>) -> Result<(), Status> {
        match next {
            NextStep::Reply(value) => call.reply(Value { value: Some(value) }).await,
            NextStep::Pass(to, request) if nested => {
                let request = PassRequest { nested, ..request };
                let value = self.peer(to)?.pass(request).await?.into_inner().message().await?;
                call.reply(value.ok_or_else(|| Status::unavailable("no value from the successor"))?).await
            }
            NextStep::Pass(to, request) => {
                let address = self.member(to)?.node;
                let address = address.parse::<SocketAddr>();
                let address = address.map_err(|error| Status::internal(format!("node {to}: {error}")))?;
                call.delegate::<ChainPass>(address, &request)
            }
            NextStep::Missing { .. } => Err(Status::internal("the head cannot recall updates")),
        }
    }

    /// Changes the replica, and wakes the tasks that wait for updates.
    fn change<T>(&self, change: impl FnOnce(&mut Replica) -> Result<T, Refusal>) -> Result<T, Status> {
        let mut replica = locked(&self.replica);
        let changed = change(&mut replica).map_err(refused);
        let applied = replica.applied();
        self.applied.send_if_modified(|known| std::mem::replace(known, applied) != applied);
        changed
    }

    fn member(&self, id: u32) -> Result<Member, Status> {
        let replica = locked(&self.replica);
        let member = replica.view().members.iter().find(|member| member.id == id);
        member.cloned().ok_or_else(|| Status::unavailable(format!("node {id} is no longer in the chain")))
    }

    fn peer(&self, id: u32) -> Result<ChainClient<pathcall::Channel>, Status> {
        let url = self.member(id)?.url;
        let mut peers = locked(&self.peers);
        if let Some(peer) = peers.get(&id) {
            return Ok(peer.clone());
        }
        let channel = nodes::channel(&url, &pb::PATHCALL, &self.node, self.options);
        let channel = channel.map_err(|error| Status::internal(format!("{error:#}")))?;
        let peer = ChainClient::new(channel).max_decoding_message_size(usize::MAX);
        Ok(peers.entry(id).or_insert(peer).clone())
    }
}

fn refused(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Superseded { .. } => Status::aborted(refusal.to_string()),
        Refusal::MissingField(_) => Status::invalid_argument(refusal.to_string()),
        Refusal::NotHead(_) | Refusal::NotTail(_) | Refusal::View { .. } | Refusal::NotMember(_) => {
            Status::unavailable(refusal.to_string())
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
