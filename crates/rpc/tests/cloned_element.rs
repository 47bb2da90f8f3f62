//! Tests of cloned calls through a real element that fails and restarts, and to servers that are killed.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use pathcall_control::{Handle, StoreLocation};
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{FollowPoolRequest, PoolStatus, PoolView, StatusRequest};
use pathcall_rpc::Channel;
use pathcall_test_support::service::note;
use pathcall_test_support::store::{LayerBuilder, PoolServer, STORE, TestPool, calls, controller, ways};
use pathcall_test_support::stubs::store_client::StoreClient;
use pathcall_test_support::{HANG, loopback};
use tokio::time::timeout;

const FREE: &str = "127.0.0.1:0";
/// Environment variable with the address of a server process's controller.
const CONTROLLER: &str = "PATHCALL_TEST_CONTROLLER";

async fn element(controller: &str, addresses: [SocketAddr; 2]) -> pathcall_element::Handle {
    element_in("", controller, addresses).await
}

/// Element of a rack.
pub(crate) async fn element_in(
    rack: &str,
    controller: &str,
    [data, control]: [SocketAddr; 2],
) -> pathcall_element::Handle {
    let config = pathcall_element::Config::default().data(data).control(control).rack(rack);
    let config = config.controller(Some(controller.to_owned()));
    pathcall_element::run(config).await.expect("an element")
}

async fn pools(url: &str) -> Vec<PoolStatus> {
    let mut client = ControllerClient::connect(url.to_owned()).await.expect("a controller");
    client.status(StatusRequest {}).await.expect("its status").into_inner().pools
}

/// Waits until the controller's status of the only pool matches.
pub(crate) async fn until_pool(url: &str, what: impl Fn(&PoolStatus) -> bool) {
    let as_said = async {
        while !pools(url).await.first().is_some_and(&what) {
            tokio::task::yield_now().await;
        }
    };
    timeout(HANG, as_said).await.expect("the pool is as it should be");
}

pub(crate) fn servers(pool: &PoolStatus) -> usize {
    pool.pool.as_ref().map_or(0, |pool| pool.servers.len())
}

/// Waits until the server knows this many servers of the pool, on this many elements: callers that follow it then know
/// them, too.
pub(crate) async fn until_known(server: &str, count: usize, elements: usize) {
    let known = |view: &PoolView| {
        view.pool.as_ref().is_some_and(|pool| (pool.servers.len(), pool.elements.len()) == (count, elements))
    };
    let as_said = async {
        let mut peer = PeerClient::connect(server.to_owned()).await.expect("a server");
        loop {
            // The server refuses until it is in the pool itself.
            let method = "/rpctest.Store/Get".to_owned();
            let request = FollowPoolRequest { udp_port: 9, incarnation: 1, method, ..Default::default() };
            let Ok(views) = peer.follow_pool(request).await else { continue };
            let mut views = views.into_inner();
            while let Ok(Some(view)) = views.message().await {
                if known(&view) {
                    return;
                }
            }
        }
    };
    timeout(HANG, as_said).await.expect("the server knows the others");
}

/// Controller, element and servers.
async fn network(
    count: usize,
    change: fn(LayerBuilder) -> LayerBuilder,
) -> (Handle, pathcall_element::Handle, Vec<PoolServer>) {
    network_at([FREE.parse().unwrap(); 2], count, change).await
}

/// The same, with an element at these addresses.
async fn network_at(
    addresses: [SocketAddr; 2],
    count: usize,
    change: fn(LayerBuilder) -> LayerBuilder,
) -> (Handle, pathcall_element::Handle, Vec<PoolServer>) {
    let controller = controller(FREE.parse().unwrap(), StoreLocation::Memory).await;
    let element = element(&controller.url(), addresses).await;
    let mut members = Vec::new();
    for _ in 0..count {
        members.push(PoolServer::start(&controller.url(), change).await);
    }
    until_pool(&controller.url(), |pool| servers(pool) == count && pool.element > 0).await;
    let pool = TestPool { controller: None, url: controller.url(), members };
    pool.settled().await;
    (controller, element, pool.members)
}

#[tokio::test]
async fn idle_servers_get_clones_and_caller_one_answer() {
    for change in [(|options| options) as fn(LayerBuilder) -> LayerBuilder, |options| options.authenticate_frames(true)]
    {
        let (_controller, _element, members) = network(3, change).await;
        let channel = Channel::connect(members[0].uri(), &STORE).await.unwrap();
        let mut client = StoreClient::new(channel.clone());
        let idle = async {
            loop {
                let before = channel.stats().pool;
                for call in 0..100 {
                    let text = format!("call {call}");
                    assert_eq!(client.get(note(&text)).await.unwrap().into_inner().text, text);
                }
                let after = channel.stats().pool;
                assert_eq!(after.answered - before.answered, 100);
                // A stalled element is bypassed for a while.
                if after.cloned - before.cloned > 50 {
                    break;
                }
            }
        };
        let cloned = timeout(HANG, idle).await;
        cloned.unwrap_or_else(|_| panic!("nobody else calls: {:?}", channel.stats().pool));
        // A request of several frames is cloned as a whole.
        let long = "y".repeat(20_000);
        assert_eq!(client.get(note(&long)).await.unwrap().into_inner().text, long);
        assert!(members.iter().all(|member| member.gets() > 0));
        for options in ways() {
            let builder = Channel::builder(members[0].uri(), &STORE).unwrap().cloned(options);
            calls(&StoreClient::new(builder.connect().await.unwrap()), 50).await;
        }
    }
}

#[tokio::test]
async fn calls_survive_element_failure_and_restart() {
    let addresses = [loopback::own(), loopback::own()];
    let (controller, first, members) = network_at(addresses, 2, |options| options).await;
    let channel = Channel::connect(members[0].uri(), &STORE).await.unwrap();
    let client = StoreClient::new(channel.clone());
    calls(&client, 50).await;
    first.shutdown().await;
    calls(&client, 100).await;
    let _second = element(&controller.url(), addresses).await;
    calls(&client, 100).await;
    until_pool(&controller.url(), |pool| pool.element > 0).await;
    let before = channel.stats().pool.cloned;
    let again = async {
        while channel.stats().pool.cloned == before {
            calls(&client, 1).await;
        }
    };
    timeout(HANG, again).await.expect("the element clones again");
}

/// Not a test: a server in a process that a test starts and kills.
#[tokio::test]
#[ignore = "a server for other tests"]
async fn server_process_entry_point() {
    let Ok(controller) = std::env::var(CONTROLLER) else { return };
    let member = PoolServer::start(&controller, |options| options).await;
    println!("\nready {}", member.uri());
    std::future::pending::<()>().await;
}

/// Server process; dropping it kills it with SIGKILL.
struct Process(Child, String);

impl Process {
    fn start(controller: &str) -> Self {
        let own = std::env::current_exe().expect("this test");
        let mut command = Command::new(own);
        command.args(["--exact", "cloned_element::server_process_entry_point", "--ignored", "--nocapture"]);
        command.env(CONTROLLER, controller).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("this test can be run");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.find_map(|line| Some(line.ok()?.strip_prefix("ready ")?.to_owned()));
        Self(child, ready.expect("it says when it is ready"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("a child of ours");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_survive_killed_servers() {
    let controller = controller(FREE.parse().unwrap(), StoreLocation::Memory).await;
    let _element = element(&controller.url(), [FREE.parse().unwrap(); 2]).await;
    let mut processes: Vec<_> = (0..3).map(|_| Process::start(&controller.url())).collect();
    until_pool(&controller.url(), |pool| servers(pool) == 3 && pool.element > 0).await;
    for Process(_, server) in &processes {
        until_known(server, 3, 1).await;
    }
    let channel = Channel::connect(processes[0].1.clone(), &STORE).await.unwrap();
    let client = StoreClient::new(channel);
    calls(&client, 50).await;
    for left in [2, 1] {
        let calling = tokio::spawn({
            let client = client.clone();
            async move { calls(&client, 300).await }
        });
        let killed = Instant::now();
        drop(processes.remove(0));
        // The end of the connection removes the server at once; its lease lasts longer than this test waits.
        until_pool(&controller.url(), |pool| servers(pool) == left).await;
        println!("out of the table after {:?}", killed.elapsed());
        timeout(HANG, calling).await.unwrap().unwrap();
    }
    calls(&client, 50).await;
}
