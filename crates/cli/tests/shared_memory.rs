//! Tests of shared memory between an element in a separate process and callers on its host: the same results as by UDP
//! and in software, and nothing left of killed callers.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::{StatusReply, StatusRequest};
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::service::{TestServer, counts, gradient, names, str_int};
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use tokio::task::JoinSet;

use crate::isolation::LIMIT;

/// Variable with the server's address, for a caller that is to be killed.
const SERVER: &str = "PATHCALL_TEST_SERVER";
const WORKERS: u64 = 2;
const CALLS: u64 = 30;

/// Process that is killed on drop, as by `kill -9`.
struct Process(Child, BufReader<ChildStdout>);

impl Process {
    fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("built");
        let stdout = child.stdout.take().expect("piped");
        Self(child, BufReader::new(stdout))
    }

    /// Rest of the next line that begins with `beginning`.
    fn read_rest_of_line(&mut self, beginning: &str) -> String {
        for line in self.1.by_ref().lines() {
            if let Some(printed) = line.expect("text").split_once(beginning) {
                return printed.1.to_owned();
            }
        }
        panic!("the process ended without the line {beginning:?}");
    }

    /// Starts controller and element. Returns the URL of the controller.
    fn network(options: &[&str]) -> (Self, String) {
        let free = "127.0.0.1:0";
        let mut command = Command::new(crate::PATHCALL);
        command.args(["up", "--listen", free, "--data", free, "--control", free]).args(options);
        let mut process = Self::start(command);
        let url = process.read_rest_of_line("ready: controller at ").split(',').next().expect("an address").to_owned();
        (process, url)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("child process");
    }
}

async fn status(controller: &str) -> StatusReply {
    let mut client = ControllerClient::connect(controller.to_owned()).await.expect("connection to the service");
    client.status(StatusRequest {}).await.expect("an answer").into_inner()
}

/// Element-wide counter.
async fn counter(controller: &str, name: &str) -> u64 {
    let status = status(controller).await;
    status.elements[0].counters.as_ref().expect("the element answers").element[name]
}

async fn server(controller: Option<&str>, shared_memory: bool) -> TestServer {
    let mut builder = Layer::builder(&PATHCALL).shared_memory(shared_memory);
    if let Some(controller) = controller {
        builder = builder.controller(controller);
    }
    TestServer::start_with(builder.build().await.expect("the controller answers"), 0).await
}

async fn channel(server: &TestServer, shared_memory: bool) -> Channel {
    let builder = Channel::builder(server.uri(), &PATHCALL).expect("an address");
    builder.shared_memory(shared_memory).connect().await.expect("connects")
}

/// Results of workers for all kinds of calls, and their channels.
async fn results(server: &TestServer, shared_memory: bool) -> (Vec<Vec<f64>>, Vec<Channel>) {
    let mut channels = Vec::new();
    let workers = (0..WORKERS).map(async |worker| {
        let channel = channel(server, shared_memory).await;
        let mut words = WordsClient::new(channel.clone());
        let mut training = TrainingClient::new(channel.clone());
        let mut locks = LocksClient::new(channel.clone());
        let keys: Vec<String> = (0..200).map(|key| format!("key {key}")).collect();
        let mut got = Vec::new();
        for call in 0..CALLS {
            let part: Vec<f64> = (0..900).map(|i| (i * (worker + 1) + call) as f64 / 8.0).collect();
            let sums = training.update(gradient(&part)).await.expect("summed").into_inner();
            got.push(sums.tensor.expect("sums").data);
            let pairs: Vec<(&str, i64)> = keys.iter().map(|key| (key.as_str(), 3 + worker as i64)).collect();
            words.reduce(counts(&pairs, "")).await.expect("added");
            let own = format!("lock of {worker}");
            locks.lock(names(&[&own], "")).await.expect("taken");
            locks.release(names(&[&own], "")).await.expect("released");
        }
        (got.concat(), channel)
    });
    let mut results = Vec::new();
    for (got, channel) in futures(workers).await {
        results.push(got);
        channels.push(channel);
    }
    let mut words = WordsClient::new(channels[0].clone());
    let keys: Vec<String> = (0..200).map(|key| format!("key {key}")).collect();
    let pairs: Vec<(&str, i64)> = keys.iter().map(|key| (key.as_str(), 0)).collect();
    let found = words.query(Wanted { keys: Some(str_int(&pairs)), ..Wanted::default() }).await.expect("an answer");
    let found = found.into_inner().kvs.expect("values").map;
    results.push(keys.iter().map(|key| found[key] as f64).collect());
    (results, channels)
}

/// Runs all futures concurrently.
async fn futures<T>(work: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut work: Vec<_> = work.collect();
    let (Some(second), Some(first), true) = (work.pop(), work.pop(), work.is_empty()) else { panic!("two workers") };
    let (first, second) = tokio::join!(first, second);
    vec![first, second]
}

#[tokio::test(flavor = "multi_thread")]
async fn results_match_by_shared_memory_udp_and_software() {
    let play = async {
        let (expected, _) = results(&server(None, true).await, true).await;
        // Options of the element, shared memory of the hosts, and whether it is used.
        let cases: [(&[&str], bool, bool); 3] =
            [(&[], true, true), (&[], false, false), (&["--no-shared-memory"], true, false)];
        for (options, wanted, shared) in cases {
            let (_network, controller) = Process::network(options);
            let server = server(Some(&controller), wanted).await;
            let (got, channels) = results(&server, wanted).await;
            assert!(got == expected, "{options:?}, {wanted}");
            let mut locks = LocksClient::new(channels[0].clone());
            loop {
                let [all, rings] =
                    [counter(&controller, "link_frames_in").await, counter(&controller, "link_ring_frames_in").await];
                let lost = counter(&controller, "link_rings_broken").await;
                assert!(all > 500 && lost == 0 && (rings == 0) != shared, "{rings} of {all}");
                // Frames use UDP until both ends have mapped the memory, which takes a while on a busy machine.
                if !shared || rings > all * 9 / 10 {
                    break;
                }
                locks.lock(names(&["one more"], "")).await.expect("taken");
                locks.release(names(&["one more"], "")).await.expect("released");
            }
            // Server and callers have one more endpoint each in their pool; an endpoint counts as sharing once its
            // memory is mapped.
            until_shared(&controller, if shared { 1 + WORKERS as usize } else { 0 }).await;
            drop(channels);
        }
    };
    tokio::time::timeout(LIMIT, play).await.expect("the test finishes in time");
}

/// Waits until owners and callers of the three called applications share memory with the element, and `besides` further
/// endpoints. With `besides` 0, waits until no endpoint shares memory.
async fn until_shared(controller: &str, besides: usize) {
    loop {
        let status = status(controller).await;
        let called = status.applications.iter().filter(|app| app.endpoints.len() > 1);
        let endpoints: Vec<u32> =
            called.flat_map(|app| app.endpoints.iter().map(|endpoint| endpoint.endpoint)).collect();
        let sharing = &status.elements[0].counters.as_ref().expect("counters").shared_memory;
        assert_eq!(endpoints.len(), 3 * (1 + WORKERS as usize));
        if besides == 0 {
            return assert_eq!(sharing.len(), 0, "{sharing:?}");
        }
        if sharing.len() == endpoints.len() + besides && endpoints.iter().all(|one| sharing.contains(one)) {
            return;
        }
        // The controller is polled: it sends no notifications.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_callers_leave_no_ring() {
    let play = async {
        let (_network, controller) = Process::network(&[]);
        let server = server(Some(&controller), true).await;
        let channel = channel(&server, true).await;
        let mut words = WordsClient::new(channel.clone());
        let mut added = 0;
        let mut rings = None;
        for victim in 0..6 {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command
                .args(["--exact", "shared_memory::child_caller", "--ignored", "--nocapture"])
                .env(SERVER, server.uri());
            let mut victim_process = Process::start(command);
            for _ in 0..=victim * 7 {
                victim_process.read_rest_of_line("called");
                words.reduce(counts(&[("mine", 1)], "")).await.expect("added");
                added += 1;
            }
            // The first calls may use UDP.
            while counter(&controller, "link_rings").await <= rings.unwrap_or_default() {}
            drop(victim_process);
            // The element detects the end at once, by the socket between them.
            let mut left = counter(&controller, "link_rings").await;
            while rings.is_some_and(|rings| left > rings) {
                left = counter(&controller, "link_rings").await;
            }
            rings = rings.or(Some(expected_rings(&controller, &server).await));
        }
        let wanted = Wanted { keys: Some(str_int(&[("mine", 0)])), ..Wanted::default() };
        let found = words.query(wanted).await.expect("an answer").into_inner().kvs.expect("values");
        assert_eq!(found.map["mine"], added);
        assert!(counter(&controller, "link_rings_agreed").await >= 6 + rings.unwrap_or_default());
    };
    tokio::time::timeout(LIMIT, play).await.expect("the test finishes in time");
}

/// Callers that stop polling at any moment, beside one that never polls: a caller that stops must ask to be woken, or
/// its answer would come only with the next repeat.
#[tokio::test(flavor = "multi_thread")]
async fn caller_that_stops_polling_is_woken() {
    let play = async {
        let (_network, controller) = Process::network(&[]);
        let server = server(Some(&controller), true).await;
        for look_us in [0, 1, 3, 10, 50] {
            let builder = Channel::builder(server.uri(), &PATHCALL).expect("an address");
            let channel = builder.busy_poll(Duration::from_micros(look_us)).connect().await.expect("connects");
            // A busy machine delays answers beyond the repeat timeout, but not each time.
            let mut before = 0;
            while let Some(repeats) = calls_repeated(&channel, look_us, &mut before).await {
                println!("{look_us} us: {repeats} repeats of 1200 calls");
            }
        }
        assert!(counter(&controller, "link_ring_frames_in").await > 5 * 1000);
    };
    tokio::time::timeout(LIMIT, play).await.expect("answers arrive only after repeats");
}

/// Makes calls of two callers. Returns the number of repeats if it is high.
async fn calls_repeated(channel: &Channel, look_us: u64, before: &mut u64) -> Option<u64> {
    let mut callers = JoinSet::new();
    for caller in 0..2 {
        let mut locks = LocksClient::new(channel.clone());
        callers.spawn(async move {
            let own = format!("lock {look_us} of {caller}");
            for _ in 0..300 {
                locks.lock(names(&[&own], "")).await.expect("taken");
                locks.release(names(&[&own], "")).await.expect("released");
            }
        });
    }
    callers.join_all().await;
    let stats = channel.stats();
    let map = &stats.applications.iter().find(|application| application.joins > 0).expect("joined").map;
    assert!(map.calls >= 1200, "{look_us} us: {map:?}");
    let repeats = map.retransmits - std::mem::replace(before, map.retransmits);
    (repeats >= 1200 / 4).then_some(repeats)
}

/// Expected number of rings when only this process is left: one for each of its endpoints.
async fn expected_rings(controller: &str, server: &TestServer) -> u64 {
    loop {
        // Owners of applications whose first caller has come, and the one caller here; both are in their pool, too.
        let owners = server.pathcall.stats().iter().filter(|application| application.element).count() as u64;
        let rings = counter(controller, "link_rings").await;
        if rings == owners + 1 + 2 {
            return rings;
        }
    }
}

/// Child process that adds without end.
#[tokio::test]
#[ignore = "what another test starts and kills"]
async fn child_caller() {
    let Ok(server) = std::env::var(SERVER) else { panic!("{SERVER} is not set") };
    let channel = Channel::connect(server, &PATHCALL).await.expect("connects");
    let mut words = WordsClient::new(channel);
    loop {
        let keys: Vec<String> = (0..500).map(|key| format!("theirs {key}")).collect();
        let pairs: Vec<(&str, i64)> = keys.iter().map(|key| (key.as_str(), 1)).collect();
        words.reduce(counts(&pairs, "")).await.expect("added");
        println!("called");
    }
}
