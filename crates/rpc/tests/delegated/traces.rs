//! Tests of traces of delegated calls.

use std::time::Duration;

use pathcall_rpc::Channel;
use pathcall_rpc::delegate::{CallTrace, Handlers, PendingTrace, Transport};
use pathcall_test_support::HANG;
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::{Note, PATHCALL};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Code, Request};

use super::cluster::{DelegateCluster, all, serve, serve_by, wish};

const LOOKUP: &str = "/rpctest.Docs/Lookup";
const FETCH: &str = "/rpctest.Docs/Fetch";

async fn finished(trace: PendingTrace) -> Option<CallTrace> {
    timeout(HANG, trace.finished()).await.expect("in time")
}

/// Depths and methods, in the tree's order.
fn shape(traced: &CallTrace) -> Vec<(usize, &str)> {
    traced.tree.spans.iter().map(|(depth, span)| (*depth, &span.label[..])).collect()
}

#[tokio::test]
async fn traced_request_has_tree() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let mut request = Request::new(wish(["a", "b", "c"]));
    let trace = PendingTrace::of(&mut request);
    // The stream must stay open until the trace is complete.
    let mut replies = cluster.client().await.lookup(request).await.expect("it begins").into_inner();
    while replies.message().await.expect("complete").is_some() {}
    let traced = finished(trace).await.expect("traced");
    assert_eq!((&traced.method[..], traced.status, traced.tree.complete), (LOOKUP, Code::Ok, true));
    assert_eq!(shape(&traced), [(0, LOOKUP), (1, FETCH), (1, FETCH), (1, FETCH)]);
    let spans: Vec<_> = traced.tree.spans.iter().map(|(_, span)| span).collect();
    assert!(spans[1..].iter().all(|span| span.begin >= spans[0].begin && span.responses == 1), "{spans:?}");
    assert_eq!((spans[0].server, spans[0].requests), (cluster.index.address(), 3));
    let text = traced.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("/rpctest.Docs/Lookup: ") && lines[0].ends_with(", 4 requests"), "{text}");
    assert!(lines.len() == 5 && lines[2].contains(FETCH), "{text}");
    assert!(traced.took > Duration::ZERO && traced.traceparent.is_none());
}

#[tokio::test]
async fn failed_or_dropped_call_has_partial_trace() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let mut client = cluster.client().await;
    let mut request = Request::new(wish(["fail"]));
    let trace = PendingTrace::of(&mut request);
    all(client.lookup(request).await).await.1.expect_err("it fails");
    let traced = finished(trace).await.expect("traced");
    assert_eq!((traced.status, shape(&traced)), (Code::NotFound, vec![(0, LOOKUP), (1, FETCH)]));
    assert!(traced.to_string().starts_with("/rpctest.Docs/Lookup: NotFound after "), "{traced}");

    let mut request = Request::new(wish(["for ever"]));
    let trace = PendingTrace::of(&mut request);
    let stream = client.lookup(request).await.expect("it begins");
    timeout(HANG, cluster.seen.began.notified()).await.expect("the last handler is there");
    drop(stream);
    let traced = finished(trace).await.expect("traced");
    assert_eq!((traced.status, traced.tree.complete), (Code::Cancelled, false));
    assert!(traced.to_string().ends_with("spans are missing\n"), "{traced}");
}

#[tokio::test]
async fn channel_traces_all_its_calls() {
    let cluster = DelegateCluster::new(Transport::Tcp).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let builder = Channel::builder(cluster.url.clone(), &PATHCALL).expect("a URL");
    let channel = builder.traces(move |traced: &CallTrace| drop(tell.send(traced.clone()))).connect().await;
    let mut client = DocsClient::new(channel.expect("connects"));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for names in [vec!["x"], vec![]] {
        let mut request = Request::new(wish(names.clone()));
        request.metadata_mut().insert("traceparent", parent.parse().expect("text"));
        all(client.lookup(request).await).await.1.expect("complete");
        let traced = timeout(HANG, told.recv()).await.expect("in time").expect("a trace");
        assert_eq!((traced.tree.spans.len(), traced.tree.complete), (1 + names.len(), true));
        assert_eq!(traced.traceparent.as_deref(), Some(parent));
    }
}

#[tokio::test]
async fn server_traces_calls_of_plain_stubs() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let traces = move |traced: &CallTrace| drop(tell.send(traced.clone()));
    let url = serve_by(|builder| builder.handlers(cluster.index.clone()).traces(traces)).await;
    let channel = tonic::transport::Endpoint::from_shared(url).expect("a URL").connect().await.expect("connects");
    all(DocsClient::new(channel).lookup(wish(["x"])).await).await.1.expect("complete");
    let traced = timeout(HANG, told.recv()).await.expect("in time").expect("a trace");
    assert_eq!(shape(&traced), [(0, LOOKUP), (1, FETCH)]);
}

#[tokio::test]
async fn untraced_call_has_no_trace() {
    let url = serve(None).await;
    let mut client = DocsClient::new(Channel::connect(url, &PATHCALL).await.expect("connects"));
    let mut request = Request::new(wish(["x"]));
    let trace = PendingTrace::of(&mut request);
    all(client.lookup(request).await).await.1.expect("complete");
    assert!(finished(trace).await.is_none());

    // A call without a handler fails and has a trace.
    let serving = Handlers::new().start().await.expect("starts");
    let mut client = DocsClient::new(Channel::connect(serve(Some(serving)).await, &PATHCALL).await.expect("connects"));
    let mut request = Request::new(Note::default());
    let trace = PendingTrace::of(&mut request);
    all(client.fetch(request).await).await.1.expect_err("no handler");
    assert!(finished(trace).await.is_some_and(|traced| traced.status == Code::Unimplemented));
}
