//! Tests of handlers and calls of encoded messages.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use pathcall_rpc::delegate::{
    CallFailure, Client, DelegatedCall, Directory, EncodedMessage, EncodedMethod, Handlers, Node, NodeConfig,
    NodeTarget, RunningHandlers,
};
use pathcall_test_support::HANG;
use pathcall_test_support::loopback;
use tokio::time::timeout;
use tonic::{Code, Request, Status};

/// Bytes that are no message.
const NO_MESSAGE: &[u8] = b"\xff\xff\xff\x07";

/// Two servers: `first` passes each request on to `last`, and `last` replies with the request, the user and the time
/// left in seconds, rounded up.
async fn chain() -> (RunningHandlers, RunningHandlers) {
    let last = Handlers::new().handle_bytes("/run.Time/Last", async |request, call: DelegatedCall<EncodedMessage>| {
        let user = call.metadata().get("user").map_or(&b"nobody"[..], |user| user.as_bytes());
        let left = call.time_left().map_or(0, |left| left.as_secs() + 1);
        let reply = [&request[..], user, left.to_string().as_bytes()].concat();
        call.reply_bytes(EncodedMessage(reply.into())).await
    });
    let last = last.start().await.expect("starts");
    let target = NodeTarget::Address(last.address());
    let first = Handlers::new().handle_bytes("/run.Time/First", move |request: Bytes, call| {
        let passed = DelegatedCall::delegate_bytes(&call, target.clone(), "/run.Time/Last", &request);
        async { passed }
    });
    (first.start().await.expect("starts"), last)
}

async fn call(client: &Client, to: NodeTarget, request: Request<Bytes>) -> Result<Vec<Bytes>, Status> {
    let method = EncodedMethod { path: "/run.Time/First", unary: false, idempotent: false };
    let mut replies = client.call_bytes(to, method, request)?;
    let mut all = Vec::new();
    while let Some(EncodedMessage(reply)) = timeout(HANG, replies.message_bytes()).await.expect("in time")? {
        all.push(reply);
    }
    assert_eq!(replies.message_bytes().await.expect("nothing follows the end"), None);
    Ok(all)
}

async fn client() -> Client {
    let (node, _requests) = Node::start(&NodeConfig::default()).await.expect("starts");
    Client::new(node, Directory::default())
}

#[tokio::test]
async fn encoded_messages_pass_through_unchanged() {
    let ((first, _last), client) = (chain().await, client().await);
    let mut request = Request::new(Bytes::from_static(NO_MESSAGE));
    request.metadata_mut().insert("user", "me".parse().expect("text"));
    request.set_timeout(Duration::from_secs(1_000));
    let replies = call(&client, first.address().into(), request).await.expect("complete");
    assert_eq!(replies, [[NO_MESSAGE, b"me1000"].concat()]);
}

#[tokio::test]
async fn status_of_silent_server_has_failure_as_source() {
    let nobody = loopback::own();
    let failed = call(&client().await, nobody.into(), Request::new(Bytes::new())).await.expect_err("nobody is there");
    assert_eq!(failed.code(), Code::Unavailable);
    let failure = failed.source().and_then(|source| source.downcast_ref::<CallFailure>());
    assert_eq!(failure.and_then(CallFailure::server), Some(nobody), "{failed:?}");
}
