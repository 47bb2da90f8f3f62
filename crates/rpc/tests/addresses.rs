//! Tests of channels with several servers, some of them frozen: these accept connections but answer nothing.

use std::net::SocketAddr;

use pathcall_rpc::Channel;
use pathcall_rpc::channel::builder::ConnectError;
use pathcall_test_support::HANG;
use pathcall_test_support::service::{note, within};
use pathcall_test_support::store::{STORE, TestPool};
use pathcall_test_support::stubs::store_client::StoreClient;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Code;

/// Relay between a channel and a server, which can be frozen.
struct Freezer {
    url: String,
    frozen: watch::Sender<bool>,
}

impl Freezer {
    async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (frozen, freezes) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                tokio::spawn(relay(caller, server, freezes.clone()));
            }
        });
        Self { url, frozen }
    }
}

async fn relay(mut caller: TcpStream, server: SocketAddr, mut freezes: watch::Receiver<bool>) {
    let mut server = TcpStream::connect(server).await.unwrap();
    let (_, _) = (caller.set_nodelay(true), server.set_nodelay(true));
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut caller, &mut server) => return,
        _ = freezes.wait_for(|frozen| *frozen) => {}
    }
    // Both connections stay open.
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn channel_connects_to_the_server_that_answers() {
    let pool = TestPool::start(2).await;
    let frozen = Freezer::before(pool.members[0].address).await;
    frozen.frozen.send_replace(true);
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let builder = Channel::builder(frozen.url.clone(), &STORE).unwrap();
    let builder = builder.add_server(format!("http://{nobody}")).unwrap().add_server(pool.members[1].uri()).unwrap();
    let channel = timeout(HANG, builder.connect()).await.expect("in time").unwrap();
    let mut store = StoreClient::new(channel.clone());
    for _ in 0..20 {
        store.get(note("a call")).await.unwrap();
        store.put(note("a plain call")).await.unwrap();
    }
    // The channel learns the pool from the server that answers. The server behind the frozen relay gets calls, too.
    let by_all = async {
        while pool.members.iter().any(|member| member.gets() == 0) {
            store.get(note("a call")).await.unwrap();
        }
    };
    timeout(HANG, by_all).await.expect("calls reach all servers");
}

#[tokio::test]
async fn channel_uses_another_server_when_its_own_freezes() {
    let pool = TestPool::start(2).await;
    let frozen = Freezer::before(pool.members[0].address).await;
    let builder = Channel::builder(frozen.url.clone(), &STORE).unwrap().add_server(pool.members[1].uri()).unwrap();
    let channel = builder.connect().await.unwrap();
    let mut store = StoreClient::new(channel.clone());
    store.get(note("a call")).await.unwrap();
    frozen.frozen.send_replace(true);
    let goes_on = async {
        loop {
            match store.put(within(1000, note("a plain call"))).await {
                Ok(_) => return,
                Err(status) => assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Unavailable), "{status}"),
            }
        }
    };
    timeout(HANG, goes_on).await.expect("another server is asked");
    store.get(note("a call")).await.unwrap();
}

#[tokio::test]
async fn connect_error_names_first_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let frozen = format!("http://{}", listener.local_addr().unwrap());
    let builder = Channel::builder(frozen.clone(), &STORE).unwrap().add_server(frozen.clone()).unwrap();
    let error = timeout(HANG, builder.connect()).await.expect("in time").expect_err("no server answers");
    assert!(matches!(&error, ConnectError::Silent { uri } if uri.starts_with(&frozen)), "{error}");
}
