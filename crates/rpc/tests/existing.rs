//! Tests of Pathcall in an existing tonic service. The examples in `docs/existing-service.md` are taken from this file.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::serve::ListenerExt;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::service::{TestHandlers, counts, note, str_int};
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::training_server::TrainingServer;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::words_server::WordsServer;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::service::Routes;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::{Code, Request, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tower::ServiceBuilder;

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

fn handlers() -> TestHandlers {
    TestHandlers(Arc::default())
}

/// Adds a value by key, reads it, and calls a handler.
async fn check_calls(url: &str) {
    let channel = Channel::connect(url.to_owned(), &PATHCALL).await.unwrap();
    let mut words = WordsClient::new(channel.clone());
    words.reduce(counts(&[("a", 1)], "")).await.unwrap();
    words.reduce(counts(&[("a", 2)], "to the handler")).await.unwrap();
    let wanted = Wanted { keys: Some(str_int(&[("a", 0)])), ..Wanted::default() };
    assert_eq!(words.query(wanted).await.unwrap().into_inner().kvs, Some(str_int(&[("a", 3)])));
}

/// Interceptor that checks the token of a request.
fn check_token(request: Request<()>) -> Result<Request<()>, Status> {
    match request.metadata().get("authorization") {
        Some(token) if token == "Bearer it is me" => Ok(request),
        _ => Err(Status::unauthenticated("no token")),
    }
}

#[tokio::test]
async fn interceptors_health_reflection_and_shutdown_work() {
    let (listener, url) = listen().await;
    let (words, training) = (handlers(), handlers());
    let (stop, stopped) = oneshot::channel::<()>();
    let signal = async { drop(stopped.await) };
    let server = tokio::spawn(async move {
        let pathcall = Layer::builder(&PATHCALL).build().await?;
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status("rpctest.Words", ServingStatus::Serving).await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(PATHCALL.descriptor)
            .build_v1()?;
        tonic::transport::Server::builder()
            .layer(pathcall.clone())
            .add_service(WordsServer::with_interceptor(words, check_token))
            .add_service(TrainingServer::new(training))
            .add_service(health_service)
            .add_service(reflection)
            .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), signal)
            .await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    });
    let channel = Channel::connect(url.clone(), &PATHCALL).await.unwrap();
    let refused = WordsClient::new(channel.clone()).reduce(counts(&[("a", 1)], "")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let mut words = WordsClient::with_interceptor(channel.clone(), |mut request: Request<()>| {
        request.metadata_mut().insert("authorization", "Bearer it is me".parse().expect("ASCII"));
        Ok(request)
    });
    words.reduce(counts(&[("a", 1)], "")).await.unwrap();

    let stock = tonic::transport::Channel::from_shared(url).unwrap().connect().await.unwrap();
    let asked = HealthCheckRequest { service: "rpctest.Words".into() };
    let said = HealthClient::new(stock.clone()).check(asked).await.unwrap().into_inner();
    assert_eq!(said.status, tonic_health::pb::health_check_response::ServingStatus::Serving as i32);
    let list = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..ServerReflectionRequest::default()
    };
    let mut reflected = ServerReflectionClient::new(stock.clone());
    let mut answers = reflected.server_reflection_info(tokio_stream::once(list)).await.unwrap().into_inner();
    let answer = format!("{:?}", answers.message().await.unwrap());
    assert!(answer.contains("rpctest.Words"), "{answer}");
    drop(answers);
    stop.send(()).unwrap();
    timeout(HANG, server).await.expect("it ends by itself").unwrap().unwrap();
}

#[tokio::test]
async fn grpc_web_calls_work() {
    let (listener, url) = listen().await;
    let (words, training) = (handlers(), handlers());
    let pathcall = Layer::builder(&PATHCALL).build().await.unwrap();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tokio::spawn(async move {
        tonic::transport::Server::builder()
            .accept_http1(true)
            .layer(tonic_web::GrpcWebLayer::new())
            .layer(pathcall.clone())
            .add_service(WordsServer::new(words))
            .add_service(TrainingServer::new(training))
            .serve_with_incoming(incoming)
            .await
    });
    check_calls(&url).await;
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    let body = http_body_util::Full::new(bytes::Bytes::from_static(b"\0\0\0\0\x04\x0a\x02hi"));
    let request = http::Request::post(format!("{url}/rpctest.Training/Echo"));
    let request = request.header("content-type", "application/grpc-web+proto").body(body).unwrap();
    let response = client.request(request).await.unwrap();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    assert!(body.windows(2).any(|part| part == b"hi"), "{body:?}");
}

#[tokio::test]
async fn axum_pages_share_port() {
    let (listener, url) = listen().await;
    let (words, training) = (handlers(), handlers());
    let pathcall = Layer::builder(&PATHCALL).build().await.unwrap();
    let grpc = ServiceBuilder::new()
        .map_request(|request: http::Request<axum::body::Body>| {
            let (mut parts, body) = request.into_parts();
            // Map frames of a caller come from where its connection comes from.
            if let Some(ConnectInfo(remote)) = parts.extensions.get::<ConnectInfo<SocketAddr>>() {
                let info = TcpConnectInfo { local_addr: None, remote_addr: Some(*remote) };
                parts.extensions.insert(info);
            }
            http::Request::from_parts(parts, tonic::body::Body::new(body))
        })
        .layer(pathcall.clone())
        .service(Routes::new(WordsServer::new(words)).add_service(TrainingServer::new(training)));
    let app = axum::Router::new().route("/hello", axum::routing::get(async || "hello")).fallback_service(grpc);
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    let served = axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>());
    tokio::spawn(async move { served.await });
    check_calls(&url).await;
    let channel = tonic::transport::Channel::from_shared(url.clone()).unwrap().connect().await.unwrap();
    assert_eq!(TrainingClient::new(channel).echo(note("hi")).await.unwrap().into_inner().text, "hi");
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    let page = http::Request::get(format!("{url}/hello")).body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let page = client.request(page).await.unwrap();
    assert_eq!(http_body_util::BodyExt::collect(page.into_body()).await.unwrap().to_bytes(), "hello");
}

#[test]
fn page_shows_tested_code() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/existing-service.md")).unwrap();
    let trimmed =
        |text: &str| text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    let tested = trimmed(include_str!("existing.rs"));
    let mut blocks = page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).peekable();
    assert!(blocks.peek().is_some());
    for block in blocks {
        assert!(tested.contains(&trimmed(block)), "not in the tests:\n{block}");
    }
}
