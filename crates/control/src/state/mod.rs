//! State machine of the controller: all its knowledge and decisions, without I/O and clock.
//!
//! ```text
//!   calls, ends of streams,            ┌───────┐  changes   to be committed first,
//!   confirmations of elements, ──────▶ │ State │ ─────────▶ then
//!   time                       handle  └───────┘  outputs    answers, grants, pushes to elements
//! ```
//!
//! [`ControllerState::handle`] takes one [`Input`] and returns its [`Effects`]. The driver commits the changes before
//! it delivers any output, so that no party gets anything that a restart would lose. [`ControllerState::restore`]
//! creates the same state from the committed records.
//!
//! Modules: `event` has inputs and outputs; `application` has owners and reserves memory, `caller` leases slots to
//! callers, `sharing` shares memory out anew by the `memory_policy` and fair `shares`, with recalls (`recall`) and from
//! idle applications (`idle`); `pool` has the servers of pools, `pool_racks` chooses the elements that have a pool, and
//! `pool_tables` has their tables; `checks` checks requests, `ids` assigns ids, `element` keeps the tables of elements by
//! `push`, `waiter` has the parties that wait for them; `ranges` allocates ranges, `quarantine` delays their reuse,
//! `record` has the stored records, `restore` restores the state from them, `view` answers queries.
//!
//! **Leases.** Owners and elements keep a stream open. When it ends, the lease starts to expire: for a grace period
//! everything stays, and the same incarnation (for elements: boot id) gets it back. After that, memory, slots and the
//! owner's callers are released. So a crashed host leaks no registers (NetRPC §5.2.2 detects this by time stamps of the
//! element: first-level time-out). A live owner whose application is idle is told to give its memory back (`sharing`).
//!
//! **Epochs**, one per application, grow whenever the registers can no longer be trusted: the element has
//! restarted or is out of service, the memory has moved, the owner has changed.

mod application;
mod caller;
mod checks;
mod element;
mod event;
mod idle;
mod ids;
mod memory_policy;
mod pool;
mod pool_racks;
mod pool_tables;
mod profile;
mod push;
mod quarantine;
mod ranges;
mod recall;
mod record;
mod refusal;
mod restore;
mod shares;
mod sharing;
mod view;
mod waiter;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pathcall_proto::v1::TokenKey;
use pathcall_wire::Instant;

pub use event::{ControlCallId, Effects, Input, Output};
pub use memory_policy::{IDLE_DEFAULT, IDLE_MAX_DEFAULT, MemoryPolicy, RECALL_DEFAULT, SETTLE_DEFAULT, WEIGHT_MAX};
pub use push::{ElementPool, Push};
pub use quarantine::FRAME_LIFE_MAX;
pub use record::{
    ApplicationRecord, CallerRecord, ElementRecord, IdsRecord, MemoryRecord, PoolRecord, PoolServerRecord,
    RecordChange, SlotRangeRecord, Snapshot,
};
pub use refusal::RegistrationRefusal;
pub use restore::CorruptStore;
pub use shares::memory_bytes;

pub(crate) use checks::truncated;
use checks::{can_send_to, check_data_address, check_rack};
use ids::KeptIds;
use pool::Pool;
use push::PushSubject;
use ranges::Ranges;
use recall::RecallInProgress;
use waiter::{Waiter, WaitingParty};

/// Default grace period: time from the end of a stream until the lease expires.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(3);
/// Default grace period after a restart of the controller: peers take up to 3 s between attempts to connect.
pub const RESTART_GRACE_DEFAULT: Duration = Duration::from_secs(10);
/// Default time limit for an element's confirmation: less than the 2 s after which a server considers the controller
/// unreachable.
pub const CONFIRM_DEFAULT: Duration = Duration::from_secs(1);

/// Minimum number of rows of a reservation, if more were requested.
pub const ROWS_MIN: u32 = 16;
/// Maximum number of flows of one caller.
pub const FLOWS_MAX: u32 = 64;
/// Maximum number of applications; a further one replaces one without an owner, or is refused.
pub const APPLICATIONS_MAX: usize = 4096;
/// Maximum number of callers of one application; further ones are refused.
pub const CALLERS_MAX: usize = 16_384;
/// Maximum number of elements; a further one replaces one that is out of service, or is refused.
pub const ELEMENTS_MAX: usize = 256;
/// Maximum number of pools; further ones are refused.
pub const POOLS_MAX: usize = 1024;
/// Maximum number of racks of a pool; a server or caller of a further one is refused.
pub const RACKS_MAX: usize = 256;
/// Maximum length of a name or address, bytes.
pub const TEXT_MAX: usize = 255;
/// Maximum number of unconfirmed pushes of an element; with one more it is taken out of service.
pub const PUSHES_MAX: usize = 32_768;

/// Times of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTiming {
    /// Grace period, see [`GRACE_DEFAULT`].
    pub grace: Duration,
    /// Grace period after a restart, see [`RESTART_GRACE_DEFAULT`].
    pub restart_grace: Duration,
    /// Time limit of confirmations, see [`CONFIRM_DEFAULT`].
    pub confirm: Duration,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self { grace: GRACE_DEFAULT, restart_grace: RESTART_GRACE_DEFAULT, confirm: CONFIRM_DEFAULT }
    }
}

/// State machine of the controller.
#[derive(Debug, Clone)]
pub struct ControllerState {
    timing: LeaseTiming,
    now: Instant,
    ids: IdsRecord,
    kept: KeptIds,
    applications: BTreeMap<u32, Application>,
    names: BTreeMap<String, u32>,
    endpoints: BTreeMap<u32, CallerRecord>,
    elements: BTreeMap<u32, Element>,
    /// Pools by GAID; no application has the same GAID.
    pools: BTreeMap<u32, Pool>,
    pool_names: BTreeMap<String, u32>,
    /// Callers of pools without a responsible server, with the time of their removal.
    pool_callers_expiring: BTreeMap<u32, Instant>,
    /// Parties with an open stream.
    streams: BTreeMap<ControlCallId, Registrant>,
    changed: DirtyRecords,
    outputs: Vec<Output>,
    /// Key for the next application with signed frames.
    fresh_key: Option<TokenKey>,
    policy: MemoryPolicy,
    /// Time at which memory is shared out anew, if something has changed.
    share_at: Option<Instant>,
}

#[derive(Debug, Clone)]
struct Application {
    record: ApplicationRecord,
    lease: Lease,
    /// Callers by incarnation and address.
    callers: BTreeMap<(u32, String), u32>,
    /// Whether the owner's current grant has not been sent yet.
    unreported: bool,
    /// Boot ids of elements that do not answer the owner, by its latest report.
    silent: Vec<u64>,
    /// Reason of the owner for using no element.
    no_memory_reason: i32,
    /// Time at which the present owner came.
    since: Instant,
    /// Time of the grant of its memory.
    granted_at: Instant,
    /// Time without frames at the element's latest report.
    idle: Duration,
    /// Time at which its share last changed.
    moved_at: Option<Instant>,
    recall: Option<RecallInProgress>,
    /// Whether it was idle and gave its memory back; it gets none until its owner asks.
    parked: bool,
    /// Whether the owner accepts rows of fewer lanes, by its latest request.
    takes_narrow_rows: bool,
}

impl Application {
    fn new(record: ApplicationRecord, lease: Lease, now: Instant) -> Self {
        Self {
            record,
            lease,
            callers: BTreeMap::new(),
            unreported: true,
            silent: Vec::new(),
            no_memory_reason: 0,
            since: now,
            granted_at: now,
            idle: Duration::ZERO,
            moved_at: None,
            recall: None,
            parked: false,
            takes_narrow_rows: false,
        }
    }
}

#[derive(Debug, Clone)]
struct Element {
    record: ElementRecord,
    lease: Lease,
    /// Whether the element has confirmed its tables since its link was opened; if not, no memory is granted.
    serving: bool,
    rows: Ranges,
    lanes: Ranges,
    slots: Ranges,
    /// Time at which each of the record's quarantined slots may be leased again.
    quarantine: VecDeque<Instant>,
    /// Number of the last push.
    pushed: u64,
    /// Unconfirmed pushes, in order.
    unconfirmed: VecDeque<(u64, PushSubject)>,
    /// Time of the last confirmation, or of the first unconfirmed push.
    progress: Instant,
    waiters: Vec<Waiter>,
    /// Applications that the element has refused; they are not offered its memory again.
    refused: BTreeSet<u32>,
    /// Time at which the element is asked for the times of last frames.
    poll_at: Option<Instant>,
}

/// Lease of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lease {
    /// Held while this stream is open.
    Held(ControlCallId),
    /// Expires at this time, unless the peer returns.
    Expiring(Instant),
    /// Expired.
    Expired,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Registrant {
    Application(u32),
    Element(u32),
    Server { gaid: u32, server: u32 },
}

/// Records to be written.
#[derive(Debug, Clone, Default)]
struct DirtyRecords {
    ids: bool,
    applications: BTreeSet<u32>,
    endpoints: BTreeSet<u32>,
    elements: BTreeSet<u32>,
    pools: BTreeSet<u32>,
}

impl ControllerState {
    /// State without registrations. New applications start with epoch `first_epoch`, ids with `first_id`; both should
    /// be random, and small enough to grow for long.
    #[must_use]
    pub fn new(timing: LeaseTiming, first_epoch: u32, first_id: u32) -> Self {
        Self {
            timing,
            now: Instant::default(),
            ids: IdsRecord { gaid: first_id, endpoint: first_id, element: 1, first_epoch, first: first_id },
            kept: KeptIds::default(),
            applications: BTreeMap::new(),
            names: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            elements: BTreeMap::new(),
            pools: BTreeMap::new(),
            pool_names: BTreeMap::new(),
            pool_callers_expiring: BTreeMap::new(),
            streams: BTreeMap::new(),
            // The first epoch has to be stored before anything is granted.
            changed: DirtyRecords { ids: true, ..DirtyRecords::default() },
            outputs: Vec::new(),
            fresh_key: None,
            policy: MemoryPolicy::default(),
            share_at: None,
        }
    }

    /// Sets the rules for the memory of elements.
    pub fn set_policy(&mut self, policy: MemoryPolicy) {
        self.policy = policy;
        self.note_memory_change();
    }

    /// Handles one input.
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
            Input::LastFrames { element, boot_id, ages } => self.on_last_frames(element, boot_id, &ages),
            Input::Tick => {}
        }
        self.remove_overloaded_elements();
        self.effects()
    }

    /// Time at which [`Input::Tick`] is due, without other inputs.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let expiring = |lease: &Lease| match lease {
            Lease::Expiring(until) => Some(*until),
            Lease::Held(_) | Lease::Expired => None,
        };
        let owners = self.applications.values().filter_map(|application| expiring(&application.lease));
        let elements = self.elements.values().filter_map(|element| expiring(&element.lease));
        let silent = self.elements.values().filter_map(|element| element.silent_at(self.timing.confirm));
        let quarantined = self.elements.values().filter_map(|element| element.quarantine.front().copied());
        let servers = self.pools.values().flat_map(|pool| pool.leases.values()).filter_map(expiring);
        let callers = self.pool_callers_expiring.values().copied();
        let leases = owners.chain(elements).chain(silent).chain(quarantined).chain(servers).chain(callers);
        leases.chain(self.sharing_deadlines()).min()
    }

    /// Ends all that has expired by now.
    fn expire(&mut self) {
        let now = self.now;
        let over = |lease: Lease| matches!(lease, Lease::Expiring(until) if until <= now);
        let elements: Vec<_> = self.elements.iter().filter(|(_, e)| over(e.lease)).map(|(&id, _)| id).collect();
        let owners: Vec<_> = self.applications.iter().filter(|(_, a)| over(a.lease)).map(|(&id, _)| id).collect();
        for element in elements {
            self.take_out_of_service(element, "its registration has ended");
        }
        for gaid in owners {
            self.release_ownership(gaid);
        }
        let servers =
            self.pools.iter().flat_map(|(&gaid, pool)| pool.leases.iter().map(move |(&id, &at)| (gaid, id, at)));
        let servers: Vec<_> = servers.filter(|&(_, _, lease)| over(lease)).collect();
        for (gaid, server, _) in servers {
            self.forget_server(gaid, server);
        }
        let callers = self.pool_callers_expiring.iter().filter(|(_, until)| **until <= self.now);
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
        self.share_memory();
    }

    /// Handles the end of a peer's stream; the lease starts to expire if it was the peer's current stream.
    fn ended(&mut self, call: ControlCallId) {
        let until = self.now + self.timing.grace;
        let lease = match self.streams.remove(&call) {
            Some(Registrant::Application(gaid)) => self.applications.get_mut(&gaid).map(|a| &mut a.lease),
            Some(Registrant::Element(element)) => self.elements.get_mut(&element).map(|e| &mut e.lease),
            Some(Registrant::Server { gaid, server }) => {
                let lease = self.pools.get_mut(&gaid).and_then(|pool| pool.leases.get_mut(&server));
                if let Some(lease) = lease.filter(|lease| **lease == Lease::Held(call)) {
                    *lease = Lease::Expiring(until);
                    self.pool_server_ended(gaid, server);
                }
                None
            }
            None => None,
        };
        if let Some(lease) = lease.filter(|lease| **lease == Lease::Held(call)) {
            *lease = Lease::Expiring(until);
        }
    }

    /// Changed records since the last call, and the outputs.
    fn effects(&mut self) -> Effects {
        let changed = std::mem::take(&mut self.changed);
        let ids = changed.ids.then_some(RecordChange::Ids(self.ids));
        let applications = changed.applications.into_iter().map(|gaid| match self.applications.get(&gaid) {
            Some(application) => RecordChange::PutApplication(application.record.clone()),
            None => RecordChange::RemoveApplication(gaid),
        });
        let endpoints = changed.endpoints.into_iter().map(|endpoint| match self.endpoints.get(&endpoint) {
            Some(record) => RecordChange::PutEndpoint(record.clone()),
            None => RecordChange::RemoveEndpoint(endpoint),
        });
        let elements = changed.elements.into_iter().map(|id| match self.elements.get(&id) {
            Some(element) => RecordChange::PutElement(element.record.clone()),
            None => RecordChange::RemoveElement(id),
        });
        let pools = changed.pools.into_iter().map(|gaid| match self.pools.get(&gaid) {
            Some(pool) => RecordChange::PutPool(pool.record.clone()),
            None => RecordChange::RemovePool(gaid),
        });
        let changes = ids.into_iter().chain(applications).chain(pools).chain(endpoints).chain(elements).collect();
        Effects { changes, outputs: std::mem::take(&mut self.outputs) }
    }
}

impl Lease {
    const fn is_expired(self) -> bool {
        matches!(self, Self::Expired)
    }
}

#[cfg(test)]
mod tests;
