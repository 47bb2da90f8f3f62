//! More keys or ballots than an owner has memory for: the rest are refused by name, and what is known goes on.

use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::lease::LEASE;
use pathcall_endpoint::map::server::{KEY_MEMORY, MapServer, Member, ServerConfig};
use pathcall_endpoint::map::{ClearPolicy, Dest, Key, Outbox};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{self, MAX_ENTRIES, Status};
use pathcall_wire::{BaseRepr, Flags, Instant, Kind, MapFlags, MapFrame, MapRepr};

/// Keeps the answers to one frame.
#[derive(Default)]
struct Answers(Vec<pairs::Answer>);

impl Outbox for Answers {
    fn send(&mut self, _: Dest, frame: &[u8]) {
        let frame = MapFrame::new_checked(frame).expect("a frame");
        if frame.kind() == Kind::MapPairsAck {
            self.0.extend(pairs::answers(frame.payload()));
        }
    }
}

/// An owner with one caller, which sends frames of whole pairs.
struct World {
    server: MapServer,
    seq: u32,
}

impl World {
    fn new(key_memory: usize) -> Self {
        Self::of(key_memory, false)
    }

    /// `votes`: its keys are ballots.
    fn of(key_memory: usize, votes: bool) -> Self {
        let mut server = MapServer::new(ServerConfig {
            gaid: 7,
            epoch: 1,
            endpoint: 1,
            incarnation: 5,
            grant: None,
            threshold: 0,
            clear: ClearPolicy::Copy,
            mapping: !votes,
            acked: false,
            locks: false,
            votes,
            eviction: None,
            key_memory,
            width: 64,
            lease: LEASE,
            timing: Timing::default(),
        });
        let caller = Member { endpoint: 10, incarnation: 5, element: false, slot_base: 0, flows: 1, terms: 0 };
        server.join(Instant(0), caller).expect("room");
        Self { server, seq: 0 }
    }

    /// Adds 1 to each of these keys; what is said of them, in order.
    fn add(&mut self, keys: &[Key]) -> Vec<Status> {
        self.say(MapFlags::ADD, keys)
    }

    /// Says this of each of these keys, with 1; what is said of them, in order.
    fn say(&mut self, flags: u16, keys: &[Key]) -> Vec<Status> {
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
            ..BaseRepr::new(Kind::MapPairs)
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
            rest = pairs::put(rest, key.as_bytes(), 1).expect("room");
        }
        let mut answers = Answers::default();
        self.server.handle(Instant(u64::from(self.seq)), &bytes, &mut answers);
        answers.0.iter().map(|answer| answer.status).collect()
    }

    /// Says this of `count` keys, one after the other; how many found room.
    fn fill(&mut self, flags: u16, count: i64) -> i64 {
        let mut room = 0;
        for first in (0..count).step_by(64) {
            let keys: Vec<Key> = (first..count.min(first + 64)).map(Key::from).collect();
            room += self.say(flags, &keys).iter().filter(|status| **status != Status::Full).count() as i64;
        }
        room
    }
}

#[test]
fn keys_beyond_the_memory_are_refused_and_known_ones_go_on() {
    let memory = 1 << 20;
    let mut world = World::new(memory);
    let room = world.fill(MapFlags::ADD, 20_000);
    assert!((500..10_000).contains(&room), "{room}");
    assert_eq!(world.server.stats().keys, room as u64, "nothing is kept of those that are refused");
    assert_eq!(world.add(&[Key::from(0), Key::from(19_999)]), [Status::Logical, Status::Full]);
    // Long keys take more: a whole order of magnitude fewer fit.
    let mut world = World::new(memory);
    let long = |i: i64| Key::from(format!("{i:01000}").as_str());
    let fitting = (0..20_000).take_while(|i| world.add(&[long(*i)]) != [Status::Full]).count() as i64;
    assert!(fitting > 100 && fitting < room / 3, "{fitting} and {room}");
}

#[test]
fn claims_take_no_more_than_their_ballots() {
    const CLAIM: u16 = MapFlags::COUNT | MapFlags::CLAIM;
    let mut world = World::of(1 << 20, true);
    let room = world.fill(MapFlags::COUNT, 20_000);
    assert!((500..15_000).contains(&room), "{room}");

    let mut world = World::of(1 << 20, true);
    (0..20_000).for_each(|_| assert_eq!(world.say(CLAIM, &[Key::from(0)]), [Status::Whole]));
    assert_eq!(world.server.stats().keys, 1);
    assert_eq!(world.fill(CLAIM, 20_000), room, "those beyond it are refused");
    assert_eq!(world.server.stats().keys, room as u64);
    assert_eq!(world.say(CLAIM, &[Key::from(0), Key::from(19_999)]), [Status::Whole, Status::Full]);
}

/// Resident memory of this process, bytes, now and at its highest.
#[cfg(target_os = "linux")]
fn resident() -> [u64; 2] {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    ["VmRSS:", "VmHWM:"].map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        1024 * line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    })
}

/// Ten million keys, under the usual bound and under one that holds them all: run by hand,
/// `cargo test --release -p pathcall-endpoint --test main key_memory -- --ignored --nocapture`.
#[test]
#[ignore = "takes gigabytes"]
#[cfg(target_os = "linux")]
fn ten_million_keys_take_no_more_than_they_may() {
    for memory in [KEY_MEMORY, KEY_MEMORY * 4] {
        let [before, _] = resident();
        let mut world = World::new(memory);
        let room = world.fill(MapFlags::ADD, 10_000_000);
        let [now, highest] = resident();
        println!("{memory} bytes allowed: {room} keys, {} bytes, {} at the worst", now - before, highest - before);
        assert!(highest - before <= memory as u64);
        assert_eq!(world.server.stats().keys, room as u64);
    }
}
