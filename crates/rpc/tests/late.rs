//! Servers and callers that begin while the controller is away, or are given up by it: they work by the element once it
//! is there.

use std::net::SocketAddr;
use std::time::Duration;

use crate::shadow::element;
use pathcall_control::{Place, Timing};
use pathcall_proto::v1::LookupRequest;
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_rpc::{Channel, Server};
use pathcall_test_support::service::{Running, counts, str_int};
use pathcall_test_support::store::{TIMING, controller, controller_with};
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use pathcall_test_support::{HANG, loopback};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

const FREE: &str = "127.0.0.1:0";

/// The default, and frames that carry tokens, whose key callers know already.
const SIGNED: [bool; 2] = [false, true];

async fn server(controller: &str, signed: bool) -> Running {
    let builder = Server::builder(&PATHCALL).controller(controller).authenticate_frames(signed);
    Running::start_with(builder.build().await.expect("a server"), 0).await
}

/// Adds to a key until the element has worked on it, maybe once more; how often it added.
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
async fn an_application_that_begins_without_the_controller() {
    for signed in SIGNED {
        let away = loopback::own();
        let server = server(&format!("http://{away}"), signed).await;
        let channel = server.channel().await;
        WordsClient::new(channel.clone()).reduce(counts(&[("a", 1)], "")).await.expect("in software");
        let controller = controller(away, Place::Memory).await;
        let _element = element(&controller, [FREE.parse().unwrap(); 2]).await;
        let added = until_by_element(&channel).await;
        let later = server.channel().await;
        let more = until_by_element(&later).await;
        assert_eq!(value(&channel).await, 1 + added + more);
        assert!(channel.stats().applications.iter().all(|app| app.joins <= 1), "nobody lost its place");
    }
}

/// Joins while the controller is away, and adds until the element works once it is back, with its store or without.
async fn a_caller_begins_without_the_controller(keeps: bool, signed: bool) {
    let folder = tempfile::tempdir().unwrap();
    let store = |n: u32| Place::File(folder.path().join(format!("store-{}.redb", if keeps { 0 } else { n })));
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
async fn a_caller_that_begins_while_the_controller_is_away() {
    for signed in SIGNED {
        a_caller_begins_without_the_controller(true, signed).await;
    }
}

#[tokio::test]
async fn a_caller_that_begins_while_the_controller_is_away_and_forgets() {
    for signed in SIGNED {
        a_caller_begins_without_the_controller(false, signed).await;
    }
}

/// A way to somebody that can be cut, and its address.
async fn way_to(there: SocketAddr) -> (SocketAddr, watch::Sender<bool>) {
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
async fn a_server_that_the_controller_has_given_up_meanwhile() {
    // The end of its lease is waited for; nobody else's begins.
    let timing = Timing { grace: Duration::from_millis(300), ..TIMING };
    let controller = controller_with(FREE.parse().unwrap(), Place::Memory, timing).await;
    let _element = element(&controller, [FREE.parse().unwrap(); 2]).await;
    let (address, way) = way_to(controller.url().trim_start_matches("http://").parse().unwrap()).await;
    let server = server(&format!("http://{address}"), false).await;
    let channel = server.channel().await;
    let mut added = until_by_element(&channel).await;
    let mut client = ControllerClient::connect(controller.url()).await.expect("a controller");
    for open in [false, true] {
        way.send_replace(open);
        let heard = async {
            let words = || LookupRequest { name: "T-WORDS".into() };
            while client.lookup(words()).await.expect("it is known").into_inner().alive != open {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(HANG, heard).await.expect("its grace ends, or it comes back");
    }
    // What the element lets pass until all have heard of the other epoch seems to be its work.
    for _ in 0..200 {
        added += until_by_element(&channel).await;
    }
    assert_eq!(value(&channel).await, added);
    assert!(channel.stats().applications.iter().all(|app| app.joins <= 1), "it has its place still");
}
