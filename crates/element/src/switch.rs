//! The program with the addresses of its endpoints: what a frame goes through and a command changes.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU16;
use std::time::{self, Duration};

use pathcall_endpoint::driver::link::Outbox;
use pathcall_program::{Action, Application, Endpoint, Pool, PoolCounters, Program, Reason, Size, TableError, Verdict};
use pathcall_proto::v1::{ApplicationCounters, CountersReply, ReadRegistersReply};
use pathcall_wire::{Base, Instant, MAX_FRAME, TokenKey};

use crate::kernel::{Attached, Kernel, Ran, Slow, Untaken};
use crate::routes::Routes;

/// Endpoints that an element forwards to: bounds its tables, whoever asks.
pub(crate) const ENDPOINTS_MAX: usize = 1 << 16;
/// Registers of one reply: at up to five bytes each, well within gRPC's usual limit of 4 MiB.
pub(crate) const READ_LANES_MAX: u64 = 1 << 18;

/// A program, fed with frames, and the routes to its endpoints.
#[derive(Debug)]
pub(crate) struct Switch {
    program: Program,
    routes: Routes,
    started: time::Instant,
    congestion_bytes: usize,
    /// Where its own frames come in.
    own: SocketAddr,
    /// Works on the applications without tokens, where it is.
    kernel: Option<Kernel>,
}

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// The program's tables don't allow it.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The reply would be too large.
    #[error("{lanes} registers are too many for one reply: ask for rows of at most {READ_LANES_MAX}")]
    ReadSize {
        /// Registers asked for.
        lanes: u64,
    },
    /// The table of endpoints is full.
    #[error("endpoint {endpoint} does not fit: the element forwards to {ENDPOINTS_MAX} at most")]
    Endpoints {
        /// The endpoint that was one too many.
        endpoint: u32,
    },
    /// The program in the kernel does not take it.
    #[error(transparent)]
    Kernel(#[from] Untaken),
}

impl Switch {
    /// `own`: where frames come in.
    pub(crate) fn new(size: Size, congestion_bytes: usize, own: SocketAddr, kernel: Option<Kernel>) -> Self {
        let (mut program, routes) = (Program::new(size), Routes::default());
        program.number_after(first_number());
        Self { program, routes, started: time::Instant::now(), congestion_bytes, own, kernel }
    }

    /// Whether frames that are sent there come back.
    fn is_own(&self, addr: SocketAddr) -> bool {
        // A host's own addresses are those that it can bind.
        let local = |ip: IpAddr| UdpSocket::bind((ip, 0)).is_ok();
        addr.port() == self.own.port()
            && (addr.ip() == self.own.ip() || self.own.ip().is_unspecified() && local(addr.ip()))
    }

    /// The interfaces that the program in the kernel is attached to.
    pub(crate) fn attached(&self) -> &[Attached] {
        self.kernel.as_ref().map_or(&[], Kernel::attached)
    }

    /// The program in the kernel, for root programs.
    #[cfg(feature = "xdp")]
    pub(crate) fn take_program(&mut self) -> Option<pathcall_xdp::function::SwitchProgram> {
        self.kernel.as_mut().and_then(Kernel::take_program)
    }

    /// The program's time: nanoseconds since the element started.
    pub(crate) fn now(&self) -> Instant {
        Instant(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Takes a frame through the program and queues what comes of it. The frame is changed in place.
    pub(crate) fn forward(&mut self, now: Instant, congested: bool, frame: &mut [u8], out: &mut Outbox<'_>) {
        // NetRPC §5.1: a switch whose queue is long marks what passes, and senders slow down.
        let congested = congested || out.backlog() >= self.congestion_bytes;
        if self.kernel.is_some() && self.forward_by_kernel(congested, frame, out) {
            return;
        }
        let Verdict { action, len } = self.program.process(now, frame, congested);
        let frame = &mut frame[..len];
        match action {
            Action::Forward(endpoint) => {
                if let Some(addr) = self.routes.get(endpoint) {
                    out.queue(addr, frame);
                }
            }
            Action::Clone(endpoint) => self.forward_twice(endpoint, frame, |addr, frame| out.queue(addr, frame)),
            Action::Multicast(gaid) => self.copy(gaid, frame, |addr, frame| out.queue(addr, frame)),
            // Counted by the program, by reason.
            Action::Drop(_) => {}
        }
    }

    /// Sends a request to one server, and its clone, after a second pass, to another (NetClone §3.4).
    fn forward_twice(&mut self, endpoint: u32, frame: &mut [u8], mut queue: impl FnMut(SocketAddr, &[u8])) {
        if let Some(addr) = self.routes.get(endpoint) {
            queue(addr, frame);
        }
        if let Action::Forward(endpoint) = self.program.recirculate(frame).action
            && let Some(addr) = self.routes.get(endpoint)
        {
            queue(addr, frame);
        }
    }

    /// Sends on what the program in the kernel has worked on. Others can send here, too, past the program; what leaves
    /// is signed without a question, but who has a key is never in the kernel.
    pub(crate) fn send_on(&mut self, slow: Slow, frame: &mut [u8], mut queue: impl FnMut(SocketAddr, &[u8])) {
        let in_kernel = |gaid| self.kernel.as_ref().is_some_and(|kernel| kernel.has(gaid));
        let base = match Base::new_checked(&*frame) {
            Ok(base) if in_kernel(base.gaid()) => base,
            Ok(_) => return self.program.count_dropped(Reason::NotAdmitted),
            Err(_) => return self.program.count_dropped(Reason::Malformed),
        };
        match slow {
            Slow::Copies => self.copy(base.gaid(), frame, queue),
            Slow::Twice => self.forward_twice(base.dst(), frame, queue),
            Slow::Once => {
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

    /// Has the kernel's program work on a frame of an application there that has come past it; whether
    /// it is one.
    #[cold]
    fn forward_by_kernel(&mut self, congested: bool, frame: &[u8], out: &mut Outbox<'_>) -> bool {
        let Some(kernel) = &mut self.kernel else { return false };
        if !Base::new_checked(frame).is_ok_and(|base| kernel.has(base.gaid())) {
            return false;
        }
        // As the program does; what is longer than a page it does not see whole, and would leave to user space.
        if frame.len() > MAX_FRAME {
            self.program.count_dropped(Reason::Malformed);
            return true;
        }
        match kernel.run(frame, congested) {
            Ok(Ran::Out(addr, frame)) => out.queue(addr, &frame),
            Ok(Ran::SendOn { slow, mut frame }) => {
                self.send_on(slow, &mut frame, |addr, frame| out.queue(addr, frame));
            }
            Ok(Ran::Dropped) => {}
            Ok(Ran::Passed) => return false,
            Err(error) => tracing::error!(%error, "a frame for the kernel's program"),
        }
        true
    }
}

/// Where an element begins to number calls: answers to calls of a start before are no answers to those of now.
pub(crate) fn first_number() -> u64 {
    rand::random_range(0..1 << 62)
}

/// What commands do. A refused one has changed nothing, but for a list, which is taken up to the
/// entry that is refused; and an application, a pool or an endpoint that the kernel refuses is out, also if it was in
/// before. Other changes that the kernel refuses hold in user space alone.
impl Switch {
    /// Installs an application, whose frames `key` signs if there is one.
    pub(crate) fn install(&mut self, application: Application, key: Option<TokenKey>) -> Result<(), Refused> {
        let gaid = application.gaid;
        let tables = self.program.tables_mut();
        tables.install(application)?;
        tables.authenticate(gaid, key)?;
        let Some(kernel) = &mut self.kernel else { return Ok(()) };
        // Frames with tokens are user space's.
        let done = if key.is_some() { kernel.remove(gaid) } else { kernel.install(&application) };
        self.or_remove(gaid, done)
    }

    /// Installs a pool of servers, or changes who is in it; `key` signs its frames if there is one.
    pub(crate) fn install_pool(&mut self, pool: Pool, key: Option<TokenKey>) -> Result<(), Refused> {
        let gaid = pool.gaid;
        let tables = self.program.tables_mut();
        tables.install_pool(pool.clone())?;
        tables.authenticate(gaid, key)?;
        let Some(kernel) = &mut self.kernel else { return Ok(()) };
        // Frames with tokens are user space's.
        let done = if key.is_some() { kernel.remove(gaid) } else { kernel.install_pool(&pool) };
        self.or_remove(gaid, done)
    }

    /// Takes out what the kernel has not taken whole.
    fn or_remove(&mut self, gaid: u32, done: Result<(), Untaken>) -> Result<(), Refused> {
        Ok(done.inspect_err(|_| {
            if let Err(error) = self.remove(gaid) {
                tracing::error!(%error, gaid, "taking out what the kernel refused");
            }
        })?)
    }

    /// Says by which id the element is known among others on a call's path.
    pub(crate) fn set_switch_id(&mut self, switch_id: NonZeroU16) -> Result<(), Refused> {
        self.program.set_switch_id(switch_id);
        Ok(self.kernel.as_mut().map_or(Ok(()), |kernel| kernel.set_switch_id(switch_id))?)
    }

    /// Takes out an application or a pool, and its endpoints: here, whatever the kernel says.
    pub(crate) fn remove(&mut self, gaid: u32) -> Result<(), Refused> {
        // Also what is there alone, as the kernel refused to let it go before.
        let in_kernel = self.kernel.as_mut().map_or(Ok(()), |kernel| kernel.remove(gaid));
        self.program.tables_mut().remove(gaid)?;
        let tables = self.program.tables();
        self.routes.retain(|endpoint| tables.endpoint(endpoint).is_some());
        Ok(in_kernel?)
    }

    /// Admits endpoints and sets the addresses that their frames go to.
    pub(crate) fn set_endpoints(&mut self, endpoints: &[(Endpoint, SocketAddr)]) -> Result<(), Refused> {
        for &(entry, addr) in endpoints {
            let endpoint = entry.endpoint;
            if self.routes.len() >= ENDPOINTS_MAX && self.routes.get(endpoint).is_none() {
                return Err(Refused::Endpoints { endpoint });
            }
            self.program.tables_mut().set_endpoint(entry)?;
            if self.is_own(addr) {
                // Its frames would go round here for ever, each of them.
                tracing::warn!(endpoint, %addr, "an endpoint says that it is this element: nothing is sent to it");
                self.routes.remove(endpoint);
                if let Some(kernel) = &mut self.kernel {
                    kernel.remove_endpoint(endpoint)?;
                }
                continue;
            }
            self.routes.set(endpoint, addr);
            if let Some(kernel) = &mut self.kernel
                && !self.program.tables().is_authenticated(entry.gaid)
                && let Err(untaken) = kernel.set_endpoint(&entry, addr)
            {
                if let Err(error) = self.remove_endpoints(&[endpoint]) {
                    tracing::error!(%error, endpoint, "taking out what the kernel refused");
                }
                return Err(untaken.into());
            }
        }
        Ok(())
    }

    /// Takes endpoints out, each of them, whatever the kernel says of one; unknown ones are out already.
    pub(crate) fn remove_endpoints(&mut self, endpoints: &[u32]) -> Result<(), Refused> {
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

    pub(crate) fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), Refused> {
        self.program.tables_mut().set_group(gaid, endpoints)?;
        match &mut self.kernel {
            Some(kernel) if kernel.has(gaid) => Ok(kernel.set_group(gaid, endpoints)?),
            _ => Ok(()),
        }
    }

    pub(crate) fn read_registers(&self, gaid: u32, row: u32, rows: u32) -> Result<ReadRegistersReply, Refused> {
        let tables = self.program.tables();
        // No rows: the width, if the application is there at all.
        let width = tables.read_rows(gaid, 0, 1)?.len();
        let lanes = u64::from(rows) * width as u64;
        let values = tables.read_rows(gaid, row, rows)?;
        if lanes > READ_LANES_MAX {
            return Err(Refused::ReadSize { lanes });
        }
        let values = match self.kernel.as_ref().filter(|kernel| kernel.has(gaid)) {
            Some(kernel) => kernel.read_rows(gaid, row, rows)?,
            None => values.to_vec(),
        };
        Ok(ReadRegistersReply { width: u32::try_from(width).unwrap_or(u32::MAX), values })
    }

    pub(crate) fn reset_registers(&mut self, gaid: u32) -> Result<(), Refused> {
        self.program.tables_mut().reset(gaid)?;
        Ok(self.kernel.as_mut().map_or(Ok(()), |kernel| kernel.reset(gaid))?)
    }

    /// What the program has counted, element-wide and by application.
    pub(crate) fn counters(&self) -> Result<CountersReply, Refused> {
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
        let pools = pools
            .iter()
            .map(|(gaid, _, counters)| (*gaid, ApplicationCounters { counters: counters.iter().map(named).collect() }));
        let applications = applications.chain(pools).collect();
        Ok(CountersReply { element, applications, ..CountersReply::default() })
    }

    /// Endpoints at these addresses.
    pub(crate) fn endpoints_at(&self, addresses: &[SocketAddr]) -> Vec<u32> {
        let mut endpoints: Vec<u32> = self.routes.at(addresses).collect();
        endpoints.sort_unstable();
        endpoints
    }

    /// Nanoseconds since the last admitted frame, of the applications that had one.
    pub(crate) fn last_seen_ages_ns(&self) -> Result<HashMap<u32, u64>, Refused> {
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

    /// Every pool: since when nothing of it was admitted, and its counters, wherever it is worked on.
    fn pools(&self) -> Result<Vec<(u32, Option<Duration>, PoolCounters)>, Refused> {
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
