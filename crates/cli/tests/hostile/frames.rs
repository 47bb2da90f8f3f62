//! Forged frames of *map* and *clone*, from other addresses than their claimed sources.
//!
//! An eavesdropper knows all ids in frames. Where frames carry tokens, it may use the right ids; where not, only tokens
//! would keep it out (`docs/map.md`), so each forged frame here has at least one wrong id.

use std::net::SocketAddr;

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Base, BaseRepr, Flags, FrameKind, MAX_FRAME, MapFlags, MapRepr, TokenKey, pairs};
use rand::RngExt;
use rand::rngs::StdRng;

use super::attack::{Attack, Hostile, odd_number};

/// Datagrams between two checks of counters.
const BURST: usize = 32;
/// Bytes of the base header, and of the token after it.
const HEADER: usize = <Base<()>>::LEN;
const TOKEN: usize = 8;
/// Longest datagram of noise.
const NOISE_MAX: usize = 1500;

/// Destination of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
enum To {
    Element,
    /// Servers of applications and pools.
    Servers,
    Callers,
}

const NOT_LET_IN: [&str; 8] = [
    "element not_admitted",
    "element unauthentic",
    "element drop_not_admitted",
    "element drop_unauthentic",
    "element drop_forged",
    "element drop_malformed",
    "element drop_unknown_endpoint",
    "element drop_stale",
];

/// Lies about an id: a frame with one of them must be dropped.
const NAMES: &[fn(&mut BaseRepr, &mut StdRng)] = &[
    |base, random| base.gaid ^= 1 << random.random_range(0..32),
    |base, random| {
        base.src_incarnation ^= 1 << random.random_range(0..32);
        base.dst_incarnation ^= 1 << random.random_range(0..32);
    },
    |base, random| {
        base.src ^= 1 << random.random_range(0..32);
        base.dst ^= 1 << random.random_range(0..32);
    },
];

/// Lies about other fields.
const REST: &[fn(&mut BaseRepr, &mut StdRng)] = &[
    |_, _| {},
    |base, random| base.epoch ^= 1 << random.random_range(0..32),
    |base, random| base.slot = odd_number(random),
    |base, random| base.seq = odd_number(random),
    |base, random| base.round = odd_number(random),
    |base, _| base.flags ^= Flags::FLIP,
    |base, _| base.flags ^= Flags::CROSS,
    |base, _| base.flags ^= Flags::FROM_SERVER,
    |base, random| base.flags ^= 1 << random.random_range(6..16),
    |base, random| base.kind = random.random_range(0..40),
    |base, random| base.length ^= 1 << random.random_range(0..16),
    |base, _| base.magic ^= 1,
    |base, _| base.version += 1,
];

impl Hostile<'_> {
    /// Recorded frame of *clone* or of *map*; waits for the first one. Honest callers make calls of both kinds all the time.
    async fn received(&mut self, clone: bool) -> Vec<u8> {
        loop {
            let chosen = self.network.received.lock().expect("the task succeeds").choose(clone, &mut self.random);
            match chosen {
                Some(frame) => return frame,
                None => self.network.recorded.notified().await,
            }
        }
    }

    fn any_host(&mut self, to: To, base: &BaseRepr) -> SocketAddr {
        let hosts = self.network.hosts();
        let known = |endpoint| hosts.get(&endpoint).copied();
        let from_server = base.flags & Flags::FROM_SERVER != 0;
        let (server, caller) = if from_server { (base.src, base.dst) } else { (base.dst, base.src) };
        match to {
            To::Element => self.network.element.data_addr(),
            // A caller's frame names its server; a frame to a pool may name none.
            To::Servers => known(server).unwrap_or(self.network.element.data_addr()),
            To::Callers => known(caller).unwrap_or(self.network.element.data_addr()),
        }
    }

    /// Recorded frame with lies in its header, without token or with a token of another key, and its destination.
    async fn forged(&mut self, clone: bool, to: To) -> (Vec<u8>, SocketAddr) {
        let mut frame = self.received(clone).await;
        let truth = Base::new_checked(&frame[..]).expect("heard").repr();
        let address = self.any_host(to, &truth);
        // The token is cut out.
        if truth.flags & Flags::TOKEN != 0 {
            frame.drain(HEADER..HEADER + TOKEN);
        }
        let mut base = BaseRepr { flags: truth.flags & !Flags::TOKEN, length: frame.len() as u16, ..truth };
        if !self.network.tokens || self.random.random() {
            NAMES[self.random.random_range(0..NAMES.len())](&mut base, &mut self.random);
        }
        for _ in 0..self.random.random_range(0..3) {
            REST[self.random.random_range(0..REST.len())](&mut base, &mut self.random);
        }
        if self.network.tokens && self.random.random() {
            (base.src, base.dst) = (base.dst, base.src);
        }
        base.emit(&mut frame);
        // Damage after the header: fields of the ability, lanes, keys.
        for _ in 0..self.random.random_range(0..4) {
            let at = self.random.random_range(HEADER..frame.len());
            frame[at] ^= 1 << self.random.random_range(0..8);
        }
        if self.random.random() && frame.len() + 8 <= MAX_FRAME {
            let key = TokenKey::new(self.random.random());
            frame = key.insert_token(&frame, &mut [0; MAX_FRAME]).map_or(frame.clone(), <[u8]>::to_vec);
        }
        (frame, address)
    }

    async fn send(&self, frame: &[u8], to: SocketAddr) {
        // A closed port or a full queue loses the datagram, which is fine.
        let _ = self.socket.send_to(frame, to).await;
    }

    async fn forge(&mut self, kind: Attack, clone: bool, to: To, counters: &[&str]) {
        self.counted(kind, counters, async move |hostile| {
            for _ in 0..BURST {
                let (frame, address) = hostile.forged(clone, to).await;
                hostile.send(&frame, address).await;
            }
        })
        .await;
    }

    pub(super) async fn map_to_element(&mut self) {
        self.forge(Attack::MapToElement, false, To::Element, &NOT_LET_IN).await;
    }

    pub(super) async fn map_to_server(&mut self) {
        self.forge(Attack::MapToServer, false, To::Servers, &["server ignored"]).await;
    }

    pub(super) async fn map_to_caller(&mut self) {
        self.forge(Attack::MapToCaller, false, To::Callers, &["caller ignored"]).await;
    }

    pub(super) async fn clone_to_element(&mut self) {
        self.forge(Attack::CloneToElement, true, To::Element, &NOT_LET_IN).await;
    }

    pub(super) async fn clone_to_hosts(&mut self) {
        self.forge(Attack::CloneToHosts, true, To::Servers, &["pool ignored"]).await;
        self.forge(Attack::CloneToHosts, true, To::Callers, &["pool's caller ignored"]).await;
    }

    pub(super) async fn damaged(&mut self) {
        self.counted(Attack::Damaged, &["element drop_malformed"], async |hostile| {
            for turn in 0..BURST {
                let frame = hostile.received(turn % 2 == 0).await;
                let base = Base::new_checked(&frame[..]).expect("heard").repr();
                let to = [To::Element, To::Servers, To::Callers][turn / 2 % 3];
                let address = hostile.any_host(to, &base);
                let random = &mut hostile.random;
                let bytes = match random.random_range(0..4) {
                    0 => frame[..random.random_range(0..frame.len())].to_vec(),
                    1 => [&frame[..], &vec![0; random.random_range(1..NOISE_MAX)]].concat(),
                    2 => (0..random.random_range(0..NOISE_MAX)).map(|_| random.random()).collect(),
                    // Longest possible datagram, with random claims in its header.
                    _ => {
                        let mut bytes = frame.clone();
                        bytes.resize(65_000, 0xff);
                        BaseRepr { length: 65_000, ..base }.emit(&mut bytes);
                        bytes
                    }
                };
                hostile.send(&bytes, address).await;
            }
        })
        .await;
    }

    /// Replays of earlier valid frames, which repeat filters must detect.
    pub(super) async fn replay_to_element(&mut self) {
        let counters =
            ["element repeats", "element stale", "element drop_stale", "element not_admitted", "pool repeats"];
        self.counted(Attack::ReplayToElement, &counters, async |hostile| {
            for turn in 0..BURST {
                let frame = hostile.received(turn % 2 == 0).await;
                hostile.send(&frame, hostile.network.element.data_addr()).await;
            }
        })
        .await;
    }

    pub(super) async fn replay_to_hosts(&mut self) {
        let counters = ["server ignored", "caller ignored", "pool ignored", "pool repeats", "pool's caller ignored"];
        self.counted(Attack::ReplayToHosts, &counters, async |hostile| {
            for turn in 0..BURST {
                let frame = hostile.received(turn % 2 == 0).await;
                let base = Base::new_checked(&frame[..]).expect("heard").repr();
                let to = [To::Servers, To::Callers][turn / 2 % 2];
                let address = hostile.any_host(to, &base);
                hostile.send(&frame, address).await;
            }
        })
        .await;
    }

    /// Frames that the insider may send in its own application, sent to another one with its own key.
    pub(super) async fn neighbour(&mut self) {
        let status = self.network.status().await;
        self.counted(Attack::Neighbour, &NOT_LET_IN, async |hostile| {
            for turn in 0..BURST {
                let others: Vec<_> =
                    status.applications.iter().filter(|of| of.gaid != hostile.insider.grant.gaid).collect();
                let victim = others[hostile.random.random_range(0..others.len())];
                let owner = victim.endpoints.iter().find(|endpoint| endpoint.slots == 0);
                let Some(owner) = owner else { continue };
                let (grant, request) = (&hostile.insider.grant, &hostile.insider.request);
                let kinds = [
                    FrameKind::MapRead,
                    FrameKind::MapWipe,
                    FrameKind::MapClose,
                    FrameKind::MapResult,
                    FrameKind::MapPlaces,
                    FrameKind::MapFree,
                ];
                let kind = if turn % 2 == 0 { FrameKind::MapData } else { kinds[turn / 2 % kinds.len()] };
                let base = BaseRepr {
                    gaid: victim.gaid,
                    epoch: victim.epoch,
                    src: grant.endpoint,
                    src_incarnation: request.incarnation,
                    dst: owner.endpoint,
                    dst_incarnation: owner.incarnation,
                    flags: if turn % 2 == 0 { 0 } else { Flags::FROM_SERVER },
                    slot: grant.slot_base + hostile.random.random_range(0..4),
                    seq: hostile.random.random(),
                    round: hostile.random.random_range(0..50),
                    ..BaseRepr::new(kind)
                };
                let mut frame = keyed(base, &mut hostile.random);
                if let Some(key) = grant.token_key {
                    frame = TokenKey::new(key.into()).insert_token(&frame, &mut [0; MAX_FRAME]).expect("room").to_vec();
                }
                let _ = hostile.insider.socket.send_to(&frame, hostile.network.element.data_addr()).await;
            }
        })
        .await;
    }

    /// Frames with right ids and key that reader and voter may not send.
    pub(super) async fn reader(&mut self) {
        self.counted(Attack::Reader, &["server refused"], async |hostile| {
            for turn in 0..BURST {
                hostile.seq += 1;
                let seq = hostile.seq;
                let member = if turn % 2 == 0 { &hostile.reader } else { &hostile.voter };
                let flags = [MapFlags::ADD, MapFlags::CLEAR, MapFlags::ADD | MapFlags::GET][turn / 2 % 3];
                let frame = asking(member, flags, seq, b"\x01key 1");
                let server = SocketAddr::new(hostile.network.server.ip(), member.grant.server_udp_port as u16);
                let _ = member.socket.send_to(&frame, server).await;
            }
        })
        .await;
    }

    /// Damaged frames and frames of others, in the attacker's own stream.
    pub(super) async fn carry_others(&mut self) {
        let grant = &self.voter.grant;
        let first = pathcall_proto::v1::CarryFramesRequest {
            application: self.voter.request.application.clone(),
            endpoint: grant.endpoint,
            incarnation: self.voter.request.incarnation,
            frames: Vec::new(),
            session: grant.session.clone(),
        };
        let mut requests = vec![first];
        for turn in 0..BURST {
            let (mut frames, received) = (Vec::new(), self.received(turn % 2 == 0).await);
            frames.extend((received.len() as u16).to_be_bytes());
            frames.extend(received);
            // The length of the last frame exceeds the stream.
            frames.extend([0xff, 0xff, 1]);
            requests.push(pathcall_proto::v1::CarryFramesRequest { frames, ..Default::default() });
        }
        let token = self.voter.token;
        let mut peer = self.peer.clone();
        self.counted(Attack::CarryOthers, &["server foreign"], async |_| {
            let stream = tokio_stream::iter(requests.clone());
            let carried = peer.carry_frames(super::network::by(token, stream)).await.expect("own frame").into_inner();
            drop(carried);
        })
        .await;
    }
}

/// Frame of pairs under this header.
fn keyed(base: BaseRepr, random: &mut StdRng) -> Vec<u8> {
    let map = MapRepr { flags: MapFlags::ADD, lanes: random.random_range(1..32), ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, usize::from(map.lanes), 0)];
    let mut frame = emit(&base, &map, &mut bytes);
    frame.set_bitmap(0, u32::MAX);
    for lane in 0..usize::from(map.lanes) {
        frame.set_keyed(lane, random.random_range(0..64), 1_000_000);
    }
    bytes
}

/// Frame of a member with whole keys, past the element.
fn asking(member: &super::attack::Member, flags: u16, seq: u32, key: &[u8]) -> Vec<u8> {
    let grant = &member.grant;
    let base = BaseRepr {
        flags: Flags::CROSS,
        gaid: grant.gaid,
        epoch: grant.epoch,
        src: grant.endpoint,
        src_incarnation: member.request.incarnation,
        dst: grant.server,
        dst_incarnation: grant.server_incarnation,
        seq,
        ..BaseRepr::new(FrameKind::MapPairs)
    };
    let payload = pairs::entry_len(key.len());
    let payload_len = payload as u16;
    let map = MapRepr { flags: flags | MapFlags::BARE, threshold: 2, payload_len, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, 0, payload)];
    pairs::put(emit(&base, &map, &mut bytes).payload_mut(), key, 1).expect("room");
    match grant.token_key {
        Some(key) => TokenKey::new(key.into()).insert_token(&bytes, &mut [0; MAX_FRAME]).expect("room").to_vec(),
        None => bytes,
    }
}
