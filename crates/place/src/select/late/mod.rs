//! Late binding: messages wait in one queue, and a device takes the next one when it has room.
//!
//! ```text
//! message ─▶ common queue ─┬─ first ─▶ the path that would end it soonest, once its device has room
//!                          └─ last ──▶ another device with room, if that ends it no later than to wait
//! ```
//!
//! A model's times only begin the estimates. Each answer corrects those of its path: the time of a message alone, and the
//! time between two messages when the device is busy. A device has room for little more than keeps it busy, so that little
//! is bound early. `trial` compares the throughput with and without the accelerators, because devices may share what no
//! model shows.

mod estimate;
mod trial;

pub(super) use estimate::LateAhead;
pub use estimate::LearnedTimes;

use std::collections::BTreeSet;
use std::ops::Range;

use estimate::{DeviceLoad, PathEstimate};
use pathcall_wire::{Instant, Mutant, mutant};
use trial::{RoleTrial, Roles};

use super::common_queue::CommonQueue;
use crate::model::{ACCELERATORS_MAX, DeviceRole};
use crate::path::{Path, PathSide, Paths, Resource, ResourceId};

/// Limit on the accelerators that trials leave out: those of both hosts.
const CHOICES_APART_MAX: usize = 2 * ACCELERATORS_MAX;

/// End of the common queue from which a device takes a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueEnd {
    First,
    Last,
}

/// Estimates of all paths, loads of their devices, and trials.
#[derive(Debug)]
pub(super) struct LateBinding {
    paths: Vec<PathEstimate>,
    /// Paths of each request type.
    kinds: Vec<Range<u16>>,
    /// By resource.
    devices: Vec<DeviceLoad>,
    /// Devices that an older message waits for, by resource: no younger one takes them in this round.
    held_back: Vec<bool>,
    trial: RoleTrial,
    /// Number of devices of each choice of the trials.
    choice_devices: Vec<usize>,
    /// Whether other messages wait beside the last one that was pulled.
    is_saturated: bool,
    /// Whether the next message is a probe.
    probes: bool,
}

impl LateBinding {
    /// `accelerators`: number of a path's ends on accelerators, by path.
    pub(super) fn new(paths: &Paths, accelerators: impl Fn(usize) -> u8) -> Self {
        let of_kind = |path: usize| {
            let kind = &paths.kinds[usize::from(paths.paths[path].kind.0)];
            let first = usize::from(kind.first.0);
            (first..first + usize::from(kind.count)).map(&accelerators)
        };
        let apart = single_accelerators(paths);
        let estimate = |(at, path): (usize, &Path)| {
            let all = || of_kind(at);
            let fewest = all().min() == Some(accelerators(at));
            let most = all().max() == Some(accelerators(at));
            let mut allowed = vec![true, fewest, most];
            allowed.extend(apart.iter().map(|device| may_leave_out(paths, path, *device)));
            PathEstimate::new(path, paths, allowed.into_boxed_slice())
        };
        let differ = (0..paths.paths.len()).any(|at| of_kind(at).min() != of_kind(at).max());
        let choices = if differ { 3 + apart.len() } else { 1 };
        let estimates: Vec<PathEstimate> = paths.paths.iter().enumerate().map(estimate).collect();
        let devices_of = |choice: usize| {
            let allowed = estimates.iter().filter(|path| path.allowed[choice]);
            allowed.map(|path| path.device).collect::<BTreeSet<_>>().len()
        };
        Self {
            choice_devices: (0..choices).map(devices_of).collect(),
            paths: estimates,
            kinds: paths.kinds.iter().map(|kind| kind.first.0..kind.first.0 + kind.count).collect(),
            devices: vec![DeviceLoad::default(); paths.resources.len()],
            held_back: vec![false; paths.resources.len()],
            trial: RoleTrial::new(choices),
            is_saturated: false,
            probes: false,
        }
    }

    /// Begins a round of pulls, from the oldest waiting message on.
    pub(super) fn begin_round(&mut self) {
        self.held_back.fill(false);
    }

    /// Path of a message among usable paths of its type, and the end of the queue that it comes from; `None` to wait.
    pub(super) fn pull(
        &mut self,
        usable: impl Iterator<Item = u16> + Clone,
        queue: &CommonQueue,
    ) -> Option<(u16, QueueEnd)> {
        let allowed = |path: &u16| self.is_allowed(*path);
        let pulled = match usable.clone().any(|path| allowed(&path)) {
            true => self.soonest(usable.clone().filter(allowed), queue),
            // A trial must not stop the messages.
            false => self.soonest(usable.clone(), queue),
        };
        match pulled {
            Some(_) => self.is_saturated = queue.waiting() > 1,
            None => {
                if let Some(best) = usable.min_by_key(|path| self.expected_ns(*path)) {
                    self.held_back[usize::from(self.paths[usize::from(best)].device)] = true;
                }
            }
        }
        pulled
    }

    fn soonest(&self, paths: impl Iterator<Item = u16> + Clone, queue: &CommonQueue) -> Option<(u16, QueueEnd)> {
        let expected = |path: &u16| self.expected_ns(*path);
        let best = paths.clone().min_by_key(expected)?;
        if self.has_room(best) {
            return Some((best, QueueEnd::First));
        }
        let other = paths.filter(|path| self.has_room(*path)).min_by_key(expected)?;
        let waiting_ns = || self.waiting_ns(best, queue).saturating_sub(self.gap_ns(best));
        let pays = expected(&other) <= expected(&best).saturating_add(waiting_ns());
        (pays || mutant::on(Mutant::PlaceTakesAnyway)).then_some((other, QueueEnd::Last))
    }

    /// Whether the running trial allows a path.
    fn is_allowed(&self, path: u16) -> bool {
        self.paths[usize::from(path)].allowed[self.trial.roles().index()]
    }

    /// Time until a message would end that a path takes now, in nanoseconds.
    fn expected_ns(&self, path: u16) -> u64 {
        let path = &self.paths[usize::from(path)];
        path.alone_ns().saturating_add(path.wait_ns(self.device(path).load_ns))
    }

    fn has_room(&self, path: u16) -> bool {
        let path = &self.paths[usize::from(path)];
        let free =
            self.device(path).has_room(path, self.trial.roles().is_one_role()) || mutant::on(Mutant::PlaceNoWindow);
        free && !self.held_back[usize::from(path.device)]
    }

    /// Work of the messages in the queue that would take the device of a path, in nanoseconds.
    pub(super) fn waiting_ns(&self, path: u16, queue: &CommonQueue) -> u64 {
        let device = self.paths[usize::from(path)].device;
        let work_ns = |(kind, paths): (usize, &Range<u16>)| {
            let length = u64::from(queue.length(kind));
            let best = paths.clone().filter(|_| length > 0).min_by_key(|path| self.expected_ns(*path));
            let best = best.filter(|best| self.paths[usize::from(*best)].device == device);
            best.map_or(0, |best| length.saturating_mul(self.gap_ns(best)))
        };
        self.kinds.iter().enumerate().map(work_ns).fold(0, u64::saturating_add)
    }

    fn device(&self, path: &PathEstimate) -> &DeviceLoad {
        &self.devices[usize::from(path.device)]
    }

    /// Time between two messages of a busy path, in nanoseconds.
    fn gap_ns(&self, path: u16) -> u64 {
        self.paths[usize::from(path)].gap_ns()
    }

    /// Whether the next message should probe a path that has not been used for long.
    pub(super) fn probe_due(&mut self, now: Instant, path: u16) -> bool {
        self.paths[usize::from(path)].probe_due(now)
    }

    /// Records that the next message probes a left or slow path.
    pub(super) fn probes(&mut self) {
        self.probes = true;
    }

    /// Records that the message that should have been a probe is not sent.
    pub(super) fn not_sent(&mut self) {
        self.probes = false;
    }

    /// Types of messages that wait, with their paths.
    pub(super) fn waiting_kinds<'a>(&'a self, queue: &'a CommonQueue) -> impl Iterator<Item = Range<u16>> + 'a {
        self.kinds.iter().enumerate().filter(|(kind, _)| queue.length(*kind) > 0).map(|(_, paths)| paths.clone())
    }

    /// Records that a message is sent.
    pub(super) fn sent(&mut self, now: Instant, path: u16) -> LateAhead {
        self.trial.sent(now);
        let path = &self.paths[usize::from(path)];
        let mut ahead = self.devices[usize::from(path.device)].sent(now, path.gap_ns(), self.is_saturated);
        ahead.is_probe = std::mem::take(&mut self.probes);
        ahead
    }

    /// Records that a message was answered. `waiting`: others waited for a device.
    pub(super) fn done(
        &mut self,
        now: Instant,
        path: u16,
        (ahead, waiting): (&LateAhead, bool),
        intra_ns: Option<u64>,
        total_ns: u64,
    ) {
        let path = &mut self.paths[usize::from(path)];
        let device = &mut self.devices[usize::from(path.device)];
        device.ended(ahead);
        let rate = device.rate(now, ahead);
        path.measured(now, ahead, rate, intra_ns, total_ns);
        device.drains |= path.was_never_alone(now);
        let work = path.work;
        let (paths, devices, trial) = (&self.paths, &self.choice_devices, &mut self.trial);
        trial.done(now, work, waiting, |choice| least_cost(paths, devices, choice));
    }

    /// Records that a message ended without an answer.
    pub(super) fn lost(&mut self, now: Instant, path: u16, ahead: &LateAhead) {
        let device = self.paths[usize::from(path)].device;
        self.devices[usize::from(device)].ended(ahead);
        let (paths, devices, trial) = (&self.paths, &self.choice_devices, &mut self.trial);
        trial.lost(now, |choice| least_cost(paths, devices, choice));
    }

    /// Estimates of a path, for people and for checks.
    pub(super) fn learned(&self, path: u16) -> LearnedTimes {
        let estimate = &self.paths[usize::from(path)];
        LearnedTimes {
            alone_ns: estimate.alone_ns(),
            gap_ns: estimate.gap_ns(),
            expected_ns: self.expected_ns(path),
            has_room: self.device(estimate).has_room(estimate, self.trial.roles().is_one_role()),
            is_tried: self.is_allowed(path),
        }
    }
}

/// Least cost that a choice of roles may have: what its answers have shown, less what other roles may have added.
fn least_cost(paths: &[PathEstimate], devices: &[usize], choice: Roles) -> f64 {
    let allowed = paths.iter().filter(|path| path.allowed[choice.index()]);
    let least = allowed.map(PathEstimate::least_cost).fold(f64::INFINITY, f64::min);
    // More than two devices may be faster together than what two can have cost each other.
    least * 2.0 / devices[choice.index()].max(2) as f64
}

/// Accelerators that trials leave out, one at a time: none unless there are several.
fn single_accelerators(paths: &Paths) -> Vec<ResourceId> {
    let is_acc = |resource: &Resource| resource.node.is_some_and(DeviceRole::is_acc);
    let is_used = |at| paths.paths.iter().flat_map(|path| &path.hops).any(|hop| hop.resource == at);
    let all =
        paths.resources.iter().zip((0..).map(ResourceId)).filter(|(resource, at)| is_acc(resource) && is_used(*at));
    let all: Vec<_> = all.map(|(resource, at)| (resource.side, at)).collect();
    let has_other = |(side, at): &(PathSide, ResourceId)| all.iter().any(|other| other.0 == *side && other.1 != *at);
    all.iter().filter(|one| has_other(one)).map(|(_, at)| *at).take(CHOICES_APART_MAX).collect()
}

/// Whether a path is used without this accelerator: it does not use it, or all paths of its type do.
fn may_leave_out(paths: &Paths, path: &Path, accelerator: ResourceId) -> bool {
    let uses = |path: &Path| path.hops.iter().any(|hop| hop.resource == accelerator);
    !uses(path) || paths.of_kind(path.kind).iter().all(uses)
}
