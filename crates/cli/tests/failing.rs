//! Elements and controllers that are killed while calls run: every sum stays exact, and the element
//! takes part again when it is back.

use std::io::{BufRead, BufReader, Read, Seek};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pathcall_proto::manifest::{Ack, Manifest, Method};
use pathcall_rpc::{Channel, Server};
use pathcall_test_support::service::{Running, counts, gradient, str_int, until};
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use pathcall_test_support::wall::Wall;

use crate::apart::{LIMIT, free_port};

const CALLERS: u64 = 2;

/// A process that is killed when it is dropped, as by `kill -9`.
struct Process(Child);

impl Process {
    /// Starts it, and waits until it says that it is ready.
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(crate::PATHCALL);
        let mut says = tempfile::tempfile().expect("a file");
        let stderr = says.try_clone().expect("another handle");
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("the command is built");
        let mut ready = String::new();
        let stdout = child.stdout.take().expect("piped");
        let process = Self(child);
        BufReader::new(stdout).read_line(&mut ready).expect("a line");
        if !ready.starts_with("ready") {
            let mut why = String::new();
            says.rewind().and_then(|()| says.read_to_string(&mut why)).expect("what it said");
            panic!("{args:?}: {ready:?} {why}");
        }
        process
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("a child of ours");
    }
}

/// A controller and an element at addresses that stay the same.
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

/// `authenticate`: frames carry tokens, whose key has to survive as well.
async fn server(network: &Network, authenticate: bool) -> Running {
    let builder = Server::builder(&PATHCALL).controller(network.url()).authenticate_frames(authenticate);
    // Its ports are free on the address of a wall before it.
    let builder = builder.data_address(([127, 0, 0, 1], 0).into());
    let running = Running::start_with(builder.build().await.expect("the controller is there"), 0).await;
    until(|| running.pathcall.stats().iter().all(|app| !app.name.is_empty())).await;
    running
}

/// Which processes are killed and started again.
#[derive(Clone, Copy, PartialEq)]
enum Victim {
    Element,
    Both,
    /// The controller, with all that it has kept.
    Store,
}

/// Kills and restarts while calls go on, twice; each step waits for calls, not for time.
async fn havoc(network: &mut Network, victim: Victim, done: &AtomicU64) {
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
            Victim::Store => std::fs::remove_file(network.store_file()).expect("the controller has written it"),
            Victim::Element | Victim::Both => network.element = None,
        }
        // Calls get through without them, or wait until they are back: either is fine.
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

/// Whether the element has worked on more lanes of the application than it had.
fn element_works(channel: &Channel, app: &str, before: u64) -> bool {
    let stats = channel.stats();
    stats.applications.iter().any(|a| a.name == app && a.map.lanes_element > before)
}

async fn adding_goes_on(victim: Victim) {
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
            // Until told to stop, and then until the element has worked again.
            loop {
                let pairs: Vec<(&str, i64)> = keys.iter().map(|key| (key.as_str(), 1 + caller as i64)).collect();
                words.reduce(counts(&pairs, "")).await.expect("a failure costs time only");
                calls += 1;
                done.fetch_add(1, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) > 0 {
                    let stats = channel.stats();
                    let now: u64 = stats.applications.iter().map(|app| app.map.lanes_element).sum();
                    if *lanes.get_or_insert(now) < now {
                        // What the element alone has would be lost with it: a controller that forgets may empty it now.
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
    havoc(&mut network, victim, &done).await;
    until(|| running.pathcall.stats().iter().any(|app| app.name == "T-WORDS" && app.element)).await;
    stop.store(1, Ordering::Relaxed);
    let mut expected = 0;
    for caller in callers {
        let (sum, joins) = caller.await.expect("no panic");
        assert_eq!(joins, 1, "nobody lost its place");
        expected += sum;
    }
    let mut words = WordsClient::new(running.channel().await);
    let keys: Vec<String> = (0..100).map(|key| format!("key {key}")).collect();
    let keys: Vec<(&str, i64)> = keys.iter().map(|key| (key.as_str(), 0)).collect();
    let wanted = Wanted { keys: Some(str_int(&keys)), ..Wanted::default() };
    let found = words.query(wanted).await.expect("nothing is lost").into_inner();
    let found = found.kvs.expect("values").map;
    assert_eq!(found.len(), 100);
    assert!(found.values().all(|value| *value == expected), "expected {expected} each: {found:?}");
}

async fn summing_goes_on(victim: Victim) {
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
                let sums = training.update(gradient(&part)).await.expect("a failure costs time only").into_inner();
                let expected = (0..1000).map(|i| (3 * i + 2 * (call % 1000)) as f64);
                assert!(sums.tensor.expect("sums").data.into_iter().eq(expected), "call {call}");
                call += 1;
                done.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    havoc(&mut network, victim, &done).await;
    let lanes = |channel: &Channel| channel.stats().applications.iter().map(|app| app.map.lanes_element).sum::<u64>();
    let before = channels.each_ref().map(lanes);
    until(|| channels.iter().zip(before).all(|(channel, before)| element_works(channel, "T-SUM", before))).await;
    // Neither has made so many calls already.
    stop.store(done.load(Ordering::Relaxed) / CALLERS + 400, Ordering::SeqCst);
    for caller in callers {
        caller.await.expect("every sum is right");
    }
}

/// A caller that closes leaves nothing behind in the element that could be lost with it.
async fn closing_leaves_nothing_behind() {
    let mut network = Network::start();
    let running = server(&network, false).await;
    let channel = running.channel().await;
    let mut words = WordsClient::new(channel.clone());
    // The first addition learns where the key is.
    while !element_works(&channel, "T-WORDS", 0) {
        words.reduce(counts(&[("a", 1)], "")).await.expect("the element is there");
    }
    let calls: u64 = channel.stats().applications.iter().map(|app| app.map.calls).sum();
    channel.close().await.expect("the server confirms");
    until(|| running.pathcall.stats().iter().all(|app| app.members == 0)).await;
    network.element = None;
    until(|| running.pathcall.stats().iter().all(|app| app.name != "T-WORDS" || !app.element)).await;
    let wanted = Wanted { keys: Some(str_int(&[("a", 0)])), ..Wanted::default() };
    let found = words.query(wanted).await.expect("nothing is lost").into_inner();
    assert_eq!(found.kvs, Some(str_int(&[("a", calls as i64)])));
}

/// A caller that closes when the element has just failed hears of it while it closes: it repeats what
/// only the element had, and the server confirms.
async fn closing_outlives_the_element() {
    let mut network = Network::start();
    let running = server(&network, false).await;
    let channel = running.channel().await;
    let mut words = WordsClient::new(channel.clone());
    while !element_works(&channel, "T-WORDS", 0) {
        words.reduce(counts(&[("a", 1)], "")).await.expect("the element is there");
    }
    let calls: u64 = channel.stats().applications.iter().map(|app| app.map.calls).sum();
    network.element = None;
    channel.close().await.expect("the server confirms");
    let wanted = Wanted { keys: Some(str_int(&[("a", 0)])), ..Wanted::default() };
    let found = words.query(wanted).await.expect("nothing is lost").into_inner();
    assert_eq!(found.kvs, Some(str_int(&[("a", calls as i64)])));
}

/// A caller that UDP is cut off from while the element works for it: what the element has applied of
/// it and could not say counts once, and another caller is not disturbed.
async fn a_caller_is_cut_off(to_server: bool) {
    let network = Network::start();
    let running = server(&network, false).await;
    let wall = Wall::before(&running).await;
    let (behind, before) = (wall.channel().await, running.channel().await);
    let stop = Arc::new(AtomicU64::new(0));
    let adding = |channel: Channel, stop: Arc<AtomicU64>| async move {
        let mut words = WordsClient::new(channel.clone());
        let keys: Vec<String> = (0..100).map(|key| format!("key {key}")).collect();
        let pairs: Vec<(&str, i64)> = keys.iter().map(|key| (key.as_str(), 1)).collect();
        let mut calls = 0;
        while stop.load(Ordering::Relaxed) == 0 {
            words.reduce(counts(&pairs, "")).await.expect("it costs time only");
            calls += 1;
        }
        calls
    };
    let callers = [behind.clone(), before.clone()].map(|channel| tokio::spawn(adding(channel, Arc::clone(&stop))));
    until(|| element_works(&behind, "T-WORDS", 0) && element_works(&before, "T-WORDS", 0)).await;
    wall.blocked.set(to_server, true);
    let carried = || behind.stats().applications.iter().map(|app| app.carried.frames_in).sum::<u64>();
    until(|| carried() > 200).await;
    stop.store(1, Ordering::Relaxed);
    let mut expected = 0;
    for caller in callers {
        expected += caller.await.expect("no panic");
    }
    assert!(behind.stats().applications.iter().all(|app| app.joins <= 1));
    let wanted = Wanted { keys: Some(str_int(&[("key 7", 0), ("key 99", 0)])), ..Wanted::default() };
    let found = WordsClient::new(behind).query(wanted).await.expect("nothing is lost").into_inner();
    assert_eq!(found.kvs, Some(str_int(&[("key 7", expected), ("key 99", expected)])));
}

/// The stubs' manifest, with additions that the server acknowledges.
fn acknowledged_by_server() -> &'static Manifest {
    let methods = PATHCALL.methods.iter().map(|method| Method { ack: Ack::Server, ..*method });
    let methods: Vec<Method> = methods.collect();
    Box::leak(Box::new(Manifest { methods: methods.leak(), ..PATHCALL }))
}

/// Calls that the server acknowledges share its commits, and need no caller once they are done.
async fn the_server_acknowledges() {
    let mut network = Network::start();
    let running = server(&network, false).await;
    let channel = Channel::connect(running.uri(), acknowledged_by_server()).await.expect("connects");
    let mut calls = 0;
    while !element_works(&channel, "T-WORDS", 0) {
        let callers = (0..20).map(|_| {
            let mut words = WordsClient::new(channel.clone());
            tokio::spawn(async move { words.reduce(counts(&[("a", 1), ("b", 2)], "")).await })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.expect("no panic").expect("the server has it");
            calls += 1;
        }
    }
    network.element = None;
    let wanted = Wanted { keys: Some(str_int(&[("a", 0), ("b", 0)])), ..Wanted::default() };
    let found = WordsClient::new(channel).query(wanted).await.expect("nothing is lost").into_inner();
    assert_eq!(found.kvs, Some(str_int(&[("a", calls), ("b", 2 * calls)])));
}

#[tokio::test]
async fn additions_that_the_server_acknowledges() {
    tokio::time::timeout(LIMIT, the_server_acknowledges()).await.expect("it ends");
}

#[tokio::test]
async fn keys_survive_that_answers_are_cut() {
    tokio::time::timeout(LIMIT, a_caller_is_cut_off(false)).await.expect("it ends");
}

#[tokio::test]
async fn keys_survive_that_udp_is_cut() {
    tokio::time::timeout(LIMIT, a_caller_is_cut_off(true)).await.expect("it ends");
}

#[tokio::test]
async fn what_was_closed_survives_the_element() {
    tokio::time::timeout(LIMIT, closing_leaves_nothing_behind()).await.expect("it ends");
}

#[tokio::test]
async fn closing_survives_the_element() {
    tokio::time::timeout(LIMIT, closing_outlives_the_element()).await.expect("it ends");
}

#[tokio::test]
async fn keys_survive_the_element() {
    tokio::time::timeout(LIMIT, adding_goes_on(Victim::Element)).await.expect("it ends");
}

#[tokio::test]
async fn keys_survive_element_and_controller() {
    tokio::time::timeout(LIMIT, adding_goes_on(Victim::Both)).await.expect("it ends");
}

#[tokio::test]
async fn keys_survive_a_controller_that_forgets() {
    tokio::time::timeout(LIMIT, adding_goes_on(Victim::Store)).await.expect("it ends");
}

#[tokio::test]
async fn sums_survive_a_controller_that_forgets() {
    tokio::time::timeout(LIMIT, summing_goes_on(Victim::Store)).await.expect("it ends");
}

#[tokio::test]
async fn sums_survive_the_element() {
    tokio::time::timeout(LIMIT, summing_goes_on(Victim::Element)).await.expect("it ends");
}

#[tokio::test]
async fn sums_survive_element_and_controller() {
    tokio::time::timeout(LIMIT, summing_goes_on(Victim::Both)).await.expect("it ends");
}
