//! Who did what for a call, for whoever asks.

use std::time::Duration;

use pathcall_rpc::Channel;
use pathcall_rpc::delegate::{Handlers, Trace, Traced, Transport};
use pathcall_test_support::HANG;
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::{Note, PATHCALL};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Code, Request};

use super::house::{House, all, serve, serve_by, wish};

const LOOKUP: &str = "/rpctest.Docs/Lookup";
const FETCH: &str = "/rpctest.Docs/Fetch";

async fn finished(trace: Trace) -> Option<Traced> {
    timeout(HANG, trace.finished()).await.expect("in time")
}

/// Depths and methods, in the tree's order.
fn shape(traced: &Traced) -> Vec<(usize, &str)> {
    traced.tree.spans.iter().map(|(depth, span)| (*depth, &span.label[..])).collect()
}

#[tokio::test]
async fn a_request_that_asks_for_it_has_its_tree() {
    let house = House::new(Transport::Flows).await;
    let mut request = Request::new(wish(["a", "b", "c"]));
    let trace = Trace::of(&mut request);
    // The stream is not dropped before the trace is there.
    let mut replies = house.client().await.lookup(request).await.expect("it begins").into_inner();
    while replies.message().await.expect("complete").is_some() {}
    let traced = finished(trace).await.expect("traced");
    assert_eq!((&traced.method[..], traced.status, traced.tree.whole), (LOOKUP, Code::Ok, true));
    assert_eq!(shape(&traced), [(0, LOOKUP), (1, FETCH), (1, FETCH), (1, FETCH)]);
    let spans: Vec<_> = traced.tree.spans.iter().map(|(_, span)| span).collect();
    assert!(spans[1..].iter().all(|span| span.begin >= spans[0].begin && span.responses == 1), "{spans:?}");
    assert_eq!((spans[0].server, spans[0].requests), (house.index.address(), 3));
    let text = traced.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("/rpctest.Docs/Lookup: ") && lines[0].ends_with(", 4 requests"), "{text}");
    assert!(lines.len() == 5 && lines[2].contains(FETCH), "{text}");
    assert!(traced.took > Duration::ZERO && traced.traceparent.is_none());
}

#[tokio::test]
async fn a_call_that_fails_or_is_dropped_has_what_is_known_of_it() {
    let house = House::new(Transport::Flows).await;
    let mut client = house.client().await;
    let mut request = Request::new(wish(["fail"]));
    let trace = Trace::of(&mut request);
    all(client.lookup(request).await).await.1.expect_err("it fails");
    let traced = finished(trace).await.expect("traced");
    assert_eq!((traced.status, shape(&traced)), (Code::NotFound, vec![(0, LOOKUP), (1, FETCH)]));
    assert!(traced.to_string().starts_with("/rpctest.Docs/Lookup: NotFound after "), "{traced}");

    let mut request = Request::new(wish(["for ever"]));
    let trace = Trace::of(&mut request);
    let stream = client.lookup(request).await.expect("it begins");
    timeout(HANG, house.seen.began.notified()).await.expect("the last handler is there");
    drop(stream);
    let traced = finished(trace).await.expect("traced");
    assert_eq!((traced.status, traced.tree.whole), (Code::Cancelled, false));
    assert!(traced.to_string().ends_with("spans are missing\n"), "{traced}");
}

#[tokio::test]
async fn a_channel_has_all_of_its_calls_traced_if_it_is_to() {
    let house = House::new(Transport::Tcp).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let builder = Channel::builder(house.url.clone(), &PATHCALL).expect("a URL");
    let channel = builder.traces(move |traced: &Traced| drop(tell.send(traced.clone()))).connect().await;
    let mut client = DocsClient::new(channel.expect("connects"));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for names in [vec!["x"], vec![]] {
        let mut request = Request::new(wish(names.clone()));
        request.metadata_mut().insert("traceparent", parent.parse().expect("text"));
        all(client.lookup(request).await).await.1.expect("complete");
        let traced = timeout(HANG, told.recv()).await.expect("in time").expect("a trace");
        assert_eq!((traced.tree.spans.len(), traced.tree.whole), (1 + names.len(), true));
        assert_eq!(traced.traceparent.as_deref(), Some(parent));
    }
}

#[tokio::test]
async fn a_server_traces_the_calls_that_it_makes_for_plain_stubs() {
    let house = House::new(Transport::Flows).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let traces = move |traced: &Traced| drop(tell.send(traced.clone()));
    let url = serve_by(|builder| builder.handlers(house.index.clone()).traces(traces)).await;
    let channel = tonic::transport::Endpoint::from_shared(url).expect("a URL").connect().await.expect("connects");
    all(DocsClient::new(channel).lookup(wish(["x"])).await).await.1.expect("complete");
    let traced = timeout(HANG, told.recv()).await.expect("in time").expect("a trace");
    assert_eq!(shape(&traced), [(0, LOOKUP), (1, FETCH)]);
}

#[tokio::test]
async fn where_nobody_traces_there_is_no_trace() {
    let url = serve(None).await;
    let mut client = DocsClient::new(Channel::connect(url, &PATHCALL).await.expect("connects"));
    let mut request = Request::new(wish(["x"]));
    let trace = Trace::of(&mut request);
    all(client.lookup(request).await).await.1.expect("complete");
    assert!(finished(trace).await.is_none());

    // A call that nobody has a handler of was made, and failed.
    let serving = Handlers::new().start().await.expect("starts");
    let mut client = DocsClient::new(Channel::connect(serve(Some(serving)).await, &PATHCALL).await.expect("connects"));
    let mut request = Request::new(Note::default());
    let trace = Trace::of(&mut request);
    all(client.fetch(request).await).await.1.expect_err("no handler");
    assert!(finished(trace).await.is_some_and(|traced| traced.status == Code::Unimplemented));
}
