//! Makes a plan that fails smaller: without whatever the failure does not need.
//!
//! Changes are tried one after the other, and what still fails is gone on from. Lists lose half of what they hold at a
//! time, then a quarter, and so on down to one by one.

use std::ops::Range;

/// Says whether a plan fails as the first one did.
pub(crate) type Fails<'a, P> = &'a mut dyn FnMut(&P) -> bool;

/// A list in a plan: how long it is, and what leaves out a part of it.
pub(crate) type List<P> = (fn(&P) -> usize, fn(&mut P, Range<usize>));

/// The smallest plan so far.
pub(crate) struct Smaller<'a, P> {
    pub(crate) best: P,
    fails: Fails<'a, P>,
    runs_left: u32,
}

impl<'a, P: Clone + PartialEq> Smaller<'a, P> {
    /// From a plan that fails, by so many runs at most.
    pub(crate) fn new(plan: &P, runs_max: u32, fails: Fails<'a, P>) -> Self {
        Self { best: plan.clone(), fails, runs_left: runs_max }
    }

    /// Makes a change, unless what fails is another thing then; whether it was made.
    pub(crate) fn attempt(&mut self, change: impl FnOnce(&mut P)) -> bool {
        let mut smaller = self.best.clone();
        change(&mut smaller);
        if self.runs_left == 0 || smaller == self.best {
            return false;
        }
        self.runs_left -= 1;
        let fails = (self.fails)(&smaller);
        if fails {
            self.best = smaller;
        }
        fails
    }

    /// Leaves out of a list what it can; whether that was anything.
    pub(crate) fn leave_out(&mut self, len: impl Fn(&P) -> usize, without: impl Fn(&mut P, Range<usize>)) -> bool {
        let (mut some, mut any) = (len(&self.best), false);
        while some > 0 {
            any |= self.leave_out_some(some, &len, &without);
            some /= 2;
        }
        any
    }

    /// Tries these changes, then leaves out of all lists what it can, the larger pieces of each first, again and again
    /// until nothing more can be.
    pub(crate) fn without(&mut self, changes: &[fn(&mut P)], lists: &[List<P>]) {
        for change in changes {
            self.attempt(change);
        }
        let mut any = true;
        while std::mem::take(&mut any) {
            let mut some = lists.iter().map(|(len, _)| len(&self.best)).max().unwrap_or(0);
            while some > 0 {
                for (len, without) in lists {
                    any |= self.leave_out_some(some, len, without);
                }
                some /= 2;
            }
        }
    }

    /// Leaves out of a list each piece of so many that it can; whether that was any.
    fn leave_out_some(
        &mut self,
        some: usize,
        len: impl Fn(&P) -> usize,
        without: impl Fn(&mut P, Range<usize>),
    ) -> bool {
        let (mut at, mut any) = (0, false);
        while at < len(&self.best) {
            let part = at..(at + some).min(len(&self.best));
            if self.attempt(|plan| without(plan, part)) {
                any = true;
            } else {
                at += some;
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_left_and_nothing_else() {
        let fails = |plan: &Vec<u32>| plan.contains(&17) && plan.contains(&80);
        let mut fails = |plan: &Vec<u32>| fails(plan);
        let mut smaller = Smaller::new(&(0..100).collect(), 1_000, &mut fails);
        smaller.without(&[], &[(Vec::len, |plan, part| drop(plan.drain(part)))]);
        assert_eq!(smaller.best, [17, 80]);
    }

    #[test]
    fn no_more_runs_are_made_than_may_be() {
        let mut runs = 0;
        let mut fails = |_: &Vec<u32>| {
            runs += 1;
            false
        };
        Smaller::new(&vec![0; 100], 30, &mut fails).leave_out(Vec::len, |plan, part| drop(plan.drain(part)));
        assert_eq!(runs, 30);
    }
}
