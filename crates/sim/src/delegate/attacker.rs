//! Attacker of the delegate simulation: replays overheard messages under its own identity, and forges messages.
//!
//! The attacker is not a server of a call, so it does not know the state of the call. It uses the id of a call only
//! under its own identity, or under one that the transport does not confirm.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use pathcall_endpoint::delegate::{ContextId, NodeId, PeerNode};
use pathcall_wire::delegate::{
    DelegateMessage, DelegateResponse, Ping, PingSubject, RequestManifest, ResponseGrant, ResponseId, parse,
};

use crate::random::Random;

/// Peer identity of the attacker.
pub(super) fn attacker() -> PeerNode {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 6, 6, 6)), 666);
    PeerNode { node: NodeId::new(0x5afe_5afe), address }
}

/// Forges a message after overhearing `message`.
pub(super) fn forge(random: &mut Random, message: &Bytes) -> Bytes {
    let Ok((heard, _)) = parse(message) else { return junk(random) };
    let own = ContextId::new(attacker().node, random.below(4) as u32 + 1);
    let guessed = ContextId::new(NodeId::new(random.bits()), random.below(8) as u32 + 1);
    match (random.below(6), heard) {
        (0, _) => junk(random),
        // A message with the id of another call.
        (1, _) => {
            let mut bytes = message.to_vec();
            let at = 4 + random.index(6);
            bytes[at] ^= 1 << random.below(8);
            bytes.into()
        }
        (2, DelegateMessage::Request(request)) => {
            let ping = Ping {
                call: request.call,
                subject: PingSubject::Request(request.request),
                abort: true,
                round: 1,
                first: 1,
            };
            Bytes::copy_from_slice(&ping.encode())
        }
        (3, DelegateMessage::Response(DelegateResponse { call, id: ResponseId::Numbered(context, _), .. })) => {
            Bytes::copy_from_slice(&ResponseGrant { call, context, responses: u32::MAX }.encode())
        }
        (4, DelegateMessage::Response(DelegateResponse { call, id: ResponseId::Numbered(context, number), .. })) => {
            let id = ResponseId::Numbered(context, number + random.below(3) as u32);
            let manifest = RequestManifest {
                request: call.request(1),
                context: own,
                requests: 0,
                responses: 0,
                server: attacker().address,
            };
            Bytes::copy_from_slice(
                &DelegateResponse { call, id, null: false, again: None, manifest: Some(manifest) }.encode(),
            )
        }
        _ => {
            let id =
                if random.below(2) == 0 { ResponseId::Sole(guessed.request(1)) } else { ResponseId::Numbered(own, 1) };
            let manifest = RequestManifest {
                request: guessed.request(1),
                context: own,
                requests: random.bits() as u32,
                responses: random.bits() as u32,
                server: attacker().address,
            };
            Bytes::copy_from_slice(
                &DelegateResponse { call: guessed, id, null: false, again: None, manifest: Some(manifest) }.encode(),
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
