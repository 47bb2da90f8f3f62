//! Minimisation of a failing plan by removal of everything that the failure does not need.
//!
//! Changes are tried one after the other; each one after which the plan still fails is kept. From lists it removes
//! halves, then quarters, and so on down to single elements.

use std::ops::Range;

/// Predicate: true if a plan fails with the same kind of violation as the original.
pub(crate) type FailureTest<'a, P> = &'a mut dyn FnMut(&P) -> bool;

/// List in a plan: a function that removes a range of the list and returns the length of the rest.
pub(crate) type ShrinkList<P> = fn(&mut P, Range<usize>) -> usize;

/// Removes a range and returns the length of the rest.
pub(crate) fn remove_range<T>(list: &mut Vec<T>, part: Range<usize>) -> usize {
    list.drain(part);
    list.len()
}

/// Smallest failing plan so far.
pub(crate) struct Minimizer<'a, P> {
    pub(crate) best: P,
    fails: FailureTest<'a, P>,
    runs_left: u32,
}

impl<'a, P: Clone + PartialEq> Minimizer<'a, P> {
    /// Starts from a plan that fails; `runs_max` limits the number of runs.
    pub(crate) fn new(plan: &P, runs_max: u32, fails: FailureTest<'a, P>) -> Self {
        Self { best: plan.clone(), fails, runs_left: runs_max }
    }

    /// Applies a change if the plan still fails with it; whether it was applied.
    pub(crate) fn try_change(&mut self, change: impl FnOnce(&mut P)) -> bool {
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

    /// Removes elements from a list while the plan still fails; whether any was removed.
    pub(crate) fn shorten_list(&mut self, list: impl Fn(&mut P, Range<usize>) -> usize) -> bool {
        let (mut some, mut any) = (list(&mut self.best, 0..0), false);
        while some > 0 {
            any |= self.remove_ranges(some, &list);
            some /= 2;
        }
        any
    }

    /// Tries these changes, then removes elements from all lists, large ranges first, again and again until no more
    /// can be removed.
    pub(crate) fn minimize(&mut self, changes: &[fn(&mut P)], lists: &[ShrinkList<P>]) {
        for change in changes {
            self.try_change(change);
        }
        let mut any = true;
        while std::mem::take(&mut any) {
            let mut some = lists.iter().map(|list| list(&mut self.best, 0..0)).max().unwrap_or(0);
            while some > 0 {
                for list in lists {
                    any |= self.remove_ranges(some, list);
                }
                some /= 2;
            }
        }
    }

    /// Removes ranges of this length from a list; whether any was removed.
    fn remove_ranges(&mut self, some: usize, list: impl Fn(&mut P, Range<usize>) -> usize) -> bool {
        let (mut at, mut any) = (0, false);
        loop {
            let len = list(&mut self.best, 0..0);
            if at >= len {
                return any;
            }
            if self.try_change(|plan| _ = list(plan, at..len.min(at + some))) {
                any = true;
            } else {
                at += some;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimizer_keeps_only_failing_elements() {
        let fails = |plan: &Vec<u32>| plan.contains(&17) && plan.contains(&80);
        let mut fails = |plan: &Vec<u32>| fails(plan);
        let mut smaller = Minimizer::new(&(0..100).collect(), 1_000, &mut fails);
        smaller.minimize(&[], &[remove_range]);
        assert_eq!(smaller.best, [17, 80]);
    }

    #[test]
    fn minimizer_respects_run_limit() {
        let mut runs = 0;
        let mut fails = |_: &Vec<u32>| {
            runs += 1;
            false
        };
        Minimizer::new(&vec![0; 100], 30, &mut fails).shorten_list(remove_range);
        assert_eq!(runs, 30);
    }
}
