//! Tests of the path `automatic` at the server: an element takes part once a caller on another host has joined.

use std::net::SocketAddr;

use pathcall_proto::manifest::MapPath;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{JoinGrant, MemoryGrant, NoMemoryReason, RegisterApplicationRequest};
use pathcall_rpc::Layer;
use pathcall_test_support::service::{TestHandlers, join, until};
use pathcall_test_support::stubs::PATHCALL;
use pathcall_test_support::stubs::words_server::WordsServer;
use tokio::net::TcpListener;
use tonic::Streaming;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

use crate::controller::FakeController;

const METHOD: &str = "/rpctest.Words/Reduce";

/// Server whose callers seem to be on the host with this address, if one is given.
async fn start(pathcall: Layer, callers: Option<SocketAddr>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let moved = tower::util::MapRequestLayer::new(move |mut request: http::Request<_>| {
        if let Some(caller) = callers {
            let connection = TcpConnectInfo { local_addr: Some(address), remote_addr: Some(caller) };
            request.extensions_mut().insert(connection);
        }
        request
    });
    let server = tonic::transport::Server::builder()
        .layer(moved)
        .layer(pathcall)
        .add_service(WordsServer::new(TestHandlers(std::sync::Arc::default())))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(async move { server.await.unwrap() });
    format!("http://{address}")
}

/// Membership of a caller that sends no frames, and its grant.
async fn member(url: &str, incarnation: u32) -> (Streaming<JoinGrant>, JoinGrant) {
    let mut peer = PeerClient::connect(url.to_owned()).await.unwrap();
    let request = pathcall_proto::v1::JoinRequest { incarnation, ..join(METHOD) };
    let mut stream = peer.join(request).await.unwrap().into_inner();
    let grant = stream.message().await.unwrap().unwrap();
    (stream, grant)
}

/// Controller that grants memory of an element, and a layer with this path.
async fn layer_by(path: MapPath) -> (FakeController, Layer) {
    let controller = FakeController::default();
    let data_address = "127.0.0.1:9".to_owned();
    controller.records().memory = Some(MemoryGrant { data_address, rows: 8, width: 64, ..MemoryGrant::default() });
    let address = controller.start("127.0.0.1:0").await;
    let layer = Layer::builder(&PATHCALL).controller(format!("http://{address}")).path(path).build().await.unwrap();
    (controller, layer)
}

/// Latest registration of the application.
fn registration(controller: &FakeController) -> RegisterApplicationRequest {
    controller.records().registered.iter().rfind(|request| request.name == "T-WORDS").cloned().unwrap()
}

fn uses_element(layer: &Layer) -> (bool, Option<&'static str>) {
    let stats = layer.stats().into_iter().find(|stats| stats.name == "T-WORDS").unwrap();
    (stats.element, stats.no_memory_reason)
}

#[tokio::test]
async fn callers_on_one_host_use_no_element_until_another_host_joins() {
    let (controller, layer) = layer_by(MapPath::Automatic).await;
    assert_eq!(registration(&controller).rows, 1024);
    let (here, elsewhere) = (start(layer.clone(), None).await, start(layer.clone(), "192.0.2.7:9".parse().ok()).await);
    let (_first, grant) = member(&here, 1).await;
    assert_eq!((grant.element_address.as_str(), uses_element(&layer)), ("", (false, Some("one host"))));
    // The server returns the memory, and says why.
    until(|| registration(&controller).rows == 0).await;
    assert_eq!(registration(&controller).no_memory_reason(), NoMemoryReason::SameHost);

    let _second = member(&elsewhere, 2).await;
    until(|| registration(&controller).rows == 1024).await;
    assert_eq!(registration(&controller).no_memory_reason(), NoMemoryReason::Unspecified);
    until(|| uses_element(&layer) == (true, None)).await;
    let (_third, grant) = member(&here, 3).await;
    assert_eq!(grant.element_address, "127.0.0.1:9");
}

#[tokio::test]
async fn first_caller_on_another_host_uses_the_element_at_once() {
    let (controller, layer) = layer_by(MapPath::Automatic).await;
    let elsewhere = start(layer.clone(), "192.0.2.7:9".parse().ok()).await;
    let (_first, grant) = member(&elsewhere, 1).await;
    assert_eq!((grant.element_address.as_str(), uses_element(&layer)), ("127.0.0.1:9", (true, None)));
    assert_eq!(controller.records().registered.iter().filter(|request| request.name == "T-WORDS").count(), 1);
}

#[tokio::test]
async fn pinned_paths_use_the_element_or_none_wherever_callers_are() {
    for (path, rows, element, callers) in [
        (MapPath::Element, 1024, "127.0.0.1:9", None),
        (MapPath::Software, 0, "", "192.0.2.7:9".parse().ok()),
        (MapPath::Direct, 0, "", "192.0.2.7:9".parse().ok()),
    ] {
        let (controller, layer) = layer_by(path).await;
        let url = start(layer.clone(), callers).await;
        let (_member, grant) = member(&url, 1).await;
        assert_eq!((registration(&controller).rows, grant.element_address.as_str()), (rows, element), "{path:?}");
        let reason = (rows == 0).then_some("pinned");
        assert_eq!(uses_element(&layer), (rows > 0, reason), "{path:?}");
    }
}
