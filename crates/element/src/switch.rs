//! Switch of an element: the program and the addresses of its endpoints. Frames pass through it and commands change it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU16;
use std::time::{self, Duration};

use pathcall_driver::link::LinkOutbox;
use pathcall_program::{
    Endpoint, FrameAction, FrameDropReason, FrameVerdict, HeldHedges, HeldHedgesSize, InstalledApplication,
    InstalledPool, PoolCounters, Size, SwitchProgram, TableChangeError,
};
use pathcall_proto::v1::{ApplicationCounters, CountersReply, ReadRegistersReply};
use pathcall_wire::{Base, Instant, MAX_FRAME, TokenKey};

use crate::kernel::{AttachedInterface, Kernel, KernelRejected, KernelVerdict, SlowPath};
use crate::routes::Routes;

/// Limit of the endpoints that an element forwards to, which bounds its tables.
pub(crate) const ENDPOINTS_MAX: usize = 1 << 16;
/// Registers of one reply: at up to five bytes each, well within gRPC's usual limit of 4 MiB.
pub(crate) const READ_LANES_MAX: u64 = 1 << 18;

/// Program with the routes to its endpoints.
#[derive(Debug)]
pub(crate) struct Switch {
    program: SwitchProgram,
    routes: Routes,
    started: time::Instant,
    congestion_bytes: usize,
    /// Address on which the element's frames arrive.
    own: SocketAddr,
    /// XDP program, which processes the applications without tokens.
    kernel: Option<Kernel>,
}

/// Reason for which a command is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandRefused {
    /// The program's tables don't allow the change.
    #[error(transparent)]
    Table(#[from] TableChangeError),
    /// The reply would be too large.
    #[error("{lanes} registers are too many for one reply: ask for rows of at most {READ_LANES_MAX}")]
    ReadSize {
        /// Registers asked for.
        lanes: u64,
    },
    /// The table of endpoints is full.
    #[error("endpoint {endpoint} does not fit: the element forwards to {ENDPOINTS_MAX} at most")]
    Endpoints {
        /// First endpoint beyond the limit.
        endpoint: u32,
    },
    /// The kernel rejected the change.
    #[error(transparent)]
    Kernel(#[from] KernelRejected),
}

impl Switch {
    /// `own` is the address on which frames arrive.
    pub(crate) fn new(size: Size, congestion_bytes: usize, own: SocketAddr, kernel: Option<Kernel>) -> Self {
        let (mut program, routes) = (SwitchProgram::new(size), Routes::default());
        program.set_last_number(first_call_number());
        program.hold_hedges(HeldHedgesSize::default());
        Self { program, routes, started: time::Instant::now(), congestion_bytes, own, kernel }
    }

    /// True if frames sent to `addr` arrive at this element.
    fn is_own(&self, addr: SocketAddr) -> bool {
        // A host can bind exactly its own addresses.
        let local = |ip: IpAddr| UdpSocket::bind((ip, 0)).is_ok();
        addr.port() == self.own.port()
            && (addr.ip() == self.own.ip() || self.own.ip().is_unspecified() && local(addr.ip()))
    }

    /// Interfaces that the XDP program is attached to.
    pub(crate) fn attached(&self) -> &[AttachedInterface] {
        self.kernel.as_ref().map_or(&[], Kernel::attached)
    }

    /// Takes the XDP program, for root programs.
    #[cfg(feature = "xdp")]
    pub(crate) fn take_program(&mut self) -> Option<pathcall_xdp::function::SwitchProgramRef> {
        self.kernel.as_mut().and_then(Kernel::take_program)
    }

    /// Time of the program: nanoseconds since the element started.
    pub(crate) fn now(&self) -> Instant {
        Instant(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Runs a frame through the program, which changes it in place, and queues the resulting frames.
    pub(crate) fn forward(&mut self, now: Instant, congested: bool, frame: &mut [u8], out: &mut LinkOutbox<'_>) {
        // NetRPC §5.1: a switch with a long queue marks the frames that pass, and senders slow down.
        let congested = congested || out.backlog() >= self.congestion_bytes;
        if self.kernel.is_some() && self.forward_by_kernel(congested, frame, out) {
            return;
        }
        let FrameVerdict { action, len } = self.program.process(now, frame, congested);
        let frame = &mut frame[..len];
        match action {
            FrameAction::Forward(endpoint) => {
                if let Some(addr) = self.routes.get(endpoint) {
                    out.queue(addr, frame);
                }
            }
            FrameAction::Clone(endpoint) => {
                self.forward_and_clone(endpoint, frame, |addr, frame| out.queue(addr, frame))
            }
            FrameAction::Multicast(gaid) => self.copy(gaid, frame, |addr, frame| out.queue(addr, frame)),
            // The program counts drops by reason.
            FrameAction::Drop(_) => {}
        }
    }

    /// Sends a request to one server and, after a second pass, its clone to another (NetClone §3.4).
    fn forward_and_clone(&mut self, endpoint: u32, frame: &mut [u8], mut queue: impl FnMut(SocketAddr, &[u8])) {
        if let Some(addr) = self.routes.get(endpoint) {
            queue(addr, frame);
        }
        if let FrameAction::Forward(endpoint) = self.program.recirculate(frame).action
            && let Some(addr) = self.routes.get(endpoint)
        {
            queue(addr, frame);
        }
    }

    /// Time of the next hedge to send, on the program's clock.
    pub(crate) fn next_hedge(&self) -> Option<Instant> {
        self.program.hedges().and_then(HeldHedges::deadline)
    }

    /// Sends the held hedges whose time has come, each to the idlest other server at this moment.
    pub(crate) fn send_hedges(&mut self, now: Instant, mut queue: impl FnMut(SocketAddr, &[u8])) {
        let routes = &self.routes;
        self.program.send_hedges(now, |endpoint, frame| {
            let addr = routes.get(endpoint);
            addr.inspect(|addr| queue(*addr, frame)).is_some()
        });
    }

    /// Forwards a frame that the kernel's program has processed. Others can send to this port, too. Frames leave signed
    /// without a check of their token, but no application with a key is ever in the kernel.
    pub(crate) fn forward_by_slow_path(
        &mut self,
        slow: SlowPath,
        frame: &mut [u8],
        mut queue: impl FnMut(SocketAddr, &[u8]),
    ) {
        let in_kernel = |gaid| self.kernel.as_ref().is_some_and(|kernel| kernel.has(gaid));
        let base = match Base::new_checked(&*frame) {
            Ok(base) if in_kernel(base.gaid()) => base,
            Ok(_) => return self.program.count_dropped(FrameDropReason::NotAdmitted),
            Err(_) => return self.program.count_dropped(FrameDropReason::Malformed),
        };
        match slow {
            SlowPath::Multicast => self.copy(base.gaid(), frame, queue),
            SlowPath::Clone => self.forward_and_clone(base.dst(), frame, queue),
            SlowPath::Forward => {
                if let Some(addr) = self.routes.get(base.dst()) {
                    queue(addr, frame);
                }
            }
        }
    }

    fn copy(&self, gaid: u32, frame: &mut [u8], mut queue: impl FnMut(SocketAddr, &[u8])) {
        self.program.tables().copies(gaid, frame, |member, frame| {
            if let Some(addr) = self.routes.get(member) {
                queue(addr, frame);
            }
        });
    }

    /// Runs a frame that bypassed the kernel's program through that program. Returns whether the frame belongs to an
    /// application in the kernel.
    #[cold]
    fn forward_by_kernel(&mut self, congested: bool, frame: &[u8], out: &mut LinkOutbox<'_>) -> bool {
        let Some(kernel) = &mut self.kernel else { return false };
        if !Base::new_checked(frame).is_ok_and(|base| kernel.has(base.gaid())) {
            return false;
        }
        // The kernel's program sees only the first page of a longer frame, and would leave it to user space.
        if frame.len() > MAX_FRAME {
            self.program.count_dropped(FrameDropReason::Malformed);
            return true;
        }
        match kernel.run(frame, congested) {
            Ok(KernelVerdict::Forwarded(addr, frame)) => out.queue(addr, &frame),
            Ok(KernelVerdict::ViaSlowPath { slow, mut frame }) => {
                self.forward_by_slow_path(slow, &mut frame, |addr, frame| out.queue(addr, frame));
            }
            Ok(KernelVerdict::Dropped) => {}
            Ok(KernelVerdict::Passed) => return false,
            Err(error) => tracing::error!(%error, "the XDP program failed on a frame"),
        }
        true
    }
}

/// First call number of an element, so that no answer to a call of an earlier start matches a call of this one.
pub(crate) fn first_call_number() -> u64 {
    rand::random_range(0..1 << 62)
}

/// Commands. A refused command has changed nothing, with two exceptions: a list is applied up to the refused entry, and
/// an application, a pool or an endpoint that the kernel refuses is removed, also if it was installed before. Other
/// changes that the kernel refuses take effect in user space only.
impl Switch {
    /// Installs an application, whose frames `key` signs if present.
    pub(crate) fn install(
        &mut self,
        application: InstalledApplication,
        key: Option<TokenKey>,
    ) -> Result<(), CommandRefused> {
        let gaid = application.gaid;
        let tables = self.program.tables_mut();
        tables.install(application)?;
        tables.authenticate(gaid, key)?;
        let Some(kernel) = &mut self.kernel else { return Ok(()) };
        // User space processes frames with tokens.
        let done = if key.is_some() { kernel.remove(gaid) } else { kernel.install(&application) };
        self.remove_on_failure(gaid, done)
    }

    /// Installs a pool of servers or changes its members; `key` signs its frames if present.
    pub(crate) fn install_pool(&mut self, pool: InstalledPool, key: Option<TokenKey>) -> Result<(), CommandRefused> {
        let gaid = pool.gaid;
        let tables = self.program.tables_mut();
        tables.install_pool(pool.clone())?;
        tables.authenticate(gaid, key)?;
        let Some(kernel) = &mut self.kernel else { return Ok(()) };
        // User space processes frames with tokens.
        let done = if key.is_some() { kernel.remove(gaid) } else { kernel.install_pool(&pool) };
        self.remove_on_failure(gaid, done)
    }

    /// Removes an application or pool that the kernel did not accept completely.
    fn remove_on_failure(&mut self, gaid: u32, done: Result<(), KernelRejected>) -> Result<(), CommandRefused> {
        Ok(done.inspect_err(|_| {
            if let Err(error) = self.remove(gaid) {
                tracing::error!(%error, gaid, "cannot remove from the kernel what it has rejected");
            }
        })?)
    }

    /// Sets the id by which other elements on a call's path know this one.
    pub(crate) fn set_switch_id(&mut self, switch_id: NonZeroU16) -> Result<(), CommandRefused> {
        self.program.set_switch_id(switch_id);
        Ok(self.kernel.as_mut().map_or(Ok(()), |kernel| kernel.set_switch_id(switch_id))?)
    }

    /// Removes an application or a pool with its endpoints, in user space even if the kernel refuses.
    pub(crate) fn remove(&mut self, gaid: u32) -> Result<(), CommandRefused> {
        // The kernel may have kept an application whose removal it refused earlier.
        let in_kernel = self.kernel.as_mut().map_or(Ok(()), |kernel| kernel.remove(gaid));
        self.program.tables_mut().remove(gaid)?;
        let tables = self.program.tables();
        self.routes.retain(|endpoint| tables.endpoint(endpoint).is_some());
        Ok(in_kernel?)
    }

    /// Admits endpoints and sets the addresses that their frames are sent to.
    pub(crate) fn set_endpoints(&mut self, endpoints: &[(Endpoint, SocketAddr)]) -> Result<(), CommandRefused> {
        for &(entry, addr) in endpoints {
            let endpoint = entry.endpoint;
            if self.routes.len() >= ENDPOINTS_MAX && self.routes.get(endpoint).is_none() {
                return Err(CommandRefused::Endpoints { endpoint });
            }
            self.program.tables_mut().set_endpoint(entry)?;
            if self.is_own(addr) {
                // Frames to this endpoint would return to this element without end.
                tracing::warn!(endpoint, %addr, "an endpoint claims this element's own address: no frames are sent to it");
                self.routes.remove(endpoint);
                if let Some(kernel) = &mut self.kernel {
                    kernel.remove_endpoint(endpoint)?;
                }
                continue;
            }
            self.routes.set(endpoint, addr);
            if let Some(kernel) = &mut self.kernel
                && !self.program.tables().is_authenticated(entry.gaid)
                && let Err(rejected) = kernel.set_endpoint(&entry, addr)
            {
                if let Err(error) = self.remove_endpoints(&[endpoint]) {
                    tracing::error!(%error, endpoint, "cannot remove from the kernel what it has rejected");
                }
                return Err(rejected.into());
            }
        }
        Ok(())
    }

    /// Removes each of the endpoints, even if the kernel refuses one; unknown ones are ignored.
    pub(crate) fn remove_endpoints(&mut self, endpoints: &[u32]) -> Result<(), CommandRefused> {
        let mut done = Ok(());
        for &endpoint in endpoints {
            self.program.tables_mut().remove_endpoint(endpoint);
            self.routes.remove(endpoint);
            if let Some(kernel) = &mut self.kernel {
                done = done.and(kernel.remove_endpoint(endpoint));
            }
        }
        Ok(done?)
    }

    pub(crate) fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), CommandRefused> {
        self.program.tables_mut().set_group(gaid, endpoints)?;
        match &mut self.kernel {
            Some(kernel) if kernel.has(gaid) => Ok(kernel.set_group(gaid, endpoints)?),
            _ => Ok(()),
        }
    }

    pub(crate) fn read_registers(&self, gaid: u32, row: u32, rows: u32) -> Result<ReadRegistersReply, CommandRefused> {
        let tables = self.program.tables();
        // Without rows, the reply has the width if the application exists.
        let width = tables.read_rows(gaid, 0, 1)?.len();
        let lanes = u64::from(rows) * width as u64;
        let values = tables.read_rows(gaid, row, rows)?;
        if lanes > READ_LANES_MAX {
            return Err(CommandRefused::ReadSize { lanes });
        }
        let values = match self.kernel.as_ref().filter(|kernel| kernel.has(gaid)) {
            Some(kernel) => kernel.read_rows(gaid, row, rows)?,
            None => values.to_vec(),
        };
        Ok(ReadRegistersReply { width: u32::try_from(width).unwrap_or(u32::MAX), values })
    }

    pub(crate) fn reset_registers(&mut self, gaid: u32) -> Result<(), CommandRefused> {
        self.program.tables_mut().reset(gaid)?;
        Ok(self.kernel.as_mut().map_or(Ok(()), |kernel| kernel.reset(gaid))?)
    }

    /// Counters of the program, element-wide and by application.
    pub(crate) fn counters(&self) -> Result<CountersReply, CommandRefused> {
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        let mut element: HashMap<String, u64> = self.program.counters().iter().map(named).collect();
        let mut in_kernel = HashMap::new();
        if let Some(kernel) = &self.kernel {
            let (counters, own) = kernel.counters()?;
            for (name, count) in counters.iter().chain(own) {
                *element.entry(name.to_owned()).or_default() += count;
            }
            in_kernel = kernel.applications()?;
        }
        let applications = self.program.tables().applications().map(|(application, _, counters)| {
            let counters = in_kernel.get(&application.gaid).map_or(counters, |(counters, _)| *counters);
            (application.gaid, ApplicationCounters { counters: counters.iter().map(named).collect() })
        });
        let pools = self.pools()?;
        let pools = pools.iter().map(|(gaid, _, counters)| {
            let hedges = self.program.hedges().map(|hedges| hedges.counters_of(*gaid)).unwrap_or_default();
            let counters = counters.iter().chain(hedges.iter());
            (*gaid, ApplicationCounters { counters: counters.map(named).collect() })
        });
        let applications = applications.chain(pools).collect();
        Ok(CountersReply { element, applications, ..CountersReply::default() })
    }

    /// Endpoints at these addresses.
    pub(crate) fn endpoints_at(&self, addresses: &[SocketAddr]) -> Vec<u32> {
        let mut endpoints: Vec<u32> = self.routes.at(addresses).collect();
        endpoints.sort_unstable();
        endpoints
    }

    /// Nanoseconds since the last admitted frame, for each application that had one.
    pub(crate) fn last_seen_ages_ns(&self) -> Result<HashMap<u32, u64>, CommandRefused> {
        let now = self.now();
        let in_kernel = self.kernel.as_ref().map_or_else(|| Ok(HashMap::new()), Kernel::applications)?;
        let seen = self.program.tables().applications().filter_map(|(application, last_seen, _)| {
            let age = match in_kernel.get(&application.gaid) {
                Some((_, age)) => (*age)?,
                None => now.since(last_seen?),
            };
            Some((application.gaid, u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)))
        });
        let pools = self.pools()?;
        let pools = pools.iter().filter_map(|(gaid, age, _)| Some((*gaid, u64::try_from((*age)?.as_nanos()).ok()?)));
        Ok(seen.chain(pools).collect())
    }

    /// Counters of every pool and the age of its last admitted frame, from user space or the kernel.
    fn pools(&self) -> Result<Vec<(u32, Option<Duration>, PoolCounters)>, CommandRefused> {
        let now = self.now();
        let in_kernel = self.kernel.as_ref().map_or_else(|| Ok(HashMap::new()), Kernel::pools)?;
        let pools = self.program.tables().pools().map(|(pool, last_seen, counters)| match in_kernel.get(&pool.gaid) {
            Some((counters, age)) => (pool.gaid, *age, *counters),
            None => (pool.gaid, last_seen.map(|seen| now.since(seen)), counters),
        });
        Ok(pools.collect())
    }
}

#[cfg(all(test, feature = "xdp"))]
mod tests;
