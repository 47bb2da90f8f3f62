//! The queues that this selector itself makes: eq. 1 and 2, kept up as time passes.
//!
//! A resource is busy until some time; what is sent over it makes that later by the time for which it keeps it busy.
//! Paths that share a resource share its queue. While a message is at one resource, the queue of the next one gets
//! shorter. A resource that others hold up so much that it is never busy for more than a quarter of the time has no queue
//! worth the look.

use pathcall_wire::Instant;

use crate::path::Paths;

/// The longest queue that is kept, in nanoseconds: 13 days.
const QUEUE_NS_MAX: u64 = 1 << 50;

#[derive(Debug)]
pub(super) struct Backlog {
    resources: Vec<Resource>,
    /// Of each path: where its uses begin and end.
    ranges: Vec<(u32, u32)>,
    uses: Vec<Use>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Resource {
    busy_until: u64,
    in_flight: u32,
}

/// A path keeps a resource busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Use {
    resource: u32,
    busy_ns: u64,
    /// When a message gets there that waits nowhere, after it was sent.
    after_ns: u64,
}

impl Backlog {
    pub(super) fn new(paths: &Paths) -> Self {
        let all: Vec<Vec<Use>> = paths.paths.iter().map(|path| uses(&path.hops)).collect();
        let mut uses: Vec<Use> = Vec::new();
        let mut ranges = Vec::with_capacity(all.len());
        for path in &all {
            let first = uses.len() as u32;
            uses.extend(path.iter().filter(|used| queues(&all, used.resource)));
            ranges.push((first, uses.len() as u32));
        }
        Self { resources: vec![Resource::default(); paths.resources.len()], ranges, uses }
    }

    /// What a message waits that takes a path now, in nanoseconds.
    #[inline(always)] // it is asked for each path of each request
    pub(super) fn of(&self, now: Instant, path: usize) -> u64 {
        let (first, end) = self.ranges[path];
        let mut waits: u64 = 0;
        for used in &self.uses[first as usize..end as usize] {
            // Queues are bounded: no sum of some of them wraps around.
            waits = waits.wrapping_add(self.resources[used.resource as usize].wait(now, used, waits));
        }
        waits
    }

    /// A message takes a path now; what it waits, in nanoseconds.
    pub(super) fn add(&mut self, now: Instant, path: usize) -> u64 {
        let (first, end) = self.ranges[path];
        let mut waits: u64 = 0;
        for used in &self.uses[first as usize..end as usize] {
            let resource = &mut self.resources[used.resource as usize];
            waits = waits.wrapping_add(resource.wait(now, used, waits));
            let queue = resource.busy_until.saturating_sub(now.0);
            resource.busy_until = now.0.saturating_add((queue + used.busy_ns).min(QUEUE_NS_MAX));
            resource.in_flight += 1;
        }
        waits
    }

    /// A message on a path ended. Where none is left nothing is queued, whatever the model says.
    pub(super) fn remove(&mut self, path: usize) {
        let (first, end) = self.ranges[path];
        for used in &self.uses[first as usize..end as usize] {
            let resource = &mut self.resources[used.resource as usize];
            resource.in_flight -= 1;
            if resource.in_flight == 0 {
                resource.busy_until = 0;
            }
        }
    }
}

impl Resource {
    /// What a message waits here that was sent now, and has waited so long elsewhere.
    #[inline(always)] // as above
    fn wait(&self, now: Instant, used: &Use, waited_ns: u64) -> u64 {
        self.busy_until.saturating_sub(now.0.wrapping_add(used.after_ns).wrapping_add(waited_ns))
    }
}

/// What a path keeps busy, each resource once.
fn uses(hops: &[crate::Hop]) -> Vec<Use> {
    let mut uses: Vec<Use> = Vec::new();
    let mut after_ns = 0_u64;
    for hop in hops {
        let resource = u32::from(hop.resource.0);
        match uses.iter_mut().find(|known| known.resource == resource) {
            Some(known) => known.busy_ns = known.busy_ns.saturating_add(hop.busy_ns),
            None => uses.push(Use { resource, busy_ns: hop.busy_ns, after_ns }),
        }
        after_ns = after_ns.saturating_add(hop.delay_ns).min(QUEUE_NS_MAX);
    }
    uses
}

/// Whether a resource may be busy for more than a quarter of the time, when all others let through what they can.
fn queues(paths: &[Vec<Use>], resource: u32) -> bool {
    let busy_ns = |path: &[Use]| path.iter().find(|used| used.resource == resource).map(|used| used.busy_ns);
    // Each path's narrowest place lets so many through; those that share it share that.
    let mut narrowest: Vec<Use> = Vec::new();
    for path in paths.iter().filter(|path| busy_ns(path).is_some()) {
        let narrow = *path.iter().max_by_key(|used| used.busy_ns).expect("it uses this one");
        match narrowest.iter_mut().find(|known| known.resource == narrow.resource) {
            Some(known) => known.busy_ns = known.busy_ns.min(narrow.busy_ns),
            None => narrowest.push(narrow),
        }
    }
    let most = paths.iter().filter_map(|path| busy_ns(path)).max().unwrap_or(0) as f64;
    let per_ns: f64 = narrowest.iter().map(|used| 1.0 / used.busy_ns.max(1) as f64).sum();
    most * per_ns > 0.25
}
