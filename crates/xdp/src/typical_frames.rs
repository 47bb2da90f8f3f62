//! Run time of the program for typical frames: time of each kind on one processor.
//!
//! ```text
//! TypicalFrame::ALL ─► frames, each with the next number ─► BPF_PROG_RUN, one by one ─► median
//! ```
//!
//! The times are the kernel's own, around the program: with the reading of the clock, without the driver, the system
//! call and the route lookup. They are to be compared with each other.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use pathcall_program::{CloneSize, Endpoint, InstalledApplication, InstalledPool, Size};
use pathcall_wire::clone::{self, ORIGINAL};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::pairs::{entry_len, put};
use pathcall_wire::{
    BaseRepr, CloneFlags, CloneHeader, CloneRepr, Flags, FrameKind, KEYED_LANES, KEYED_WIDTH, LINEAR_LANES, MAX_FRAME,
    MapFlags, MapHeader, MapRepr,
};

use crate::{Config, Error, KernelSwitch, Packet};

const ELEMENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7702);
const SENDER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 4000);
/// Ids of the application, its server and its caller.
const GAID: u32 = 1;
const SERVER: u32 = 1;
const CALLER: u32 = 2;
const ROWS: u32 = KEYED_LANES as u32;
/// Ids of the pool and its servers.
const POOL: u32 = 2;
const SERVERS: [u32; 2] = [10, 11];
/// Payload of a call: most requests are shorter than 512 bytes (NetClone §3.7).
const MESSAGE: &[u8] = &[0x5a; 128];
/// Key of the ballot.
const KEY: &[u8] = b"proposal";

/// Kind of frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypicalFrame {
    /// Packet that is not a frame.
    Other,
    /// Part of a round that waits for another part: lanes are added.
    Part,
    /// Part that completes its round: lanes are added, and the sums read.
    Complete(usize),
    /// Result of the server, which clears a row.
    Result,
    /// Pairs that are added and read.
    Pairs(usize),
    /// Acquisition of a lock.
    Lock,
    /// Vote that is counted.
    Vote,
    /// Frame that is only forwarded, as long as the frames of calls below: the cost of forwarding.
    Crossing,
    /// Request that is steered to the first server of its pair, because one of the two is busy.
    Steered,
    /// Request that is cloned, until user space or the interfaces make the copy.
    Cloned,
    /// Faster answer of a cloned call, which passes and is recorded.
    Answer,
}

impl TypicalFrame {
    /// All kinds.
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
    /// Kinds of calls to pools, each to be compared with [`Self::Crossing`].
    pub const CALLS: [Self; 3] = [Self::Steered, Self::Cloned, Self::Answer];

    /// Name of the kind in a table.
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

    /// Measures the median time of `runs` frames of each kind.
    ///
    /// # Errors
    /// Errors of [`KernelSwitch::load`], or of the kernel.
    pub fn times(runs: u32) -> Result<Vec<(Self, Duration)>, Error> {
        let time = |(typical, kernel): (Self, KernelSwitch)| Ok((typical, typical.time_in(&kernel, runs)?));
        Self::kernels()?.into_iter().map(time).collect()
    }

    /// Median ratio of this kind's time to that of `other`, over `turns` turns of `runs` frames of each kind, which are
    /// measured alternately, so that a load on the machine affects both.
    ///
    /// # Errors
    /// Errors of [`times`](Self::times).
    pub fn ratio(self, other: Self, turns: u32, runs: u32) -> Result<f64, Error> {
        let (mut ratios, this, that) = (Vec::with_capacity(turns as usize), self.kernel()?, other.kernel()?);
        for _ in 0..turns.max(1) {
            let (this_time, that_time) = (self.time_in(&this, runs)?, other.time_in(&that, runs)?);
            ratios.push(this_time.as_secs_f64() / that_time.as_secs_f64());
        }
        ratios.sort_unstable_by(f64::total_cmp);
        Ok(ratios[ratios.len() / 2])
    }

    fn time_in(self, kernel: &KernelSwitch, runs: u32) -> Result<Duration, Error> {
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

    /// Loads the program for each kind, in parallel: the kernel takes most of a second to verify one.
    fn kernels() -> Result<Vec<(Self, KernelSwitch)>, Error> {
        std::thread::scope(|scope| {
            let loading = Self::ALL.map(|typical| scope.spawn(move || Ok((typical, typical.kernel()?))));
            loading.into_iter().map(|kernel| kernel.join().expect("loading does not panic")).collect()
        })
    }

    /// Loads the program with the tables that this kind needs.
    fn kernel(self) -> Result<KernelSwitch, Error> {
        let width = if matches!(self, Self::Pairs(_)) { KEYED_WIDTH } else { LINEAR_LANES };
        let size = Size { rows: ROWS as usize, lanes: ROWS as usize * width, slots: 1 };
        let (data_port, slow_port) = (ELEMENT.port(), ELEMENT.port() + 1);
        let clones = CloneSize::default();
        let config = Config { size, clones, data_port, slow_port, routed: false, inlined: false };
        let mut kernel = KernelSwitch::load(&config)?;
        kernel.set_element_address(*ELEMENT.ip())?;
        kernel.install(&InstalledApplication {
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
        kernel.install_pool(&InstalledPool { gaid: POOL, version: 1, servers: SERVERS.to_vec() })?;
        for endpoint in SERVERS.into_iter().chain([CALLER + POOL]) {
            let entry = Endpoint { endpoint, incarnation: 1, gaid: POOL, slot_base: 0, slots: 0 };
            kernel.set_endpoint(&entry, SENDER)?;
        }
        if self == Self::Steered {
            run(&kernel, &packet(&call(FrameKind::CloneWorking, 0, CloneRepr { state: 1, ..CloneRepr::default() })))?;
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
                frame(&sent(FrameKind::MapData, number, number), &map)
            }
            Self::Complete(count) => {
                let map = MapRepr { flags: part, threshold: 1, lanes: lanes(count), ..map };
                frame(&sent(FrameKind::MapData, number, number), &map)
            }
            Self::Result => result(number),
            Self::Pairs(count) => {
                let map = MapRepr { flags: MapFlags::ADD | MapFlags::GET, lanes: lanes(count), ..map };
                frame(&sent(FrameKind::MapData, number, 0), &map)
            }
            Self::Lock => {
                let map = MapRepr { flags: MapFlags::COUNT, threshold: 1, tag: number, ..map };
                frame(&sent(FrameKind::MapData, 2 * number, 0), &map)
            }
            Self::Vote => {
                let payload_len = entry_len(KEY.len()) as u16;
                let map = MapRepr { flags: MapFlags::COUNT, threshold: u32::MAX, payload_len, ..map };
                frame(&sent(FrameKind::MapPairs, number, 0), &map)
            }
            Self::Crossing => {
                let payload_len = (CloneHeader::LEN - MapHeader::LEN + MESSAGE.len()) as u16;
                let base = BaseRepr { flags: Flags::CROSS, ..sent(FrameKind::MapSilent, number, 0) };
                frame(&base, &MapRepr { payload_len, ..map })
            }
            Self::Steered | Self::Cloned => call(FrameKind::CloneRequest, number, CloneRepr::default()),
            Self::Answer => answer(number, 0),
        }
    }

    /// Frame that prepares the next frame of the kind, if one is needed.
    fn after(self, number: u32) -> Option<Vec<u8>> {
        match self {
            Self::Part | Self::Complete(_) => Some(result(number)),
            Self::Lock => {
                let map = MapRepr { flags: MapFlags::CLEAR, tag: number, ..MapRepr::default() };
                Some(frame(&sent(FrameKind::MapData, 2 * number + 1, 0), &map))
            }
            Self::Other | Self::Result | Self::Pairs(_) | Self::Vote => None,
            Self::Crossing | Self::Steered | Self::Cloned => None,
            // The slower answer, which frees the slot.
            Self::Answer => Some(answer(number, 1)),
        }
    }
}

/// Measures the run time of a packet.
fn run(kernel: &KernelSwitch, packet: &[u8]) -> Result<Duration, Error> {
    Ok(kernel.run_timed(packet, &mut Vec::new())?.1)
}

/// Base header of a frame from the caller to the server.
fn sent(kind: FrameKind, seq: u32, round: u32) -> BaseRepr {
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
    let base = sent(FrameKind::MapResult, 0, round);
    let base = BaseRepr { flags: Flags::FROM_SERVER, src: base.dst, dst: base.src, ..base };
    let flags = MapFlags::LINEAR | MapFlags::ROUND | MapFlags::CLEAR;
    frame(&base, &MapRepr { flags, ..MapRepr::default() })
}

/// Frame with all lanes marked and small values, so that registers do not overflow.
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

/// Answer of a server; ids recur, so that the filter's memory is cached like that of the tables.
fn answer(number: u32, sid: u16) -> Vec<u8> {
    let head = CloneRepr { req_id: 1 + u64::from(number % 64), clo: ORIGINAL, sid, ..CloneRepr::default() };
    call(FrameKind::CloneReply, number, head)
}

/// Frame of a call: from the caller to its pool, or the answer of a server.
fn call(kind: FrameKind, number: u32, head: CloneRepr) -> Vec<u8> {
    let caller = CALLER + POOL;
    let server = SERVERS[usize::from(head.sid)];
    let (src, dst) = if kind == FrameKind::CloneRequest { (caller, 0) } else { (server, caller) };
    let flags = if kind == FrameKind::CloneRequest { 0 } else { Flags::FROM_SERVER };
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

    /// The counters of the program show that each kind does what its name says.
    #[test]
    fn typical_frames_match_program_counters() {
        const RUNS: u32 = 5;
        let kernels = match TypicalFrame::kernels() {
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
                TypicalFrame::Other => assert_eq!(c.admitted, 0, "{name}"),
                TypicalFrame::Part => {
                    assert_eq!((of_lanes(LINEAR_LANES), c.reached), ((c.applied, c.lanes_added), 0), "{name}")
                }
                TypicalFrame::Complete(lanes) => {
                    assert_eq!((of_lanes(lanes), c.reached), ((c.applied, c.lanes_added), runs), "{name}");
                }
                TypicalFrame::Result => assert_eq!((c.results, c.clears), (runs, runs), "{name}"),
                TypicalFrame::Pairs(pairs) => assert_eq!(of_lanes(pairs), (c.applied, c.lanes_added), "{name}"),
                TypicalFrame::Lock => assert_eq!((c.applied, c.denied), (2 * runs, 0), "{name}"),
                TypicalFrame::Vote => assert_eq!((c.applied, c.repeats, c.diverted), (runs, 0, 0), "{name}"),
                TypicalFrame::Crossing => assert_eq!(c.cross, runs, "{name}"),
                TypicalFrame::Steered => assert_eq!((calls.requests, calls.shorter), (runs, 0), "{name}"),
                TypicalFrame::Cloned => assert_eq!((calls.requests, calls.clones), (runs, runs), "{name}"),
                TypicalFrame::Answer => assert_eq!((calls.replies, calls.filtered), (2 * runs, runs), "{name}"),
            }
            assert_eq!((c.stale, c.overflow_lanes), (0, 0), "{name}");
        }
    }

    /// Prints the times, without a check: `RUNS=n cargo test … times -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn times() {
        let runs = std::env::var("RUNS").map_or(10_000, |runs| runs.parse().expect("a number"));
        for (typical, time) in TypicalFrame::times(runs).expect("measured") {
            println!("{:>8} ns  {}", time.as_nanos(), typical.name());
        }
    }
}
