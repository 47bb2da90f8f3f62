//! Replica and master as servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use apps_report::nodes::{self, Host};
use pathcall::delegate::{Call, CallOptions, Handlers, Node, NodeConfig};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{interval, timeout};
use tonic::{Request, Status};

use crate::master::Master;
use crate::pb::chain_client::ChainClient;
use crate::pb::delegated::{ChainPass, ChainRead, ChainRecall, ChainWrite, MasterRenew, MasterWatch};
use crate::pb::master_client::MasterClient;
use crate::pb::{self, History, Member, PassRequest, RecallRequest, RenewRequest, Value, View};
use crate::replica::{Next, Refusal, Replica};

/// Updates overtake each other at a node that works on several: so long it waits for those before, until it
/// recalls them.
const OVERTAKEN: Duration = Duration::from_millis(5);
/// Time for nodes to start in.
const START: Duration = Duration::from_secs(10);

/// How calls are made where nodes are taken for crashed after `lease`.
#[must_use]
pub fn options(lease: Duration) -> CallOptions {
    CallOptions::default().ping_period(lease / 5).timeout(lease)
}

/// Starts the master of a chain of these, from head to tail.
///
/// # Errors
/// When its node has no port.
pub async fn master(members: Vec<Member>, lease: Duration, listener: TcpListener) -> Result<Host> {
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
            if master.remove_silent(began.elapsed()) {
                told.send_replace(master.view().clone());
            }
        }
    });
    let renew = move |request: RenewRequest, call: Call<View>| {
        let view = locked(&master).renew(began.elapsed(), request.id).cloned();
        async move {
            match view {
                Some(view) => call.reply(view).await,
                None => Ok(()),
            }
        }
    };
    let watched = move |request: pb::WatchRequest, call: Call<View>| {
        let mut views = views.subscribe();
        async move {
            let view = views.wait_for(|view| view.number >= request.number).await.map(|view| view.clone());
            call.reply(view.map_err(|_| Status::unavailable("the master stops"))?).await
        }
    };
    let handlers = Handlers::new().handle::<MasterRenew, _, _>(renew).handle::<MasterWatch, _, _>(watched);
    nodes::host_on(&pb::PATHCALL, handlers, listener).await
}

/// A node of the chain that runs.
struct Server {
    replica: Mutex<Replica>,
    /// The replica's last update.
    applied: watch::Sender<u64>,
    /// Calls to other nodes are made by it.
    node: Node,
    options: CallOptions,
    /// The replica's clock counts from here.
    began: Instant,
    peers: Mutex<BTreeMap<u32, ChainClient<pathcall::Channel>>>,
}

/// Starts a node, which the master at this URL knows.
///
/// # Errors
/// When it has no port, or the URL is none.
pub async fn node(id: u32, master: &str, lease: Duration, config: NodeConfig, listen: SocketAddr) -> Result<Host> {
    let own = config.clone().listen(SocketAddr::new(config.listen.ip(), 0));
    let server = Arc::new(Server {
        replica: Mutex::new(Replica::new(id)),
        applied: watch::Sender::new(0),
        node: Node::start(&own).await.context("no node for calls to others")?.0,
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
                let update = request.update.ok_or_else(|| refused(Refusal::Lacks("an update")))?;
                let next = server.change(|replica| replica.write(update))?;
                server.go_on(next, request.nested, &call).await
            }
        })
        .handle::<ChainPass, _, _>(move |request, call| Arc::clone(&pass).pass(request, call))
        .handle::<ChainRead, _, _>(move |request: pb::ReadRequest, call| {
            let value = locked(&read.replica).read(read.began.elapsed(), &request.key).map_err(refused);
            async move { call.reply(Value { value: value? }).await }
        })
        .handle::<ChainRecall, _, _>(move |request: RecallRequest, call: Call<History>| {
            let history = locked(&recall.replica).history(request.view, request.after).map_err(refused);
            async move { call.reply(history?).await }
        });
    nodes::host(&pb::PATHCALL, handlers, listen).await
}

impl Server {
    /// Keeps the lease, and with it the view, up to date.
    async fn renew(self: Arc<Self>, id: u32, mut master: MasterClient<pathcall::Channel>, lease: Duration) {
        let mut ticks = interval(lease / 5);
        loop {
            ticks.tick().await;
            let mut request = Request::new(RenewRequest { id });
            request.set_timeout(lease);
            let asked = self.began.elapsed();
            // Without an answer the lease ends, and that is all that there is to do.
            let Ok(replies) = master.renew(request).await else { continue };
            if let Ok(Some(view)) = replies.into_inner().message().await {
                locked(&self.replica).adopt(view, asked + lease);
            }
        }
    }

    async fn pass(self: Arc<Self>, request: PassRequest, call: Call<Value>) -> Result<(), Status> {
        let number = request.entry.as_ref().map_or(0, |entry| entry.number);
        // What has to be here first.
        let before = if request.repeat { number } else { number.saturating_sub(1) };
        loop {
            match self.change(|replica| replica.pass(request.clone()))? {
                Next::Missing { from, after } => {
                    let mut applied = self.applied.subscribe();
                    let comes = applied.wait_for(|applied| *applied >= before);
                    if timeout(OVERTAKEN, comes).await.is_err() {
                        self.recall(from, RecallRequest { view: request.view, after }).await?;
                        // Nobody passes on what it does not have.
                        if *self.applied.borrow() < before {
                            return Err(Status::unavailable(format!("node {from} does not have update {before}")));
                        }
                    }
                }
                next => return self.go_on(next, request.nested, &call).await,
            }
        }
    }

    /// Gets what is missing from the predecessor.
    async fn recall(&self, from: u32, request: RecallRequest) -> Result<(), Status> {
        let view = request.view;
        let history = self.peer(from)?.recall(request).await?.into_inner().message().await?;
        let history = history.ok_or_else(|| Status::unavailable("the predecessor says nothing"))?;
        self.change(|replica| replica.learn(view, history))
    }

    async fn go_on(&self, next: Next, nested: bool, call: &Call<Value>) -> Result<(), Status> {
        match next {
            Next::Reply(value) => call.reply(Value { value: Some(value) }).await,
            Next::Pass(to, request) if nested => {
                let request = PassRequest { nested, ..request };
                let value = self.peer(to)?.pass(request).await?.into_inner().message().await?;
                call.reply(value.ok_or_else(|| Status::unavailable("the successor says nothing"))?).await
            }
            Next::Pass(to, request) => {
                let address = self.member(to)?.node;
                let address = address.parse::<SocketAddr>();
                let address = address.map_err(|error| Status::internal(format!("node {to}: {error}")))?;
                call.delegate::<ChainPass>(address, &request)
            }
            Next::Missing { .. } => Err(Status::internal("a head lacks nothing")),
        }
    }

    /// Has the replica do something, and those who wait for updates know.
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
        member.cloned().ok_or_else(|| Status::unavailable(format!("node {id} is in the chain no more")))
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
        Refusal::Lacks(_) => Status::invalid_argument(refusal.to_string()),
        Refusal::NotHead(_) | Refusal::NotTail(_) | Refusal::View { .. } | Refusal::NotMember(_) => {
            Status::unavailable(refusal.to_string())
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
