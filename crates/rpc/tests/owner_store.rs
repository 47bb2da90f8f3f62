//! Owners whose state is in a store: servers in processes of their own are killed, and standbys take over.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pathcall_proto::manifest::MapPath;
use pathcall_rpc::{Channel, Layer, OwnerStore};
use pathcall_test_support::HANG;
use pathcall_test_support::process::Process;
use pathcall_test_support::service::{TestServer, counts, str_int, until};
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Code;

/// Environment of a server's process: directory of the store, and address.
const DIRECTORY: &str = "PATHCALL_TEST_STORE";
/// Address of etcd, if the store is there.
const ETCD: &str = "PATHCALL_TEST_ETCD";
const ADDRESS: &str = "PATHCALL_TEST_ADDRESS";
const READY: &str = "the server is ready";

/// Server in a process of its own; killed on drop, as by `kill -9`.
struct ServerProcess {
    process: Child,
    ready: tokio::sync::oneshot::Receiver<()>,
}

impl ServerProcess {
    /// Starts a server, or a standby if another one is the owner.
    fn start(directory: &Path, address: SocketAddr, etcd: Option<&str>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("the path of this test"));
        command.args(["--exact", "owner_store::server_process", "--ignored", "--nocapture"]);
        command.env(DIRECTORY, directory).env(ADDRESS, address.to_string());
        command.envs(etcd.map(|etcd| (ETCD, etcd)));
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("starts");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let (sender, ready) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let mut sender = Some(sender);
            for line in lines.map_while(Result::ok) {
                if line.contains(READY)
                    && let Some(sender) = sender.take()
                {
                    let _ = sender.send(());
                }
            }
        });
        Self { process, ready }
    }

    async fn ready(&mut self) {
        timeout(HANG, &mut self.ready).await.expect("in time").expect("the server runs");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).expect("child process");
    }
}

/// No test: a server for the other tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a server for the other tests"]
async fn server_process() {
    let (Ok(directory), Ok(address)) = (std::env::var(DIRECTORY), std::env::var(ADDRESS)) else { return };
    let store = match std::env::var(ETCD) {
        Ok(etcd) => OwnerStore::etcd([etcd], "pathcall-test"),
        Err(_) => OwnerStore::directory(directory),
    };
    let layer = Layer::builder(&PATHCALL).store(store).build().await.expect("builds");
    let _server = TestServer::start_at(layer, address.parse().expect("an address")).await;
    println!("{READY}");
    std::future::pending::<()>().await;
}

/// Address that only one test uses.
fn own_address() -> SocketAddr {
    pathcall_test_support::loopback::own()
}

async fn channel(address: SocketAddr, path: MapPath) -> Channel {
    Channel::builder(format!("http://{address}"), &PATHCALL)
        .expect("a URI")
        .path(path)
        .connect()
        .await
        .expect("connects")
}

async fn value(channel: &Channel, key: &str) -> i64 {
    let wanted = Wanted { keys: Some(str_int(&[(key, 0)])), text: String::new() };
    let found = WordsClient::new(channel.clone()).query(wanted).await.expect("read").into_inner();
    found.kvs.expect("values").map[key]
}

/// Owners are killed twice during additions. All calls complete, and each addition counts once.
async fn kill_owners(etcd: Option<&str>) {
    const CALLERS: usize = 3;
    const CALLS: usize = 120;
    let directory = tempfile::tempdir().expect("a folder");
    let address = own_address();
    let mut owner = ServerProcess::start(directory.path(), address, etcd);
    owner.ready().await;
    let mut standby = ServerProcess::start(directory.path(), address, etcd);
    let long = "key that no frame can carry ".repeat(20);
    let done = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (channel, long, done) = (channel(address, MapPath::Automatic).await, long.clone(), done.clone());
        callers.spawn(async move {
            let mut words = WordsClient::new(channel.clone());
            for call in 0..CALLS {
                let key = format!("key {}", call % 7);
                words.reduce(counts(&[("a", 1), (&key, 10), (&long, 3)], "")).await.expect("added");
                done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
            channel
        });
    }
    let progress = |calls: usize| {
        until({
            let done = done.clone();
            move || done.load(std::sync::atomic::Ordering::SeqCst) >= calls
        })
    };
    for kill in 1..=2 {
        progress(kill * CALLERS * CALLS / 4).await;
        drop(owner);
        standby.ready().await;
        owner = standby;
        standby = ServerProcess::start(directory.path(), address, etcd);
    }
    let channels = timeout(HANG, callers.join_all()).await.expect("in time");
    let total = (CALLERS * CALLS) as i64;
    assert_eq!([value(&channels[0], "a").await, value(&channels[1], &long).await], [total, 3 * total]);
    let joins: u64 = channels.iter().flat_map(|channel| channel.stats().applications).map(|stats| stats.joins).sum();
    assert_eq!(joins, CALLERS as u64, "the sessions have continued");
    // A last owner, and new callers.
    drop((owner, channels));
    standby.ready().await;
    let channel = channel(address, MapPath::Automatic).await;
    assert_eq!([value(&channel, "a").await, value(&channel, &long).await], [total, 3 * total]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_takes_over_and_sums_are_exact() {
    kill_owners(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_takes_over_from_etcd_and_sums_are_exact() {
    let Some((etcd, _process, _data)) = start_etcd() else { return };
    kill_owners(Some(&etcd)).await;
}

/// etcd with an empty store on a free port; `None` if it is not installed.
fn start_etcd() -> Option<(String, Process, tempfile::TempDir)> {
    let data = tempfile::tempdir().expect("a folder");
    let (client, peer) = (own_address(), own_address());
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(data.path()).args([
        "--listen-client-urls",
        &client,
        "--advertise-client-urls",
        &client,
    ]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    let Ok(process) = Process::logging(&mut command, "ready to serve client requests") else {
        assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "etcd is missing: install etcd-server");
        println!("skipped: etcd is missing");
        return None;
    };
    Some((client, process, data))
}

/// A server without callers has the values of its predecessor, and adds to them.
#[tokio::test]
async fn values_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a folder");
    for restart in 1..=3 {
        let store = OwnerStore::directory(directory.path());
        let layer = Layer::builder(&PATHCALL).store(store).build().await.expect("builds");
        assert!(layer.stats().iter().any(|stats| stats.name == "T-WORDS" && stats.stored));
        assert!(layer.stats().iter().any(|stats| stats.name == "T-SUM" && !stats.stored), "a store has no sums");
        let server = TestServer::start_with(layer, 0).await;
        for path in [MapPath::Software, MapPath::Direct] {
            let channel = server_channel(&server, path).await;
            WordsClient::new(channel.clone()).reduce(counts(&[("a", 1)], "")).await.expect("added");
        }
        assert_eq!(value(&server.channel().await, "a").await, 2 * restart);
        server.stop().await;
    }
}

async fn server_channel(server: &TestServer, path: MapPath) -> Channel {
    channel(server.address, path).await
}

/// A caller of a server without a store learns of its loss; one with a store does not lose anything.
#[tokio::test]
async fn restarted_server_with_store_is_no_data_loss() {
    let directory = tempfile::tempdir().expect("a folder");
    let address = own_address();
    for (stored, outcome) in [(false, Err(Code::DataLoss)), (true, Ok(1))] {
        let start = async || {
            let builder = Layer::builder(&PATHCALL);
            let store = OwnerStore::directory(directory.path());
            let builder = if stored { builder.store(store) } else { builder };
            TestServer::start_at(builder.build().await.expect("builds"), address).await
        };
        let server = start().await;
        let channel = channel(address, MapPath::Direct).await;
        let mut words = WordsClient::new(channel.clone());
        words.reduce(counts(&[("a", 1)], "")).await.expect("added");
        server.stop().await;
        let server = start().await;
        let wanted = Wanted { keys: Some(str_int(&[("a", 0)])), text: String::new() };
        let read = words.query(wanted).await;
        assert_eq!(
            read.map(|found| found.into_inner().kvs.expect("values").map["a"]).map_err(|error| error.code()),
            outcome
        );
        drop((words, channel));
        server.stop().await;
    }
}

#[tokio::test]
async fn damaged_store_is_named() {
    let directory = tempfile::tempdir().expect("a folder");
    let build = || Layer::builder(&PATHCALL).store(OwnerStore::directory(directory.path())).build();
    let server = TestServer::start_with(build().await.expect("builds"), 0).await;
    for _ in 0..2 {
        WordsClient::new(server.channel().await).reduce(counts(&[("a", 1)], "")).await.expect("added");
    }
    server.stop().await;
    let folder = directory.path().join("T-WORDS");
    let mut files = std::fs::read_dir(&folder).expect("a folder").filter_map(Result::ok);
    let segment = files.find(|entry| entry.file_name().to_string_lossy().starts_with("log-")).expect("a log");
    let mut bytes = std::fs::read(segment.path()).expect("a log");
    bytes[8] ^= 1;
    std::fs::write(segment.path(), bytes).expect("written");
    let error = build().await.expect_err("damaged").to_string();
    let place = segment.path();
    assert_eq!(
        error,
        format!("the store of T-WORDS failed: the owner's state in {} is damaged at byte 0", place.display())
    );
}
