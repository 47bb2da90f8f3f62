//! Application that this server owns.
//!
//! It starts with its first caller and with the controller's latest grant at that time. A later grant, or an element
//! that does not answer, changes its terms: another epoch, or no element. Every caller is notified then.

mod element_choice;
mod element_memory;
mod recall;
mod silent_elements;
mod standalone;
mod start;
mod stored;
mod unregistered;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use pathcall_driver::link::Link;
use pathcall_driver::server::{EpochInvalidated, EpochInvalidations};
use pathcall_endpoint::map::server::ElementTerms;
use pathcall_proto::IDS_END;
use pathcall_proto::v1::{ApplicationGrant, HeldGrant, NoMemoryReason};
use pathcall_wire::TokenKey;
use tokio::sync::{Notify, watch};

use super::handled_sums::HandledSums;
use super::sessions::CallerSessions;
use super::store::OwnerEnd;
use super::{DirectStats, OwnedApplicationStats};
use crate::application::Application;
use crate::key_numbers::KeyNumbers;
use element_choice::ElementChoice;
pub(super) use element_memory::ElementMemory;
use element_memory::agreed_width;
use recall::RecalledEpochs;
use silent_elements::SilentElements;
use standalone::{DelayedHandle, StandaloneEpoch};
pub(super) use unregistered::UnregisteredMember;

/// Maximum number of members of one application.
pub(super) const MEMBERS_MAX: usize = 4096;

/// Application with its map.
#[derive(Debug)]
pub(super) struct OwnedApplication {
    this: Weak<Self>,
    pub(super) application: Application,
    /// Incarnation of this server's endpoint.
    pub(super) incarnation: u32,
    /// Lease of locks of a silent caller.
    pub(super) lease: Duration,
    /// Local address of map frames.
    pub(super) local_addr: SocketAddr,
    /// Key of map frames if they carry tokens and no controller has granted a key.
    own_key: Option<TokenKey>,
    /// Epoch until a controller has granted one.
    standalone_epoch: StandaloneEpoch,
    phase: Mutex<Phase>,
    members: AtomicUsize,
    pub(super) sessions: CallerSessions,
    next_id: AtomicU32,
    /// Number of members that could not be registered at the controller. Once the controller is back, they have to use
    /// the element, too.
    unregistered_members: AtomicUsize,
    /// Numbers of keys that are too long for a frame.
    pub(super) key_numbers: KeyNumbers,
    choice: ElementChoice,
    /// Sums for the handler.
    pub(super) handled: HandledSums,
    /// Counters of direct calls, and of calls of plain gRPC clients.
    whole: Mutex<[DirectStats; 2]>,
    /// Elements whose registers are not used for a while.
    silent: Mutex<SilentElements>,
    /// Epochs whose memory the controller has recalled.
    recalled: RecalledEpochs,
    /// Maximum memory of keys, bytes.
    key_memory: usize,
    /// Id of the state in a store, if it is in one.
    state_id: OnceLock<u32>,
    /// Reason for which the state cannot be stored any more.
    pub(super) ended: watch::Sender<OwnerEnd>,
    /// Notified when a member leaves: there may be room for a worker.
    pub(super) left: Notify,
    /// Number of the current terms; members follow it.
    pub(super) terms: watch::Sender<u64>,
    /// Notified when the controller has to be asked again.
    pub(super) ask_anew: Notify,
}

#[derive(Debug)]
enum Phase {
    /// Link and latest grant. The link is `None` only while the application starts.
    Waiting(Option<Link>, Option<ApplicationGrant>),
    Active(ActiveApplication),
}

/// Application that has had a caller.
#[derive(Debug, Clone)]
pub(super) struct ActiveApplication {
    pub(super) handle: DelayedHandle,
    pub(super) gaid: u32,
    pub(super) epoch: u32,
    /// Id of the server's own endpoint.
    pub(super) endpoint: u32,
    /// Key of map frames, if they carry tokens.
    pub(super) key: Option<TokenKey>,
    /// Element memory, if granted.
    pub(super) memory: Option<ElementMemory>,
    /// Lanes of a row, the same for all callers: they number the chunks of sums alike.
    pub(super) width: u16,
    /// Number of these terms.
    pub(super) terms: u64,
}

impl OwnedApplication {
    /// `own_key`: set if map frames carry tokens; used unless the controller grants another key. `rows`: register rows
    /// to request.
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
            choice: ElementChoice::new(if application.can_use_element() { rows } else { 0 }, application.path),
            handled: HandledSums::default(),
            whole: Mutex::default(),
            application,
            incarnation: rand::random_range(1..=u32::MAX),
            lease,
            local_addr: link.local_addr(),
            own_key,
            standalone_epoch: StandaloneEpoch::new(SystemTime::now()),
            phase: Mutex::new(Phase::Waiting(Some(link), None)),
            members: AtomicUsize::new(0),
            sessions: CallerSessions::default(),
            next_id: AtomicU32::new(rand::random_range(1..IDS_END)),
            unregistered_members: AtomicUsize::new(0),
            silent: Mutex::default(),
            recalled: RecalledEpochs::default(),
            key_numbers: KeyNumbers::default(),
            key_memory,
            state_id: OnceLock::new(),
            ended: watch::Sender::new(None),
            left: Notify::new(),
            terms: watch::Sender::new(0),
            ask_anew: Notify::new(),
        })
    }

    /// Reason for which the application uses no element, if there is one.
    pub(super) fn no_memory_reason(&self) -> NoMemoryReason {
        self.choice.no_memory_reason()
    }

    /// Lanes of a row: those agreed at the start, or those to request.
    pub(super) fn width(&self) -> u16 {
        self.active().map_or(self.application.width(), |active| active.width)
    }

    /// Whether rows of fewer lanes are accepted: for sums, before the first caller.
    pub(super) fn takes_narrow_rows(&self) -> bool {
        self.application.threshold > 0 && self.active().is_none()
    }

    /// Number of register rows to request.
    pub(super) fn rows_to_request(&self) -> u32 {
        self.choice.rows_to_request(self.active().is_some())
    }

    /// Counts a call that is executed as a whole, with a message of `bytes` bytes.
    pub(super) fn count_whole(&self, bytes: usize, plain: bool) {
        let count = &mut self.whole.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(plain)];
        *count = DirectStats { calls: count.calls + 1, bytes: count.bytes + bytes as u64 };
    }

    /// Handles a caller on another host that is about to join.
    pub(super) fn on_remote_caller(&self) {
        if self.choice.on_remote_caller() && self.active().is_some_and(|active| active.memory.is_none()) {
            self.ask_anew.notify_one();
        }
    }

    /// Applies a grant of the controller; false if callers know the application by other ids, those with which it has
    /// started.
    pub(super) fn granted(&self, grant: ApplicationGrant) -> bool {
        self.on_recall(&grant);
        match &mut *self.phase() {
            Phase::Waiting(_, latest) => *latest = Some(grant),
            Phase::Active(active) => {
                if (active.gaid, active.endpoint) != (grant.gaid, grant.endpoint) {
                    return false;
                }
                let memory = self.usable_memory(&grant, active.key, active.width);
                // An epoch in which the element was silent is never used again: the element's state is not known.
                if active.epoch != grant.epoch && (active.memory.is_some() || memory.is_some()) {
                    active.epoch = grant.epoch;
                    self.change(active, memory, "the element failed or its memory was withdrawn");
                }
            }
        }
        true
    }

    /// Handles the return of the controller, or the late registration of a member. If there are unregistered members,
    /// all members continue under another epoch.
    pub(super) fn on_controller_reached(&self) {
        if self.unregistered_members.load(Ordering::Relaxed) > 0
            && let Phase::Active(active) = &mut *self.phase()
            && active.memory.is_some()
        {
            self.change(active, None, "callers joined that the controller does not know");
            self.ask_anew.notify_one();
        }
    }

    /// Counts a member that could not be registered, until the returned value is dropped.
    pub(super) fn unregistered(self: &Arc<Self>) -> UnregisteredMember {
        UnregisteredMember::of(self)
    }

    /// Continues without the element until the controller grants memory under a new epoch. If the element did not
    /// answer, the new memory must be on another element or another start of it.
    fn on_epoch_invalidated(&self, invalidation: EpochInvalidated) {
        if let Phase::Active(active) = &mut *self.phase()
            && active.terms == invalidation.terms
            && let Some(memory) = &active.memory
        {
            if invalidation.silent {
                self.silent().note(Instant::now(), memory.grant.boot_id);
            }
            let reason = if invalidation.silent { "the element did not answer" } else { "a worker is replaced" };
            self.change(active, None, reason);
            self.ask_anew.notify_one();
        }
    }

    fn change(&self, active: &mut ActiveApplication, memory: Option<ElementMemory>, reason: &'static str) {
        let name = self.application.name;
        match &memory {
            Some(memory) => tracing::info!(application = name, element = %memory.element, "working with an element"),
            None => tracing::warn!(application = name, "working in software: {reason}"),
        }
        let grant = memory.as_ref().and_then(ElementMemory::registers);
        active.terms += 1;
        active.memory = memory;
        let element = active.memory.as_ref().map(|memory| memory.element);
        active.handle.renew(ElementTerms { number: active.terms, epoch: active.epoch, grant, reason }, element);
        self.terms.send_replace(active.terms);
    }

    /// Whether map frames carry tokens.
    pub(super) fn authenticates(&self) -> bool {
        self.own_key.is_some()
    }

    /// Ids under which callers know the application, for a controller that does not know it.
    pub(super) fn held(&self) -> Option<HeldGrant> {
        let ActiveApplication { gaid, epoch, endpoint, key, memory, .. } = self.active()?;
        let token_key = key.map(|key| key.words().into());
        Some(HeldGrant { gaid, epoch, endpoint, token_key, in_software: memory.is_none() })
    }

    /// Boot ids of elements that did not answer and are not used for a while.
    pub(super) fn silent_starts(&self) -> Vec<u64> {
        self.silent().starts(Instant::now())
    }

    /// Time at which the next of them may be used again.
    pub(super) fn silent_until(&self) -> Option<Instant> {
        self.silent().until(Instant::now())
    }

    /// Held briefly, by code that does not panic.
    fn silent(&self) -> MutexGuard<'_, SilentElements> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The application, if it has had a caller.
    pub(super) fn active(&self) -> Option<ActiveApplication> {
        match &*self.phase() {
            Phase::Active(active) => Some(active.clone()),
            Phase::Waiting(..) => None,
        }
    }

    /// The active application; the first call starts it.
    pub(super) fn ensure_active(&self) -> ActiveApplication {
        let mut phase = self.phase();
        let active = match &mut *phase {
            Phase::Active(active) => return active.clone(),
            Phase::Waiting(link, grant) => {
                let Some(link) = link.take() else {
                    unreachable!("the link is taken here only, and the phase changes below under the same lock");
                };
                match self.start(link, grant.as_ref(), None) {
                    Ok(active) => active,
                    Err(_) => unreachable!("only a store fails, and an application with one starts with its layer"),
                }
            }
        };
        *phase = Phase::Active(active.clone());
        active
    }

    /// Id for an endpoint without a controller's id. Ids count up from a random number, so that a controller that
    /// returns can most likely let all endpoints keep theirs.
    pub(super) fn own_id(&self) -> u32 {
        // Ids repeat after 2^31 callers; those callers are long gone.
        self.next_id.fetch_add(1, Ordering::Relaxed) % (IDS_END - 1) + 1
    }

    /// Adds a member; false if there are too many.
    pub(super) fn enter(&self) -> bool {
        let enter = |members| (members < MEMBERS_MAX).then_some(members + 1);
        self.members.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter).is_ok()
    }

    /// Removes a member.
    pub(super) fn leave(&self) {
        self.members.fetch_sub(1, Ordering::Relaxed);
        self.left.notify_waiters();
    }

    pub(super) fn stats(&self) -> OwnedApplicationStats {
        let (element, map, carried) = match self.active() {
            None => Default::default(),
            Some(ActiveApplication { memory, handle, .. }) => {
                (memory.is_some(), handle.stats(), handle.carried_stats())
            }
        };
        let members = self.members.load(Ordering::Relaxed);
        let (name, no_memory_reason) = (self.application.name, self.no_memory_reason().text());
        let [direct, plain] = *self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = self.is_stored();
        OwnedApplicationStats { name, members, element, stored, no_memory_reason, direct, plain, map, carried }
    }

    /// Held briefly, by code that does not panic.
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Continues without the element whenever its state is invalid, as long as the application exists.
async fn watch_element(owned: Weak<OwnedApplication>, mut invalidations: EpochInvalidations) {
    let mut known = None;
    while let Some(invalidation) = invalidations.next(known).await {
        known = Some(invalidation);
        let Some(owned) = owned.upgrade() else { return };
        owned.on_epoch_invalidated(invalidation);
    }
}
