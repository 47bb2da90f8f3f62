//! Tests of `modify` alone and of counters with `get`: in software, through a real element, and from plain gRPC clients.

use std::time::Duration;

use pathcall_proto::types::FpArray;
use pathcall_rpc::Layer;
use pathcall_test_support::HANG;
use pathcall_test_support::element::by_element;
use pathcall_test_support::service::{TestServer, start_plain, str_int};
use pathcall_test_support::stubs::filters::filters_client::FiltersClient;
use pathcall_test_support::stubs::filters::{Ballots, Decided, PATHCALL, Reading, Seen};
use tokio::time::timeout;
use tonic::Code;

async fn server(controller: Option<&str>) -> TestServer {
    let builder = Layer::builder(&PATHCALL);
    let builder = controller.map_or(builder.clone(), |url| builder.controller(url));
    TestServer::start_with(builder.build().await.expect("builds"), 0).await
}

async fn channel(server: &TestServer) -> pathcall_rpc::Channel {
    pathcall_rpc::Channel::connect(server.uri(), &PATHCALL).await.expect("a channel")
}

async fn plain(server: &TestServer) -> tonic::transport::Channel {
    tonic::transport::Endpoint::new(server.uri()).expect("a URI").connect().await.expect("connects")
}

fn reading(values: &[f64], text: &str) -> Reading {
    Reading { values: Some(FpArray { data: values.to_vec() }), text: text.to_owned() }
}

fn ballots(keys: &[&str]) -> Ballots {
    let pairs: Vec<_> = keys.iter().map(|key| (*key, 1)).collect();
    Ballots { names: Some(str_int(&pairs)) }
}

#[tokio::test]
async fn handler_gets_modified_values_of_channels_and_plain_clients() {
    let server = server(None).await;
    let mut joined = FiltersClient::new(channel(&server).await);
    let mut alone = FiltersClient::new(plain(&server).await);
    // Precision 1: the operand 5 is 0.5, and 0.74 has one digit.
    let (sent, expected) = (reading(&[0.2, 0.74, -3.0, 7.0], "text"), vec![0.5, 0.7, 0.5, 7.0]);
    for seen in [joined.clamp(sent.clone()).await, alone.clamp(sent).await] {
        let seen = seen.expect("a reply").into_inner();
        assert_eq!(seen, Seen { values: expected.clone(), text: "text".into() });
    }
    let empty = joined.clamp(Reading { values: None, text: "none".into() }).await.expect("a reply").into_inner();
    assert_eq!(empty, Seen { values: vec![], text: "none".into() });
    for error in [joined.clamp(reading(&[1e12], "")).await, alone.clamp(reading(&[1e12], "")).await] {
        assert_eq!(error.expect_err("too large for operators").code(), Code::OutOfRange);
    }
    let stats = server.pathcall.stats();
    let clamp = stats.iter().find(|stats| stats.name == "T-CLAMP").expect("known");
    assert_eq!((clamp.plain.calls, clamp.direct.calls, clamp.map.keys), (2, 3, 0), "{clamp:?}");
}

#[tokio::test]
async fn long_message_is_modified_by_channel() {
    let server = server(None).await;
    let mut joined = FiltersClient::new(channel(&server).await).max_decoding_message_size(64 << 20);
    // More than 4 MiB, which no direct call has: the handler's own limit refuses it, after the modification.
    let long = reading(&vec![1.0; 600_000], "");
    let refused = joined.clamp(long).await.expect_err("too long for the handler");
    assert_eq!(refused.code(), Code::OutOfRange);
    let clamp = server.pathcall.stats().into_iter().find(|stats| stats.name == "T-CLAMP").expect("known");
    assert_eq!((clamp.direct.calls, server.seen.calls()), (0, 0));
}

#[tokio::test]
async fn server_without_layer_does_not_get_unmodified_values() {
    let (address, seen) = start_plain().await;
    let channel = pathcall_rpc::Channel::connect(format!("http://{address}"), &PATHCALL).await.expect("a channel");
    let refused = FiltersClient::new(channel).clamp(reading(&[0.2], "")).await.expect_err("no layer");
    assert_eq!((refused.code(), seen.calls()), (Code::FailedPrecondition, 0));
}

/// Both votes for several ballots: the reply says which of them the vote decided.
async fn votes(server: &TestServer, round: usize) -> u64 {
    let (first, second) = (channel(server).await, channel(server).await);
    let mut lone = FiltersClient::new(plain(server).await);
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("{name} {round}"));
    let counters = |keys: &[&str]| {
        let pairs: Vec<_> = keys.iter().map(|key| (*key, 2)).collect();
        Decided { counters: Some(str_int(&pairs)) }
    };
    let mut one = FiltersClient::new(first.clone());
    let mut other = FiltersClient::new(second.clone());
    let cast = one.tally(ballots(&[&a, &b])).await.expect("counted");
    assert_eq!(cast.metadata().get("pathcall-forwarded").expect("a count"), "false");
    assert_eq!(cast.into_inner(), counters(&[]), "a message that CntFwd drops has no counters");
    let cast = other.tally(ballots(&[&c, &b])).await.expect("counted");
    assert_eq!(cast.metadata().get("pathcall-forwarded").expect("a count"), "true");
    assert_eq!(cast.into_inner(), counters(&[&b]));
    let by_element = [first, second].into_iter().flat_map(|channel| channel.stats().applications);
    let by_element = by_element.map(|application| application.map.lanes_element).sum();
    let cast = lone.tally(ballots(&[&a, &b, &c])).await.expect("counted").into_inner();
    assert_eq!(cast, counters(&[&a, &c]));
    by_element
}

#[tokio::test]
async fn counters_say_which_ballots_a_vote_decided() {
    let server = server(None).await;
    for round in 0..3 {
        votes(&server, round).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_come_from_an_element_too() {
    by_element(|controller| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = server(Some(controller)).await;
            assert!(votes(&server, 0).await > 0, "the element counts votes");
            timeout(HANG + Duration::from_secs(60), votes(&server, 1)).await.expect("in time");
        });
    })
    .await;
}
