//! Memory limit for keys and ballots: new ones are refused, known ones continue to work.

use pathcall_endpoint::map::server::{KEY_MEMORY, MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{Dest, FrameSink, Key};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{self, MAX_ENTRIES, PairStatus};
use pathcall_wire::{BaseRepr, Flags, FrameKind, Instant, MapFlags, MapFrame, MapRepr};

use crate::config::server_config;

/// Frame sink that keeps the answers to one frame.
#[derive(Default)]
struct Answers(Vec<pairs::PairAnswer>);

impl FrameSink for Answers {
    fn send(&mut self, _: Dest, frame: &[u8]) {
        let frame = MapFrame::new_checked(frame).expect("valid frame");
        if frame.kind() == FrameKind::MapPairsAck {
            self.0.extend(pairs::answers(frame.payload()));
        }
    }
}

/// Owner with one caller that sends frames of whole pairs.
struct OwnerFixture {
    server: MapServer,
    seq: u32,
}

impl OwnerFixture {
    fn new(key_memory: usize) -> Self {
        Self::with_votes(key_memory, false)
    }

    /// Owner of keys, or of ballots if `votes`.
    fn with_votes(key_memory: usize, votes: bool) -> Self {
        let mut server = MapServer::new(ServerConfig { mapping: !votes, votes, key_memory, ..server_config() });
        let caller = Member { endpoint: 10, incarnation: 5, element: false, slot_base: 0, flows: 1, terms: 0 };
        server.join(Instant(0), caller).expect("join succeeds");
        Self { server, seq: 0 }
    }

    /// Adds 1 to each key. Returns the status of each, in order.
    fn add(&mut self, keys: &[Key]) -> Vec<PairStatus> {
        self.send(MapFlags::ADD, keys)
    }

    /// Sends these flags and the value 1 for each key. Returns the status of each, in order.
    fn send(&mut self, flags: u16, keys: &[Key]) -> Vec<PairStatus> {
        assert!(keys.len() <= MAX_ENTRIES);
        self.seq += 1;
        let base = BaseRepr {
            flags: Flags::CROSS,
            gaid: 7,
            epoch: 1,
            src: 10,
            src_incarnation: 5,
            dst: 1,
            dst_incarnation: 5,
            seq: self.seq,
            ..BaseRepr::new(FrameKind::MapPairs)
        };
        let payload: usize = keys.iter().map(|key| pairs::entry_len(key.as_bytes().len())).sum();
        let map = MapRepr {
            flags: flags | MapFlags::BARE,
            threshold: 2,
            payload_len: u16::try_from(payload).expect("fits a frame"),
            ..MapRepr::default()
        };
        let mut bytes = vec![0; frame_len(map.flags, 0, payload)];
        let mut frame = emit(&base, &map, &mut bytes);
        let mut rest = frame.payload_mut();
        for key in keys {
            rest = pairs::put(rest, key.as_bytes(), 1).expect("enough space");
        }
        let mut answers = Answers::default();
        self.server.handle(Instant(u64::from(self.seq)), &bytes, &mut answers);
        answers.0.iter().map(|answer| answer.status).collect()
    }

    /// Sends these flags for `count` keys. Returns the number of accepted keys.
    fn fill(&mut self, flags: u16, count: i64) -> i64 {
        let mut room = 0;
        for first in (0..count).step_by(64) {
            let keys: Vec<Key> = (first..count.min(first + 64)).map(Key::from).collect();
            room += self.send(flags, &keys).iter().filter(|status| **status != PairStatus::Full).count() as i64;
        }
        room
    }
}

#[test]
fn keys_beyond_memory_limit_are_refused() {
    let memory = 1 << 20;
    let mut owner = OwnerFixture::new(memory);
    let room = owner.fill(MapFlags::ADD, 20_000);
    assert!((500..10_000).contains(&room), "{room}");
    assert_eq!(owner.server.stats().keys, room as u64, "refused keys are not stored");
    assert_eq!(owner.add(&[Key::from(0), Key::from(19_999)]), [PairStatus::Logical, PairStatus::Full]);
    // Long keys need more memory, so fewer fit.
    let mut owner = OwnerFixture::new(memory);
    let long = |i: i64| Key::from(format!("{i:01000}").as_str());
    let fitting = (0..20_000).take_while(|i| owner.add(&[long(*i)]) != [PairStatus::Full]).count() as i64;
    assert!(fitting > 100 && fitting < room / 3, "{fitting} and {room}");
}

#[test]
fn claims_need_no_memory_beyond_their_ballots() {
    const CLAIM: u16 = MapFlags::COUNT | MapFlags::CLAIM;
    let mut owner = OwnerFixture::with_votes(1 << 20, true);
    let room = owner.fill(MapFlags::COUNT, 20_000);
    assert!((500..15_000).contains(&room), "{room}");

    let mut owner = OwnerFixture::with_votes(1 << 20, true);
    (0..20_000).for_each(|_| assert_eq!(owner.send(CLAIM, &[Key::from(0)]), [PairStatus::Whole]));
    assert_eq!(owner.server.stats().keys, 1);
    assert_eq!(owner.fill(CLAIM, 20_000), room, "claims beyond the limit are refused");
    assert_eq!(owner.server.stats().keys, room as u64);
    assert_eq!(owner.send(CLAIM, &[Key::from(0), Key::from(19_999)]), [PairStatus::Whole, PairStatus::Full]);
}

/// Resident memory of this process in bytes: current and peak.
#[cfg(target_os = "linux")]
fn resident() -> [u64; 2] {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    ["VmRSS:", "VmHWM:"].map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        1024 * line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    })
}

/// Ten million keys, with the default limit and with one that fits all keys. Run by hand:
/// `cargo test --release -p pathcall-endpoint --test main key_memory -- --ignored --nocapture`.
#[test]
#[ignore = "takes gigabytes"]
#[cfg(target_os = "linux")]
fn ten_million_keys_stay_within_memory_limit() {
    for memory in [KEY_MEMORY, KEY_MEMORY * 4] {
        let [before, _] = resident();
        let mut owner = OwnerFixture::new(memory);
        let room = owner.fill(MapFlags::ADD, 10_000_000);
        let [now, highest] = resident();
        println!("{memory} bytes allowed: {room} keys, {} bytes, {} at the worst", now - before, highest - before);
        assert!(highest - before <= memory as u64);
        assert_eq!(owner.server.stats().keys, room as u64);
    }
}
