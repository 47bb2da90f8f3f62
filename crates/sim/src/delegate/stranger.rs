//! A stranger: it repeats what others said, under its own name, and makes messages up.
//!
//! It does not take part in a call, so it does not know what a call's servers know: with a call's id it speaks
//! only as itself, or as somebody whom the transport says it is not.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use pathcall_endpoint::delegate::{Context, NodeId, Peer};
use pathcall_wire::delegate::{Grant, Ids, Manifest, Message, Ping, Response, Subject, parse};

use crate::random::Random;

/// The stranger, as others see it.
pub(super) fn stranger() -> Peer {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 6, 6, 6)), 666);
    Peer { node: NodeId::new(0x5afe_5afe), address }
}

/// Something made up on hearing `message`.
pub(super) fn forge(random: &mut Random, message: &Bytes) -> Bytes {
    let Ok((heard, _)) = parse(message) else { return junk(random) };
    let own = Context::new(stranger().node, random.below(4) as u32 + 1);
    let guessed = Context::new(NodeId::new(random.bits()), random.below(8) as u32 + 1);
    match (random.below(6), heard) {
        (0, _) => junk(random),
        // Somebody else's call.
        (1, _) => {
            let mut bytes = message.to_vec();
            let at = 4 + random.index(6);
            bytes[at] ^= 1 << random.below(8);
            bytes.into()
        }
        (2, Message::Request(request)) => {
            let ping = Ping {
                call: request.call,
                subject: Subject::Request(request.request),
                abort: true,
                round: 1,
                first: 1,
            };
            Bytes::copy_from_slice(&ping.encode())
        }
        (3, Message::Response(Response { call, id: Ids::Numbered(context, _), .. })) => {
            Bytes::copy_from_slice(&Grant { call, context, responses: u32::MAX }.encode())
        }
        (4, Message::Response(Response { call, id: Ids::Numbered(context, number), .. })) => {
            let id = Ids::Numbered(context, number + random.below(3) as u32);
            let manifest = Manifest {
                request: call.request(1),
                context: own,
                requests: 0,
                responses: 0,
                server: stranger().address,
            };
            Bytes::copy_from_slice(&Response { call, id, null: false, again: None, manifest: Some(manifest) }.encode())
        }
        _ => {
            let id = if random.below(2) == 0 { Ids::Sole(guessed.request(1)) } else { Ids::Numbered(own, 1) };
            let manifest = Manifest {
                request: guessed.request(1),
                context: own,
                requests: random.bits() as u32,
                responses: random.bits() as u32,
                server: stranger().address,
            };
            Bytes::copy_from_slice(
                &Response { call: guessed, id, null: false, again: None, manifest: Some(manifest) }.encode(),
            )
        }
    }
}

fn junk(random: &mut Random) -> Bytes {
    let len = random.index(120);
    let mut bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
    if let Some(first) = bytes.first_mut().filter(|_| random.below(2) == 0) {
        *first = pathcall_wire::delegate::MAGIC;
    }
    bytes.into()
}
