//! Frames of calls, compared with a forwarded frame of *map*: cost of steering and cloning.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, bail};
use pathcall_program::{Endpoint, FrameAction, InstalledApplication, InstalledPool, Size, SwitchProgram};
use pathcall_wire::clone::{ORIGINAL, emit};
use pathcall_wire::map::frame_len;
use pathcall_wire::{BaseRepr, CloneFlags, CloneHeader, CloneRepr, Flags, FrameKind, MAX_FRAME, MapHeader, MapRepr};

use crate::traffic::WINDOW;

/// GAIDs of *map*'s application and of the pool, and their endpoints.
const GAIDS: [u32; 2] = [1, 2];
const SERVER: u32 = 9;
const CALLERS: [u32; 2] = [11, 21];
const SERVERS: [u32; 2] = [1, 2];
/// Bytes of a call: most are shorter than 512 (NetClone §3.7).
const MESSAGE: usize = 128;

/// Treatment of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Forwarded frame.
    Forwarded,
    /// Request for the first server of its pair.
    Steered,
    /// Request for both servers: two passes, two frames leave.
    Cloned,
    /// Answers of cloned calls, the faster and the slower one of each call.
    Answered,
}

impl Treatment {
    /// Treatments of frames of calls.
    pub(super) const CALLS: [Self; 3] = [Self::Steered, Self::Cloned, Self::Answered];

    /// Name in figures.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "a frame passed on",
            Self::Steered => "a call, steered",
            Self::Cloned => "a call, cloned, two frames",
            Self::Answered => "answers, filtered",
        }
    }
}

/// Switch program with a window of frames, which return as they left.
pub(super) struct Calls {
    treatment: Treatment,
    program: SwitchProgram,
    frames: Vec<Vec<u8>>,
}

impl Calls {
    pub(super) fn new(treatment: Treatment) -> Result<Self> {
        let mut program = SwitchProgram::new(Size::default());
        let tables = program.tables_mut();
        let [gaid, pool] = GAIDS;
        tables.install(InstalledApplication {
            gaid,
            epoch: 1,
            owner: SERVER,
            row_base: 0,
            rows: 1,
            lane_base: 0,
            width: 1,
        })?;
        tables.install_pool(InstalledPool { gaid: pool, version: 1, servers: SERVERS.to_vec() })?;
        let of_pool = [(CALLERS[1], pool), (SERVERS[0], pool), (SERVERS[1], pool)];
        for (endpoint, gaid) in [(SERVER, gaid), (CALLERS[0], gaid)].into_iter().chain(of_pool) {
            tables.set_endpoint(Endpoint { endpoint, incarnation: 1, gaid, slot_base: 0, slots: 0 })?;
        }
        if treatment == Treatment::Steered {
            // One server of the pair is busy.
            program.process(pathcall_wire::Instant(1), &mut answer(FrameKind::CloneWorking, 1, 1, 1), false);
        }
        let frames = (0..WINDOW).map(|number| frame(treatment, number)).collect();
        Ok(Self { treatment, program, frames })
    }

    pub(super) fn turn(&mut self, windows: u64) -> Result<[f64; 1]> {
        let began = Instant::now();
        for _ in 0..windows {
            for frame in &mut self.frames {
                match self.program.process(pathcall_wire::Instant(1), black_box(frame), false).action {
                    FrameAction::Clone(_) => drop(black_box(self.program.recirculate(frame))),
                    FrameAction::Forward(_) => {}
                    FrameAction::Drop(_) if self.treatment == Treatment::Answered => {}
                    other => bail!("{}: {other:?}", self.treatment.name()),
                }
            }
        }
        Ok([began.elapsed().as_nanos() as f64 / (windows * u64::from(WINDOW)) as f64])
    }
}

fn frame(treatment: Treatment, number: u32) -> Vec<u8> {
    match treatment {
        Treatment::Forwarded => {
            let payload_len = CloneHeader::LEN - MapHeader::LEN + MESSAGE;
            let mut bytes = vec![0; frame_len(0, 0, payload_len)];
            let base = base(FrameKind::MapSilent, GAIDS[0], CALLERS[0], SERVER, Flags::CROSS);
            let map = MapRepr { payload_len: payload_len as u16, ..MapRepr::default() };
            pathcall_wire::map::emit(&base, &map, &mut bytes);
            bytes
        }
        Treatment::Steered | Treatment::Cloned => {
            call(&base(FrameKind::CloneRequest, GAIDS[1], CALLERS[1], 0, 0), CloneRepr::default())
        }
        Treatment::Answered => answer(FrameKind::CloneReply, 1 + number / 2, (number % 2) as u16, 0),
    }
}

fn base(kind: FrameKind, gaid: u32, src: u32, dst: u32, flags: u16) -> BaseRepr {
    BaseRepr { gaid, epoch: 1, src, src_incarnation: 1, dst, flags, ..BaseRepr::new(kind) }
}

fn answer(kind: FrameKind, id: u32, sid: u16, state: u16) -> Vec<u8> {
    let base = base(kind, GAIDS[1], SERVERS[usize::from(sid)], CALLERS[1], Flags::FROM_SERVER);
    call(&base, CloneRepr { req_id: id.into(), clo: ORIGINAL, sid, state, ..CloneRepr::default() })
}

fn call(base: &BaseRepr, head: CloneRepr) -> Vec<u8> {
    let head = CloneRepr { flags: CloneFlags::CLONE | CloneFlags::SHORTEST, parts: 1, ..head };
    let mut bytes = vec![0; MAX_FRAME];
    let len = emit(base, &head, &[0x5a; MESSAGE], &mut bytes);
    bytes.truncate(len);
    bytes
}
