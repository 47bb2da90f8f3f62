//! Tests of calls that begin with several requests.

use std::time::Duration;

use pathcall_rpc::delegate::{CallOptions, Client, Directory, Node, NodeConfig, NodeTarget, Replies, Transport};
use pathcall_test_support::HANG;
use pathcall_test_support::stubs::Note;
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use tokio::time::timeout;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::cluster::{DelegateCluster, wish};

async fn client(cluster: &DelegateCluster, transport: Transport) -> Client {
    let config = NodeConfig::default().transport(transport);
    let (node, _requests) = Node::start(&config).await.expect("starts");
    let [a, b] = &cluster.stores;
    let servers = [("store-a", a.address()), ("store-b", b.address()), ("index", cluster.index.address())];
    Client::new(node, Directory::of(servers))
}

fn note(text: &str) -> Note {
    Note { text: text.to_owned() }
}

/// All texts, sorted, and the outcome of the call.
async fn all(mut replies: Replies<Note>) -> (Vec<String>, Result<(), Status>) {
    let mut texts = Vec::new();
    loop {
        match timeout(HANG, replies.message()).await.expect("in time") {
            Ok(Some(note)) => texts.push(note.text),
            Ok(None) => {
                texts.sort();
                return (texts, Ok(()));
            }
            Err(status) => {
                assert!(matches!(replies.message().await, Ok(None)), "nothing comes after the end");
                return (texts, Err(status));
            }
        }
    }
}

async fn several(transport: Transport) {
    let cluster = DelegateCluster::new(transport.clone()).await;
    let client = client(&cluster, transport).await;
    let mut metadata = MetadataMap::new();
    metadata.insert("user", "me".parse().expect("text"));
    let call = client.call::<Note>().metadata(metadata);
    let call = call.request::<DocsLookup>("index", &wish(["x", "y"])).expect("known");
    let call = call.request::<DocsFetch>("store-a", &note("a")).expect("known");
    let call = call.request::<DocsFetch>(NodeTarget::key("store-", "b"), &note("b")).expect("known");
    let (replies, trace) = call.begin_traced().expect("room");
    let (texts, ended) = all(replies).await;
    ended.expect("complete");
    assert_eq!(texts, ["a", "b", "for me", "x", "y"]);
    let traced = timeout(HANG, trace.finished()).await.expect("in time").expect("traced");
    let roots = traced.tree.spans.iter().filter(|(depth, _)| *depth == 0).count();
    assert_eq!((roots, traced.tree.spans.len(), traced.tree.complete), (3, 5, true), "{traced}");
}

#[tokio::test]
async fn call_begins_with_several_requests_by_flows() {
    several(Transport::Flows).await;
}

#[tokio::test]
async fn call_begins_with_several_requests_by_tcp() {
    several(Transport::Tcp).await;
}

#[tokio::test]
async fn requests_can_be_added_to_running_call() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let client = client(&cluster, Transport::Flows).await;
    let call = client.call::<Note>().request::<DocsFetch>("store-a", &note("many")).expect("known");
    let mut replies = call.begin().expect("room");
    timeout(HANG, replies.message()).await.expect("in time").expect("a reply");
    // The server waits until replies are read, so the call is still in progress.
    replies.send::<DocsFetch>("store-b", &note("one more")).expect("in progress");
    assert_eq!(replies.send::<DocsFetch>("nobody", &note("")).expect_err("unknown").code(), Code::Unavailable);
    let (texts, ended) = all(replies).await;
    ended.expect("complete");
    assert_eq!(texts.len(), 2_000);
    assert!(texts.contains(&"one more".to_owned()));
}

#[tokio::test]
async fn begin_error_states_reason() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let client = client(&cluster, Transport::Flows).await;
    assert_eq!(client.call::<Note>().begin().expect_err("nothing").code(), Code::InvalidArgument);
    let unknown = client.call::<Note>().request::<DocsFetch>("nobody", &note("x")).expect_err("unknown");
    assert_eq!(unknown.message(), "the directory does not have a node named \"nobody\"");
}

#[tokio::test]
async fn failed_request_fails_call_and_stops_others() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let client = client(&cluster, Transport::Flows).await;
    let call = client.call::<Note>().request::<DocsFetch>("store-a", &note("for ever")).expect("known");
    let replies = call.request::<DocsFetch>("store-b", &note("fail")).expect("known").begin().expect("room");
    let status = all(replies).await.1.expect_err("one fails");
    assert_eq!((status.code(), status.message()), (Code::NotFound, "no such document"));
    // The other handler may not have begun.
    if timeout(Duration::ZERO, cluster.seen.began.notified()).await.is_ok() {
        timeout(HANG, cluster.seen.dropped.notified()).await.expect("the other handler is dropped");
    }
}

#[tokio::test]
async fn call_ends_by_timeout_or_abort() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let options = CallOptions::default().ping_period(Duration::from_millis(50));
    let client = client(&cluster, Transport::Flows).await.options(options);
    let call = || client.call::<Note>().request::<DocsFetch>("store-a", &note("for ever")).expect("known");
    let replies = call().timeout(Duration::from_secs(1)).begin().expect("room");
    timeout(HANG, cluster.seen.began.notified()).await.expect("the handler is there");
    let status = all(replies).await.1.expect_err("late");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    timeout(HANG, cluster.seen.dropped.notified()).await.expect("the handler is dropped");
    let mut replies = call().begin().expect("room");
    timeout(HANG, cluster.seen.began.notified()).await.expect("the handler is there");
    replies.abort();
    assert_eq!(all(replies).await.1.expect_err("aborted").code(), Code::Cancelled);
    timeout(HANG, cluster.seen.dropped.notified()).await.expect("the handler is dropped");
}
