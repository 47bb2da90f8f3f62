//! What the controller knows and decides, as a state machine: no I/O, no clock.
//!
//! ```text
//!   calls, ends of streams,            ┌───────┐  changes   to be committed first,
//!   confirmations of elements, ──────▶ │ State │ ─────────▶ then
//!   time                       handle  └───────┘  outputs    answers, grants, pushes to elements
//! ```
//!
//! [`State::handle`] takes one [`Input`] and returns its [`Effects`]; whoever drives it commits the
//! changes before delivering any output, so nothing is told to anyone that a restart would forget.
//! [`State::restore`] makes the same state of what was committed.
//!
//! `event` is what comes in and goes out; `application` has owners and reserves memory, `caller`
//! leases slots to callers, `pool` has servers that answer the same calls (`pool_tables`: what elements have of
//! them), `ids` names them all, `element` keeps the tables of elements by `push`; `ranges` is the reservation itself, `quarantine` what
//! delays it, `record` what is kept, `restore` the way back from it, `view` what can be asked.
//!
//! **Leases.** Owners and elements hold a stream open. When it ends, the lease lapses: for a grace
//! period everything stays as it is, and the same incarnation (element: boot id) gets it all back.
//! After that memory, slots and the owner's callers are released. So a crashed host leaks no
//! register (NetRPC §5.2.2 finds it out by time stamps of the element: first-level time-out). An
//! owner that lives keeps its memory, idle or not.
//!
//! **Epochs** (NOTES: one per application) grow whenever its registers can no longer be trusted:
//! the element restarted or is out of service, the memory moved, the owner changed.

mod application;
mod caller;
mod element;
mod event;
mod ids;
mod pool;
mod pool_tables;
mod push;
mod quarantine;
mod ranges;
mod record;
mod refusal;
mod restore;
mod view;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_proto::v1::TokenKey;
use pathcall_wire::Instant;

pub use event::{CallId, Effects, Input, Output};
pub use push::{ElementPool, Push};
pub use quarantine::FRAME_LIFE_MAX;
pub use record::{
    ApplicationRecord, Change, ElementRecord, EndpointRecord, IdsRecord, MemoryRecord, PoolRecord, PoolServerRecord,
    SlotsRecord, Snapshot,
};
pub use refusal::Refusal;
pub use restore::Corrupt;

use ids::Kept;
use pool::Pool;
use push::Subject;
use ranges::Ranges;

/// Time from the end of a stream until the lease is over.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(3);
/// The same after a restart of the controller: peers take up to 3 s between attempts to reach it.
pub const RESTART_GRACE_DEFAULT: Duration = Duration::from_secs(10);
/// Longest time that an element may take to confirm its tables: less than the 2 s after which a
/// server takes the controller for unreachable.
pub const CONFIRM_DEFAULT: Duration = Duration::from_secs(1);

/// Fewest rows that are worth a reservation, if more were wished for.
pub const ROWS_MIN: u32 = 16;
/// Most flows of one caller.
pub const FLOWS_MAX: u32 = 64;
/// Applications at a time; one more forgets one without an owner, else it is refused.
pub const APPLICATIONS_MAX: usize = 4096;
/// Callers of one application at a time; one more is refused.
pub const CALLERS_MAX: usize = 16_384;
/// Elements at a time; one more forgets one that is out of service, else it is refused.
pub const ELEMENTS_MAX: usize = 256;
/// Pools at a time; one more is refused.
pub const POOLS_MAX: usize = 1024;
/// Longest name or address, in bytes.
pub const TEXT_MAX: usize = 255;
/// Pushes that an element may leave unconfirmed; at one more it is taken out of service.
pub const PUSHES_MAX: usize = 32_768;

/// The times that leases go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// [`GRACE_DEFAULT`].
    pub grace: Duration,
    /// [`RESTART_GRACE_DEFAULT`].
    pub restart_grace: Duration,
    /// [`CONFIRM_DEFAULT`].
    pub confirm: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { grace: GRACE_DEFAULT, restart_grace: RESTART_GRACE_DEFAULT, confirm: CONFIRM_DEFAULT }
    }
}

/// The controller's state.
#[derive(Debug, Clone)]
pub struct State {
    timing: Timing,
    now: Instant,
    ids: IdsRecord,
    kept: Kept,
    applications: BTreeMap<u32, Application>,
    names: BTreeMap<String, u32>,
    endpoints: BTreeMap<u32, EndpointRecord>,
    elements: BTreeMap<u32, Element>,
    /// By GAID; no application has the same.
    pools: BTreeMap<u32, Pool>,
    pool_names: BTreeMap<String, u32>,
    /// Callers of pools that no server vouches for, and when they are forgotten.
    pool_callers_lapsing: BTreeMap<u32, Instant>,
    /// Who holds an open stream.
    streams: BTreeMap<CallId, Registrant>,
    changed: Changed,
    outputs: Vec<Output>,
    /// For the next application that wants its frames signed.
    fresh_key: Option<TokenKey>,
}

#[derive(Debug, Clone)]
struct Application {
    record: ApplicationRecord,
    lease: Lease,
    /// Its callers by incarnation and address.
    callers: BTreeMap<(u32, String), u32>,
    /// Whether its owner has yet to be told how it stands.
    untold: bool,
    /// Starts of elements that do not answer its owner, by what that said last.
    silent: Vec<u64>,
}

#[derive(Debug, Clone)]
struct Element {
    record: ElementRecord,
    lease: Lease,
    /// Whether it has confirmed its tables since it was opened; if not, no memory is granted.
    serving: bool,
    rows: Ranges,
    lanes: Ranges,
    slots: Ranges,
    /// When each of the record's quarantined slots may be leased again.
    quarantine: VecDeque<Instant>,
    /// Number of the last push.
    pushed: u64,
    /// Unconfirmed pushes, in order.
    unconfirmed: VecDeque<(u64, Subject)>,
    /// When it last confirmed something, or got something to confirm.
    progress: Instant,
    waiters: Vec<Waiter>,
    /// Applications that it has refused; they are not offered its memory again.
    refused: BTreeSet<u32>,
}

/// Who waits for an element to confirm its tables.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    /// The last push that concerns it.
    after: u64,
    since: Instant,
    who: Waiting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Application(u32),
    Pool(u32),
    Endpoint { call: CallId, gaid: u32, endpoint: u32 },
    Element(CallId),
}

/// How long something stays registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lease {
    /// As long as this stream.
    Held(CallId),
    /// Until then, unless the peer comes back.
    Lapsing(Instant),
    /// No longer.
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Registrant {
    Application(u32),
    Element(u32),
    Server { gaid: u32, server: u32 },
}

/// Records to be written.
#[derive(Debug, Clone, Default)]
struct Changed {
    ids: bool,
    applications: BTreeSet<u32>,
    endpoints: BTreeSet<u32>,
    elements: BTreeSet<u32>,
    pools: BTreeSet<u32>,
}

impl State {
    /// A controller that nobody has registered with. New applications start with `first_epoch`, ids with `first_id`;
    /// both should be random, and small enough to grow for long.
    #[must_use]
    pub fn new(timing: Timing, first_epoch: u32, first_id: u32) -> Self {
        Self {
            timing,
            now: Instant::default(),
            ids: IdsRecord { gaid: first_id, endpoint: first_id, element: 1, first_epoch, first: first_id },
            kept: Kept::default(),
            applications: BTreeMap::new(),
            names: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            elements: BTreeMap::new(),
            pools: BTreeMap::new(),
            pool_names: BTreeMap::new(),
            pool_callers_lapsing: BTreeMap::new(),
            streams: BTreeMap::new(),
            // The first epoch is as good as told once the store is known to be ours.
            changed: Changed { ids: true, ..Changed::default() },
            outputs: Vec::new(),
            fresh_key: None,
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Instant, input: Input) -> Effects {
        self.now = self.now.max(now);
        self.expire();
        match input {
            Input::Key(key) => self.fresh_key = Some(key),
            Input::RegisterApplication(call, request) => {
                self.register_application(call, request);
                self.fresh_key = None;
            }
            Input::JoinPool(call, request) => {
                self.join_pool(call, request);
                self.fresh_key = None;
            }
            Input::RegisterEndpoint(call, request) => self.register_endpoint(call, request),
            Input::ReleaseEndpoint(call, request) => self.release_endpoint(call, &request),
            Input::RegisterElement(call, request) => self.register_element(call, request),
            Input::Ended(call) => self.ended(call),
            Input::Confirmed { element, seq } => self.confirmed(element, seq),
            Input::Refused { element, seq, reason } => self.refused(element, seq, &reason),
            Input::Restarted { element, seq } => self.restarted(element, seq),
            Input::Tick => {}
        }
        self.overfull();
        self.effects()
    }

    /// When [`Input::Tick`] is due, if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let lapsing = |lease: &Lease| match lease {
            Lease::Lapsing(until) => Some(*until),
            Lease::Held(_) | Lease::Over => None,
        };
        let owners = self.applications.values().filter_map(|application| lapsing(&application.lease));
        let elements = self.elements.values().filter_map(|element| lapsing(&element.lease));
        let silent = self.elements.values().filter_map(|element| element.silent_at(self.timing.confirm));
        let quarantined = self.elements.values().filter_map(|element| element.quarantine.front().copied());
        let servers = self.pools.values().flat_map(|pool| pool.leases.values()).filter_map(lapsing);
        let callers = self.pool_callers_lapsing.values().copied();
        owners.chain(elements).chain(silent).chain(quarantined).chain(servers).chain(callers).min()
    }

    /// Ends what is over by now.
    fn expire(&mut self) {
        let now = self.now;
        let over = |lease: Lease| matches!(lease, Lease::Lapsing(until) if until <= now);
        let elements: Vec<_> = self.elements.iter().filter(|(_, e)| over(e.lease)).map(|(&id, _)| id).collect();
        let owners: Vec<_> = self.applications.iter().filter(|(_, a)| over(a.lease)).map(|(&id, _)| id).collect();
        for element in elements {
            self.take_out_of_service(element, "its registration has ended");
        }
        for gaid in owners {
            self.disown(gaid);
        }
        let servers =
            self.pools.iter().flat_map(|(&gaid, pool)| pool.leases.iter().map(move |(&id, &at)| (gaid, id, at)));
        let servers: Vec<_> = servers.filter(|&(_, _, lease)| over(lease)).collect();
        for (gaid, server, _) in servers {
            self.forget_server(gaid, server);
        }
        let callers = self.pool_callers_lapsing.iter().filter(|(_, until)| **until <= self.now);
        for caller in callers.map(|(&caller, _)| caller).collect::<Vec<_>>() {
            self.forget_pool_caller(caller);
        }
        let confirm = self.timing.confirm;
        let silent = |element: &Element| element.silent_at(confirm).is_some_and(|at| at <= self.now);
        let silent: Vec<_> = self.elements.iter().filter(|(_, e)| silent(e)).map(|(&id, _)| id).collect();
        for element in silent {
            let reason = format!("its control service has not answered within {} ms", confirm.as_millis());
            self.take_out_of_service(element, &reason);
        }
        for (&id, element) in &mut self.elements {
            if element.end_quarantine(self.now) {
                self.changed.elements.insert(id);
            }
        }
    }

    /// The peer's stream has ended; the lease lapses if it was still the peer's last one.
    fn ended(&mut self, call: CallId) {
        let until = self.now + self.timing.grace;
        let lease = match self.streams.remove(&call) {
            Some(Registrant::Application(gaid)) => self.applications.get_mut(&gaid).map(|a| &mut a.lease),
            Some(Registrant::Element(element)) => self.elements.get_mut(&element).map(|e| &mut e.lease),
            Some(Registrant::Server { gaid, server }) => {
                let lease = self.pools.get_mut(&gaid).and_then(|pool| pool.leases.get_mut(&server));
                if let Some(lease) = lease.filter(|lease| **lease == Lease::Held(call)) {
                    *lease = Lease::Lapsing(until);
                    self.pool_server_ended(gaid, server);
                }
                None
            }
            None => None,
        };
        if let Some(lease) = lease.filter(|lease| **lease == Lease::Held(call)) {
            *lease = Lease::Lapsing(until);
        }
    }

    /// The records that have changed since, and the outputs.
    fn effects(&mut self) -> Effects {
        let changed = std::mem::take(&mut self.changed);
        let ids = changed.ids.then_some(Change::Ids(self.ids));
        let applications = changed.applications.into_iter().map(|gaid| match self.applications.get(&gaid) {
            Some(application) => Change::PutApplication(application.record.clone()),
            None => Change::RemoveApplication(gaid),
        });
        let endpoints = changed.endpoints.into_iter().map(|endpoint| match self.endpoints.get(&endpoint) {
            Some(record) => Change::PutEndpoint(record.clone()),
            None => Change::RemoveEndpoint(endpoint),
        });
        let elements = changed.elements.into_iter().map(|id| match self.elements.get(&id) {
            Some(element) => Change::PutElement(element.record.clone()),
            None => Change::RemoveElement(id),
        });
        let pools = changed.pools.into_iter().map(|gaid| match self.pools.get(&gaid) {
            Some(pool) => Change::PutPool(pool.record.clone()),
            None => Change::RemovePool(gaid),
        });
        let changes = ids.into_iter().chain(applications).chain(pools).chain(endpoints).chain(elements).collect();
        Effects { changes, outputs: std::mem::take(&mut self.outputs) }
    }
}

impl Waiting {
    /// Whether it is the application's owner or caller that waits.
    fn concerns(self, application: u32) -> bool {
        match self {
            Self::Application(gaid) | Self::Pool(gaid) | Self::Endpoint { gaid, .. } => gaid == application,
            Self::Element(_) => false,
        }
    }
}

impl Lease {
    const fn is_over(self) -> bool {
        matches!(self, Self::Over)
    }
}

/// A UDP address that frames can be sent to.
fn check_data_address(address: &str) -> Result<(), Refusal> {
    let parsed = address.parse().ok().filter(|a: &std::net::SocketAddr| a.port() != 0 && !a.ip().is_unspecified());
    match parsed {
        Some(_) => Ok(()),
        None => Err(Refusal::Invalid { field: "data_address", expected: "ip:port", got: shortened(address) }),
    }
}

/// Whether an element at the one address can send to a host at the other: one that is reached by IPv4 has no way to IPv6,
/// and what it sends to itself would go round for ever.
fn reaches(element: &str, host: &str) -> bool {
    let parsed = |address: &str| address.parse::<std::net::SocketAddr>().ok();
    match (parsed(element), parsed(host)) {
        (Some(element), Some(host)) => element != host && (element.is_ipv6() || host.is_ipv4()),
        _ => false,
    }
}

/// Text for an error message, of bounded length.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests;
