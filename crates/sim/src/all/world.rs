//! The run: whichever part has something to do next does it; what it leaves for others they get.
//!
//! ```text
//! next of all parts, by time ─► does its machine stand still? ─► step ─► exchange: function, place ─► judge
//! ```

use pathcall_wire::Instant;

use super::exchange::{Held, Work};
use super::judge::{self, Wrong};
use super::lines::{Lines, put};
use super::plan::Plan;
use super::stage::Stage;
use super::{Tally, lines};
use crate::part::Part;
use crate::queue::EventQueue;
use crate::random::Random;
use crate::switch::Switch;
use crate::trace::{Millis, Trace};
use crate::{clone, delegate, function, place, world as map};

/// What happens to all parts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Happening {
    /// The element fails: the n-th failure.
    Fail(usize),
    /// A stranger speaks.
    Stranger,
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    All,
    Map,
    Clone,
    Delegate,
    Function,
    Place,
}

pub(super) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) stage: &'a Stage,
    pub(super) now: Instant,
    queue: EventQueue<Happening>,
    pub(super) random: Random,
    pub(super) switch: Switch,
    pub(super) map: Option<map::World<'a>>,
    pub(super) clone: Option<clone::world::World<'a>>,
    pub(super) delegate: Option<delegate::world::World<'a>>,
    pub(super) function: Option<function::world::World<'a>>,
    pub(super) place: Option<place::world::World<'a>>,
    /// What is on its way through the function, and whose work is placed.
    pub(super) held: Held,
    pub(super) work: Work,
    pub(super) tally: Tally,
    hash: u64,
    /// What happens, for people, and what map has written meanwhile.
    pub(super) text: Option<(String, Lines)>,
}

impl<'a> World<'a> {
    pub(super) fn new(plan: &'a Plan, stage: &'a Stage, map_text: Option<&'a mut Lines>) -> Result<Self, Wrong> {
        let around = || stage.around.clone();
        let trace = Trace::new(map_text.map(|text| text as &mut dyn std::io::Write));
        let map = stage.map.as_ref().map(|map| map::World::new(map, trace, around())).transpose()?;
        let mut queue = EventQueue::default();
        let failures = plan.failures.iter().enumerate();
        queue.extend(failures.map(|(index, failure)| (failure.at, Happening::Fail(index))));
        queue.extend(plan.strangers.iter().map(|at| (*at, Happening::Stranger)));
        Ok(Self {
            plan,
            stage,
            now: Instant(0),
            queue,
            random: Random::new(!plan.seed ^ 0x6d69_7865_642e_2e2e),
            switch: stage.switch.clone(),
            map,
            clone: stage.clone.as_ref().map(|plan| clone::world::World::new(plan, around())),
            delegate: stage.delegate.as_ref().map(|plan| delegate::world::World::new(plan, around())),
            function: stage.function.as_ref().map(|plan| function::world::World::new(plan, around())),
            place: stage.place.as_ref().map(|(plan, paths)| place::world::World::new(plan, paths, true)),
            held: Held::default(),
            work: Work::default(),
            tally: Tally::default(),
            hash: 0,
            text: None,
        })
    }

    /// Plays until all parts are over.
    pub(super) fn play(&mut self) -> Result<(), Wrong> {
        if self.text.is_some() {
            self.clone.iter_mut().for_each(|part| part.text = Some(String::new()));
            self.delegate.iter_mut().for_each(|part| part.text = Some(String::new()));
            self.function.iter_mut().for_each(|part| part.text = Some(String::new()));
            self.place.iter_mut().for_each(|part| part.text = Some(String::new()));
        }
        while let Some((at, who)) = self.next() {
            self.now = self.now.max(at);
            if let Some(until) = self.stands(at, who) {
                self.tally.waited += 1;
                self.wait(who, until);
                continue;
            }
            let stepped = self.step(who).and_then(|()| self.exchange());
            self.mix(at.0 << 3 | who as u64);
            self.write();
            stepped?;
            if let Some((gaid, endpoint)) = self.switch.passed(|passed| passed.astray) {
                return Err(Wrong::Astray { gaid, endpoint });
            }
        }
        self.over()
    }

    /// Whose turn it is: the earliest; of several, the first.
    fn next(&self) -> Option<(Instant, Who)> {
        let parts = [
            (self.queue.next_at(), Who::All),
            (self.map.as_ref().and_then(Part::next), Who::Map),
            (self.clone.as_ref().and_then(Part::next), Who::Clone),
            (self.delegate.as_ref().and_then(Part::next), Who::Delegate),
            (self.function.as_ref().and_then(Part::next), Who::Function),
            (self.place.as_ref().and_then(Part::next), Who::Place),
        ];
        parts.into_iter().filter_map(|(at, who)| Some((at?, who))).min_by_key(|(at, _)| *at)
    }

    /// Until when that has to wait, because its machine stands still.
    fn stands(&self, at: Instant, who: Who) -> Option<Instant> {
        let host = match who {
            Who::Clone => self.clone.as_ref()?.host()?,
            Who::Delegate => self.delegate.as_ref()?.host()?,
            // The hosts of map stand still by themselves, as its scenario says; the others' are not on these machines.
            Who::All | Who::Map | Who::Function | Who::Place => return None,
        };
        self.stage.around.stands(at, host)
    }

    fn wait(&mut self, who: Who, until: Instant) {
        match who {
            Who::Clone => self.clone.iter_mut().for_each(|part| part.wait(until)),
            Who::Delegate => self.delegate.iter_mut().for_each(|part| part.wait(until)),
            Who::All | Who::Map | Who::Function | Who::Place => {}
        }
    }

    fn step(&mut self, who: Who) -> Result<(), Wrong> {
        match who {
            Who::All => match self.queue.pop() {
                Some((_, Happening::Fail(index))) => self.fail(index)?,
                Some((_, Happening::Stranger)) => self.stranger()?,
                None => {}
            },
            Who::Map => self.map.as_mut().map_or(Ok(()), Part::step)?,
            Who::Clone => self.clone.as_mut().map_or(Ok(()), Part::step)?,
            Who::Delegate => self.delegate.as_mut().map_or(Ok(()), Part::step)?,
            Who::Function => self.function.as_mut().map_or(Ok(()), Part::step)?,
            Who::Place => self.place.as_mut().map_or(Ok(()), Part::step)?,
        }
        if who == Who::Function && self.function.as_ref().is_some_and(|part| part.next().is_none()) {
            self.front_is_gone()?;
        }
        Ok(())
    }

    /// The element loses all that it holds, for everybody at one time.
    fn fail(&mut self, index: usize) -> Result<(), Wrong> {
        self.switch.look(|program| self.switch.passed(|passed| judge::counters(program, passed)))?;
        let failure = self.plan.failures[index];
        let now = self.now;
        self.tally.failures += 1;
        self.say(&format!("the element FAILS: {failure:?}"));
        // What is gone for good does not fail again.
        if self.is_gone(index) {
            return Ok(());
        }
        self.switch.restart(Stage::program(self.plan));
        if let Some(map) = &mut self.map {
            let own = self.stage.map.as_ref().map_or(0, |map| map.failures.len()) - self.plan.failures.len();
            map.element_fails(now, own + index);
        }
        if let Some(clone) = &mut self.clone {
            let when = |after| failure.returns.then_some(now + after);
            clone.element_fails(now, when(failure.down), when(failure.told_after));
        }
        if let Some(function) = self.function.as_mut().filter(|part| part.next().is_some()) {
            function.element_fails(now);
        }
        Ok(())
    }

    /// Whether the element had gone for good before a failure.
    fn is_gone(&self, index: usize) -> bool {
        self.plan.failures[..index].iter().any(|failure| !failure.returns)
    }

    /// What the whole has counted.
    pub(super) fn tally(&mut self) -> Tally {
        let mut tally = self.tally;
        tally.frames += self.switch.passed(|passed| passed.frames);
        if let Some(map) = &self.map {
            tally.map = map.tally();
        }
        if let Some(clone) = &mut self.clone {
            clone.count();
            tally.clone = clone.tally;
        }
        tally.delegate = self.delegate.as_ref().map_or_else(Default::default, |part| part.tally);
        tally.function = self.function.as_ref().map_or_else(Default::default, |part| part.tally);
        tally.place = self.place.as_ref().map_or_else(Default::default, |part| part.tally);
        tally
    }

    /// Differs where runs differ.
    pub(super) fn hash(&mut self) -> u64 {
        let parts = [
            self.map.as_ref().map_or(0, map::World::trace_hash),
            self.clone.as_ref().map_or(0, |part| part.hash),
            self.delegate.as_ref().map_or(0, |part| part.hash),
            self.function.as_ref().map_or(0, |part| part.hash),
            self.place.as_ref().map_or(0, |part| part.hash),
        ];
        parts.into_iter().for_each(|word| self.mix(word));
        self.hash
    }

    fn mix(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Adds a line of nobody's in particular.
    pub(super) fn say(&mut self, what: &str) {
        let line = format!("{:>12} {what}", Millis(self.now));
        if let Some((text, _)) = &mut self.text {
            put(text, "all", &line);
        }
    }

    /// Puts what the parts have written behind the rest.
    pub(super) fn write(&mut self) {
        let Some((text, of_map)) = &mut self.text else { return };
        lines::put(text, "map", &of_map.take());
        let parts = [
            ("clone", self.clone.as_mut().map(|part| &mut part.text)),
            ("delegate", self.delegate.as_mut().map(|part| &mut part.text)),
            ("function", self.function.as_mut().map(|part| &mut part.text)),
            ("place", self.place.as_mut().map(|part| &mut part.text)),
        ];
        for (name, written) in parts {
            if let Some(Some(written)) = written {
                put(text, name, &std::mem::take(written));
            }
        }
    }
}
