//! Switch program of an element, used by one world or shared by several.
//!
//! The traffic is recorded for checks: a frame may leave only for an endpoint of the application or pool that it
//! names, and the program's counters must match the frames that it processed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use pathcall_program::{AdmissionTables, FrameAction, FrameVerdict, SwitchProgram};
use pathcall_wire::{Base, Instant};

/// Switch program of an element.
#[derive(Clone)]
pub(crate) struct ElementProgram(Rc<RefCell<Inner>>);

struct Inner {
    program: SwitchProgram,
    /// Whether several worlds share it; then no single world may restart it.
    shared: bool,
    traffic: ProgramTraffic,
}

/// Traffic since the start of the program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ProgramTraffic {
    /// Frames that were processed.
    pub(crate) frames: u64,
    /// Frames that were processed a second time, to be cloned.
    pub(crate) again: u64,
    /// Frames by the application or pool that they name.
    pub(crate) named: BTreeMap<u32, u64>,
    /// Last frame, of a shared program.
    pub(crate) last: Vec<u8>,
    /// First frame that left for an endpoint of another application: its application, and the endpoint; 0: a group.
    pub(crate) astray: Option<(u32, u32)>,
}

impl ElementProgram {
    /// Creates the program of one world.
    pub(crate) fn own(program: SwitchProgram) -> Self {
        Self(Rc::new(RefCell::new(Inner { program, shared: false, traffic: ProgramTraffic::default() })))
    }

    /// Creates a program that several worlds share.
    pub(crate) fn shared(program: SwitchProgram) -> Self {
        let switch = Self::own(program);
        switch.0.borrow_mut().shared = true;
        switch
    }

    /// Program after a world's element has lost its state: a new one, or the shared one, which the combined world
    /// restarts.
    pub(crate) fn lost(&self, blank: impl FnOnce() -> SwitchProgram) -> Self {
        if self.0.borrow().shared { self.clone() } else { Self::own(blank()) }
    }

    /// Restarts the program without state, for all worlds.
    pub(crate) fn restart(&self, blank: SwitchProgram) {
        let mut inner = self.0.borrow_mut();
        inner.program = blank;
        inner.traffic = ProgramTraffic { astray: inner.traffic.astray, ..ProgramTraffic::default() };
    }

    /// Reads the traffic record.
    pub(crate) fn traffic<R>(&self, look: impl FnOnce(&ProgramTraffic) -> R) -> R {
        look(&self.0.borrow().traffic)
    }

    pub(crate) fn process(&self, now: Instant, frame: &mut [u8], marked: bool) -> FrameVerdict {
        let inner = &mut *self.0.borrow_mut();
        let gaid = Base::new_checked(&*frame).map(|base| base.gaid()).ok();
        inner.handed(gaid, frame);
        let verdict = inner.program.process(now, frame, marked);
        inner.watch(gaid, verdict.action);
        verdict
    }

    pub(crate) fn recirculate(&self, frame: &mut [u8]) -> FrameVerdict {
        let inner = &mut *self.0.borrow_mut();
        let gaid = Base::new_checked(&*frame).map(|base| base.gaid()).ok();
        let verdict = inner.program.recirculate(frame);
        inner.traffic.again += 1;
        inner.watch(gaid, verdict.action);
        verdict
    }

    /// Sends the held hedges that are due; `send` gets the endpoint and the frame.
    pub(crate) fn send_hedges(&self, now: Instant, mut send: impl FnMut(u32, &[u8])) {
        let inner = &mut *self.0.borrow_mut();
        let mut sent = Vec::new();
        inner.program.send_hedges(now, |to, frame| {
            send(to, frame);
            sent.push((Base::new_checked(&*frame).map(|base| base.gaid()).ok(), to));
            true
        });
        for (gaid, to) in sent {
            inner.traffic.again += 1;
            inner.watch(gaid, FrameAction::Forward(to));
        }
    }

    /// Reads the program.
    pub(crate) fn with_program<R>(&self, at: impl FnOnce(&SwitchProgram) -> R) -> R {
        at(&self.0.borrow().program)
    }

    /// Changes the program's tables.
    pub(crate) fn with_tables<R>(&self, change: impl FnOnce(&mut AdmissionTables) -> R) -> R {
        change(self.0.borrow_mut().program.tables_mut())
    }
}

impl Inner {
    fn handed(&mut self, gaid: Option<u32>, frame: &[u8]) {
        self.traffic.frames += 1;
        if self.shared {
            *self.traffic.named.entry(gaid.unwrap_or_default()).or_default() += 1;
            self.traffic.last.clear();
            self.traffic.last.extend_from_slice(frame);
        }
    }

    fn watch(&mut self, gaid: Option<u32>, action: FrameAction) {
        let (to, of) = match action {
            FrameAction::Forward(to) | FrameAction::Clone(to) => {
                (to, self.program.tables().endpoint(to).map(|endpoint| endpoint.gaid))
            }
            FrameAction::Multicast(group) => (0, Some(group)),
            FrameAction::Drop(_) => return,
        };
        if of.is_none() || of != gaid {
            self.traffic.astray.get_or_insert((gaid.unwrap_or_default(), to));
        }
    }
}
