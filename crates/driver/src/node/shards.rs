//! Shards of a node: parts that share no lock, so that several processors work for one node.
//!
//! ```text
//! node's address ─▶ shard 0 ─┬─▶ own calls, own requests
//!                            │ requests, pings, grants of calls that belong to another shard
//!                            └─▶ shard 1, in memory        own port ─▶ shard 1 ─▶ …
//! ```
//!
//! Each shard has a port, a node id, sessions, calls and requests of its own, under a lock of its own. The node's address
//! is that of shard 0. A request, ping or grant is handled by the shard of its call ([`shard_of_call`]), whichever shard
//! receives it; a sender whose request went to another shard is told the ports of all. Replies, pongs and manifests name
//! the shard's own address.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use pathcall_endpoint::delegate::shards::{SHARDS_MAX, shard_of_call};
use pathcall_endpoint::messages::Event;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::state::{NodeShared, ObsoleteSender};
use super::{NodeConfig, NodeStats, RecordHistory, Transport, identity, task};

/// All shards of a node.
pub(super) struct NodeShards {
    shards: Box<[NodeShared]>,
    group: Arc<ShardGroup>,
    /// Number of calls, which take the shards in turn.
    calls: AtomicUsize,
    /// Whether the shards are on several runtimes.
    is_spread: bool,
}

/// What the shards of a node know of each other.
#[derive(Debug)]
pub(super) struct ShardGroup {
    pub(super) loads: Box<[ShardLoad]>,
    /// Ports of the shards, as they are sent.
    pub(super) ports: OnceLock<Bytes>,
    /// Notified when a request waits in any shard.
    pub(super) request_waiting: Notify,
}

/// Load of a shard, readable without its lock. Each has cache lines of its own, as it changes with each message.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct ShardLoad {
    /// Requests that wait or run.
    requests: AtomicUsize,
    /// Requests that wait.
    waiting: AtomicUsize,
}

/// Handle to one shard, which keeps the node running.
#[derive(Clone)]
pub(super) struct NodeShard {
    node: Arc<NodeShards>,
    index: usize,
}

thread_local! {
    /// Index of the shards whose tasks run on this thread, of nodes whose shards are on several runtimes.
    static SHARD_OF_THREAD: Cell<Option<usize>> = const { Cell::new(None) };
}

impl NodeShards {
    /// Starts the shards on `runtimes` in turn.
    pub(super) async fn start(
        config: &NodeConfig,
        runtimes: &[Handle],
        history: RecordHistory,
        obsolete: Option<ObsoleteSender>,
    ) -> io::Result<Arc<Self>> {
        let count = check(config, runtimes)?;
        let loads = (0..count).map(|_| ShardLoad::default()).collect();
        let group = Arc::new(ShardGroup { loads, ports: OnceLock::new(), request_waiting: Notify::new() });
        let mut histories = split(history, count);
        let (mut shards, mut sources) = (Vec::new(), Vec::new());
        for index in 0..count {
            let history = std::mem::take(&mut histories[index]);
            let place = (Arc::clone(&group), index);
            let config = shard_config(config, index)?;
            let runtime = &runtimes[index % runtimes.len()];
            let (shard, source) =
                NodeShared::new(&config, runtime, place, identity()?, history, obsolete.clone()).await?;
            shards.push(shard);
            sources.push(source);
        }
        let ports = shards.iter().flat_map(|shard: &NodeShared| shard.address.port().to_be_bytes());
        group.ports.get_or_init(|| ports.collect());
        let (shards, calls, is_spread) = (shards.into(), AtomicUsize::new(0), runtimes.len() > 1);
        let node = Arc::new(Self { shards, group, calls, is_spread });
        for (index, source) in sources.into_iter().enumerate() {
            let runtime = &runtimes[index % runtimes.len()];
            let shard = &node.shards[index];
            shard.spawn_task(runtime, task::run(Arc::downgrade(&node), index, shard.origin, source));
        }
        Ok(node)
    }

    pub(super) fn all(&self) -> &[NodeShared] {
        &self.shards
    }

    /// Shard with the node's address.
    pub(super) fn first(&self) -> &NodeShared {
        &self.shards[0]
    }

    pub(super) fn group(&self) -> &ShardGroup {
        &self.group
    }

    pub(super) fn shard(self: &Arc<Self>, index: usize) -> NodeShard {
        NodeShard { node: Arc::clone(self), index }
    }

    /// Shard for a new call: the one of this thread, if each has a thread of its own, otherwise each in turn.
    pub(super) fn shard_for_call(self: &Arc<Self>) -> NodeShard {
        let count = self.shards.len();
        let of_thread = SHARD_OF_THREAD.get().filter(|shard| self.is_spread && *shard < count);
        self.shard(match of_thread {
            _ if count == 1 => 0,
            Some(index) => index,
            None => self.calls.fetch_add(1, Ordering::Relaxed) % count,
        })
    }

    /// Records that the task of a shard runs on this thread.
    pub(super) fn note_thread(&self, index: usize) {
        if self.is_spread {
            SHARD_OF_THREAD.set(Some(index));
        }
    }

    /// Hands events over to the shards that handle them; `events` has a list for each shard.
    pub(super) fn hand_over(&self, events: &mut [Vec<Event>]) {
        for (shard, events) in self.shards.iter().zip(events) {
            if !events.is_empty() {
                shard.take_over(events);
            }
        }
    }

    pub(super) fn stats(&self) -> NodeStats {
        let mut stats = NodeStats::default();
        self.shards.iter().for_each(|shard| stats += shard.stats());
        stats
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(NodeShared::is_empty)
    }
}

impl ShardGroup {
    /// Requests that wait or run in all shards.
    pub(super) fn load(&self) -> usize {
        self.loads.iter().map(|load| load.requests.load(Ordering::Relaxed)).sum()
    }

    /// Returns whether a request waits in any shard.
    pub(super) fn is_waiting(&self) -> bool {
        self.loads.iter().any(ShardLoad::is_waiting)
    }
}

impl ShardLoad {
    /// Records the load, under the lock of the shard.
    pub(super) fn record(&self, requests: usize, waiting: usize) {
        self.requests.store(requests, Ordering::Relaxed);
        // A receiver that has been notified sees the request.
        self.waiting.store(waiting, Ordering::Release);
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }
}

impl Deref for NodeShard {
    type Target = NodeShared;

    fn deref(&self) -> &NodeShared {
        &self.node.shards[self.index]
    }
}

impl fmt::Debug for NodeShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl fmt::Debug for NodeShards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.shards).finish()
    }
}

/// Checks the number of shards, and returns it.
fn check(config: &NodeConfig, runtimes: &[Handle]) -> io::Result<usize> {
    let invalid = |message: String| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    match config.shards {
        count if !(1..=SHARDS_MAX).contains(&count) => invalid(format!("{count} shards: a node has 1 to {SHARDS_MAX}")),
        _ if runtimes.is_empty() => invalid("no runtime for the shards of a node: name at least one".to_owned()),
        count if count > 1 && config.transport != Transport::Flows => {
            invalid(format!("{count} shards by {:?}: only a node by UDP has several", config.transport))
        }
        count => Ok(count),
    }
}

/// Configuration of one shard: its ports follow those of the first shard, unless any port will do.
fn shard_config(config: &NodeConfig, index: usize) -> io::Result<NodeConfig> {
    let of_shard = |address: SocketAddr| match u16::try_from(usize::from(address.port()) + index) {
        _ if address.port() == 0 => Ok(address),
        Ok(port) => Ok(SocketAddr::new(address.ip(), port)),
        Err(_) => {
            let message = format!("no port for shard {index} of the node at {address}: use a smaller port");
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
    };
    let (listen, advertised) = (of_shard(config.listen)?, config.advertised.map(of_shard).transpose()?);
    Ok(NodeConfig { listen, advertised, ..config.clone() })
}

/// Splits a history by the shards of the calls. Which calls have ended is true for each shard.
fn split(history: RecordHistory, count: usize) -> Vec<RecordHistory> {
    let ended = &history.ended;
    let mut split: Vec<_> = (0..count).map(|_| RecordHistory { records: Vec::new(), ended: ended.clone() }).collect();
    for record in history.records {
        split[shard_of_call(record.call, count)].records.push(record);
    }
    split
}
