//! Tests of invalid bytes from the network: each is refused or handled, and none panics.

use bytes::Bytes;
use pathcall_pipe::{HopAfter, Pipe, STEPS_MAX};
use pathcall_test_support::stubs::shop::{Item, Reserved, User, Wish};
use proptest::prelude::*;
use prost::Message;
use tonic::Code;

use crate::{SHOP, example, order};

fn wish() -> Vec<u8> {
    let item = Item { name: "lamp".to_owned(), count: 2 };
    Wish { token: "secret".to_owned(), item: Some(item), comment: "long".repeat(9) }.encode_to_vec()
}

fn user() -> Vec<u8> {
    User { name: "ann".to_owned(), roles: vec!["buyer".to_owned()] }.encode_to_vec()
}

/// Message to the next step.
fn next(after: HopAfter) -> Bytes {
    match after {
        HopAfter::Step(_, message) => message,
        HopAfter::Reply(reply) => panic!("not the last step: {reply:?}"),
    }
}

/// Messages to the three steps.
fn hops(pipe: &Pipe) -> [Bytes; 3] {
    let first = pipe.first_hop(&wish()).expect("a wish");
    let second = next(pipe.answered(pipe.arrive(0, first.clone()).expect("a hop"), &user()).expect("a user"));
    let reserved = Reserved { id: 7, price: 9.5 }.encode_to_vec();
    let third = next(pipe.answered(pipe.arrive(1, second.clone()).expect("a hop"), &reserved).expect("reserved"));
    [first, second, third]
}

#[test]
fn hop_carries_only_fields_that_are_needed() {
    let has = |hop: &Bytes, text: &str| hop.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    let found = hops(&order()).map(|hop| ["secret", "lamp", "ann", "buyer", "long"].map(|text| has(&hop, text)));
    assert_eq!(
        found,
        [[true, true, false, false, false], [false, true, true, false, false], [false, false, true, false, false],]
    );
}

#[test]
fn hop_of_other_version_or_step_is_refused() {
    let pipe = order();
    let text = std::fs::read_to_string(example("order.yaml")).expect("a file").replace("days: 3", "days: 4");
    let other = Pipe::parse("order.yaml", &text, &SHOP).expect("valid");
    let [first, second, _] = hops(&pipe);
    let refused = other.arrive(0, first.clone()).expect_err("another version");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().starts_with("step auth: the sender has another version of the pipe; "), "{refused}");
    for (step, hop) in [(1, first), (0, second)] {
        let refused = pipe.arrive(step, hop).expect_err("another step");
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("a hop to this step carries"), "{refused}");
    }
}

#[test]
fn invalid_messages_of_caller_and_service_are_refused() {
    let pipe = order();
    let refused = pipe.first_hop(b"\xff").expect_err("no message");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().starts_with("the request is no shop.Wish: "), "{refused}");
    let arrived = pipe.arrive(0, hops(&pipe)[0].clone()).expect("a hop");
    let refused = pipe.answered(arrived, b"\xff").expect_err("no message");
    assert_eq!(refused.code(), Code::Internal);
    assert!(refused.message().starts_with("step auth: the service's reply is no shop.User: "), "{refused}");
}

/// Bytes of a hop of which some are replaced, at the step that they are for.
fn damaged() -> impl Strategy<Value = (usize, Vec<u8>)> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (0..3usize, changes, any::<prop::sample::Index>()).prop_map(|(step, changes, end)| {
        let mut bytes = hops(&order())[step].to_vec();
        for (at, byte) in changes {
            *at.get_mut(&mut bytes) = byte;
        }
        // Half of them are cut.
        bytes.truncate((end.index(2 * bytes.len()) + 1).min(bytes.len()));
        (step, bytes)
    })
}

proptest! {
    #[test]
    fn damaged_hop_is_refused_or_handled(
        (step, bytes) in prop_oneof![
            3 => damaged(),
            1 => (0..3usize, prop::collection::vec(any::<u8>(), 0..60)),
        ],
        reply in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let pipe = order();
        if let Ok(arrived) = pipe.arrive(step, bytes.into()) {
            let _ = pipe.request(&arrived);
            let _ = pipe.answered(arrived, &reply);
        }
    }

    #[test]
    fn any_request_of_caller_is_refused_or_passed_on(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let pipe = order();
        if let Ok(hop) = pipe.first_hop(&bytes) {
            prop_assert!(pipe.arrive(0, hop).is_ok());
        }
    }
}

#[test]
fn hop_with_too_many_messages_is_refused_before_they_take_memory() {
    // Empty messages of two bytes each.
    let hop = Bytes::from([0x12, 0x00].repeat(1_000_000));
    let refused = order().arrive(0, hop).expect_err("too many");
    let limit = STEPS_MAX + 2;
    let message = format!("step auth: invalid message of a hop: it has 1000000 fields, at most {limit} are taken");
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, &message[..]));
}
