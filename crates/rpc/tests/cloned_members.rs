//! Tests of cloned calls while servers and their controller join, leave, or are unreachable.

use std::time::Duration;

use crate::cuttable_link::CuttableLink;
use pathcall_control::{LeaseTiming, StoreLocation};
use pathcall_proto::v1::FollowPoolRequest;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_rpc::Channel;
use pathcall_rpc::channel::builder::ConnectError;
use pathcall_test_support::certificates::{Authority, Leaf};
use pathcall_test_support::service::{gradient, note, until};
use pathcall_test_support::store::{PoolServer, STORE, TIMING, TestPool, calls, controller, controller_with};
use pathcall_test_support::stubs::PATHCALL;
use pathcall_test_support::stubs::store_client::StoreClient;
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::{HANG, loopback};
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

#[tokio::test]
async fn calls_survive_kill_of_named_server() {
    let mut pool = TestPool::start(3).await;
    let client = pool.client().await;
    calls(&client, 20).await;
    pool.members.remove(0).kill();
    calls(&client, 100).await;
    pool.settled().await;
    calls(&client, 100).await;
    // gRPC calls find another server, too.
    let mut client = client.clone();
    let put = async {
        while client.put(note("once")).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(HANG, put).await.expect("another server is found");
    let long = "y".repeat(1 << 20);
    assert_eq!(client.get(note(&long)).await.unwrap().into_inner().text, long);
}

#[tokio::test]
async fn calls_survive_joining_and_leaving_servers() {
    let mut pool = TestPool::start(1).await;
    let client = pool.client().await;
    calls(&client, 30).await;
    for _ in 0..2 {
        pool.members.push(PoolServer::start(&pool.url, |options| options).await);
        pool.settled().await;
        calls(&client, 30).await;
    }
    // A leaving server answers its waiting calls and gets no new ones.
    let leaving = pool.members.remove(0);
    leaving.pathcall.close();
    calls(&client, 100).await;
    pool.settled().await;
    until(|| leaving.servers() == 0).await;
    let before = leaving.gets();
    calls(&client, 100).await;
    assert_eq!(leaving.gets(), before);
    // One of the last two servers is killed during calls.
    let calling = tokio::spawn({
        let client = client.clone();
        async move { calls(&client, 300).await }
    });
    pool.members.remove(0).kill();
    timeout(HANG, calling).await.unwrap().unwrap();
    pool.settled().await;
    calls(&client, 30).await;
}

#[tokio::test]
async fn calls_survive_controller_restart() {
    let directory = tempfile::tempdir().unwrap();
    let file = StoreLocation::File(directory.path().join("store"));
    let address = loopback::own();
    let mut pool = TestPool::start_at(address, 2, file.clone(), |options| options).await;
    let client = pool.client().await;
    calls(&client, 20).await;
    pool.controller.take().unwrap().shutdown().await;
    calls(&client, 100).await;
    pool.controller = Some(controller(address, file).await);
    calls(&client, 100).await;
    pool.members.push(PoolServer::start(&pool.url, |options| options).await);
    pool.settled().await;
    calls(&client, 100).await;
    // A controller without its store: all servers join again.
    pool.controller.take().unwrap().shutdown().await;
    pool.controller = Some(controller(address, StoreLocation::Memory).await);
    calls(&client, 100).await;
    pool.members.push(PoolServer::start(&pool.url, |options| options).await);
    pool.settled().await;
    calls(&client, 100).await;
}

#[tokio::test]
async fn calls_survive_server_failure_without_controller() {
    let mut pool = TestPool::start(3).await;
    let channel = pool.channel().await;
    let client = StoreClient::new(channel.clone());
    calls(&client, 20).await;
    pool.controller.take().unwrap().shutdown().await;
    pool.members.remove(0).kill();
    calls(&client, 100).await;
    let mut putting = client.clone();
    let put = async {
        while putting.put(note("once")).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(HANG, put).await.expect("gRPC calls go to a live server");
    calls(&client, 100).await;
    assert_eq!(channel.stats().cloned_calls, 220, "all calls use frames");
}

#[tokio::test]
async fn view_of_cut_off_server_is_replaced() {
    let mut pool = TestPool::start(1).await;
    let line = CuttableLink::to(pool.controller.as_ref().unwrap().addr()).await;
    let cut = PoolServer::start(&line.url, |options| options).await;
    pool.members.push(cut);
    pool.settled().await;
    let (before, cut) = (pool.members.remove(0), pool.members.remove(0));
    // The channel follows the server that will be cut off.
    let channel = Channel::connect(cut.uri(), &STORE).await.unwrap();
    let client = StoreClient::new(channel.clone());
    calls(&client, 20).await;
    line.cut();
    let came = PoolServer::start(&pool.url, |options| options).await;
    until(|| came.servers() == 2 && before.servers() == 2).await;
    let learns = async {
        while came.gets() == 0 {
            calls(&client, 10).await;
        }
    };
    timeout(HANG, learns).await.expect("callers learn of the new server");
    // Earlier clones for this server may still arrive.
    let left_alone = async {
        loop {
            let known = cut.gets();
            calls(&client, 100).await;
            if cut.gets() == known {
                break;
            }
        }
    };
    timeout(HANG, left_alone).await.expect("a removed server gets no calls");
    assert_eq!(channel.stats().plain_calls, 0);
}

#[tokio::test]
async fn pool_servers_are_connected_by_tls() {
    let authority = Authority::new();
    let Leaf { certificate, key } = authority.signed(&[], &["127.0.0.1"], Duration::from_secs(86_400));
    let server = ServerTlsConfig::new().identity(Identity::from_pem(certificate, key));
    let trusting =
        |authority: &Authority| ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority.pem()));
    let controller = controller("127.0.0.1:0".parse().unwrap(), StoreLocation::Memory).await;
    let url = controller.url();
    let mut pool = TestPool { controller: Some(controller), url, members: Vec::new() };
    for _ in 0..3 {
        let member =
            PoolServer::start_with(&pool.url, Some(server.clone()), |options| options.authenticate_frames(true));
        pool.members.push(member.await);
    }
    pool.settled().await;
    let named = format!("https://{}", pool.members[0].address);
    let channel = Channel::builder(named.clone(), &STORE).unwrap().tls(trusting(&authority)).connect().await.unwrap();
    let client = StoreClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
    calls(&client, 50).await;
    assert_eq!((channel.stats().plain_calls, channel.stats().pool.answered), (0, 50));
    // After the loss of the given server, long requests go by gRPC to a remaining server.
    pool.members.remove(0).kill();
    calls(&client, 50).await;
    pool.settled().await;
    let long = "y".repeat(1 << 20);
    assert_eq!(client.clone().get(note(&long)).await.unwrap().into_inner().text, long);
    calls(&client, 50).await;
    assert_eq!(channel.stats().plain_calls, 1);
    // The channel uses neither an untrusted server nor one without TLS.
    let stranger = Channel::builder(named, &STORE).unwrap().tls(trusting(&Authority::new())).connect().await;
    assert!(matches!(stranger, Err(ConnectError::Transport { .. })), "{stranger:?}");
    let plain = Channel::builder(pool.members[0].uri(), &STORE).unwrap().tls(trusting(&authority)).connect().await;
    let said = plain.unwrap_err().to_string();
    assert!(said.contains("does not begin with https://"), "{said}");
}

#[tokio::test]
async fn plaintext_call_to_tls_server_is_explained() {
    let Leaf { certificate, key } = Authority::new().signed(&[], &["127.0.0.1"], Duration::from_secs(86_400));
    let server = ServerTlsConfig::new().identity(Identity::from_pem(certificate, key));
    let controller = controller("127.0.0.1:0".parse().unwrap(), StoreLocation::Memory).await;
    let member = PoolServer::start_with(&controller.url(), Some(server), |options| options).await;
    let url = format!("http://{}", member.address);
    let mut cloned = StoreClient::new(Channel::connect(url.clone(), &STORE).await.unwrap());
    let mut summed = TrainingClient::new(Channel::connect(url, &PATHCALL).await.unwrap());
    let refusals = [
        timeout(HANG, cloned.put(note("plain"))).await.expect("in time").unwrap_err(),
        timeout(HANG, cloned.get(note("cloned"))).await.expect("in time").unwrap_err(),
        timeout(HANG, summed.update(gradient(&[1.0]))).await.expect("in time").unwrap_err(),
    ];
    for refusal in refusals {
        assert_eq!(refusal.code(), Code::Unavailable, "{refusal}");
        assert!(refusal.message().contains("if the server uses TLS, give its address as https://"), "{refusal}");
    }
}

#[tokio::test]
async fn caller_with_two_streams_stays_until_both_end() {
    let timing = LeaseTiming { grace: Duration::from_millis(50), ..TIMING };
    let controller = controller_with(([127, 0, 0, 1], 0).into(), StoreLocation::Memory, timing).await;
    let member = PoolServer::start(&controller.url(), |options| options).await;
    until(|| member.servers() == 1).await;
    let peer = PeerClient::connect(member.uri()).await.unwrap();
    let follow = async |udp_port| {
        let method = "/rpctest.Store/Get".to_owned();
        let request = FollowPoolRequest { udp_port, incarnation: 1, method, ..Default::default() };
        let mut views = peer.clone().follow_pool(request).await.unwrap().into_inner();
        let endpoint = views.message().await.unwrap().unwrap().endpoint;
        (views, endpoint)
    };
    // As after a broken connection, when the caller returns before the server notices.
    let ((first, endpoint), (_second, same)) = (follow(9).await, follow(9).await);
    assert_eq!(endpoint, same);
    drop(first);
    // Meanwhile another caller joins, leaves and is removed.
    let (mut pause, (mut other, known)) = (timing.grace, follow(10).await);
    loop {
        drop(other);
        pause *= 2;
        tokio::time::sleep(pause).await;
        let (again, now) = follow(10).await;
        if now != known {
            break;
        }
        other = again;
    }
    assert_eq!(follow(9).await.1, endpoint, "the endpoint is still known");
}
