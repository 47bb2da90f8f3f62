//! Fuzz target of map endpoints: frames to callers and owners, of keys and of sums, for each clear policy. The input is
//! a sequence of frames, each after its length; time passes between frames. Identity fields are corrected, so that
//! frames pass admission. Checks: no panic, the number of sent frames is bounded.

use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::lease::Era;
use pathcall_endpoint::map::server::{EvictionPolicy, MapServer, Member, QueryId, ServerConfig};
use pathcall_endpoint::map::{Ack, ClearPolicy, Dest, FrameSink, Key, Modify, Operation, RegisterGrant};
use pathcall_wire::base::{MAGIC, VERSION};
use pathcall_wire::{BaseRepr, ForwardTarget, Instant};

/// Outbox that counts the sent frames.
#[derive(Default)]
struct SentFrameCounter(usize);

impl FrameSink for SentFrameCounter {
    fn send(&mut self, _: Dest, _: &[u8]) {
        self.0 += 1;
    }
}

/// Tests one input.
pub fn run(data: &[u8]) {
    let mut out = SentFrameCounter::default();
    let policies = [ClearPolicy::Copy, ClearPolicy::Shadow, ClearPolicy::Lazy];
    let mut clients = policies.map(caller);
    let mut owners = [owner(0, policies[0]), owner(2, policies[0]), owner(2, policies[1])];
    owners[0].query(Instant(0), QueryId(1), None);
    let (mut rest, mut now) = (data, Instant(0));
    while let Some((len, after)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*len)).min(after.len());
        let (frame, after) = after.split_at(len);
        (rest, now) = (after, Instant(now.0 + 3_000_000));
        let mut frame = frame.to_vec();
        let to_client = fix_identity(&mut frame);
        let before = out.0;
        if to_client {
            for client in &mut clients {
                client.handle(now, &frame);
                client.poll(now, &mut out);
                while client.next_event().is_some() {}
            }
        } else {
            for owner in &mut owners {
                owner.handle(now, &frame, &mut out);
                owner.poll(now, &mut out);
                while owner.next_event().is_some() {}
            }
        }
        assert!(out.0 - before < 4096, "{} frames at once", out.0 - before);
    }
}

/// Corrects identity fields; true if the frame is addressed to the caller.
fn fix_identity(frame: &mut [u8]) -> bool {
    let Ok(length) = u16::try_from(frame.len()) else { return false };
    let Some(head) = frame.first_chunk_mut::<44>() else { return false };
    let byte = |at: usize| u32::from(head[at]);
    let to_client = byte(27) % 2 == 1;
    let src = if to_client { 1 } else { [1, 10, 11][byte(19) as usize % 3] };
    let repr = BaseRepr {
        magic: MAGIC,
        version: VERSION,
        kind: head[3],
        flags: u16::from_be_bytes([head[4], head[5]]),
        length,
        gaid: 7,
        epoch: 1 + byte(15) % 2,
        src,
        src_incarnation: 5,
        dst: if to_client { 10 } else { 1 },
        dst_incarnation: 5,
        slot: byte(35) % 5,
        seq: byte(39),
        // Any round of the input, or a small one.
        round: if byte(40) % 2 == 1 { u32::from_be_bytes([head[40], head[41], head[42], head[43]]) } else { byte(43) },
    };
    repr.emit(head);
    to_client
}

fn owner(threshold: u32, clear: ClearPolicy) -> MapServer {
    let width = if threshold > 0 { 256 } else { 64 };
    let mut owner = MapServer::new(ServerConfig {
        gaid: 7,
        epoch: 1,
        endpoint: 1,
        incarnation: 5,
        grant: Some(RegisterGrant { rows: 4, width }),
        threshold,
        clear,
        mapping: true,
        eviction: Some(EvictionPolicy::default()),
        width,
        ..ServerConfig::default()
    });
    for endpoint in [10, 11] {
        let member = Member { endpoint, incarnation: 5, element: true, slot_base: 0, flows: 2, terms: 0 };
        owner.join(Instant(0), member).expect("room");
    }
    owner
}

fn caller(clear: ClearPolicy) -> MapClient {
    let mut client = MapClient::new(ClientConfig {
        gaid: 7,
        epoch: 1,
        endpoint: 10,
        incarnation: 5,
        server: 1,
        server_incarnation: 5,
        flows: 2,
        element: true,
        rows: 4,
        width: 256,
        clear,
        era: Era::of_epoch(1).of_element(),
        ..ClientConfig::default()
    });
    let modify = Modify::default();
    let lanes = vec![1; 700].into();
    client.start(Instant(0), CallId(1), Operation::Sum { lanes, modify, threshold: 2, to: ForwardTarget::All });
    let pairs = (0..90).map(|key| (Key::from(key), key)).collect();
    client.start(Instant(0), CallId(2), Operation::Add { pairs, modify, get: false, ack: Ack::Element });
    let keys = vec![Key::from("a lock")];
    client.start(
        Instant(0),
        CallId(3),
        Operation::Count { keys, threshold: 1, to: ForwardTarget::Src, ack: Ack::Element },
    );
    client.poll(Instant(0), &mut SentFrameCounter::default());
    client
}
