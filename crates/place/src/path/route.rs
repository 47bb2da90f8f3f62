//! From dataflows to hops: where each request queues, for how long it is there, and for how long it holds up others.

use super::{Hop, Kind, KindId, Path, PathId, Paths, Resource, ResourceId, Side};
use crate::Mistake;
use crate::model::{Application, Dataflow, End, Hardware, LinkBytes, LogicalLink, NodeRole, RequestType, Role, Trip};

/// A request that takes longer through empty hosts has a unit wrong, in nanoseconds: an hour.
const TRAVERSE_NS_MAX: u64 = 3_600_000_000_000;
/// Most paths of an application.
const PATHS_MAX: usize = 4096;

/// Lays an application over two hosts.
pub(super) fn lay(requester: &Hardware, responder: &Hardware, application: &Application) -> Result<Paths, Mistake> {
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
            let mut way = Way { requester, responder, application, laid: &mut laid, hops: Vec::new(), fifo: true };
            dataflow.trips.iter().try_for_each(|trip| way.trip(trip))?;
            let (hops, fifo) = (way.hops, way.fifo);
            laid.paths.push(path(application, request, dataflow, kind, hops, fifo)?);
        }
        if laid.paths.len() > PATHS_MAX {
            let said = format!("there are more than {PATHS_MAX} dataflows; leave some out");
            return Err(Mistake::new(&application.file, None, said));
        }
        let (name, count) = (request.name.clone(), request.dataflows.len() as u16);
        laid.kinds.push(Kind { name, dependency: request.dependency, access: request.access, first, count });
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
) -> Result<Path, Mistake> {
    let sum = |of: fn(&Hop) -> u64| hops.iter().map(of).fold(0, u64::saturating_add);
    let (traverse_ns, toll_ns) = (sum(|hop| hop.delay_ns), sum(|hop| hop.busy_ns));
    if traverse_ns > TRAVERSE_NS_MAX {
        let said = format!("a {} by `{}` takes over an hour; is a unit wrong?", request.name, dataflow.name);
        return Err(Mistake::new(&application.file, dataflow.trips[0].position, said));
    }
    let role = |end: fn(&Trip) -> End| {
        let mut ends = dataflow.trips.iter().map(end);
        ends.clone().find(|end| end.task.is_some()).or_else(|| ends.next()).map_or(Role::Cpu, |end| end.role)
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

/// A dataflow on its way through both hosts.
struct Way<'a> {
    requester: &'a Hardware,
    responder: &'a Hardware,
    application: &'a Application,
    laid: &'a mut Paths,
    hops: Vec<Hop>,
    fifo: bool,
}

impl<'a> Way<'a> {
    fn trip(&mut self, trip: &Trip) -> Result<(), Mistake> {
        let (asked, answering) = split(&trip.there);
        let (answered, asking) = split(&trip.back);
        // The message is made, or brought to its role, and worked on where it leaves from.
        let (staging, leaving) = asked.split_at(asked.len() - 1);
        self.links(Side::Requester, staging, trip)?;
        self.node(Side::Requester, trip.requester, trip)?;
        self.links(Side::Requester, leaving, trip)?;
        // It is worked on where it arrives, and stored elsewhere if so.
        let (arriving, storing) = answering.split_at(1);
        self.links(Side::Responder, arriving, trip)?;
        self.node(Side::Responder, trip.responder, trip)?;
        self.links(Side::Responder, storing, trip)?;
        self.links(Side::Responder, answered, trip)?;
        self.links(Side::Requester, asking, trip)
    }

    fn links(&mut self, side: Side, links: &[LinkBytes], trip: &Trip) -> Result<(), Mistake> {
        links.iter().try_for_each(|link| self.link(side, link.link, link.bytes, trip))
    }

    fn link(&mut self, side: Side, logical: LogicalLink, bytes: u64, trip: &Trip) -> Result<(), Mistake> {
        let hardware = self.host(side);
        let Some(route) = hardware.route(logical) else {
            let said = format!(
                "the path needs {} ({} to {}), but `{}`, the {}, has no acc; take another path or another model",
                logical.name(),
                logical.ends().0.name(),
                logical.ends().1.name(),
                hardware.name,
                side.name()
            );
            return Err(Mistake::new(&self.application.file, trip.position, said));
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

    fn node(&mut self, side: Side, end: End, trip: &Trip) -> Result<(), Mistake> {
        let Some(task) = end.task else { return Ok(()) };
        let hardware = self.host(side);
        let task = &self.application.tasks[task];
        let Some(compute_ns) = task.compute_ns[end.role as usize] else {
            let said = format!(
                "how long `{}` takes on {} is not known; profile it, or give it in `tasks`",
                task.name, end.role
            );
            return Err(Mistake::new(&self.application.file, trip.position, said));
        };
        let Some(at) = hardware.node(end.role.into()) else {
            let said = format!(
                "`{}` is to run on {}, which `{}`, the {}, lacks",
                task.name,
                end.role,
                hardware.name,
                side.name()
            );
            return Err(Mistake::new(&self.application.file, trip.position, said));
        };
        let node = &hardware.nodes[at];
        let (name, role, slots) = (node.name.clone(), node.role, node.slots);
        let resource = self.resource(Resource { side, name, node: Some(role), slots });
        self.fifo &= slots == 1;
        let busy_ns = task.busy_ns[end.role as usize].unwrap_or_else(|| compute_ns.div_ceil(u64::from(slots)));
        self.hops.push(Hop { resource, delay_ns: compute_ns, busy_ns });
        Ok(())
    }

    fn host(&self, side: Side) -> &'a Hardware {
        match side {
            Side::Requester => self.requester,
            Side::Responder => self.responder,
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

/// What is before the network and what after it.
fn split(links: &[LinkBytes]) -> (&[LinkBytes], &[LinkBytes]) {
    let crossing = links.iter().position(|link| link.link.ends().1 == NodeRole::Nic).expect("one goes to the card");
    links.split_at(crossing + 1)
}

/// Time for so many at so many a second, in nanoseconds, rounded up.
fn times(count: u64, per_second: u64) -> u64 {
    u64::try_from((u128::from(count) * 1_000_000_000).div_ceil(u128::from(per_second))).unwrap_or(u64::MAX)
}
