//! Honest callers, which check each of their answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pathcall_rpc::Channel;
use pathcall_rpc::channel::stats::ChannelStats;
use pathcall_test_support::service::{counts, gradient, names, note, str_int};
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::store_client::StoreClient;
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{PATHCALL, Wanted, Wish};
use tokio::task::JoinSet;

use super::network::{HONEST, Network, by};

const CALLERS: u64 = 2;
/// Values of one sum.
const VALUES: u64 = 300;
/// Keys that all callers add to.
const KEYS: u64 = 20;
/// Calls of each caller and ability after which they count as served again.
const AGAIN: u64 = 2;
/// Pause between two calls, which leaves time for the hostile client.
const PAUSE: Duration = Duration::from_millis(2);
const FENCING_TOKEN: &str = "pathcall-fencing-token";

/// All honest callers.
pub(super) struct Honest {
    shared: Arc<Shared>,
    channels: Vec<Channel>,
    tasks: JoinSet<()>,
    /// Number of memberships.
    members: usize,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Completed calls, by caller and ability.
    done: Mutex<BTreeMap<(u64, &'static str), u64>>,
    /// Number of sums that either worker has begun; the other worker contributes to them, too.
    sums: Mutex<u64>,
    /// True while a caller has the lock; and the token of the last grant.
    held: AtomicBool,
    token: AtomicU64,
}

impl Shared {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// True if a sum with this number must be made.
    fn sums(&self, number: u64) -> bool {
        let mut begun = self.sums.lock().expect("the task succeeds");
        if number == *begun && !self.stops() {
            *begun += 1;
        }
        number < *begun
    }

    async fn done(&self, caller: u64, what: &'static str) {
        *self.done.lock().expect("the task succeeds").entry((caller, what)).or_default() += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

impl Honest {
    pub(super) async fn start(network: &Network) -> Self {
        let shared = Arc::<Shared>::default();
        let (mut channels, mut tasks) = (Vec::new(), JoinSet::new());
        for caller in 0..CALLERS {
            // All frames pass the relay, so no shared memory.
            let builder = Channel::builder(network.url(), &PATHCALL).expect("an address").shared_memory(false);
            let channel = builder.connect().await.expect("connects");
            channels.push(channel.clone());
            let (of, by) = (|| Arc::clone(&shared), || channel.clone());
            tasks.spawn(words(of(), by(), caller));
            tasks.spawn(sums(of(), by(), caller));
            tasks.spawn(locks(of(), by(), caller));
            tasks.spawn(cloned(of(), by(), caller));
            tasks.spawn(delegated(of(), by(), caller));
        }
        let mut honest = Self { shared, channels, tasks, members: 0 };
        honest.served_again().await;
        honest.members = network.members();
        honest
    }

    pub(super) fn members(&self) -> usize {
        self.members
    }

    pub(super) fn stats(&self) -> impl Iterator<Item = ChannelStats> {
        self.channels.iter().map(Channel::stats)
    }

    /// Waits until each caller completed some more calls of each ability.
    pub(super) async fn served_again(&self) {
        let done = || self.shared.done.lock().expect("the task succeeds").clone();
        let before = done();
        let so = || {
            let now = done();
            let all = now.len() as u64 == 5 * CALLERS;
            all && now.iter().all(|(of, calls)| *calls >= before.get(of).copied().unwrap_or_default() + AGAIN)
        };
        super::until("an honest caller is not served", so).await;
    }

    /// Stops the callers, and checks the final values.
    pub(super) async fn end(mut self, network: &Network) {
        self.shared.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("correct answers");
        }
        let done = self.shared.done.lock().expect("the task succeeds").clone();
        println!("honest calls: {done:#?}");
        let added: u64 = (0..CALLERS).map(|caller| done[&(caller, "words")] * (caller + 1)).sum();
        let keys: Vec<String> = (0..KEYS).map(|key| format!("key {key}")).collect();
        let keys: Vec<(&str, i64)> = keys.iter().map(|key| (key.as_str(), 0)).collect();
        let wanted = Wanted { keys: Some(str_int(&keys)), ..Wanted::default() };
        let channel = Channel::connect(network.url(), &PATHCALL).await.expect("connects");
        let found = WordsClient::new(channel).query(by(HONEST, wanted)).await.expect("query answer").into_inner();
        let found = found.kvs.expect("values").map;
        assert!(found.values().all(|value| *value == added as i64), "expected {added} each: {found:?}");
        for channel in &self.channels {
            let stats = channel.stats();
            assert!(stats.applications.iter().all(|app| app.joins <= 1), "a member was dropped: {stats:?}");
            assert!(
                stats.applications.iter().any(|app| app.map.lanes_element > 0),
                "the element was not used: {stats:?}"
            );
        }
    }
}

/// Adds to shared keys, and to one of the caller's own, which it reads.
async fn words(shared: Arc<Shared>, channel: Channel, caller: u64) {
    let mut words = WordsClient::new(channel);
    let (own, each) = (format!("own of {caller}"), 1 + caller as i64);
    let keys: Vec<String> = (0..KEYS).map(|key| format!("key {key}")).collect();
    let pairs: Vec<(&str, i64)> = keys.iter().chain([&own]).map(|key| (key.as_str(), each)).collect();
    for call in 1.. {
        words.reduce(by(HONEST, counts(&pairs, ""))).await.expect("added");
        let wanted = Wanted { keys: Some(str_int(&[(&own, 0)])), ..Wanted::default() };
        let found = words.query(by(HONEST, wanted)).await.expect("read").into_inner();
        assert_eq!(found.kvs, Some(str_int(&[(&own, each * call)])), "each addition once");
        shared.done(caller, "words").await;
        if shared.stops() {
            return;
        }
    }
}

async fn sums(shared: Arc<Shared>, channel: Channel, caller: u64) {
    let mut training = TrainingClient::new(channel);
    for call in 0.. {
        if !shared.sums(call) {
            return;
        }
        let part: Vec<f64> = (0..VALUES).map(|i| (i * (caller + 1) + call % 1000) as f64).collect();
        let sums = training.update(by(HONEST, gradient(&part))).await.expect("summed").into_inner();
        let expected = (0..VALUES).map(|i| (3 * i + 2 * (call % 1000)) as f64);
        assert!(sums.tensor.expect("sums").data.into_iter().eq(expected), "sum {call} of caller {caller}");
        shared.done(caller, "sums").await;
    }
}

/// Takes and releases a lock that both callers want.
async fn locks(shared: Arc<Shared>, channel: Channel, caller: u64) {
    let mut locks = LocksClient::new(channel);
    while !shared.stops() {
        let taken = locks.lock(by(HONEST, names(&["the lock"], ""))).await.expect("taken");
        assert!(!shared.held.swap(true, Ordering::SeqCst), "the lock was granted twice");
        let token = taken.metadata().get(FENCING_TOKEN).and_then(|token| token.to_str().ok()?.parse().ok());
        let token: u64 = token.expect("a token");
        assert!(shared.token.swap(token, Ordering::SeqCst) < token, "fencing tokens must increase");
        tokio::task::yield_now().await;
        shared.held.store(false, Ordering::SeqCst);
        locks.release(by(HONEST, names(&["the lock"], ""))).await.expect("released");
        shared.done(caller, "locks").await;
    }
}

async fn cloned(shared: Arc<Shared>, channel: Channel, caller: u64) {
    let mut store = StoreClient::new(channel);
    for call in 0.. {
        // Every tenth request has several frames.
        let text = format!("call {call} of {caller}{}", if call % 10 == 0 { "y".repeat(5000) } else { String::new() });
        let reply = store.get(by(HONEST, note(&text))).await.expect("answered").into_inner();
        assert_eq!(reply.text, text);
        shared.done(caller, "cloned").await;
        if shared.stops() {
            return;
        }
    }
}

async fn delegated(shared: Arc<Shared>, channel: Channel, caller: u64) {
    let mut docs = DocsClient::new(channel);
    for call in 0.. {
        let names: BTreeSet<String> = (0..4).map(|i| format!("document {i} of call {call} of {caller}")).collect();
        let wish = Wish { names: names.iter().cloned().collect() };
        let mut replies = docs.lookup(by(HONEST, wish)).await.expect("begun").into_inner();
        let mut found = Vec::new();
        while let Some(reply) = replies.message().await.expect("the stream ends with OK") {
            found.push(reply.text);
        }
        found.sort();
        assert!(found.iter().eq(&names), "each document once: {found:?}, of {names:?}");
        shared.done(caller, "delegated").await;
        if shared.stops() {
            return;
        }
    }
}
