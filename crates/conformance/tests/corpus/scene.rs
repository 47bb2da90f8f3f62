//! A scene: steps with remarks, played to the reference and taken down.

use pathcall_conformance::Step;
use pathcall_conformance::corpus::Case;
use pathcall_program::{Application, Counters, Endpoint, Program, Size};
use pathcall_wire::base::flip;
use pathcall_wire::{BaseRepr, Flags, Kind};

/// Memory of an element that plays scenes.
pub const MEMORY: Size = Size { rows: 8, lanes: 512, slots: 8 };
/// Arrays: four rows of eight lanes, three workers.
pub const ARRAYS: Application =
    Application { gaid: 1, epoch: 3, owner: 1, row_base: 0, rows: 4, lane_base: 0, width: 8 };
/// Keys, locks and ballots: four rows of two banks, two callers.
pub const KEYS: Application =
    Application { gaid: 2, epoch: 4, owner: 2, row_base: 4, rows: 4, lane_base: 256, width: 64 };
/// Incarnation of every endpoint.
pub const INCARNATION: u32 = 5;
/// The endpoints: id, application, first slot, slots.
const ENDPOINTS: [(u32, u32, u32, u32); 7] =
    [(1, 1, 0, 0), (11, 1, 0, 1), (12, 1, 1, 1), (13, 1, 2, 1), (2, 2, 4, 0), (21, 2, 4, 2), (22, 2, 6, 1)];

/// Steps as they are taken down.
pub struct Scene {
    case: Case,
    program: Program,
}

impl Scene {
    /// With both applications, their endpoints and their groups in the tables.
    pub fn new(title: &str) -> Self {
        let mut scene = Self::empty(title, MEMORY);
        scene.remark("application 1: arrays of three workers; application 2: keys of two callers");
        for application in [ARRAYS, KEYS] {
            scene.step(Step::Install(application));
        }
        for (id, ..) in ENDPOINTS {
            scene.step(Step::SetEndpoint(endpoint(id)));
        }
        scene.step(Step::SetGroup(1, vec![11, 12, 13]));
        scene.step(Step::SetGroup(2, vec![21, 22]));
        scene
    }

    /// With nothing in the tables.
    pub fn empty(title: &str, memory: Size) -> Self {
        Self { case: Case::new(title, memory), program: pathcall_conformance::program(memory) }
    }

    pub fn remark(&mut self, text: &str) {
        self.case.remark(text);
    }

    pub fn step(&mut self, step: Step) {
        self.case.record(&mut self.program, step).expect("the reference has no failures");
    }

    pub fn send(&mut self, bytes: Vec<u8>) {
        self.step(Step::Frame { bytes, congested: false });
    }

    pub fn send_congested(&mut self, bytes: Vec<u8>) {
        self.step(Step::Frame { bytes, congested: true });
    }

    pub fn state(&mut self) {
        let state = self.case.record_state(&mut self.program, &Counters::default());
        state.expect("the reference has no failures");
    }

    /// The scene, with what the registers hold at its end.
    pub fn end(mut self) -> Case {
        self.state();
        self.case
    }
}

/// An endpoint's entry.
pub fn endpoint(id: u32) -> Endpoint {
    let (endpoint, gaid, slot_base, slots) = *ENDPOINTS.iter().find(|(known, ..)| *known == id).expect("known");
    Endpoint { endpoint, incarnation: INCARNATION, gaid, slot_base, slots }
}

/// The base header of a caller's frame to its server, in its first slot.
pub fn caller(id: u32, kind: Kind, seq: u32) -> BaseRepr {
    let Endpoint { gaid, slot_base, .. } = endpoint(id);
    BaseRepr { flags: flip(seq), src: id, dst: gaid, slot: slot_base, seq, ..named(gaid, kind) }
}

/// The base header of the server's frame to a caller.
pub fn server(kind: Kind, to: u32) -> BaseRepr {
    let gaid = endpoint(to).gaid;
    BaseRepr { flags: Flags::FROM_SERVER, src: gaid, dst: to, ..named(gaid, kind) }
}

fn named(gaid: u32, kind: Kind) -> BaseRepr {
    let epoch = if gaid == ARRAYS.gaid { ARRAYS.epoch } else { KEYS.epoch };
    BaseRepr { gaid, epoch, src_incarnation: INCARNATION, dst_incarnation: INCARNATION, ..BaseRepr::new(kind) }
}
