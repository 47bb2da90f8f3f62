//! A switch program with its tables, in one world or in several at one time: frames of all of them go through it.
//!
//! What goes through is watched: a frame leaves for an endpoint of the application or pool that it names, and the
//! program's counters say what was handed to it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use pathcall_program::{Action, Program, Tables, Verdict};
use pathcall_wire::{Base, Instant};

/// The program of an element.
#[derive(Clone)]
pub(crate) struct Switch(Rc<RefCell<Inner>>);

struct Inner {
    program: Program,
    /// Whether it is the element of several worlds: then none of them starts it anew.
    shared: bool,
    passed: Passed,
}

/// What has gone through since it started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Passed {
    /// Frames that were handed to it.
    pub(crate) frames: u64,
    /// Times that a frame went through once more, to be cloned.
    pub(crate) again: u64,
    /// Frames that were handed to it, by the application or pool that they named.
    pub(crate) named: BTreeMap<u32, u64>,
    /// The last frame of several worlds that was handed to it.
    pub(crate) last: Vec<u8>,
    /// The first frame that left for somebody whom it was not for: whose it was, and the endpoint that it left
    /// for; 0: a group.
    pub(crate) astray: Option<(u32, u32)>,
}

impl Switch {
    /// The element of one world.
    pub(crate) fn own(program: Program) -> Self {
        Self(Rc::new(RefCell::new(Inner { program, shared: false, passed: Passed::default() })))
    }

    /// The element of several worlds.
    pub(crate) fn shared(program: Program) -> Self {
        let switch = Self::own(program);
        switch.0.borrow_mut().shared = true;
        switch
    }

    /// One world's element has lost all that it held: it has another program, or, as one of several, the one that
    /// whoever shares it has given it.
    pub(crate) fn lost(&self, blank: impl FnOnce() -> Program) -> Self {
        if self.0.borrow().shared { self.clone() } else { Self::own(blank()) }
    }

    /// It loses all that it holds, for everybody.
    pub(crate) fn restart(&self, blank: Program) {
        let mut inner = self.0.borrow_mut();
        inner.program = blank;
        inner.passed = Passed { astray: inner.passed.astray, ..Passed::default() };
    }

    /// What has gone through.
    pub(crate) fn passed<R>(&self, look: impl FnOnce(&Passed) -> R) -> R {
        look(&self.0.borrow().passed)
    }

    pub(crate) fn process(&self, now: Instant, frame: &mut [u8], marked: bool) -> Verdict {
        let inner = &mut *self.0.borrow_mut();
        let gaid = Base::new_checked(&*frame).map(|base| base.gaid()).ok();
        inner.handed(gaid, frame);
        let verdict = inner.program.process(now, frame, marked);
        inner.watch(gaid, verdict.action);
        verdict
    }

    pub(crate) fn recirculate(&self, frame: &mut [u8]) -> Verdict {
        let inner = &mut *self.0.borrow_mut();
        let gaid = Base::new_checked(&*frame).map(|base| base.gaid()).ok();
        let verdict = inner.program.recirculate(frame);
        inner.passed.again += 1;
        inner.watch(gaid, verdict.action);
        verdict
    }

    /// Looks at the program.
    pub(crate) fn look<R>(&self, at: impl FnOnce(&Program) -> R) -> R {
        at(&self.0.borrow().program)
    }

    /// Changes its tables.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Tables) -> R) -> R {
        change(self.0.borrow_mut().program.tables_mut())
    }
}

impl Inner {
    fn handed(&mut self, gaid: Option<u32>, frame: &[u8]) {
        self.passed.frames += 1;
        if self.shared {
            *self.passed.named.entry(gaid.unwrap_or_default()).or_default() += 1;
            self.passed.last.clear();
            self.passed.last.extend_from_slice(frame);
        }
    }

    fn watch(&mut self, gaid: Option<u32>, action: Action) {
        let (to, of) = match action {
            Action::Forward(to) | Action::Clone(to) => {
                (to, self.program.tables().endpoint(to).map(|endpoint| endpoint.gaid))
            }
            Action::Multicast(group) => (0, Some(group)),
            Action::Drop(_) => return,
        };
        if of.is_none() || of != gaid {
            self.passed.astray.get_or_insert((gaid.unwrap_or_default(), to));
        }
    }
}
