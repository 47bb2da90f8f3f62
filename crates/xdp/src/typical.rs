//! What the program takes for typical frames: the time of each kind, alone on a processor.
//!
//! ```text
//! Typical::ALL ─► frames, each with the next number ─► BPF_PROG_RUN, one by one ─► median
//! ```
//!
//! Times are the kernel's own, around the program: the driver, the system call, and the search for a route
//! are not in them; reading the clock is. They are context, to be compared with each other.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use pathcall_program::{Application, CloneSize, Endpoint, Pool, Size};
use pathcall_wire::clone::{self, ORIGINAL};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{entry_len, put};
use pathcall_wire::{
    BaseRepr, CloneFlags, CloneHeader, CloneRepr, Flags, KEYED_LANES, KEYED_WIDTH, Kind, LINEAR_LANES, MAX_FRAME,
    MapFlags, MapHeader, MapRepr,
};

use crate::{Config, Error, Kernel, Packet};

const ELEMENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7702);
const SENDER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 4000);
/// The application, its server and its caller: nobody else is there.
const GAID: u32 = 1;
const SERVER: u32 = 1;
const CALLER: u32 = 2;
const ROWS: u32 = KEYED_LANES as u32;
/// The pool, and its servers.
const POOL: u32 = 2;
const SERVERS: [u32; 2] = [10, 11];
/// What a call says: most requests are shorter than 512 bytes (NetClone §3.7).
const MESSAGE: &[u8] = &[0x5a; 128];
/// Key of the ballot.
const KEY: &[u8] = b"proposal";

/// A kind of frame, and what is done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Typical {
    /// A packet that is none of the program's.
    Other,
    /// A part of a round that waits for another: lanes are added.
    Part,
    /// One that completes its round: so many lanes are added, and the sums read.
    Complete(usize),
    /// The server's result, which clears a row.
    Result,
    /// So many pairs, added and read.
    Pairs(usize),
    /// A lock is taken.
    Lock,
    /// A vote is counted.
    Vote,
    /// A frame that asks for nothing is passed on: what forwarding costs. As long as those of calls below.
    Crossing,
    /// A request goes to a server of its pool: to the first of its pair, as one of them is busy.
    Steered,
    /// A request is cloned: until user space or the interfaces make the copy.
    Cloned,
    /// The faster answer of a cloned call, which passes and is remembered.
    Answer,
}

impl Typical {
    /// All that are measured.
    pub const ALL: [Self; 13] = [
        Self::Other,
        Self::Part,
        Self::Complete(LINEAR_LANES),
        Self::Complete(64),
        Self::Result,
        Self::Pairs(KEYED_LANES),
        Self::Pairs(1),
        Self::Lock,
        Self::Vote,
        Self::Crossing,
        Self::Steered,
        Self::Cloned,
        Self::Answer,
    ];
    /// Those of calls to pools, each to be compared with [`Self::Crossing`].
    pub const CALLS: [Self; 3] = [Self::Steered, Self::Cloned, Self::Answer];

    /// What a table calls it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Other => "a packet that is not a frame".to_owned(),
            Self::Part => format!("{LINEAR_LANES} linear lanes, added"),
            Self::Complete(lanes) => format!("{lanes} linear lanes, added and read"),
            Self::Result => format!("a result, {LINEAR_LANES} lanes cleared"),
            Self::Pairs(1) => "1 pair, added and read".to_owned(),
            Self::Pairs(pairs) => format!("{pairs} pairs, added and read"),
            Self::Lock => "a lock, taken".to_owned(),
            Self::Vote => "a vote, counted".to_owned(),
            Self::Crossing => "a frame that crosses".to_owned(),
            Self::Steered => "a call, steered".to_owned(),
            Self::Cloned => "a call, cloned".to_owned(),
            Self::Answer => "an answer, filtered".to_owned(),
        }
    }

    /// The median time of so many of each kind, one kind after the other.
    ///
    /// # Errors
    /// As [`Kernel::load`], or what the kernel says.
    pub fn times(runs: u32) -> Result<Vec<(Self, Duration)>, Error> {
        let time = |(typical, kernel): (Self, Kernel)| Ok((typical, typical.time_in(&kernel, runs)?));
        Self::kernels()?.into_iter().map(time).collect()
    }

    /// What this takes of what `other` does, times so many turns of each, one after the other: the ratio of their
    /// medians in each turn, and of those the median. Others on the machine disturb both alike.
    ///
    /// # Errors
    /// As [`times`](Self::times).
    pub fn ratio(self, other: Self, turns: u32, runs: u32) -> Result<f64, Error> {
        let (mut ratios, here, there) = (Vec::with_capacity(turns as usize), self.kernel()?, other.kernel()?);
        for _ in 0..turns.max(1) {
            let (ours, theirs) = (self.time_in(&here, runs)?, other.time_in(&there, runs)?);
            ratios.push(ours.as_secs_f64() / theirs.as_secs_f64());
        }
        ratios.sort_unstable_by(f64::total_cmp);
        Ok(ratios[ratios.len() / 2])
    }

    fn time_in(self, kernel: &Kernel, runs: u32) -> Result<Duration, Error> {
        let mut times = Vec::with_capacity(runs as usize);
        for number in 1..=runs.max(1) {
            if self == Self::Result {
                run(kernel, &packet(&Self::Part.frame(number)))?;
            }
            let mut packet = packet(&self.frame(number));
            if self == Self::Other {
                packet[12..14].copy_from_slice(&[0x08, 0x06]);
            }
            times.push(run(kernel, &packet)?);
            if let Some(after) = self.after(number) {
                run(kernel, &self::packet(&after))?;
            }
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    /// The program for each kind. They are loaded at the same time: the kernel takes most of a second to verify one.
    fn kernels() -> Result<Vec<(Self, Kernel)>, Error> {
        std::thread::scope(|scope| {
            let loading = Self::ALL.map(|typical| scope.spawn(move || Ok((typical, typical.kernel()?))));
            loading.into_iter().map(|kernel| kernel.join().expect("loading does not panic")).collect()
        })
    }

    /// The program, with room for what this needs.
    fn kernel(self) -> Result<Kernel, Error> {
        let width = if matches!(self, Self::Pairs(_)) { KEYED_WIDTH } else { LINEAR_LANES };
        let size = Size { rows: ROWS as usize, lanes: ROWS as usize * width, slots: 1 };
        let (data_port, slow_port) = (ELEMENT.port(), ELEMENT.port() + 1);
        let clones = CloneSize::default();
        let config = Config { size, clones, data_port, slow_port, routed: false, inlined: false };
        let mut kernel = Kernel::load(&config)?;
        kernel.own(*ELEMENT.ip())?;
        kernel.install(&Application {
            gaid: GAID,
            epoch: 1,
            owner: SERVER,
            row_base: 0,
            rows: ROWS,
            lane_base: 0,
            width: width as u32,
        })?;
        for (endpoint, slots) in [(SERVER, 0), (CALLER, 1)] {
            kernel.set_endpoint(&Endpoint { endpoint, incarnation: 1, gaid: GAID, slot_base: 0, slots }, SENDER)?;
        }
        kernel.install_pool(&Pool { gaid: POOL, version: 1, servers: SERVERS.to_vec() })?;
        for endpoint in SERVERS.into_iter().chain([CALLER + POOL]) {
            let entry = Endpoint { endpoint, incarnation: 1, gaid: POOL, slot_base: 0, slots: 0 };
            kernel.set_endpoint(&entry, SENDER)?;
        }
        if self == Self::Steered {
            run(&kernel, &packet(&call(Kind::CloneWorking, 0, CloneRepr { state: 1, ..CloneRepr::default() })))?;
        }
        Ok(kernel)
    }

    fn frame(self, number: u32) -> Vec<u8> {
        let part = MapFlags::LINEAR | MapFlags::ADD | MapFlags::COUNT | MapFlags::ROUND;
        let map = MapRepr::default();
        let lanes = |lanes: usize| lanes as u16;
        match self {
            Self::Other | Self::Part => {
                let map = MapRepr { flags: part, threshold: 2, lanes: lanes(LINEAR_LANES), ..map };
                frame(&sent(Kind::MapData, number, number), &map)
            }
            Self::Complete(count) => {
                let map = MapRepr { flags: part, threshold: 1, lanes: lanes(count), ..map };
                frame(&sent(Kind::MapData, number, number), &map)
            }
            Self::Result => result(number),
            Self::Pairs(count) => {
                let map = MapRepr { flags: MapFlags::ADD | MapFlags::GET, lanes: lanes(count), ..map };
                frame(&sent(Kind::MapData, number, 0), &map)
            }
            Self::Lock => {
                let map = MapRepr { flags: MapFlags::COUNT, threshold: 1, tag: number, ..map };
                frame(&sent(Kind::MapData, 2 * number, 0), &map)
            }
            Self::Vote => {
                let payload_len = entry_len(KEY.len()) as u16;
                let map = MapRepr { flags: MapFlags::COUNT, threshold: u32::MAX, payload_len, ..map };
                frame(&sent(Kind::MapPairs, number, 0), &map)
            }
            Self::Crossing => {
                let payload_len = (CloneHeader::LEN - MapHeader::LEN + MESSAGE.len()) as u16;
                let base = BaseRepr { flags: Flags::CROSS, ..sent(Kind::MapSilent, number, 0) };
                frame(&base, &MapRepr { payload_len, ..map })
            }
            Self::Steered | Self::Cloned => call(Kind::CloneRequest, number, CloneRepr::default()),
            Self::Answer => answer(number, 0),
        }
    }

    /// What makes the next of its kind possible.
    fn after(self, number: u32) -> Option<Vec<u8>> {
        match self {
            Self::Part | Self::Complete(_) => Some(result(number)),
            Self::Lock => {
                let map = MapRepr { flags: MapFlags::CLEAR, tag: number, ..MapRepr::default() };
                Some(frame(&sent(Kind::MapData, 2 * number + 1, 0), &map))
            }
            Self::Other | Self::Result | Self::Pairs(_) | Self::Vote => None,
            Self::Crossing | Self::Steered | Self::Cloned => None,
            // The slower one, which frees the slot.
            Self::Answer => Some(answer(number, 1)),
        }
    }
}

/// How long a packet takes.
fn run(kernel: &Kernel, packet: &[u8]) -> Result<Duration, Error> {
    Ok(kernel.run_timed(packet, &mut Vec::new())?.1)
}

/// From the caller to the server.
fn sent(kind: Kind, seq: u32, round: u32) -> BaseRepr {
    let (src, dst) = (CALLER, SERVER);
    BaseRepr {
        gaid: GAID,
        epoch: 1,
        src,
        src_incarnation: 1,
        dst,
        dst_incarnation: 1,
        seq,
        round,
        ..BaseRepr::new(kind)
    }
}

fn result(round: u32) -> Vec<u8> {
    let base = sent(Kind::MapResult, 0, round);
    let base = BaseRepr { flags: Flags::FROM_SERVER, src: base.dst, dst: base.src, ..base };
    let flags = MapFlags::LINEAR | MapFlags::ROUND | MapFlags::CLEAR;
    frame(&base, &MapRepr { flags, ..MapRepr::default() })
}

/// With all lanes marked and small: registers stay away from their ends.
fn frame(base: &BaseRepr, map: &MapRepr) -> Vec<u8> {
    let (lanes, payload) = (usize::from(map.lanes), usize::from(map.payload_len));
    let mut bytes = vec![0; frame_len(map.flags, lanes, payload)];
    let mut frame = emit(base, map, &mut bytes);
    let value = |lane: usize| if base.seq.is_multiple_of(2) { lane as i32 } else { -(lane as i32) };
    for word in 0..lanes.div_ceil(32) {
        frame.set_bitmap(word, u32::MAX >> (32 - (lanes - word * 32).min(32)));
    }
    if map.flags & MapFlags::LINEAR == 0 {
        (0..lanes).for_each(|lane| frame.set_keyed(lane, lane as u32, value(lane)));
    } else {
        let cells = frame.bitmap_and_lanes_mut().1.as_chunks_mut::<4>().0;
        cells.iter_mut().enumerate().for_each(|(lane, cell)| *cell = value(lane).to_be_bytes());
    }
    if payload > 0 {
        put(frame.payload_mut(), KEY, 1);
    }
    bytes
}

/// An answer of a server; ids come again, so that the filter's memory is as near as that of the tables.
fn answer(number: u32, sid: u16) -> Vec<u8> {
    let head = CloneRepr { req_id: 1 + u64::from(number % 64), clo: ORIGINAL, sid, ..CloneRepr::default() };
    call(Kind::CloneReply, number, head)
}

/// A frame of a call: the caller's to its pool, or a server's answer.
fn call(kind: Kind, number: u32, head: CloneRepr) -> Vec<u8> {
    let caller = CALLER + POOL;
    let server = SERVERS[usize::from(head.sid)];
    let (src, dst) = if kind == Kind::CloneRequest { (caller, 0) } else { (server, caller) };
    let flags = if kind == Kind::CloneRequest { 0 } else { Flags::FROM_SERVER };
    let base = BaseRepr { flags, gaid: POOL, src, dst, ..sent(kind, number, 0) };
    let flags = CloneFlags::CLONE | CloneFlags::SHORTEST;
    let head = CloneRepr { flags, parts: 1, grp: 1, ..head };
    let mut bytes = [0; MAX_FRAME];
    let len = clone::emit(&base, &head, MESSAGE, &mut bytes);
    bytes[..len].to_vec()
}

fn packet(frame: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    Packet { from: SENDER, to: ELEMENT, congested: false }.emit(frame, &mut packet);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each is what its name says: by what the program has counted.
    #[test]
    fn typical_frames_do_what_they_say() {
        const RUNS: u32 = 5;
        let kernels = match Typical::kernels() {
            Err(Error::Permission) if std::env::var_os("PATHCALL_ROOT_TESTS").is_none() => {
                println!("skipped: {}", Error::Permission);
                return;
            }
            kernels => kernels.expect("loaded"),
        };
        for (typical, kernel) in kernels {
            typical.time_in(&kernel, RUNS).expect("measured");
            let (.., c) = kernel.applications().expect("read")[0];
            let (.., calls) = kernel.pools().expect("read")[0];
            let runs = u64::from(RUNS);
            let of_lanes = |lanes: usize| (runs, runs * lanes as u64);
            let name = typical.name();
            match typical {
                Typical::Other => assert_eq!(c.admitted, 0, "{name}"),
                Typical::Part => {
                    assert_eq!((of_lanes(LINEAR_LANES), c.reached), ((c.applied, c.lanes_added), 0), "{name}")
                }
                Typical::Complete(lanes) => {
                    assert_eq!((of_lanes(lanes), c.reached), ((c.applied, c.lanes_added), runs), "{name}");
                }
                Typical::Result => assert_eq!((c.results, c.clears), (runs, runs), "{name}"),
                Typical::Pairs(pairs) => assert_eq!(of_lanes(pairs), (c.applied, c.lanes_added), "{name}"),
                Typical::Lock => assert_eq!((c.applied, c.denied), (2 * runs, 0), "{name}"),
                Typical::Vote => assert_eq!((c.applied, c.repeats, c.diverted), (runs, 0, 0), "{name}"),
                Typical::Crossing => assert_eq!(c.cross, runs, "{name}"),
                Typical::Steered => assert_eq!((calls.requests, calls.shorter), (runs, 0), "{name}"),
                Typical::Cloned => assert_eq!((calls.requests, calls.clones), (runs, runs), "{name}"),
                Typical::Answer => assert_eq!((calls.replies, calls.filtered), (2 * runs, runs), "{name}"),
            }
            assert_eq!((c.stale, c.overflow_lanes), (0, 0), "{name}");
        }
    }

    /// Shown, not held to anything: `RUNS=n cargo test … times -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn times() {
        let runs = std::env::var("RUNS").map_or(10_000, |runs| runs.parse().expect("a number"));
        for (typical, time) in Typical::times(runs).expect("measured") {
            println!("{:>8} ns  {}", time.as_nanos(), typical.name());
        }
    }
}
