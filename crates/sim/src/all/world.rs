//! Event loop of a combined run.
//!
//! ```text
//! next event of all parts ─► is its machine paused? ─► step ─► exchange: function, place ─► checks
//! ```

use pathcall_wire::Instant;

use super::CombinedCounts;
use super::checker::{self, CombinedViolation};
use super::exchange::{FunctionPackets, OpenWork};
use super::plan::CombinedPlan;
use super::setup::Setup;
use crate::element_program::ElementProgram;
use crate::random::Random;
use crate::timeline::{SteppedRun, Timeline};
use crate::trace::Trace;
use crate::{clone, delegate, function, map, place};

/// Event that hits all parts.
#[derive(Debug, Clone, Copy)]
pub(super) enum CombinedEvent {
    /// Failure of the element, by its index in the plan.
    Fail(usize),
    /// The attacker sends a frame.
    Stranger,
}

/// Part whose event is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartName {
    All,
    Map,
    Clone,
    Delegate,
    Function,
    Place,
}

pub(super) struct CombinedWorld<'a> {
    pub(super) plan: &'a CombinedPlan,
    pub(super) setup: &'a Setup,
    pub(super) time: Timeline<CombinedEvent>,
    pub(super) random: Random,
    pub(super) switch: ElementProgram,
    pub(super) map: Option<map::world::MapWorld<'a>>,
    pub(super) clone: Option<clone::world::CloneWorld<'a>>,
    pub(super) delegate: Option<delegate::world::DelegateWorld<'a>>,
    pub(super) function: Option<function::world::FunctionWorld<'a>>,
    pub(super) place: Option<place::world::PlaceWorld<'a>>,
    /// Packets that are inside the function, and work that is placed.
    pub(super) held: FunctionPackets,
    pub(super) work: OpenWork,
    pub(super) counts: CombinedCounts,
}

/// Does the same with each part that the run has.
macro_rules! each_part {
    (@ $world:expr, $part:ident, $name:ident => $work:expr, $($field:ident),*) => {
        $( if let Some($part) = &mut $world.$field {
            let $name = stringify!($field);
            $work;
        } )*
    };
    ($world:expr, $part:ident, $name:ident => $work:expr) => {
        each_part!(@ $world, $part, $name => $work, map, clone, delegate, function, place)
    };
}
pub(super) use each_part;

impl<'a> CombinedWorld<'a> {
    pub(super) fn new(plan: &'a CombinedPlan, setup: &'a Setup) -> Result<Self, CombinedViolation> {
        let environment = || setup.environment.clone();
        let map = setup.map.as_ref().map(|map| map::world::MapWorld::new(map, environment())).transpose()?;
        let mut time = Timeline::default();
        let failures = plan.failures.iter().enumerate();
        time.queue.extend(failures.map(|(index, failure)| (failure.at, CombinedEvent::Fail(index))));
        time.queue.extend(plan.strangers.iter().map(|at| (*at, CombinedEvent::Stranger)));
        Ok(Self {
            plan,
            setup,
            time,
            random: Random::new(!plan.seed ^ 0x6d69_7865_642e_2e2e),
            switch: setup.switch.clone(),
            map,
            clone: setup.clone.as_ref().map(|plan| clone::world::CloneWorld::new(plan, environment())),
            delegate: setup.delegate.as_ref().map(|plan| delegate::world::DelegateWorld::new(plan, environment())),
            function: setup.function.as_ref().map(|plan| function::world::FunctionWorld::new(plan, environment())),
            place: setup.place.as_ref().map(|(plan, paths)| place::world::PlaceWorld::new(plan, paths, true)),
            held: FunctionPackets::default(),
            work: OpenWork::default(),
            counts: CombinedCounts::default(),
        })
    }

    /// Plays until all parts have ended.
    pub(super) fn play(&mut self) -> Result<(), CombinedViolation> {
        if self.time.trace.text.is_some() {
            each_part!(self, part, _name => part.time().trace.text = Some(String::new()));
        }
        while let Some((at, part)) = self.next() {
            self.time.now = self.time.now.max(at);
            if let Some(until) = self.pause_end(at, part) {
                self.counts.waited += 1;
                match part {
                    PartName::Clone => self.clone.iter_mut().for_each(|part| part.time().queue.postpone(until)),
                    PartName::Delegate => self.delegate.iter_mut().for_each(|part| part.time().queue.postpone(until)),
                    _ => {}
                }
                continue;
            }
            let stepped = self.step(part).and_then(|()| self.exchange());
            self.time.trace.mix(at.0 << 3 | part as u64);
            self.write();
            stepped?;
            if let Some((gaid, endpoint)) = self.switch.traffic(|traffic| traffic.astray) {
                return Err(CombinedViolation::Astray { gaid, endpoint });
            }
        }
        self.check_end()
    }

    /// Time and part of the next event; at equal times the first part in this order.
    fn next(&self) -> Option<(Instant, PartName)> {
        let parts = [
            (self.time.queue.next_at(), PartName::All),
            (self.map.as_ref().and_then(SteppedRun::next), PartName::Map),
            (self.clone.as_ref().and_then(SteppedRun::next), PartName::Clone),
            (self.delegate.as_ref().and_then(SteppedRun::next), PartName::Delegate),
            (self.function.as_ref().and_then(SteppedRun::next), PartName::Function),
            (self.place.as_ref().and_then(SteppedRun::next), PartName::Place),
        ];
        parts.into_iter().filter_map(|(at, part)| Some((at?, part))).min_by_key(|(at, _)| *at)
    }

    /// End of the pause of the machine at which the next event happens, if it is paused.
    fn pause_end(&self, at: Instant, part: PartName) -> Option<Instant> {
        let host = match part {
            PartName::Clone => self.clone.as_ref()?.host()?,
            PartName::Delegate => self.delegate.as_ref()?.host()?,
            // Hosts of map pause by their own scenario; those of the other parts are not on these machines.
            PartName::All | PartName::Map | PartName::Function | PartName::Place => return None,
        };
        self.setup.environment.pause_end(at, host)
    }

    fn step(&mut self, part: PartName) -> Result<(), CombinedViolation> {
        match part {
            PartName::All => match self.time.queue.pop() {
                Some((_, CombinedEvent::Fail(index))) => self.fail(index)?,
                Some((_, CombinedEvent::Stranger)) => self.check_stranger_rejected()?,
                None => {}
            },
            PartName::Map => self.map.as_mut().map_or(Ok(()), SteppedRun::step)?,
            PartName::Clone => self.clone.as_mut().map_or(Ok(()), SteppedRun::step)?,
            PartName::Delegate => self.delegate.as_mut().map_or(Ok(()), SteppedRun::step)?,
            PartName::Function => self.function.as_mut().map_or(Ok(()), SteppedRun::step)?,
            PartName::Place => self.place.as_mut().map_or(Ok(()), SteppedRun::step)?,
        }
        if part == PartName::Function && self.function.as_ref().is_some_and(|part| part.next().is_none()) {
            self.end_function()?;
        }
        Ok(())
    }

    /// Fails the element: all state is lost, for all parts at once.
    fn fail(&mut self, index: usize) -> Result<(), CombinedViolation> {
        self.switch.with_program(|program| self.switch.traffic(|traffic| checker::counters(program, traffic)))?;
        let failure = self.plan.failures[index];
        let now = self.time.now;
        self.counts.failures += 1;
        self.say(format!("the element FAILS: {failure:?}"));
        // An element that is gone for good does not fail again.
        if self.is_removed(index) {
            return Ok(());
        }
        self.switch.restart(Setup::program(self.plan));
        if let Some(map) = &mut self.map {
            let own = self.setup.map.as_ref().map_or(0, |map| map.failures.len()) - self.plan.failures.len();
            map.element_fails(now, own + index);
        }
        if let Some(clone) = &mut self.clone {
            let when = |after| failure.returns.then_some(now + after);
            clone.element_fails(now, when(failure.down), when(failure.notified_after));
        }
        if let Some(function) = self.function.as_mut().filter(|part| part.next().is_some()) {
            function.element_fails(now);
        }
        Ok(())
    }

    /// Whether an earlier failure removed the element for good.
    fn is_removed(&self, index: usize) -> bool {
        self.plan.failures[..index].iter().any(|failure| !failure.returns)
    }

    /// Counts of the run so far.
    pub(super) fn counts(&mut self) -> CombinedCounts {
        let mut counts = self.counts;
        counts.frames += self.switch.traffic(|traffic| traffic.frames);
        counts.map = self.map.as_mut().map_or_else(Default::default, SteppedRun::counts);
        counts.clone = self.clone.as_mut().map_or_else(Default::default, SteppedRun::counts);
        counts.delegate = self.delegate.as_mut().map_or_else(Default::default, SteppedRun::counts);
        counts.function = self.function.as_mut().map_or_else(Default::default, SteppedRun::counts);
        counts.place = self.place.as_mut().map_or_else(Default::default, SteppedRun::counts);
        counts
    }

    /// Hash of the run.
    pub(super) fn hash(&mut self) -> u64 {
        let hashes = [
            self.map.as_mut().map_or(0, |part| part.time().trace.hash),
            self.clone.as_mut().map_or(0, |part| part.time().trace.hash),
            self.delegate.as_mut().map_or(0, |part| part.time().trace.hash),
            self.function.as_mut().map_or(0, |part| part.time().trace.hash),
            self.place.as_mut().map_or(0, |part| part.time().trace.hash),
        ];
        hashes.into_iter().for_each(|word| self.time.trace.mix(word));
        self.time.trace.hash
    }

    /// Appends a trace line that belongs to no part.
    pub(super) fn say(&mut self, what: String) {
        let mut line = Trace { hash: 0, text: Some(String::new()) };
        line.line(self.time.now, || what);
        self.time.trace.take_lines("all", &mut line);
    }

    /// Appends the trace lines that the parts have written.
    fn write(&mut self) {
        let text = &mut self.time.trace;
        each_part!(self, part, name => text.take_lines(name, &mut part.time().trace));
    }
}
