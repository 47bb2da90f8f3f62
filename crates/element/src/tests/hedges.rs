//! Tests of hedges that an element holds, on real sockets.

use pathcall_test_support::HANG;
use pathcall_wire::clone::{CLONE, ORIGINAL};
use pathcall_wire::{BaseRepr, CloneRepr, FrameKind};

use super::calls::{CALLER, GAID, INCARNATION, KEY, SERVERS, hosts};
use super::common::{ElementFixture, config, fixture_with};
use crate::Config;

/// Counters of hedges: held, sent, dropped.
async fn counters(fixture: &mut ElementFixture) -> [u64; 3] {
    let reply = fixture.counters().await;
    ["hedges_held", "hedges_sent", "hedges_dropped"].map(|name| reply.applications[&GAID].counters[name])
}

fn request(delay_us: u32) -> BaseRepr {
    BaseRepr { round: delay_us, ..BaseRepr::new(FrameKind::CloneRequest) }
}

async fn hedge_leaves_once_for_other_server(config: Config, key: Option<[u64; 2]>) {
    let mut fixture = fixture_with(config).await;
    let [caller, first, second] = hosts(&mut fixture, key).await;
    let plain = CloneRepr { parts: 1, ..CloneRepr::default() };
    caller.send_with(request(500), CALLER, 0, plain).await;
    let (original, hedge) = (first.receive().await, second.receive().await);
    assert_eq!((original.head().clo(), hedge.head().clo()), (ORIGINAL, CLONE));
    assert_eq!((original.base().dst(), hedge.base().dst()), (SERVERS[0], SERVERS[1]));
    assert_eq!((original.payload(), original.head().req_id()), (hedge.payload(), hedge.head().req_id()));

    let head = |sid, of: &CloneRepr| CloneRepr { sid, ..*of };
    second.send(FrameKind::CloneReply, SERVERS[1], CALLER, head(1, &hedge.head().repr())).await;
    assert_eq!((caller.receive().await.head().clo(), counters(&mut fixture).await), (CLONE, [1, 1, 0]));
    first.send(FrameKind::CloneReply, SERVERS[0], CALLER, head(0, &original.head().repr())).await;
    // The cancellation names the faster server, and finds the other one; the slower answer was filtered.
    caller.send(FrameKind::CloneCancel, CALLER, 0, CloneRepr { sid: 1, ..plain }).await;
    assert_eq!(first.receive().await.kind(), FrameKind::CloneCancel);
    assert_eq!(fixture.counters().await.element["drop_filtered"], 1);
}

#[tokio::test]
async fn hedge_leaves_after_its_delay_for_other_server() {
    hedge_leaves_once_for_other_server(config(), None).await;
}

#[tokio::test]
async fn hedge_with_tokens_leaves_signed() {
    hedge_leaves_once_for_other_server(config(), Some(KEY)).await;
}

#[tokio::test]
async fn hedge_leaves_while_element_polls_for_frames() {
    hedge_leaves_once_for_other_server(config().busy_poll(true), None).await;
}

#[tokio::test]
async fn answer_drops_hedge_and_says_so() {
    let mut fixture = fixture_with(config()).await;
    let [caller, first, _] = hosts(&mut fixture, None).await;
    let plain = CloneRepr { parts: 1, ..CloneRepr::default() };
    let delay_us = u32::try_from(HANG.as_micros()).expect("minutes");
    caller.send_with(request(delay_us), CALLER, 0, plain).await;
    let original = first.receive().await;
    assert_eq!(original.head().clo(), ORIGINAL);
    let answer = BaseRepr { dst_incarnation: INCARNATION, ..BaseRepr::new(FrameKind::CloneReply) };
    first.send_with(answer, SERVERS[0], CALLER, original.head().repr()).await;
    assert_eq!(caller.receive().await.head().clo(), 0);
    assert_eq!(counters(&mut fixture).await, [1, 0, 1]);
}
