//! Mapping of dataflows to hops: the resources of each request, with delays and busy times.

use super::{Hop, KindId, Path, PathId, PathSide, Paths, RequestKind, Resource, ResourceId};
use crate::ModelError;
use crate::model::{
    Application, Dataflow, DeviceRole, Hardware, HostLink, LinkBytes, NodeRole, RequestType, Trip, TripEnd,
};

/// Limit on the traverse time in nanoseconds, one hour; a longer time indicates a wrong unit.
const TRAVERSE_NS_MAX: u64 = 3_600_000_000_000;

/// Maps an application to two hosts. Its dataflows name all accelerators.
pub(super) fn map_to_hosts(
    requester: &Hardware,
    responder: &Hardware,
    application: &Application,
) -> Result<Paths, ModelError> {
    let mut laid = Paths {
        application: application.name.clone(),
        kinds: Vec::with_capacity(application.requests.len()),
        paths: Vec::new(),
        resources: Vec::new(),
    };
    for request in &application.requests {
        let kind = KindId(laid.kinds.len() as u16);
        let first = PathId(laid.paths.len() as u16);
        for dataflow in &request.dataflows {
            let acc = [|trip: &Trip| trip.requester.role, |trip: &Trip| trip.responder.role]
                .map(|role| dataflow.trips.iter().map(role).find(|role| role.is_acc()).unwrap_or(DeviceRole::Acc));
            let (hops, fifo) = (Vec::new(), true);
            let mut way = PathLayout { requester, responder, application, acc, laid: &mut laid, hops, fifo };
            dataflow.trips.iter().try_for_each(|trip| way.trip(trip))?;
            let (hops, fifo) = (way.hops, way.fifo);
            laid.paths.push(path(application, request, dataflow, kind, hops, fifo)?);
        }
        let (name, count) = (request.name.clone(), request.dataflows.len() as u16);
        laid.kinds.push(RequestKind { name, dependency: request.dependency, access: request.access, first, count });
    }
    Ok(laid)
}

fn path(
    application: &Application,
    request: &RequestType,
    dataflow: &Dataflow,
    kind: KindId,
    hops: Vec<Hop>,
    fifo: bool,
) -> Result<Path, ModelError> {
    let sum = |of: fn(&Hop) -> u64| hops.iter().map(of).fold(0, u64::saturating_add);
    let (traverse_ns, toll_ns) = (sum(|hop| hop.delay_ns), sum(|hop| hop.busy_ns));
    if traverse_ns > TRAVERSE_NS_MAX {
        let message = format!("a {} by `{}` takes more than an hour; check the units", request.name, dataflow.name);
        return Err(ModelError::new(&application.file, dataflow.trips[0].position, message));
    }
    let role = |end: fn(&Trip) -> TripEnd| {
        let mut ends = dataflow.trips.iter().map(end);
        ends.clone().find(|end| end.task.is_some()).or_else(|| ends.next()).map_or(DeviceRole::Cpu, |end| end.role)
    };
    Ok(Path {
        name: dataflow.name.clone(),
        kind,
        role: role(|trip| trip.responder),
        requester_role: role(|trip| trip.requester),
        hops,
        traverse_ns,
        toll_ns,
        noise_ns: traverse_ns / super::NOISE_SHARE,
        fifo,
    })
}

/// Dataflow during the mapping to both hosts.
struct PathLayout<'a> {
    requester: &'a Hardware,
    responder: &'a Hardware,
    application: &'a Application,
    /// Accelerators of requester and responder, for links of trips whose end is the processor.
    acc: [DeviceRole; 2],
    laid: &'a mut Paths,
    hops: Vec<Hop>,
    fifo: bool,
}

impl<'a> PathLayout<'a> {
    fn trip(&mut self, trip: &Trip) -> Result<(), ModelError> {
        let (asked, answering) = split(&trip.there);
        let (answered, asking) = split(&trip.back);
        // The requester's task runs where the message leaves from; other links may bring the message there.
        let (staging, leaving) = asked.split_at(asked.len() - 1);
        self.links(PathSide::Requester, staging, trip)?;
        self.node(PathSide::Requester, trip.requester, trip)?;
        self.links(PathSide::Requester, leaving, trip)?;
        // The responder's task runs where the message arrives; other links may store the message elsewhere.
        let (arriving, storing) = answering.split_at(1);
        self.links(PathSide::Responder, arriving, trip)?;
        self.node(PathSide::Responder, trip.responder, trip)?;
        self.links(PathSide::Responder, storing, trip)?;
        self.links(PathSide::Responder, answered, trip)?;
        self.links(PathSide::Requester, asking, trip)
    }

    fn links(&mut self, side: PathSide, links: &[LinkBytes], trip: &Trip) -> Result<(), ModelError> {
        links.iter().try_for_each(|link| self.link(side, link.link, link.bytes, trip))
    }

    fn link(&mut self, side: PathSide, logical: HostLink, bytes: u64, trip: &Trip) -> Result<(), ModelError> {
        let hardware = self.host(side);
        let end = if side == PathSide::Requester { trip.requester } else { trip.responder };
        let acc = if end.role.is_acc() { end.role } else { self.acc[side as usize] };
        let Some(route) = hardware.route(logical, acc) else {
            let message = format!(
                "the path needs {} ({} to {}), but `{}`, the {}, has no {acc}; use another path or another model",
                logical.name(),
                logical.ends().0.name(),
                logical.ends().1.name(),
                hardware.name,
                side.name()
            );
            return Err(ModelError::new(&self.application.file, trip.position, message));
        };
        for pair in route.windows(2) {
            let link = hardware.link(pair[0], pair[1]).expect("routes go over links");
            let of_bytes = times(bytes, link.bytes_per_second);
            let busy_ns = of_bytes.max(times(1, link.messages_per_second));
            let [from, to] = [pair[0], pair[1]].map(|at| &hardware.nodes[at].name[..]);
            let resource = self.resource(Resource { side, name: format!("{from}>{to}"), node: None, slots: 1 });
            self.hops.push(Hop { resource, delay_ns: link.latency_ns.saturating_add(busy_ns), busy_ns });
        }
        Ok(())
    }

    fn node(&mut self, side: PathSide, end: TripEnd, trip: &Trip) -> Result<(), ModelError> {
        let Some(task) = end.task else { return Ok(()) };
        let hardware = self.host(side);
        let task = &self.application.tasks[task];
        let Some(compute_ns) = task.compute_ns[end.role as usize] else {
            let message = format!(
                "the compute time of `{}` on {} is unknown; profile it, or set it in `tasks`",
                task.name, end.role
            );
            return Err(ModelError::new(&self.application.file, trip.position, message));
        };
        let Some(at) = hardware.device(end.role) else {
            let message = format!(
                "`{}` is to run on {}, which `{}`, the {}, lacks",
                task.name,
                end.role,
                hardware.name,
                side.name()
            );
            return Err(ModelError::new(&self.application.file, trip.position, message));
        };
        let node = &hardware.nodes[at];
        let (name, slots) = (node.name.clone(), node.slots);
        let resource = self.resource(Resource { side, name, node: Some(end.role), slots });
        self.fifo &= slots == 1;
        let busy_ns = task.busy_ns[end.role as usize].unwrap_or_else(|| compute_ns.div_ceil(u64::from(slots)));
        self.hops.push(Hop { resource, delay_ns: compute_ns, busy_ns });
        Ok(())
    }

    fn host(&self, side: PathSide) -> &'a Hardware {
        match side {
            PathSide::Requester => self.requester,
            PathSide::Responder => self.responder,
        }
    }

    fn resource(&mut self, resource: Resource) -> ResourceId {
        let known = &mut self.laid.resources;
        let at = known.iter().position(|known| known.side == resource.side && known.name == resource.name);
        ResourceId(at.unwrap_or_else(|| {
            known.push(resource);
            known.len() - 1
        }) as u16)
    }
}

/// Links before the network, and links after it.
fn split(links: &[LinkBytes]) -> (&[LinkBytes], &[LinkBytes]) {
    let crossing = links.iter().position(|link| link.link.ends().1 == NodeRole::Nic).expect("a hop goes to the card");
    links.split_at(crossing + 1)
}

/// Time for `count` units at this rate, in nanoseconds, rounded up.
fn times(count: u64, per_second: u64) -> u64 {
    u64::try_from((u128::from(count) * 1_000_000_000).div_ceil(u128::from(per_second))).unwrap_or(u64::MAX)
}
