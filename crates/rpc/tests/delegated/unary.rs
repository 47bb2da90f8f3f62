//! Tests of unary delegated methods: one call, one reply, by any server.

use pathcall_rpc::Channel;
use pathcall_rpc::delegate::{
    CallTrace, Client, DelegatedCall, Directory, Handlers, Node, NodeConfig, RunningHandlers,
};
use pathcall_test_support::HANG;
use pathcall_test_support::stubs::answers_client::AnswersClient;
use pathcall_test_support::stubs::delegated::{AnswersAsk, AnswersBook};
use pathcall_test_support::stubs::{Note, PATHCALL};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::cluster::serve;

fn note(text: &str) -> Note {
    Note { text: text.to_owned() }
}

/// A server that passes each call on to another one, which answers as often as the question says.
async fn front() -> (RunningHandlers, RunningHandlers) {
    let book = async |question: Note, call: DelegatedCall<Note>| {
        for answer in question.text.split_whitespace() {
            call.reply(note(answer)).await?;
        }
        Ok(())
    };
    let back = Handlers::new().handle::<AnswersBook, _, _>(book).start().await.expect("starts");
    let ask = async |question: Note, call: DelegatedCall<Note>| match &*question.text {
        "fail" => Err(Status::not_found("no answer")),
        _ => call.delegate::<AnswersBook>("back", &question),
    };
    let front = Handlers::new().directory(Directory::of([("back", back.address())]));
    (front.handle::<AnswersAsk, _, _>(ask).start().await.expect("starts"), back)
}

#[tokio::test]
async fn status_details_and_metadata_of_a_server_reach_the_caller() {
    let book = async |_: Note, _: DelegatedCall<Note>| {
        let mut status = Status::with_details(Code::NotFound, "sold out", b"\x08\x05\xff".as_slice().into());
        status.metadata_mut().insert("again-in", "a week".parse().expect("text"));
        Err(status)
    };
    let handlers = Handlers::new().handle::<AnswersBook, _, _>(book).start().await.expect("starts");
    let url = serve(Some(handlers)).await;
    let stock = tonic::transport::Endpoint::from_shared(url.clone()).expect("a URL").connect().await.expect("connects");
    let by_stock = AnswersClient::new(stock).book(note("")).await.expect_err("sold out");
    let channel = Channel::connect(url, &PATHCALL).await.expect("connects");
    let by_channel = AnswersClient::new(channel).book(note("")).await.expect_err("sold out");
    for status in [by_stock, by_channel] {
        assert_eq!(
            (status.code(), status.message(), status.details()),
            (Code::NotFound, "sold out", &b"\x08\x05\xff"[..])
        );
        assert_eq!(status.metadata().get("again-in").map(|value| value.as_bytes()), Some(&b"a week"[..]), "{status:?}");
    }
}

#[tokio::test]
async fn unary_call_has_one_reply_of_any_server() {
    let (front, back) = front().await;
    let url = serve(Some(front.clone())).await;
    let stock = tonic::transport::Endpoint::from_shared(url.clone()).expect("a URL").connect().await.expect("connects");
    let channel = Channel::connect(url, &PATHCALL).await.expect("connects");
    let (node, _requests) = Node::start(&NodeConfig::default()).await.expect("starts");
    let client = Client::new(node, Directory::of([("front", front.address())]));
    for (question, expected) in [
        ("yes", Ok("yes")),
        ("", Err((Code::Internal, "no server replied to a unary call"))),
        ("yes no", Err((Code::Internal, "the servers sent several replies to a unary call"))),
        ("fail", Err((Code::NotFound, "no answer"))),
    ] {
        let by_stock = AnswersClient::new(stock.clone()).ask(note(question)).await.map(tonic::Response::into_inner);
        let by_channel = AnswersClient::new(channel.clone()).ask(note(question)).await.map(tonic::Response::into_inner);
        let call = client.call::<Note>().request::<AnswersAsk>("front", &note(question)).expect("known");
        let by_client = timeout(HANG, call.reply()).await.expect("in time");
        for answer in [by_stock, by_channel, by_client] {
            let answer = answer.map(|note| note.text);
            let answer = answer.as_deref().map_err(|status| (status.code(), status.message()));
            assert_eq!(answer, expected, "{question:?}");
        }
    }
    assert_eq!(back.stats().worker.requests, 9, "all but those that failed before");
}

#[tokio::test]
async fn trace_of_unary_call_has_its_outcome() {
    let (front, _back) = front().await;
    let (traced, mut traces) = mpsc::unbounded_channel();
    let (node, _requests) = Node::start(&NodeConfig::default()).await.expect("starts");
    let client = Client::new(node, Directory::of([("front", front.address())]));
    let client = client.traces(move |trace: &CallTrace| drop(traced.send(trace.clone())));
    for (question, code) in [("yes", Code::Ok), ("fail", Code::NotFound), ("", Code::Internal)] {
        let call = client.call::<Note>().request::<AnswersAsk>("front", &note(question)).expect("known");
        let _ = timeout(HANG, call.reply()).await.expect("in time");
        let trace = timeout(HANG, traces.recv()).await.expect("in time").expect("a trace");
        assert_eq!(trace.status, code, "{question:?}: {trace}");
    }
}
