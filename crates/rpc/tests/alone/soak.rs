//! Soak test: calls complete, fail, are dropped and time out, on servers that are killed and restarted, for
//! `PATHCALL_SOAK_S` seconds. In a process of its own: at the end it has no more memory, descriptors and tasks than
//! after warm-up, and no state of any call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pathcall_rpc::delegate::{
    CallOptions, Client, DelegatedCall, Directory, Handlers, Node, NodeConfig, NodeTarget, Replies, RunningHandlers,
    Transport,
};
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use pathcall_test_support::stubs::{Note, Wish};
use pathcall_test_support::{HANG, loopback};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use tonic::{Code, Status};

#[path = "../delegated/process.rs"]
mod process;

use process::Process;

/// Concurrent callers of each transport.
const CALLERS: u64 = 12;
/// Tolerance for memory, bytes: allocators keep some for each thread, and nodes remember aborted calls for a while.
const SLACK_BYTES: u64 = 24 << 20;

/// Tolerance for descriptors and tasks: where both ends connect at the same time there are two connections for a while.
const SLACK: usize = 8;

/// Options of the calls; their state is dropped soon after their end.
const OPTIONS: CallOptions =
    CallOptions::new().ping_period(Duration::from_millis(100)).timeout(Duration::from_millis(500)).credit(4);

/// Resources of this process.
#[derive(Debug, Clone, Copy)]
struct ResourceUse {
    memory: u64,
    descriptors: usize,
    tasks: usize,
}

impl ResourceUse {
    fn now() -> Self {
        let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        let pages: u64 = pages.split(' ').nth(1).expect("resident").parse().expect("a number");
        let descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux").count();
        Self { memory: pages * 4096, descriptors, tasks: Handle::current().metrics().num_alive_tasks() }
    }
}

/// Store of documents: notes with their names. Some are missing, some take long.
fn store(handlers: Handlers) -> Handlers {
    handlers.handle::<DocsFetch, _, _>(async |note: Note, call: DelegatedCall<Note>| match &*note.text {
        "missing" => Err(Status::not_found("no such document")),
        "for ever" => std::future::pending().await,
        "many" => {
            for _ in 0..50 {
                call.reply(note.clone()).await?;
            }
            Ok(())
        }
        _ => call.reply(note).await,
    })
}

/// A caller, an index, and two stores that are killed now and then.
struct DelegateCluster {
    transport: Transport,
    client: Client,
    node: Node,
    index: RunningHandlers,
    stores: Vec<(Process, RunningHandlers)>,
}

impl DelegateCluster {
    async fn new(transport: Transport) -> Self {
        let config = NodeConfig::default().transport(transport.clone());
        let at = || config.clone().listen(loopback::own());
        let stores = vec![Process::start(at(), store).await, Process::start(at(), store).await];
        let directory = Directory::of([("store-a", stores[0].1.address()), ("store-b", stores[1].1.address())]);
        let lookup = async |wish: Wish, call: DelegatedCall<Note>| {
            for name in wish.names {
                call.delegate::<DocsFetch>(NodeTarget::key("store-", &name), &Note { text: name })?;
            }
            Ok(())
        };
        let handlers = Handlers::new().node(config.clone()).directory(directory);
        let index = handlers.handle::<DocsLookup, _, _>(lookup).start().await.expect("starts");
        let (node, _requests) = Node::start(&config).await.expect("starts");
        let client = Client::new(node.clone(), Directory::of([("index", index.address())])).options(OPTIONS);
        Self { transport, client, node, index, stores }
    }

    /// Kills a store and starts another one at its address.
    async fn restart(&mut self, which: usize) {
        let (mut old, serving) = self.stores.remove(which);
        let listen = serving.address();
        drop(serving);
        old.kill();
        let config = NodeConfig::default().listen(listen).transport(self.transport.clone());
        self.stores.insert(which, Process::start(config, store).await);
    }

    /// Makes a call that uses all servers, so that all are connected.
    async fn touch(&self) {
        let names: Vec<String> = (0..16).map(|name| name.to_string()).collect();
        let began = Instant::now();
        loop {
            let call = self.client.call::<Note>().request::<DocsLookup>("index", &Wish { names: names.clone() });
            let mut replies = call.expect("known").begin().expect("room");
            match take(&mut replies, usize::MAX).await.1 {
                Ok(()) => return,
                // A node notices the end of a session with a dead server when it sends in the session.
                Err(status) => assert!(began.elapsed() < HANG, "{status}"),
            }
        }
    }

    /// Number of calls and requests of which a node has state.
    fn known(&self) -> usize {
        let nodes = self.stores.iter().map(|(_, store)| store.stats()).chain([self.index.stats(), self.node.stats()]);
        nodes.map(|stats| stats.calls_known + stats.requests_known).sum()
    }
}

/// Outcomes of calls.
#[derive(Debug, Default)]
struct Tally {
    complete: AtomicU64,
    failed: AtomicU64,
    given_up: AtomicU64,
    restarts: AtomicU64,
}

/// Makes calls of all kinds until stopped.
async fn calls(client: Client, seed: u64, stop: Arc<AtomicBool>, tally: Arc<Tally>) {
    let mut random = StdRng::seed_from_u64(seed);
    while !stop.load(Ordering::Relaxed) {
        let mut names: Vec<String> =
            (0..random.random_range(0..6)).map(|_| format!("{}", random.random::<u32>())).collect();
        let kind = random.random_range(0..10);
        names.extend(match kind {
            0 => Some("missing".to_owned()),
            1 | 2 => Some("for ever".to_owned()),
            3 | 4 => Some("many".to_owned()),
            _ => None,
        });
        let call = client.call::<Note>().request::<DocsLookup>("index", &Wish { names: names.clone() });
        let call = call.expect("known").timeout(Duration::from_millis(random.random_range(1..3_000)));
        // Some calls are traced; the traces are not awaited.
        let replies = if random.random_bool(0.1) { call.begin_traced().map(|traced| traced.0) } else { call.begin() };
        let mut replies = replies.expect("room");
        if kind == 1 || kind == 3 {
            let some = random.random_range(0..4);
            let begun = timeout(Duration::from_millis(random.random_range(0..20)), take(&mut replies, some)).await;
            drop((replies, begun));
            tally.given_up.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        if kind == 5 {
            replies.abort();
        }
        let (mut got, ended) = timeout(HANG, take(&mut replies, usize::MAX)).await.expect("it does not hang");
        match ended {
            Ok(()) => {
                let mut expected = BTreeMap::new();
                names
                    .iter()
                    .for_each(|name| *expected.entry(name.clone()).or_insert(0) += if name == "many" { 50 } else { 1 });
                got.retain(|_, count| *count > 0);
                assert!(kind > 2 && got == expected, "expected {expected:?}, got {got:?}");
                tally.complete.fetch_add(1, Ordering::Relaxed);
            }
            Err(status) => {
                let usual = [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled, Code::Aborted, Code::NotFound];
                assert!(usual.contains(&status.code()), "{status}");
                tally.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Reads up to `most` replies; returns how often each came, and the outcome.
async fn take(replies: &mut Replies<Note>, most: usize) -> (BTreeMap<String, usize>, Result<(), Status>) {
    let mut got = BTreeMap::new();
    for _ in 0..most {
        match replies.message().await {
            Ok(Some(note)) => *got.entry(note.text).or_insert(0) += 1,
            Ok(None) => break,
            Err(status) => return (got, Err(status)),
        }
    }
    (got, Ok(()))
}

/// Makes calls of all kinds for this time, on servers that die; then waits until no state is left.
async fn run(clusters: &mut [DelegateCluster], time: Duration, seed: u64, tally: &Arc<Tally>) {
    let (stop, mut callers) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    for cluster in clusters.iter() {
        for caller in 0..CALLERS {
            let seed = seed ^ caller ^ (cluster.index.address().port() as u64) << 16;
            callers.spawn(calls(cluster.client.clone(), seed, Arc::clone(&stop), Arc::clone(tally)));
        }
    }
    let (began, mut pause) = (Instant::now(), interval(Duration::from_millis(250)));
    // A stalled machine makes fewer calls in the same time.
    let made = || [&tally.complete, &tally.failed, &tally.given_up].map(|it| it.load(Ordering::Relaxed));
    let [complete, failed, given_up] = made();
    let enough = || {
        let [now_complete, now_failed, now_given_up] = made();
        now_complete > complete + 50 && now_failed > failed + 10 && now_given_up > given_up + 10
    };
    while began.elapsed() < time || !enough() {
        assert!(began.elapsed() < time + HANG, "{tally:?}");
        pause.tick().await;
        for cluster in clusters.iter_mut() {
            cluster.restart(tally.restarts.fetch_add(1, Ordering::Relaxed) as usize % 3 % 2).await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(caller) = callers.join_next().await {
        caller.expect("nothing is wrong");
    }
    for cluster in clusters.iter() {
        cluster.touch().await;
    }
    let began = Instant::now();
    while clusters.iter().map(DelegateCluster::known).sum::<usize>() > 0 {
        let known: Vec<usize> = clusters.iter().map(DelegateCluster::known).collect();
        assert!(began.elapsed() < HANG, "calls and requests that are still known: {known:?}");
        // The state expires after a time, without an event.
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_calls_leave_no_state() {
    if !crate::alone("soak::ended_calls_leave_no_state") {
        return;
    }
    let seconds = std::env::var("PATHCALL_SOAK_S").ok().map(|text| text.parse().expect("seconds")).unwrap_or(4);
    let time = Duration::from_secs(seconds);
    let mut clusters = vec![DelegateCluster::new(Transport::Flows).await, DelegateCluster::new(Transport::Tcp).await];
    let tally = Arc::default();
    run(&mut clusters, time / 2, 1, &tally).await;
    let warm = ResourceUse::now();
    run(&mut clusters, time / 2, 2, &tally).await;
    let mut end = ResourceUse::now();
    // Connections of dead servers and cancelled tasks take a moment to end.
    let began = Instant::now();
    let flat = |end: ResourceUse| end.descriptors <= warm.descriptors + SLACK && end.tasks <= warm.tasks + SLACK;
    while !flat(end) && began.elapsed() < HANG {
        sleep(Duration::from_millis(20)).await;
        end = ResourceUse::now();
    }
    println!("{tally:?}\nwarm {warm:?}\nend  {end:?}");
    assert!(flat(end), "warm {warm:?}, in the end {end:?}");
    assert!(end.memory < warm.memory + SLACK_BYTES, "warm {warm:?}, in the end {end:?}");
}
