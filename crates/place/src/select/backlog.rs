//! The queues that this selector itself makes: eq. 1 and 2, kept up as time passes.
//!
//! A resource is busy until some time; what is sent over it makes that later by the time for which it keeps it busy.
//! Paths that share a resource share its queue.

use pathcall_wire::Instant;

use crate::path::Paths;

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
#[derive(Debug, Clone, Copy)]
struct Use {
    resource: u32,
    busy_ns: u64,
}

impl Backlog {
    pub(super) fn new(paths: &Paths) -> Self {
        let mut uses: Vec<Use> = Vec::new();
        let mut ranges = Vec::with_capacity(paths.paths.len());
        for path in &paths.paths {
            let first = uses.len();
            for hop in &path.hops {
                let resource = u32::from(hop.resource.0);
                match uses[first..].iter_mut().find(|known| known.resource == resource) {
                    Some(known) => known.busy_ns = known.busy_ns.saturating_add(hop.busy_ns),
                    None => uses.push(Use { resource, busy_ns: hop.busy_ns }),
                }
            }
            ranges.push((first as u32, uses.len() as u32));
        }
        Self { resources: vec![Resource::default(); paths.resources.len()], ranges, uses }
    }

    /// What a message waits that takes a path now, in nanoseconds.
    pub(super) fn of(&self, now: Instant, path: usize) -> u64 {
        let wait = |used: &Use| self.resources[used.resource as usize].busy_until.saturating_sub(now.0);
        self.uses(path).iter().map(wait).fold(0, u64::saturating_add)
    }

    /// A message takes a path now.
    pub(super) fn add(&mut self, now: Instant, path: usize) {
        let (first, end) = self.ranges[path];
        for used in &self.uses[first as usize..end as usize] {
            let resource = &mut self.resources[used.resource as usize];
            resource.busy_until = resource.busy_until.max(now.0).saturating_add(used.busy_ns);
            resource.in_flight += 1;
        }
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

    fn uses(&self, path: usize) -> &[Use] {
        let (first, end) = self.ranges[path];
        &self.uses[first as usize..end as usize]
    }
}
