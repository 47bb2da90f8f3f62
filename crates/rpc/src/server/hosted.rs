//! An application that this server owns.
//!
//! It waits until its first caller: whatever the controller grants until then is what it starts
//! with. A later grant, or an element that no longer answers, changes its terms: the map goes on
//! under a new epoch or without the element, and every caller is told.

mod alone;
mod silent;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use pathcall_endpoint::driver::link::Link;
use pathcall_endpoint::driver::server::{Lapse, Lapses, ServerHandle};
use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::Grant;
use pathcall_endpoint::map::server::{Eviction, ServerConfig, Terms};
use pathcall_proto::IDS_END;
use pathcall_proto::v1::{ApplicationGrant, HeldGrant, MemoryGrant};
use pathcall_wire::TokenKey;
use tokio::sync::{Notify, watch};

use super::ApplicationStats;
use super::sessions::Sessions;
use crate::application::Application;
use crate::names::Names;
use alone::{Handle, OwnEpoch};
use silent::Silent;

/// Callers of one application at a time.
pub(super) const MEMBERS_MAX: usize = 4096;

/// An application with its map.
#[derive(Debug)]
pub(super) struct Hosted {
    this: Weak<Self>,
    pub(super) application: Application,
    /// Of this server's endpoint.
    pub(super) incarnation: u32,
    /// How long locks are lent to a caller that does not ask again.
    pub(super) lease: Duration,
    /// Where map frames come in.
    pub(super) local_addr: SocketAddr,
    /// Signs map frames if they are to carry tokens and no controller has granted a key.
    own_key: Option<TokenKey>,
    /// For as long as no controller has granted one.
    own_epoch: OwnEpoch,
    phase: Mutex<Phase>,
    members: AtomicUsize,
    pub(super) sessions: Sessions,
    next_id: AtomicU32,
    /// Members that the controller was not there for: should it be back, they are to work by the element, too.
    strangers: AtomicUsize,
    /// Numbers of keys that are too long for a frame.
    pub(super) names: Names,
    /// Rows of registers that are wished: none if they are of no use.
    pub(super) rows: u32,
    /// Whose registers are of no use for a while.
    silent: Mutex<Silent>,
    /// Bytes that keys may take.
    key_memory: usize,
    /// Told when a member leaves: there may be room for a worker.
    pub(super) left: Notify,
    /// Number of the terms that hold: members follow it.
    pub(super) terms: watch::Sender<u64>,
    /// Told when the controller is to be asked anew.
    pub(super) ask_anew: Notify,
}

#[derive(Debug)]
enum Phase {
    /// `None` for a moment only.
    Waiting(Option<Link>, Option<ApplicationGrant>),
    Serving(Serving),
}

/// An application that has had a caller.
#[derive(Debug, Clone)]
pub(super) struct Serving {
    pub(super) handle: Handle,
    pub(super) gaid: u32,
    pub(super) epoch: u32,
    /// The server's own endpoint.
    pub(super) endpoint: u32,
    /// Signs map frames, if they carry tokens.
    pub(super) key: Option<TokenKey>,
    /// The element, unless there is none.
    pub(super) memory: Option<Memory>,
    /// Number of these terms.
    pub(super) terms: u64,
}

/// A grant of an element's memory.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Memory {
    pub(super) element: SocketAddr,
    grant: MemoryGrant,
}

impl Memory {
    /// What of the grant can be used.
    fn new(grant: &ApplicationGrant) -> Option<Self> {
        let grant = grant.memory.clone()?;
        match grant.data_address.parse() {
            Ok(element) if grant.rows > 0 => Some(Self { element, grant }),
            Ok(_) => None,
            Err(_) => {
                tracing::warn!(address = grant.data_address, "the controller grants an element without an address");
                None
            }
        }
    }

    fn registers(&self) -> Option<Grant> {
        Some(Grant { rows: self.grant.rows, width: u16::try_from(self.grant.width).ok()? })
    }
}

impl Hosted {
    /// `own_key`: map frames are to carry tokens, signed with it unless the controller grants another. `rows`: of
    /// registers, that are wished.
    pub(super) fn new(
        application: Application,
        link: Link,
        lease: Duration,
        own_key: Option<TokenKey>,
        rows: u32,
        key_memory: usize,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            rows: if application.fits_an_element() { rows } else { 0 },
            application,
            incarnation: rand::random_range(1..=u32::MAX),
            lease,
            local_addr: link.local_addr(),
            own_key,
            own_epoch: OwnEpoch::new(SystemTime::now()),
            phase: Mutex::new(Phase::Waiting(Some(link), None)),
            members: AtomicUsize::new(0),
            sessions: Sessions::default(),
            next_id: AtomicU32::new(rand::random_range(1..IDS_END)),
            strangers: AtomicUsize::new(0),
            silent: Mutex::default(),
            names: Names::default(),
            key_memory,
            left: Notify::new(),
            terms: watch::Sender::new(0),
            ask_anew: Notify::new(),
        })
    }

    /// What the controller grants now; false when callers know the application by other ids: by those that it was
    /// started with.
    pub(super) fn granted(&self, grant: ApplicationGrant) -> bool {
        match &mut *self.phase() {
            Phase::Waiting(_, latest) => *latest = Some(grant),
            Phase::Serving(serving) => {
                if (serving.gaid, serving.endpoint) != (grant.gaid, grant.endpoint) {
                    return false;
                }
                let memory = self.usable_memory(&grant, serving.key);
                // An epoch in which the element was silent does not come back: nobody knows what it has.
                if serving.epoch != grant.epoch && (serving.memory.is_some() || memory.is_some()) {
                    serving.epoch = grant.epoch;
                    self.change(serving, memory, "the element failed or its memory was withdrawn");
                }
            }
        }
        true
    }

    /// The controller is there again, and all is as before; or it knows a member that it did not know. Members that it was
    /// not there for take part under another epoch.
    pub(super) fn reached(&self) {
        if self.strangers.load(Ordering::Relaxed) > 0
            && let Phase::Serving(serving) = &mut *self.phase()
            && serving.memory.is_some()
        {
            self.change(serving, None, "callers came that the controller does not know");
            self.ask_anew.notify_one();
        }
    }

    /// Counts a member that the controller was not there for; it is one until what comes back is dropped.
    pub(super) fn stranger(self: &Arc<Self>) -> Stranger {
        self.strangers.fetch_add(1, Ordering::Relaxed);
        Stranger(Arc::clone(self))
    }

    /// On without the element, until the controller has memory under a new epoch. If it did not answer, that is to be
    /// another's, or of another start of it.
    fn lapsed(&self, lapse: Lapse) {
        if let Phase::Serving(serving) = &mut *self.phase()
            && serving.terms == lapse.terms
            && let Some(memory) = &serving.memory
        {
            if lapse.silent {
                self.silent().note(Instant::now(), memory.grant.boot_id);
            }
            let reason = if lapse.silent { "the element did not answer" } else { "a worker is replaced" };
            self.change(serving, None, reason);
            self.ask_anew.notify_one();
        }
    }

    fn change(&self, serving: &mut Serving, memory: Option<Memory>, reason: &'static str) {
        let name = self.application.name;
        match &memory {
            Some(memory) => tracing::info!(application = name, element = %memory.element, "working by an element"),
            None => tracing::warn!(application = name, "working in software: {reason}"),
        }
        let grant = memory.as_ref().and_then(Memory::registers);
        serving.terms += 1;
        serving.memory = memory;
        let element = serving.memory.as_ref().map(|memory| memory.element);
        serving.handle.renew(Terms { number: serving.terms, epoch: serving.epoch, grant, reason }, element);
        self.terms.send_replace(serving.terms);
    }

    /// Whether map frames are to carry tokens.
    pub(super) fn authenticates(&self) -> bool {
        self.own_key.is_some()
    }

    /// What callers know the application by, for a controller that does not know it.
    pub(super) fn held(&self) -> Option<HeldGrant> {
        let Serving { gaid, epoch, endpoint, key, memory, .. } = self.running()?;
        let token_key = key.map(|key| key.words().into());
        Some(HeldGrant { gaid, epoch, endpoint, token_key, in_software: memory.is_none() })
    }

    /// Starts of elements whose memory is of no use for a while: they did not answer.
    pub(super) fn silent_starts(&self) -> Vec<u64> {
        self.silent().starts(Instant::now())
    }

    /// When there will be fewer of them, if there are any.
    pub(super) fn silent_until(&self) -> Option<Instant> {
        self.silent().until(Instant::now())
    }

    /// Held only for a moment, by code that does not panic.
    fn silent(&self) -> MutexGuard<'_, Silent> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The application, if it has had a caller.
    pub(super) fn running(&self) -> Option<Serving> {
        match &*self.phase() {
            Phase::Serving(serving) => Some(serving.clone()),
            Phase::Waiting(..) => None,
        }
    }

    /// The running application; the first call starts it.
    pub(super) fn serving(&self) -> Serving {
        let mut phase = self.phase();
        let serving = match &mut *phase {
            Phase::Serving(serving) => return serving.clone(),
            Phase::Waiting(link, grant) => {
                let Some(link) = link.take() else {
                    unreachable!("the link is taken here only, and the phase changes below under the same lock");
                };
                self.start(link, grant.as_ref())
            }
        };
        *phase = Phase::Serving(serving.clone());
        serving
    }

    /// An id for who has none of the controller. It counts from a random one on: should the controller come back, it
    /// lets everybody keep what nobody else has.
    pub(super) fn own_id(&self) -> u32 {
        // After 2^31 callers ids come again, of callers that are long gone.
        self.next_id.fetch_add(1, Ordering::Relaxed) % (IDS_END - 1) + 1
    }

    /// Counts a caller in; false when there are too many.
    pub(super) fn enter(&self) -> bool {
        let enter = |members| (members < MEMBERS_MAX).then_some(members + 1);
        self.members.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter).is_ok()
    }

    /// Counts a caller out.
    pub(super) fn leave(&self) {
        self.members.fetch_sub(1, Ordering::Relaxed);
        self.left.notify_waiters();
    }

    pub(super) fn stats(&self) -> ApplicationStats {
        let (element, map, carried) = match self.running() {
            None => Default::default(),
            Some(Serving { memory, handle, .. }) => (memory.is_some(), handle.stats(), handle.carried()),
        };
        let members = self.members.load(Ordering::Relaxed);
        ApplicationStats { name: self.application.name, members, element, map, carried }
    }

    fn start(&self, link: Link, grant: Option<&ApplicationGrant>) -> Serving {
        let key = grant.and_then(key_of).or(self.own_key);
        let memory = grant.and_then(|grant| self.usable_memory(grant, key));
        let registers = memory.as_ref().and_then(Memory::registers);
        if grant.is_some_and(|grant| grant.memory.is_none()) && self.rows > 0 {
            let application = self.application.name;
            tracing::warn!(application, "working in software: no element has memory left (`pathcall status` shows it)");
        }
        let alone = || (rand::random_range(1..IDS_END), self.own_epoch.number, self.own_id());
        let (gaid, epoch, endpoint) = grant.map_or_else(alone, |grant| (grant.gaid, grant.epoch, grant.endpoint));
        let opens = (grant.is_none() && self.application.takes_locks).then_some(self.own_epoch.over);
        let config = ServerConfig {
            gaid,
            epoch,
            endpoint,
            incarnation: self.incarnation,
            grant: registers,
            threshold: self.application.threshold,
            clear: self.application.clear,
            mapping: self.application.mapping,
            acked: self.application.acked,
            locks: self.application.locks,
            votes: self.application.votes,
            eviction: Some(Eviction::default()),
            key_memory: self.key_memory,
            width: self.application.width(),
            lease: self.lease,
            timing: Timing::default(),
        };
        let driver = ServerHandle::spawn(config, key, link, memory.as_ref().map(|memory| memory.element));
        let handle = Handle::new(driver, opens);
        tokio::spawn(watch_element(self.this.clone(), handle.lapses()));
        Serving { handle, gaid, epoch, endpoint, key, memory, terms: 0 }
    }

    /// The granted memory, if its element was told of the key that signs the application's frames: one
    /// that was told of another, or of none, would drop them all.
    fn usable_memory(&self, grant: &ApplicationGrant, key: Option<TokenKey>) -> Option<Memory> {
        let memory = Memory::new(grant)?;
        if key_of(grant) != key {
            let application = self.application.name;
            tracing::warn!(application, "the controller grants an element without the key that signs map frames");
            return None;
        }
        Some(memory)
    }

    /// Held only for a moment, by code that does not panic.
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A member that the controller was not there for.
#[derive(Debug)]
pub(super) struct Stranger(Arc<Hosted>);

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.strangers.fetch_sub(1, Ordering::Relaxed);
    }
}

fn key_of(grant: &ApplicationGrant) -> Option<TokenKey> {
    grant.token_key.map(|key| TokenKey::new(key.into()))
}

/// Goes on without the element whenever what it holds is of no use, as long as there is an owner.
async fn watch_element(hosted: Weak<Hosted>, mut lapses: Lapses) {
    let mut known = None;
    while let Some(lapse) = lapses.next(known).await {
        known = Some(lapse);
        let Some(hosted) = hosted.upgrade() else { return };
        hosted.lapsed(lapse);
    }
}
