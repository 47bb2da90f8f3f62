//! Tests of requests compressed with gzip, from stubs and from stock gRPC.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full};
use pathcall_proto::manifest::MapPath;
use pathcall_rpc::Channel;
use pathcall_rpc::delegate::Transport;
use pathcall_test_support::service::{TestServer, counts, str_int};
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use prost::Message;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Service, ServiceExt};

use super::delegated::cluster::{DelegateCluster, wish};

/// Compressed request of a stub.
fn request(url: &str, path: &str, message: &impl Message) -> http::Request<Body> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&message.encode_to_vec()).unwrap();
    let packed = gzip.finish().unwrap();
    let mut frame = vec![1];
    frame.extend_from_slice(&u32::try_from(packed.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&packed);
    let request = http::Request::post(format!("{url}{path}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    request.header("grpc-encoding", "gzip").body(Body::new(Full::new(Bytes::from(frame)))).unwrap()
}

/// Body and status of a response.
async fn said(response: http::Response<Body>) -> (Bytes, Status) {
    let head = response.headers().clone();
    let body = response.into_body().collect().await.unwrap();
    let trailers = body.trailers().cloned().unwrap_or(head);
    (body.to_bytes(), Status::from_header_map(&trailers).expect("a status"))
}

/// The server refuses a direct call that is longer than 4 MiB when it is decompressed.
#[tokio::test]
async fn compressed_call_that_is_long_when_decompressed_travels_as_frames() {
    let server = TestServer::start().await;
    let names: Vec<String> = (0..5).map(|number| format!("{number}{}", "k".repeat(1_000_000))).collect();
    let pairs: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    for path in [MapPath::Automatic, MapPath::Direct] {
        let mut channel = Channel::builder(server.uri(), &PATHCALL).unwrap().path(path).connect().await.unwrap();
        let response = channel.call(request("", "/rpctest.Words/Reduce", &counts(&pairs, ""))).await.unwrap();
        let (_, status) = said(response).await;
        assert_eq!((status.code(), channel.stats().direct_calls), (Code::Ok, 0), "{status}");
    }
}

#[tokio::test]
async fn filtered_calls_accept_compressed_requests() {
    let server = TestServer::start().await;
    let mut channel = server.channel().await;
    for text in ["", "to the handler"] {
        let added = request("", "/rpctest.Words/Reduce", &counts(&[("a", 2)], text));
        let (_, status) = said(channel.call(added).await.unwrap()).await;
        assert_eq!(status.code(), Code::Ok, "{status}");
    }
    let wanted = Wanted { keys: Some(str_int(&[("a", 0)])), text: "to the handler".into() };
    let (found, status) = said(channel.call(request("", "/rpctest.Words/Query", &wanted)).await.unwrap()).await;
    assert_eq!(status.code(), Code::Ok, "{status}");
    assert!(found.windows(14).any(|part| part == b"to the handler"), "{found:?}");
    let found = WordsClient::new(channel.clone()).query(Wanted { text: String::new(), ..wanted }).await.unwrap();
    assert_eq!(found.into_inner().kvs, Some(str_int(&[("a", 4)])));
    assert_eq!((channel.stats().compressed_refused, server.seen.calls()), (0, 2));
}

#[tokio::test]
async fn delegated_calls_accept_compressed_requests() {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let stock = tonic::transport::Channel::from_shared(cluster.url.clone()).unwrap().connect().await.unwrap();
    let mut channel = Channel::connect(cluster.url.clone(), &PATHCALL).await.unwrap();
    let ask = || request(&cluster.url, "/rpctest.Docs/Lookup", &wish(["a1"]));
    for response in [stock.oneshot(ask()).await.unwrap(), channel.call(ask()).await.unwrap()] {
        let (replies, status) = said(response).await;
        assert_eq!(status.code(), Code::Ok, "{status}");
        assert!(replies.ends_with(b"a1"), "{replies:?}");
    }
}
