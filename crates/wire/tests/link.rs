//! Link messages: round trips, parse errors and address tokens.

use std::net::SocketAddr;

use pathcall_wire::Error;
use pathcall_wire::link::{Link, LinkKind, LinkRepr, LinkSecret, MAGIC};
use proptest::prelude::*;

fn addresses() -> impl Strategy<Value = SocketAddr> {
    let ip = prop_oneof![
        any::<[u8; 4]>().prop_map(std::net::IpAddr::from),
        any::<[u8; 16]>().prop_map(|ip| {
            // A mapped IPv4 address is the same address.
            std::net::IpAddr::from(ip).to_canonical()
        })
    ];
    (ip, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

proptest! {
    #[test]
    fn link_offer_round_trips(
        nonce: u64, seen in addresses(), listener: u128, token: u64
    ) {
        let offer = LinkRepr::offer(nonce, seen, listener, token);
        let bytes = offer.bytes();
        let view = Link::new_checked(&bytes).unwrap();
        prop_assert_eq!((view.repr(), view.observed_address()), (offer, seen));
        prop_assert!(view.repr().is(LinkKind::Offer) && view.repr().join().is(LinkKind::Join));
    }

    #[test]
    fn invalid_link_bytes_are_rejected_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        prop_assert!(Link::new_checked(&bytes).is_err());
        bytes.resize(Link::LEN, 0);
        bytes[..2].copy_from_slice(&MAGIC.to_be_bytes());
        // Must not panic.
        let _ = Link::new_checked(&bytes).map(|view| view.observed_address());
    }

    #[test]
    fn address_token_is_valid_for_two_periods(
        words: [u64; 2], one in addresses(), other in addresses(), period in 1_u64..1 << 40
    ) {
        let secret = LinkSecret::new(words);
        let token = secret.token(one, period);
        prop_assert!(secret.accepts(token, one, period) && secret.accepts(token, one, period + 1));
        prop_assert!(!secret.accepts(token, one, period + 2) && !secret.accepts(token, one, period - 1));
        prop_assert!(one == other || !secret.accepts(token, other, period));
        prop_assert!(!LinkSecret::new([words[0], !words[1]]).accepts(token, one, period));
    }
}

#[test]
fn link_parse_error_names_the_violation() {
    let right = LinkRepr::hello(7).bytes();
    Link::new_checked(&right).unwrap();
    let with = |at: usize, value| {
        let mut bytes = right;
        bytes[at] = value;
        Link::new_checked(bytes).unwrap_err()
    };
    assert_eq!(with(0, 0), Error::Magic(MAGIC & 0xff));
    assert_eq!(with(2, 9), Error::Version(9));
    assert_eq!(with(3, 0), Error::Value { field: "kind", value: 0 });
    assert_eq!(with(3, 4), Error::Value { field: "kind", value: 4 });
    assert_eq!(with(7, 1), Error::Value { field: "reserved", value: 1 });
    let short = Link::new_checked(&right[1..]).unwrap_err();
    assert_eq!(short, Error::Length { expected: Link::LEN, got: Link::LEN - 1 });
}
