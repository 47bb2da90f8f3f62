//! Queues of the selector's own messages at each resource: eq. 1 and 2, updated over time.
//!
//! A resource is busy until some time; each message over it extends that by its busy time. Paths that share a
//! resource share its queue. While a message is at one resource, the queue of the next one shrinks. Two kinds of
//! resources are not tracked: those that others throttle so much that they are busy for at most a quarter of the
//! time, and those behind another one that is busy for longer.

use pathcall_wire::Instant;

use crate::path::Paths;

/// Limit on a queue in nanoseconds: 13 days.
const QUEUE_NS_MAX: i64 = 1 << 50;

#[derive(Debug)]
pub(super) struct Backlog {
    resources: Vec<Resource>,
    /// Tracked resources of each path.
    uses: Vec<Box<[Use]>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Resource {
    busy_until: i64,
    in_flight: u32,
}

/// Use of a resource by a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Use {
    resource: u32,
    busy_ns: i64,
    /// Time from the sending of a message until it arrives here, without waiting, in nanoseconds.
    after_ns: i64,
}

impl Backlog {
    pub(super) fn new(paths: &Paths) -> Self {
        Self::of_uses(paths.resources.len(), paths.paths.iter().map(|path| uses(&path.hops)).collect())
    }

    fn of_uses(resources: usize, all: Vec<Vec<Use>>) -> Self {
        let mut worth: Vec<u32> = (0..resources as u32).filter(|one| queues(&all, *one)).collect();
        for one in worth.clone() {
            if worth.iter().any(|other| *other != one && hides(&all, *other, one)) {
                worth.retain(|kept| *kept != one);
            }
        }
        let looked_at = |path: &Vec<Use>| path.iter().filter(|used| worth.contains(&used.resource)).copied().collect();
        Self { resources: vec![Resource::default(); resources], uses: all.iter().map(looked_at).collect() }
    }

    /// Wait of a message that takes a path now, in nanoseconds: the wait at the resource that lets it through last,
    /// because earlier waits count there.
    #[inline(always)] // it is asked for each path of each request
    pub(super) fn of(&self, now: Instant, path: usize) -> i64 {
        let now = now.0 as i64;
        let send_time = |used: &Use| self.resources[used.resource as usize].send_time(used);
        self.uses[path].iter().map(send_time).fold(now, i64::max) - now
    }

    /// Adds a message to a path; returns its wait in nanoseconds.
    pub(super) fn add(&mut self, now: Instant, path: usize) -> u64 {
        let now = now.0 as i64;
        let mut sent = now;
        for used in &self.uses[path] {
            let resource = &mut self.resources[used.resource as usize];
            sent = sent.max(resource.send_time(used));
            let queue_ns = resource.busy_until.max(now) - now;
            resource.busy_until = now.saturating_add((queue_ns + used.busy_ns).min(QUEUE_NS_MAX));
            resource.in_flight += 1;
        }
        (sent - now) as u64
    }

    /// Removes a message from a path. A resource without messages in flight has no queue, whatever the model says.
    pub(super) fn remove(&mut self, path: usize) {
        for used in &self.uses[path] {
            let resource = &mut self.resources[used.resource as usize];
            resource.in_flight -= 1;
            if resource.in_flight == 0 {
                resource.busy_until = 0;
            }
        }
    }
}

impl Resource {
    /// Send time of a message that would not wait here; both operands are bounded, so the difference cannot overflow.
    #[inline(always)] // as above
    fn send_time(&self, used: &Use) -> i64 {
        self.busy_until - used.after_ns
    }
}

/// Uses of a path, each resource once.
fn uses(hops: &[crate::Hop]) -> Vec<Use> {
    let mut uses: Vec<Use> = Vec::new();
    let mut after_ns = 0;
    let bounded = |ns: u64| ns.min(QUEUE_NS_MAX as u64) as i64;
    for hop in hops {
        let resource = u32::from(hop.resource.0);
        match uses.iter_mut().find(|known| known.resource == resource) {
            Some(known) => known.busy_ns = (known.busy_ns + bounded(hop.busy_ns)).min(QUEUE_NS_MAX),
            None => uses.push(Use { resource, busy_ns: bounded(hop.busy_ns), after_ns }),
        }
        after_ns = (after_ns + bounded(hop.delay_ns)).min(QUEUE_NS_MAX);
    }
    uses
}

/// Whether a resource may be busy for more than a quarter of the time, at the maximum throughput of all others.
fn queues(paths: &[Vec<Use>], resource: u32) -> bool {
    let busy_ns = |path: &[Use]| find(path, resource).map(|used| used.busy_ns);
    // The bottleneck of each path limits its throughput; paths that share a bottleneck share its throughput.
    let mut narrowest: Vec<Use> = Vec::new();
    for path in paths.iter().filter(|path| busy_ns(path).is_some()) {
        let narrow = *path.iter().max_by_key(|used| used.busy_ns).expect("path uses this resource");
        match narrowest.iter_mut().find(|known| known.resource == narrow.resource) {
            Some(known) => known.busy_ns = known.busy_ns.min(narrow.busy_ns),
            None => narrowest.push(narrow),
        }
    }
    let most = paths.iter().filter_map(|path| busy_ns(path)).max().unwrap_or(0) as f64;
    let per_ns: f64 = narrowest.iter().map(|used| 1.0 / used.busy_ns.max(1) as f64).sum();
    most * per_ns > 0.25
}

/// Whether no request waits longer at `hidden` than at `resource`: all paths over it visit `resource` first and keep
/// it busy for at least as long.
fn hides(paths: &[Vec<Use>], resource: u32, hidden: u32) -> bool {
    paths.iter().all(|path| match (find(path, resource), find(path, hidden)) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(first), Some(then)) => first.busy_ns >= then.busy_ns && first.after_ns <= then.after_ns,
    })
}

fn find(path: &[Use], resource: u32) -> Option<&Use> {
    path.iter().find(|used| used.resource == resource)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const RESOURCES: usize = 5;

    /// Reference model: eq. 1 and 2, one resource after the other.
    struct Model(Vec<(u64, u32)>);

    impl Model {
        fn take(&mut self, now: u64, path: &[Use]) -> u64 {
            let mut waits = 0;
            for used in path {
                let (busy_until, in_flight) = &mut self.0[used.resource as usize];
                waits += busy_until.saturating_sub(now + used.after_ns as u64 + waits);
                *busy_until = (*busy_until).max(now) + used.busy_ns as u64;
                *in_flight += 1;
            }
            waits
        }

        fn leave(&mut self, path: &[Use]) {
            for used in path {
                let (busy_until, in_flight) = &mut self.0[used.resource as usize];
                *in_flight -= 1;
                if *in_flight == 0 {
                    *busy_until = 0;
                }
            }
        }
    }

    fn path() -> impl Strategy<Value = Vec<Use>> {
        let hop = (any::<bool>(), 0..40_i64, 0..60_i64);
        vec(hop, RESOURCES).prop_map(|hops| {
            let mut after_ns = 0;
            let hops = hops.into_iter().zip(0..).filter(|((takes, ..), _)| *takes);
            let uses = hops.map(|((_, busy_ns, delay_ns), resource)| {
                after_ns += delay_ns;
                Use { resource, busy_ns, after_ns: after_ns - delay_ns }
            });
            uses.collect()
        })
    }

    proptest! {
        /// A resource that is hidden behind another one never adds a wait, and the wait at the resource that lets
        /// through last is the sum of all waits.
        #[test]
        fn backlog_wait_equals_reference_model(
            paths in vec(path(), 1..5), steps in vec((0..50_u64, any::<bool>(), any::<prop::sample::Index>()), 1..80)
        ) {
            let mut backlog = Backlog::of_uses(RESOURCES, paths.clone());
            let queues = |path: &Vec<Use>| path.iter().filter(|used| queues(&paths, used.resource)).copied().collect();
            let all: Vec<Vec<Use>> = paths.iter().map(queues).collect();
            let (mut model, mut flying, mut now) = (Model(vec![(0, 0); RESOURCES]), Vec::new(), 0);
            for (later, ends, which) in steps {
                now += later;
                if ends && !flying.is_empty() {
                    let at: usize = flying.swap_remove(which.index(flying.len()));
                    backlog.remove(at);
                    model.leave(&all[at]);
                } else {
                    let at = which.index(paths.len());
                    let waits = backlog.of(Instant(now), at);
                    prop_assert_eq!(waits as u64, model.take(now, &all[at]));
                    prop_assert_eq!(waits as u64, backlog.add(Instant(now), at));
                    flying.push(at);
                }
            }
        }
    }
}
