//! Tests that kill elements and controllers during calls: every sum stays exact, and the element is used again after
//! its restart.

use std::io::{BufRead, BufReader, Read, Seek};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pathcall_proto::manifest::{Ack, Manifest, Method};
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::service::{TestServer, counts, gradient, str_int, until};
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use pathcall_test_support::udp_blocker::UdpBlocker;

use crate::isolation::{LIMIT, free_port};

const CALLERS: u64 = 2;

/// Process that is killed on drop, as by `kill -9`.
struct Process(Child);

impl Process {
    /// Starts the process and waits until it reports `ready`.
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(crate::PATHCALL);
        let mut stderr_file = tempfile::tempfile().expect("a file");
        let stderr = stderr_file.try_clone().expect("another handle");
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("the command is built");
        let mut ready = String::new();
        let stdout = child.stdout.take().expect("piped");
        let process = Self(child);
        BufReader::new(stdout).read_line(&mut ready).expect("a line");
        if !ready.starts_with("ready") {
            let mut why = String::new();
            stderr_file.rewind().and_then(|()| stderr_file.read_to_string(&mut why)).expect("the error output");
            panic!("{args:?}: {ready:?} {why}");
        }
        process
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("child process");
    }
}

/// Controller and element at fixed addresses.
struct Network {
    controller: Option<Process>,
    element: Option<Process>,
    store: tempfile::TempDir,
    ports: [u16; 3],
}

impl Network {
    fn start() -> Self {
        let ports = [(); 3].map(|()| free_port());
        let store = tempfile::tempdir().expect("a folder");
        let mut network = Self { controller: None, element: None, store, ports };
        network.start_controller();
        network.start_element();
        network
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    fn store_file(&self) -> PathBuf {
        self.store.path().join("store.redb")
    }

    fn start_controller(&mut self) {
        let listen = format!("127.0.0.1:{}", self.ports[0]);
        let store = self.store_file();
        let store = store.to_str().expect("a plain path");
        self.controller = Some(Process::start(&["controller", "--listen", &listen, "--store", store]));
    }

    fn start_element(&mut self) {
        let [_, control, data] = self.ports.map(|port| format!("127.0.0.1:{port}"));
        self.element =
            Some(Process::start(&["element", "--controller", &self.url(), "--control", &control, "--data", &data]));
    }
}

/// Starts a server. With `authenticate`, frames carry tokens, whose key has to survive as well.
async fn server(network: &Network, authenticate: bool) -> TestServer {
    let builder = Layer::builder(&PATHCALL).controller(network.url()).authenticate_frames(authenticate);
    // The server's ports are free on another address, so that a UDP blocker in front of it can use them on this one.
    let builder = builder.data_address(([127, 0, 0, 1], 0).into());
    let running = TestServer::start_with(builder.build().await.expect("the controller answers"), 0).await;
    until(|| running.pathcall.stats().iter().all(|app| !app.name.is_empty())).await;
    running
}

/// Processes that are killed and restarted.
#[derive(Clone, Copy, PartialEq)]
enum Victim {
    Element,
    Both,
    /// The controller, including its store.
    Store,
}

/// Kills and restarts processes during calls, twice; each step waits for calls, not for time.
async fn kill_and_restart(network: &mut Network, victim: Victim, done: &AtomicU64) {
    for _ in 0..2 {
        let calls = |n| {
            let goal = done.load(Ordering::Relaxed) + n;
            until(move || done.load(Ordering::Relaxed) >= goal)
        };
        calls(60).await;
        if victim != Victim::Element {
            network.controller = None;
        }
        match victim {
            Victim::Store => std::fs::remove_file(network.store_file()).expect("the store file"),
            Victim::Element | Victim::Both => network.element = None,
        }
        // Calls succeed without the processes or wait for them: both are correct.
        let _ = tokio::time::timeout(Duration::from_millis(500), calls(200)).await;
        if victim != Victim::Element {
            network.start_controller();
        }
        if victim != Victim::Store {
            network.start_element();
        }
        calls(60).await;
    }
}

/// True if the element has processed more than `before` lanes of the application.
fn element_is_used(channel: &Channel, app: &str, before: u64) -> bool {
    let stats = channel.stats();
    stats.applications.iter().any(|a| a.name == app && a.map.lanes_element > before)
}

async fn check_adding_over_kills(victim: Victim) {
    let mut network = Network::start();
    let running = server(&network, victim != Victim::Element).await;
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let callers = (0..CALLERS).map(|caller| {
        let (uri, done, stop) = (running.uri(), Arc::clone(&done), Arc::clone(&stop));
        tokio::spawn(async move {
            let channel = Channel::connect(uri, &PATHCALL).await.expect("connects");
            let mut words = WordsClient::new(channel.clone());
            let keys: Vec<String> = (0..100).map(|key| format!("key {key}")).collect();
            let (mut calls, mut lanes) = (0, None);
            // Until told to stop, and then until the element is used again.
            loop {
                let pairs: Vec<(&str, i64)> = keys.iter().map(|key| (key.as_str(), 1 + caller as i64)).collect();
                words.reduce(counts(&pairs, "")).await.expect("the call succeeds despite failures");
                calls += 1;
                done.fetch_add(1, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) > 0 {
                    let stats = channel.stats();
                    let now: u64 = stats.applications.iter().map(|app| app.map.lanes_element).sum();
                    if *lanes.get_or_insert(now) < now {
                        // A controller without its store may reset registers, so values must not be in the element
                        // alone.
                        channel.close().await.expect("the server confirms");
                        return (
                            calls * (1 + caller as i64),
                            stats.applications.iter().map(|app| app.joins).sum::<u64>(),
                        );
                    }
                }
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    kill_and_restart(&mut network, victim, &done).await;
    until(|| running.pathcall.stats().iter().any(|app| app.name == "T-WORDS" && app.element)).await;
    stop.store(1, Ordering::Relaxed);
    let mut expected = 0;
    for caller in callers {
        let (sum, joins) = caller.await.expect("the task succeeds");
        assert_eq!(joins, 1, "a member was dropped");
        expected += sum;
    }
    let mut words = WordsClient::new(running.channel().await);
    let keys: Vec<String> = (0..100).map(|key| format!("key {key}")).collect();
    let keys: Vec<(&str, i64)> = keys.iter().map(|key| (key.as_str(), 0)).collect();
    let wanted = Wanted { keys: Some(str_int(&keys)), ..Wanted::default() };
    let found = words.query(wanted).await.expect("query answer").into_inner();
    let found = found.kvs.expect("values").map;
    assert_eq!(found.len(), 100);
    assert!(found.values().all(|value| *value == expected), "expected {expected} each: {found:?}");
}

async fn check_summing_over_kills(victim: Victim) {
    let mut network = Network::start();
    let running = server(&network, victim != Victim::Element).await;
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let channels = [running.channel().await, running.channel().await];
    let callers = channels.clone().into_iter().zip(0..CALLERS).map(|(channel, caller)| {
        let (done, stop) = (Arc::clone(&done), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut training = TrainingClient::new(channel);
            let mut call = 0;
            // All workers make the same number of calls.
            while call < stop.load(Ordering::SeqCst) {
                let part: Vec<f64> = (0..1000).map(|i| (i * (caller + 1) + call % 1000) as f64).collect();
                let sums =
                    training.update(gradient(&part)).await.expect("the call succeeds despite failures").into_inner();
                let expected = (0..1000).map(|i| (3 * i + 2 * (call % 1000)) as f64);
                assert!(sums.tensor.expect("sums").data.into_iter().eq(expected), "call {call}");
                call += 1;
                done.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    kill_and_restart(&mut network, victim, &done).await;
    let lanes = |channel: &Channel| channel.stats().applications.iter().map(|app| app.map.lanes_element).sum::<u64>();
    let before = channels.each_ref().map(lanes);
    until(|| channels.iter().zip(before).all(|(channel, before)| element_is_used(channel, "T-SUM", before))).await;
    // No worker has made this many calls yet.
    stop.store(done.load(Ordering::Relaxed) / CALLERS + 400, Ordering::SeqCst);
    for caller in callers {
        caller.await.expect("correct sums");
    }
}

/// A caller that closes leaves no values in the element that could be lost with it.
async fn check_closing_leaves_no_values() {
    let mut network = Network::start();
    let running = server(&network, false).await;
    let channel = running.channel().await;
    let mut words = WordsClient::new(channel.clone());
    // The first addition gets the register of the key.
    while !element_is_used(&channel, "T-WORDS", 0) {
        words.reduce(counts(&[("a", 1)], "")).await.expect("the element answers");
    }
    let calls: u64 = channel.stats().applications.iter().map(|app| app.map.calls).sum();
    channel.close().await.expect("the server confirms");
    until(|| running.pathcall.stats().iter().all(|app| app.members == 0)).await;
    network.element = None;
    until(|| running.pathcall.stats().iter().all(|app| app.name != "T-WORDS" || !app.element)).await;
    let wanted = Wanted { keys: Some(str_int(&[("a", 0)])), ..Wanted::default() };
    let found = words.query(wanted).await.expect("query answer").into_inner();
    assert_eq!(found.kvs, Some(str_int(&[("a", calls as i64)])));
}

/// A caller that closes right after a failure of the element learns of it while closing: it repeats the additions that
/// only the element had, and the server confirms.
async fn check_closing_after_failure() {
    let mut network = Network::start();
    let running = server(&network, false).await;
    let channel = running.channel().await;
    let mut words = WordsClient::new(channel.clone());
    while !element_is_used(&channel, "T-WORDS", 0) {
        words.reduce(counts(&[("a", 1)], "")).await.expect("the element answers");
    }
    let calls: u64 = channel.stats().applications.iter().map(|app| app.map.calls).sum();
    network.element = None;
    channel.close().await.expect("the server confirms");
    let wanted = Wanted { keys: Some(str_int(&[("a", 0)])), ..Wanted::default() };
    let found = words.query(wanted).await.expect("query answer").into_inner();
    assert_eq!(found.kvs, Some(str_int(&[("a", calls as i64)])));
}

/// Cuts UDP off from a caller while the element works for it: additions whose answers are lost count once, and another
/// caller is not disturbed.
async fn check_blocked_caller(to_server: bool) {
    let network = Network::start();
    let running = server(&network, false).await;
    let udp_blocker = UdpBlocker::before(&running).await;
    let (blocked_caller, other_caller) = (udp_blocker.channel().await, running.channel().await);
    let stop = Arc::new(AtomicU64::new(0));
    let adding = |channel: Channel, stop: Arc<AtomicU64>| async move {
        let mut words = WordsClient::new(channel.clone());
        let keys: Vec<String> = (0..100).map(|key| format!("key {key}")).collect();
        let pairs: Vec<(&str, i64)> = keys.iter().map(|key| (key.as_str(), 1)).collect();
        let mut calls = 0;
        while stop.load(Ordering::Relaxed) == 0 {
            words.reduce(counts(&pairs, "")).await.expect("the call succeeds despite failures");
            calls += 1;
        }
        calls
    };
    let callers =
        [blocked_caller.clone(), other_caller.clone()].map(|channel| tokio::spawn(adding(channel, Arc::clone(&stop))));
    until(|| element_is_used(&blocked_caller, "T-WORDS", 0) && element_is_used(&other_caller, "T-WORDS", 0)).await;
    udp_blocker.blocked.set(to_server, true);
    let carried = || blocked_caller.stats().applications.iter().map(|app| app.carried.frames_in).sum::<u64>();
    until(|| carried() > 200).await;
    stop.store(1, Ordering::Relaxed);
    let mut expected = 0;
    for caller in callers {
        expected += caller.await.expect("the task succeeds");
    }
    assert!(blocked_caller.stats().applications.iter().all(|app| app.joins <= 1));
    let wanted = Wanted { keys: Some(str_int(&[("key 7", 0), ("key 99", 0)])), ..Wanted::default() };
    let found = WordsClient::new(blocked_caller).query(wanted).await.expect("query answer").into_inner();
    assert_eq!(found.kvs, Some(str_int(&[("key 7", expected), ("key 99", expected)])));
}

/// Manifest of the stubs, with additions that the server acknowledges.
fn acknowledged_by_server() -> &'static Manifest {
    let methods = PATHCALL.methods.iter().map(|method| Method { ack: Ack::Server, ..*method });
    let methods: Vec<Method> = methods.collect();
    Box::leak(Box::new(Manifest { methods: methods.leak(), ..PATHCALL }))
}

/// Calls that the server acknowledges share its commits, and need no caller once they are done.
async fn check_server_acknowledgements() {
    let mut network = Network::start();
    let running = server(&network, false).await;
    let channel = Channel::connect(running.uri(), acknowledged_by_server()).await.expect("connects");
    let mut calls = 0;
    while !element_is_used(&channel, "T-WORDS", 0) {
        let callers = (0..20).map(|_| {
            let mut words = WordsClient::new(channel.clone());
            tokio::spawn(async move { words.reduce(counts(&[("a", 1), ("b", 2)], "")).await })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.expect("the task succeeds").expect("the server has committed the call");
            calls += 1;
        }
    }
    network.element = None;
    let wanted = Wanted { keys: Some(str_int(&[("a", 0), ("b", 0)])), ..Wanted::default() };
    let found = WordsClient::new(channel).query(wanted).await.expect("query answer").into_inner();
    assert_eq!(found.kvs, Some(str_int(&[("a", calls), ("b", 2 * calls)])));
}

#[tokio::test]
async fn server_acknowledged_additions_are_committed() {
    tokio::time::timeout(LIMIT, check_server_acknowledgements()).await.expect("the test finishes in time");
}

#[tokio::test]
async fn keyed_sums_survive_lost_answers() {
    tokio::time::timeout(LIMIT, check_blocked_caller(false)).await.expect("the test finishes in time");
}

#[tokio::test]
async fn keyed_sums_survive_blocked_udp() {
    tokio::time::timeout(LIMIT, check_blocked_caller(true)).await.expect("the test finishes in time");
}

#[tokio::test]
async fn closed_channel_leaves_no_values_in_element() {
    tokio::time::timeout(LIMIT, check_closing_leaves_no_values()).await.expect("the test finishes in time");
}

#[tokio::test]
async fn closing_survives_element_failure() {
    tokio::time::timeout(LIMIT, check_closing_after_failure()).await.expect("the test finishes in time");
}

#[tokio::test]
async fn keyed_sums_survive_element_restarts() {
    tokio::time::timeout(LIMIT, check_adding_over_kills(Victim::Element)).await.expect("the test finishes in time");
}

#[tokio::test]
async fn keyed_sums_survive_element_and_controller_restarts() {
    tokio::time::timeout(LIMIT, check_adding_over_kills(Victim::Both)).await.expect("the test finishes in time");
}

#[tokio::test]
async fn keyed_sums_survive_loss_of_controller_store() {
    tokio::time::timeout(LIMIT, check_adding_over_kills(Victim::Store)).await.expect("the test finishes in time");
}

#[tokio::test]
async fn sums_survive_loss_of_controller_store() {
    tokio::time::timeout(LIMIT, check_summing_over_kills(Victim::Store)).await.expect("the test finishes in time");
}

#[tokio::test]
async fn sums_survive_element_restarts() {
    tokio::time::timeout(LIMIT, check_summing_over_kills(Victim::Element)).await.expect("the test finishes in time");
}

#[tokio::test]
async fn sums_survive_element_and_controller_restarts() {
    tokio::time::timeout(LIMIT, check_summing_over_kills(Victim::Both)).await.expect("the test finishes in time");
}
