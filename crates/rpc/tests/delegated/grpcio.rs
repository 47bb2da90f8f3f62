//! Test of a unary delegated method that is called by stock grpcio, gRPC for Python.

use std::process::{Command, Stdio};

use pathcall_rpc::delegate::{DelegatedCall, Directory, Handlers, NodeTarget};
use pathcall_test_support::HANG;
use pathcall_test_support::stubs::Note;
use pathcall_test_support::stubs::delegated::{AnswersAsk, AnswersBook};
use prost::Message;
use tokio::time::timeout;
use tonic::Status;

use super::cluster::serve;

/// Calls the methods, whose messages it takes as bytes, and prints what each call returns.
const CALLER: &str = r#"
import grpc, sys
channel = grpc.insecure_channel(sys.argv[1])
for method in ("Ask", "Book"):
    call = channel.unary_unary(
        "/rpctest.Answers/" + method, request_serializer=lambda sent: sent, response_deserializer=lambda got: got)
    try:
        reply, ended = call.with_call(bytes.fromhex(sys.argv[2]), metadata=(("user", "me"),), timeout=600)
        print(reply.hex(), ended.code().name)
    except grpc.RpcError as error:
        print(error.code().name, error.details(), dict(error.trailing_metadata()).get("again-in"))
"#;

/// Python that has grpcio.
fn python() -> Option<&'static str> {
    let has_grpc = |python: &&str| {
        let imports = Command::new(python).args(["-c", "import grpc"]).stderr(Stdio::null()).status();
        imports.is_ok_and(|status| status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(has_grpc)
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_grpcio_calls_a_unary_delegated_method() {
    let Some(python) = python() else {
        assert!(
            std::env::var_os("PATHCALL_ROOT_TESTS").is_none(),
            "Python's grpcio is missing: install python3-grpcio"
        );
        return println!("skipped: Python's grpcio is missing");
    };
    let answer = async |question: Note, call: DelegatedCall<Note>| {
        let user = call.metadata().get("user").map_or("nobody", |user| user.to_str().expect("text")).to_owned();
        call.reply(Note { text: format!("{} for {user}", question.text) }).await
    };
    let back = Handlers::new().handle::<AnswersAsk, _, _>(answer).start().await.expect("starts");
    let ask = async |question: Note, call: DelegatedCall<Note>| {
        call.delegate::<AnswersAsk>(NodeTarget::service("back"), &question)
    };
    let book = async |_: Note, _: DelegatedCall<Note>| {
        let mut status = Status::not_found("sold out");
        status.metadata_mut().insert("again-in", "a week".parse().expect("text"));
        Err(status)
    };
    let front = Handlers::new().directory(Directory::of([("back", back.address())]));
    let front = front.handle::<AnswersAsk, _, _>(ask).handle::<AnswersBook, _, _>(book).start().await.expect("starts");
    let url = serve(Some(front)).await;
    let hex = |note: &str| -> String {
        let message = Note { text: note.to_owned() }.encode_to_vec();
        message.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let mut caller = Command::new(python);
    caller.args(["-c", CALLER, url.trim_start_matches("http://"), &hex("tea")]);
    let called = timeout(HANG, tokio::task::spawn_blocking(move || caller.output())).await.expect("in time");
    let output = called.expect("no panic").expect("Python runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let expected = format!("{} OK\nNOT_FOUND sold out a week\n", hex("tea for me"));
    assert_eq!(printed, expected, "{}", String::from_utf8_lossy(&output.stderr));
}
