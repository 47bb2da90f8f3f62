//! Tests of admission for delegated requests.

use std::sync::{Arc, Mutex};

use pathcall_rpc::Layer;
use pathcall_rpc::delegate::{Client, DelegatedCall, Directory, Handlers, Node, NodeConfig};
use pathcall_test_support::HANG;
use pathcall_test_support::stubs::delegated::DocsLookup;
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::{Note, PATHCALL, Wish};
use tokio::time::timeout;
use tonic::{Code, Request, Status};

use super::{ALL, CheckLocation, Guarded, Rules, with};

#[tokio::test]
async fn delegated_request_passes_layers_and_interceptor() {
    for by in [None, Some(CheckLocation::Inner), Some(CheckLocation::Outer)] {
        let rules = Rules::new(&[("good", &[ALL])]);
        let (ran, own) = (Arc::new(Mutex::new(0)), Arc::clone(&rules));
        let lookup = {
            let ran = Arc::clone(&ran);
            move |_: Wish, call: DelegatedCall<Note>| {
                *ran.lock().unwrap() += 1;
                async move {
                    let user = call.extensions().get::<&str>().copied().unwrap_or("nobody");
                    call.reply(Note { text: user.to_owned() }).await
                }
            }
        };
        let mut handlers = Handlers::new().handle::<DocsLookup, _, _>(lookup);
        if by.is_none() {
            handlers = handlers.interceptor(move |mut request: Request<()>| {
                own.check(ALL, request.metadata())?;
                request.extensions_mut().insert("somebody");
                Ok(request)
            });
        }
        let handlers = handlers.start().await.unwrap();
        // The services' interceptors do not apply to the handlers.
        let guarded =
            Guarded::start(by.unwrap_or(CheckLocation::Interceptors), rules, |builder| builder.handlers(handlers))
                .await;
        let stock = tonic::transport::Channel::from_shared(guarded.url.clone()).unwrap().connect().await.unwrap();
        let channel = guarded.channel().await;
        let mut runs = 0;
        for token in ["", "bad", "good", "bad"] {
            let [a, b] = [
                first(DocsClient::new(channel.clone()).lookup(with(token, Wish::default())).await).await,
                first(DocsClient::new(stock.clone()).lookup(with(token, Wish::default())).await).await,
            ];
            if token == "good" {
                let expected = if by.is_none() { "somebody" } else { "nobody" };
                assert_eq!((a.unwrap().as_str(), b.unwrap().as_str()), (expected, expected), "{by:?}");
                runs += 2;
            } else if by == Some(CheckLocation::Outer) {
                // The outer layer sees gRPC calls, but not the frames of an admitted channel.
                assert_eq!(b.unwrap_err().code(), Code::Unauthenticated);
                runs += usize::from(a.is_ok());
            } else {
                assert_eq!([a, b].map(|outcome| outcome.unwrap_err().code()), [Code::Unauthenticated; 2], "{by:?}");
            }
            assert_eq!(*ran.lock().unwrap(), runs, "{by:?} {token:?}");
        }
    }
}

#[tokio::test]
async fn handlers_work_without_layer() {
    let lookup = async |_: Wish, call: DelegatedCall<Note>| call.reply(Note { text: "found".to_owned() }).await;
    let handlers = Handlers::new().handle::<DocsLookup, _, _>(lookup).start().await.unwrap();
    let _server = Layer::builder(&PATHCALL).handlers(handlers.clone()).build().await.unwrap();
    let (node, _requests) = Node::start(&NodeConfig::default()).await.unwrap();
    let client = Client::new(node, Directory::of([("index", handlers.address())]));
    let call = client.call::<Note>().request::<DocsLookup>("index", &Wish::default()).unwrap();
    let mut replies = call.begin().unwrap();
    let reply = timeout(HANG, replies.message()).await.expect("in time").unwrap();
    assert_eq!(reply.unwrap().text, "found");
}

/// First reply of a call.
pub(super) async fn first(replies: Result<tonic::Response<tonic::Streaming<Note>>, Status>) -> Result<String, Status> {
    let note = replies?.into_inner().message().await?;
    Ok(note.ok_or_else(|| Status::not_found("it has no reply"))?.text)
}
