//! Tests of servers and callers that start while the controller is unreachable, or that it has removed: they use the
//! element once the controller is back.

use std::net::SocketAddr;
use std::time::Duration;

use crate::shadow_sums::element;
use pathcall_control::{LeaseTiming, StoreLocation};
use pathcall_proto::v1::LookupRequest;
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::service::{TestServer, counts, str_int};
use pathcall_test_support::store::{TIMING, controller, controller_with};
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use pathcall_test_support::{HANG, loopback};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

const FREE: &str = "127.0.0.1:0";

/// Default, and frames that carry tokens with a key that callers already know.
const SIGNED: [bool; 2] = [false, true];

async fn server(controller: &str, signed: bool) -> TestServer {
    let builder = Layer::builder(&PATHCALL).controller(controller).authenticate_frames(signed);
    TestServer::start_with(builder.build().await.expect("a server"), 0).await
}

/// Adds to a key until the element has processed the addition, perhaps once more; returns the number of additions.
async fn until_by_element(channel: &Channel) -> i64 {
    let mut words = WordsClient::new(channel.clone());
    let lanes = || channel.stats().applications.iter().map(|app| app.map.lanes_element).sum::<u64>();
    let before = lanes();
    let by_element = async {
        let mut added = 0;
        while lanes() == before {
            words.reduce(counts(&[("a", 1)], "")).await.expect("it is added");
            added += 1;
        }
        added
    };
    timeout(HANG, by_element).await.expect("the element is used")
}

async fn value(channel: &Channel) -> i64 {
    let wanted = Wanted { keys: Some(str_int(&[("a", 0)])), ..Wanted::default() };
    let found = WordsClient::new(channel.clone()).query(wanted).await.expect("nothing is lost").into_inner();
    found.kvs.expect("values").map["a"]
}

#[tokio::test]
async fn application_starts_without_controller() {
    for signed in SIGNED {
        let away = loopback::own();
        let server = server(&format!("http://{away}"), signed).await;
        let channel = server.channel().await;
        WordsClient::new(channel.clone()).reduce(counts(&[("a", 1)], "")).await.expect("in software");
        let controller = controller(away, StoreLocation::Memory).await;
        let _element = element(&controller, [FREE.parse().unwrap(); 2]).await;
        let added = until_by_element(&channel).await;
        let later = server.channel().await;
        let more = until_by_element(&later).await;
        assert_eq!(value(&channel).await, 1 + added + more);
        assert!(channel.stats().applications.iter().all(|app| app.joins <= 1), "all callers are still members");
    }
}

/// Joins while the controller is unreachable, and adds until the element is used, after the controller's restart with
/// or without its store.
async fn join_without_controller(keeps: bool, signed: bool) {
    let folder = tempfile::tempdir().unwrap();
    let store = |n: u32| StoreLocation::File(folder.path().join(format!("store-{}.redb", if keeps { 0 } else { n })));
    let address = loopback::own();
    let first = controller(address, store(0)).await;
    let _element = element(&first, [FREE.parse().unwrap(); 2]).await;
    let server = server(&first.url(), signed).await;
    let before = server.channel().await;
    let mut added = until_by_element(&before).await;
    first.shutdown().await;
    let channel = server.channel().await;
    WordsClient::new(channel.clone()).reduce(counts(&[("a", 1)], "")).await.expect("in software");
    let _second = controller(address, store(1)).await;
    added += 1 + until_by_element(&channel).await;
    assert_eq!(value(&before).await, added);
}

#[tokio::test]
async fn caller_joins_without_controller() {
    for signed in SIGNED {
        join_without_controller(true, signed).await;
    }
}

#[tokio::test]
async fn caller_joins_while_controller_loses_store() {
    for signed in SIGNED {
        join_without_controller(false, signed).await;
    }
}

/// Relay to a controller: its address, and a switch that cuts it.
async fn relay_to(there: SocketAddr) -> (SocketAddr, watch::Sender<bool>) {
    let listener = TcpListener::bind(FREE).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, open) = watch::channel(true);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut open = open.clone();
            tokio::spawn(async move {
                let through = async {
                    let mut far = TcpStream::connect(there).await?;
                    tokio::io::copy_bidirectional(&mut near, &mut far).await
                };
                tokio::select! {
                    _ = through => {}
                    _ = open.wait_for(|open| !open) => {}
                }
            });
        }
    });
    (address, tell)
}

#[tokio::test]
async fn expired_owner_registers_again() {
    // The owner's lease must expire.
    let timing = LeaseTiming { grace: Duration::from_millis(300), ..TIMING };
    let controller = controller_with(FREE.parse().unwrap(), StoreLocation::Memory, timing).await;
    let _element = element(&controller, [FREE.parse().unwrap(); 2]).await;
    let (address, switch) = relay_to(controller.url().trim_start_matches("http://").parse().unwrap()).await;
    let server = server(&format!("http://{address}"), false).await;
    let channel = server.channel().await;
    let mut added = until_by_element(&channel).await;
    let mut client = ControllerClient::connect(controller.url()).await.expect("a controller");
    for open in [false, true] {
        switch.send_replace(open);
        let heard = async {
            let words = || LookupRequest { name: "T-WORDS".into() };
            while client.lookup(words()).await.expect("it is known").into_inner().alive != open {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(HANG, heard).await.expect("the owner expires, or returns");
    }
    // Until all parties know the new epoch, frames that the element only forwards also count here.
    for _ in 0..200 {
        added += until_by_element(&channel).await;
    }
    assert_eq!(value(&channel).await, added);
    assert!(channel.stats().applications.iter().all(|app| app.joins <= 1), "the caller is still a member");
}
