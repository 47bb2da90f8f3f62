//! Expansion of `acc` in dataflows: one dataflow for each accelerator of the hosts.
//!
//! `acc` stands for the same accelerator of a host in all trips of a dataflow. So a dataflow becomes at most as many as the
//! requester has accelerators, times those of the responder; and an application has at most [`PATHS_MAX`] in all.

use std::mem;

use super::application::{Application, Dataflow, Trip, TripEnd};
use super::{DeviceRole, Hardware};
use crate::ModelError;

/// Limit on the dataflows of an application, and so on its paths.
const PATHS_MAX: usize = 4096;

impl Application {
    /// Application between two hosts: each dataflow over `acc` becomes one for each accelerator. A dataflow of the file
    /// that names an accelerator, like `cpu-acc1`, takes the place of the one for it.
    ///
    /// # Errors
    /// There are too many dataflows.
    pub fn for_hosts(&self, requester: &Hardware, responder: &Hardware) -> Result<Self, ModelError> {
        self.for_accelerators([requester.accelerators(), responder.accelerators()])
    }

    /// The same for numbers of accelerators of the requester and the responder.
    pub(crate) fn for_accelerators(&self, accelerators: [usize; 2]) -> Result<Self, ModelError> {
        let mut application = self.clone();
        let mut paths = 0;
        for request in &mut application.requests {
            let given = mem::take(&mut request.dataflows);
            let is_given = |flow: &Dataflow| given.iter().any(|other| same_ends(flow, other));
            for flow in &given {
                let each = expand(flow, accelerators).filter(|each| !is_any(flow) || !is_given(each));
                request.dataflows.extend(each);
                if paths + request.dataflows.len() > PATHS_MAX {
                    let message = format!("there are more than {PATHS_MAX} dataflows; leave some out");
                    return Err(ModelError::new(&self.file, flow.trips[0].position, message));
                }
            }
            paths += request.dataflows.len();
        }
        Ok(application)
    }
}

fn ends(trip: &Trip) -> [TripEnd; 2] {
    [trip.requester, trip.responder]
}

fn is_any(flow: &Dataflow) -> bool {
    flow.trips.iter().flat_map(ends).any(|end| end.is_any)
}

/// Whether both use the same devices for the same tasks.
fn same_ends(one: &Dataflow, other: &Dataflow) -> bool {
    one.trips.iter().map(ends).eq(other.trips.iter().map(ends))
}

/// Dataflows of all choices of the accelerators that `acc` stands for; accelerator 0 first.
fn expand(flow: &Dataflow, accelerators: [usize; 2]) -> impl Iterator<Item = Dataflow> {
    let choices = [0, 1].map(|side| {
        let is_used = flow.trips.iter().any(|trip| ends(trip)[side].is_any);
        // Without an accelerator, the mapping to the host reports what is missing.
        let count = if is_used { accelerators[side].max(1) } else { 1 };
        DeviceRole::ALL[1..].iter().copied().take(count)
    });
    let [requester, responder] = choices;
    requester.flat_map(move |from| responder.clone().map(move |to| with_accelerators(flow, from, to)))
}

/// Dataflow in which `acc` is these accelerators.
fn with_accelerators(flow: &Dataflow, requester: DeviceRole, responder: DeviceRole) -> Dataflow {
    let end = |end: TripEnd, role| if end.is_any { TripEnd { role, is_any: false, ..end } } else { end };
    let trips = flow.trips.iter().map(|trip| Trip {
        requester: end(trip.requester, requester),
        responder: end(trip.responder, responder),
        ..trip.clone()
    });
    Dataflow { name: name(flow, requester, responder), trips: trips.collect() }
}

fn name(flow: &Dataflow, requester: DeviceRole, responder: DeviceRole) -> String {
    let joined = |requester, responder| {
        let trip =
            |trip: &Trip| format!("{}-{}", end_name(trip.requester, requester), end_name(trip.responder, responder));
        flow.trips.iter().map(trip).collect::<Vec<_>>().join(",")
    };
    if flow.name == joined(DeviceRole::Acc, DeviceRole::Acc) {
        return joined(requester, responder);
    }
    let mut name = flow.name.clone();
    if [requester, responder] != [DeviceRole::Acc; 2] {
        for (side, role) in [requester, responder].into_iter().enumerate() {
            if flow.trips.iter().any(|trip| ends(trip)[side].is_any) {
                name = format!("{name}-{role}");
            }
        }
    }
    name
}

/// Name of an end in a path: `acc0` for an accelerator 0 that the file names.
fn end_name(end: TripEnd, any: DeviceRole) -> &'static str {
    match end.role {
        _ if end.is_any => any.name(),
        DeviceRole::Acc => "acc0",
        role => role.name(),
    }
}
