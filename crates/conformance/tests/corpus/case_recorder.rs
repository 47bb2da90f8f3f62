//! Recorder of corpus cases: steps with remarks, run on the reference.

use pathcall_conformance::ProgramStep;
use pathcall_conformance::corpus::Case;
use pathcall_program::{Counters, Endpoint, InstalledApplication, Size, SwitchProgram};
use pathcall_wire::base::flip;
use pathcall_wire::{BaseRepr, Flags, FrameKind};

/// Memory of the recorded element.
pub const MEMORY: Size = Size { rows: 8, lanes: 512, slots: 8 };
/// Application of arrays: four rows of eight lanes, three workers.
pub const ARRAYS: InstalledApplication =
    InstalledApplication { gaid: 1, epoch: 3, owner: 1, row_base: 0, rows: 4, lane_base: 0, width: 8 };
/// Application of keys, locks and ballots: four rows of two banks, two callers.
pub const KEYS: InstalledApplication =
    InstalledApplication { gaid: 2, epoch: 4, owner: 2, row_base: 4, rows: 4, lane_base: 256, width: 64 };
/// Incarnation of all endpoints.
pub const INCARNATION: u32 = 5;
/// Endpoints: id, application, first slot, number of slots.
const ENDPOINTS: [(u32, u32, u32, u32); 7] =
    [(1, 1, 0, 0), (11, 1, 0, 1), (12, 1, 1, 1), (13, 1, 2, 1), (2, 2, 4, 0), (21, 2, 4, 2), (22, 2, 6, 1)];

/// Case that is being recorded.
pub struct CaseRecorder {
    case: Case,
    program: SwitchProgram,
}

impl CaseRecorder {
    /// Case with both applications, their endpoints and groups installed.
    pub fn new(title: &str) -> Self {
        let mut scene = Self::empty(title, MEMORY);
        scene.remark("application 1: arrays of three workers; application 2: keys of two callers");
        for application in [ARRAYS, KEYS] {
            scene.step(ProgramStep::Install(application));
        }
        for (id, ..) in ENDPOINTS {
            scene.step(ProgramStep::SetEndpoint(endpoint(id)));
        }
        scene.step(ProgramStep::SetGroup(1, vec![11, 12, 13]));
        scene.step(ProgramStep::SetGroup(2, vec![21, 22]));
        scene
    }

    /// Case with empty tables.
    pub fn empty(title: &str, memory: Size) -> Self {
        Self { case: Case::new(title, memory), program: pathcall_conformance::program(memory) }
    }

    pub fn remark(&mut self, text: &str) {
        self.case.remark(text);
    }

    pub fn step(&mut self, step: ProgramStep) {
        self.case.record(&mut self.program, step).expect("the reference has no failures");
    }

    pub fn send(&mut self, bytes: Vec<u8>) {
        self.step(ProgramStep::Frame { bytes, congested: false });
    }

    pub fn send_congested(&mut self, bytes: Vec<u8>) {
        self.step(ProgramStep::Frame { bytes, congested: true });
    }

    pub fn state(&mut self) {
        let state = self.case.record_state(&mut self.program, &Counters::default());
        state.expect("the reference has no failures");
    }

    /// Finished case, with the final registers.
    pub fn end(mut self) -> Case {
        self.state();
        self.case
    }
}

/// Entry of an endpoint.
pub fn endpoint(id: u32) -> Endpoint {
    let (endpoint, gaid, slot_base, slots) = *ENDPOINTS.iter().find(|(known, ..)| *known == id).expect("known");
    Endpoint { endpoint, incarnation: INCARNATION, gaid, slot_base, slots }
}

/// Base header of a caller's frame to its server, in the caller's first slot.
pub fn caller(id: u32, kind: FrameKind, seq: u32) -> BaseRepr {
    let Endpoint { gaid, slot_base, .. } = endpoint(id);
    BaseRepr { flags: flip(seq), src: id, dst: gaid, slot: slot_base, seq, ..named(gaid, kind) }
}

/// Base header of the server's frame to a caller.
pub fn server(kind: FrameKind, to: u32) -> BaseRepr {
    let gaid = endpoint(to).gaid;
    BaseRepr { flags: Flags::FROM_SERVER, src: gaid, dst: to, ..named(gaid, kind) }
}

fn named(gaid: u32, kind: FrameKind) -> BaseRepr {
    let epoch = if gaid == ARRAYS.gaid { ARRAYS.epoch } else { KEYS.epoch };
    BaseRepr { gaid, epoch, src_incarnation: INCARNATION, dst_incarnation: INCARNATION, ..BaseRepr::new(kind) }
}
