//! The program with the addresses of its endpoints: what a frame goes through and a command changes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time;

use pathcall_endpoint::driver::link::Outbox;
use pathcall_program::{Action, Application, Endpoint, Program, Size, TableError, Verdict};
use pathcall_proto::v1::{ApplicationCounters, CountersReply, ReadRegistersReply};
use pathcall_wire::{Instant, TokenKey};

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
}

/// Why a command is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
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
}

impl Switch {
    pub(crate) fn new(size: Size, congestion_bytes: usize) -> Self {
        let (program, routes) = (Program::new(size), Routes::default());
        Self { program, routes, started: time::Instant::now(), congestion_bytes }
    }

    /// The program's time: nanoseconds since the element started.
    pub(crate) fn now(&self) -> Instant {
        Instant(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Takes a frame through the program and queues what comes of it. The frame is changed in place.
    pub(crate) fn forward(&mut self, now: Instant, congested: bool, frame: &mut [u8], out: &mut Outbox<'_>) {
        // NetRPC §5.1: a switch whose queue is long marks what passes, and senders slow down.
        let congested = congested || out.backlog() >= self.congestion_bytes;
        let Verdict { action, len } = self.program.process(now, frame, congested);
        let frame = &mut frame[..len];
        match action {
            Action::Forward(endpoint) => {
                if let Some(addr) = self.routes.get(endpoint) {
                    out.queue(addr, frame);
                }
            }
            Action::Multicast(gaid) => {
                self.program.tables().copies(gaid, frame, |member, frame| {
                    if let Some(addr) = self.routes.get(member) {
                        out.queue(addr, frame);
                    }
                });
            }
            // Counted by the program, by reason.
            Action::Drop(_) => {}
        }
    }
}

/// What commands do. A refused one has changed nothing, but for a list, which is taken up to the
/// entry that is refused.
impl Switch {
    /// Installs an application, whose frames `key` signs if there is one.
    pub(crate) fn install(&mut self, application: Application, key: Option<TokenKey>) -> Result<(), Refused> {
        self.program.tables_mut().install(application)?;
        Ok(self.program.tables_mut().authenticate(application.gaid, key)?)
    }

    /// Takes out an application and its endpoints.
    pub(crate) fn remove(&mut self, gaid: u32) -> Result<(), Refused> {
        self.program.tables_mut().remove(gaid)?;
        let tables = self.program.tables();
        self.routes.retain(|endpoint| tables.endpoint(endpoint).is_some());
        Ok(())
    }

    /// Admits endpoints and sets the addresses that their frames go to.
    pub(crate) fn set_endpoints(&mut self, endpoints: &[(Endpoint, SocketAddr)]) -> Result<(), Refused> {
        for &(entry, addr) in endpoints {
            let endpoint = entry.endpoint;
            if self.routes.len() >= ENDPOINTS_MAX && self.routes.get(endpoint).is_none() {
                return Err(Refused::Endpoints { endpoint });
            }
            self.program.tables_mut().set_endpoint(entry)?;
            self.routes.set(endpoint, addr);
        }
        Ok(())
    }

    /// Takes endpoints out; unknown ones are out already.
    pub(crate) fn remove_endpoints(&mut self, endpoints: &[u32]) {
        for &endpoint in endpoints {
            self.program.tables_mut().remove_endpoint(endpoint);
            self.routes.remove(endpoint);
        }
    }

    pub(crate) fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), Refused> {
        Ok(self.program.tables_mut().set_group(gaid, endpoints)?)
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
        Ok(ReadRegistersReply { width: u32::try_from(width).unwrap_or(u32::MAX), values: values.to_vec() })
    }

    pub(crate) fn reset_registers(&mut self, gaid: u32) -> Result<(), Refused> {
        Ok(self.program.tables_mut().reset(gaid)?)
    }

    /// What the program has counted, element-wide and by application.
    pub(crate) fn counters(&self) -> CountersReply {
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        let element = self.program.counters().iter().map(named).collect();
        let applications = self.program.tables().applications().map(|(application, _, counters)| {
            (application.gaid, ApplicationCounters { counters: counters.iter().map(named).collect() })
        });
        CountersReply { element, applications: applications.collect(), ..CountersReply::default() }
    }

    /// Endpoints at these addresses.
    pub(crate) fn endpoints_at(&self, addresses: &[SocketAddr]) -> Vec<u32> {
        let mut endpoints: Vec<u32> = self.routes.at(addresses).collect();
        endpoints.sort_unstable();
        endpoints
    }

    /// Nanoseconds since the last admitted frame, of the applications that had one.
    pub(crate) fn last_seen_ages_ns(&self) -> HashMap<u32, u64> {
        let now = self.now();
        let seen = self.program.tables().applications().filter_map(|(application, last_seen, _)| {
            let age = now.since(last_seen?);
            Some((application.gaid, u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)))
        });
        seen.collect()
    }
}
