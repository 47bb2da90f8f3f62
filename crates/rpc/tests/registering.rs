//! Tests of callers whose registration at the controller fails or takes long.

use std::sync::Arc;

use crate::controller::FakeController;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{ApplicationGrant, JoinGrant, JoinRequest, MemoryGrant, ReleaseEndpointRequest};
use pathcall_rpc::Layer;
use pathcall_test_support::HANG;
use pathcall_test_support::service::{TestServer, join, until};
use pathcall_test_support::stubs::PATHCALL;
use tokio::sync::Notify;
use tokio::time::timeout;
use tonic::Streaming;
use tonic::transport::Channel;

/// Server of an element that does not exist, with a fake controller.
async fn server(controller: &FakeController) -> (TestServer, PeerClient<Channel>) {
    let memory = MemoryGrant { data_address: "127.0.0.1:9".into(), rows: 8, width: 256, ..MemoryGrant::default() };
    controller.records().memory = Some(memory);
    let address = controller.start("127.0.0.1:0").await;
    let pathcall = Layer::builder(&PATHCALL).controller(format!("http://{address}")).build().await.unwrap();
    let server = TestServer::start_with(pathcall, 0).await;
    let peer = PeerClient::connect(server.uri()).await.unwrap();
    (server, peer)
}

/// Join of an application without element memory.
fn request() -> JoinRequest {
    JoinRequest { flows: 2, ..join("/rpctest.Training/Update") }
}

async fn next(stream: &mut Streaming<JoinGrant>) -> JoinGrant {
    timeout(HANG, stream.message()).await.expect("in time").unwrap().unwrap()
}

#[tokio::test]
async fn unregistered_member_uses_element_after_registration() {
    let controller = FakeController::default();
    let (_server, mut peer) = server(&controller).await;
    let mut stream = peer.join(request()).await.unwrap().into_inner();
    let first = next(&mut stream).await;
    assert_ne!(first.element_address, "");
    controller.records().away = true;
    let sender = controller.stream_of("T-SUM");
    let memory = controller.records().memory.clone();
    let other =
        ApplicationGrant { gaid: first.gaid, epoch: 8, endpoint: first.server, memory, token_key: None, recall: 0 };
    sender.send(Ok(other)).await.unwrap();
    let without = next(&mut stream).await;
    assert_eq!((without.epoch, without.element_address.as_str()), (8, ""));
    controller.records().away = false;
    let mut with = next(&mut stream).await;
    while with.element_address.is_empty() {
        with = next(&mut stream).await;
    }
    assert!(with.epoch > 8, "the element has had nothing of it in that epoch");
    assert_eq!(with.endpoint, first.endpoint);
    drop(stream);
    timeout(HANG, until(|| !controller.records().released.is_empty())).await.expect("it has left");
}

#[tokio::test]
async fn caller_leaving_during_registration_is_released() {
    let controller = FakeController::default();
    let (server, mut peer) = server(&controller).await;
    let answer = Arc::<Notify>::default();
    controller.records().slow = Some(Arc::clone(&answer));
    let joining = tokio::spawn(async move { peer.join(request()).await.map(drop) });
    timeout(HANG, until(|| controller.records().endpoints.len() == 1)).await.expect("it is asked");
    joining.abort();
    let gone = || server.pathcall.stats().iter().all(|application| application.members == 0);
    timeout(HANG, until(gone)).await.expect("the server knows");
    answer.notify_one();
    timeout(HANG, until(|| !controller.records().released.is_empty())).await.expect("it is given back");
    assert_eq!(controller.records().released, [ReleaseEndpointRequest { gaid: 4, endpoint: 1000, server: 0 }]);
}

#[tokio::test]
async fn late_registration_is_released_with_caller() {
    let controller = FakeController::default();
    let (_server, mut peer) = server(&controller).await;
    let answer = Arc::<Notify>::default();
    controller.records().slow = Some(Arc::clone(&answer));
    let mut stream = peer.join(request()).await.unwrap().into_inner();
    let grant = next(&mut stream).await;
    assert!(grant.endpoint != 1000 && grant.element_address.is_empty(), "{grant:?}");
    controller.records().slow = None;
    answer.notify_waiters();
    drop(stream);
    let released = |endpoint| controller.records().released.iter().any(|release| release.endpoint == endpoint);
    timeout(HANG, until(|| released(1000) && released(grant.endpoint))).await.expect("both are given back");
}

#[tokio::test]
async fn narrow_rows_of_first_grant_stay_width_of_callers() {
    let controller = FakeController::default();
    let narrow = MemoryGrant { data_address: "127.0.0.1:9".into(), rows: 8, width: 32, ..MemoryGrant::default() };
    controller.records().memory = Some(narrow.clone());
    let address = controller.start("127.0.0.1:0").await;
    let pathcall = Layer::builder(&PATHCALL).controller(format!("http://{address}")).build().await.unwrap();
    let server = TestServer::start_with(pathcall, 0).await;
    let asked = || {
        let latest = controller.records().registered.iter().rfind(|request| request.name == "T-SUM").cloned();
        latest.map(|request| (request.width, request.takes_narrow_rows)).expect("it is asked")
    };
    assert_eq!(asked(), (256, true));
    let mut peer = PeerClient::connect(server.uri()).await.unwrap();
    let mut stream = peer.join(request()).await.unwrap().into_inner();
    let first = next(&mut stream).await;
    assert_eq!((first.width, first.element_address.as_str()), (32, "127.0.0.1:9"));
    // Rows of another element are too narrow: its memory is not used, and the controller learns the width.
    let memory = Some(MemoryGrant { width: 16, ..narrow });
    let other =
        ApplicationGrant { gaid: first.gaid, epoch: 8, endpoint: first.server, memory, token_key: None, recall: 0 };
    controller.stream_of("T-SUM").send(Ok(other)).await.unwrap();
    let without = next(&mut stream).await;
    assert_eq!((without.width, without.element_address.as_str()), (32, ""));
    timeout(HANG, until(|| asked() == (32, false))).await.expect("it is asked anew");
}
