//! Admission stage: only frames of what the controller has installed take effect (NetRPC §5.2.2, App. C), and for an
//! application with tokens, only frames with a valid token.

use pathcall_wire::{Flags, FrameKind, Instant, Mutant, TokenKey, mutant, token};

use crate::tables::ApplicationEntry;
use crate::{AdmissionTables, Context, Endpoint, InstalledApplication};

/// Reason why a frame is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmissionRefusal {
    /// Unknown application, epoch, endpoint, incarnation or slot.
    NotAdmitted,
    /// Has the server's flag, and another sender.
    Forged,
    /// Has no token or a wrong one, or has a token in an application without tokens.
    Unauthentic,
}

/// Result of the admission of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admission {
    /// Application of the frame, if admitted.
    pub(crate) application: Result<InstalledApplication, AdmissionRefusal>,
    /// Token key of the application, if it is installed and has one.
    pub(crate) key: Option<TokenKey>,
    /// Whether the frame carries the right token.
    pub(crate) authentic: bool,
}

/// Admits or refuses a frame. Before the token is checked only a counter changes; the time for the first-level time-out
/// is recorded last.
pub(crate) fn admit(tables: &mut AdmissionTables, now: Instant, context: &Context<'_>) -> Admission {
    let base = &context.base;
    let lives = |e: &&Endpoint| e.incarnation == base.src_incarnation || mutant::on(Mutant::ElementIncarnation);
    let belongs = |e: &&Endpoint| e.gaid == base.gaid || mutant::on(Mutant::ElementApplication);
    let endpoint = tables.endpoint(base.src).filter(lives).filter(belongs).copied();
    let Some(entry) = tables.entry_mut(base.gaid) else {
        return Admission { application: Err(AdmissionRefusal::NotAdmitted), key: None, authentic: false };
    };
    let key = entry.key;
    let authentic = token::admits(key.as_ref(), context.frame.as_bytes());
    let late = mutant::on(Mutant::ElementTokenLate) || mutant::on(Mutant::ElementToken);
    if !authentic && !late {
        entry.counters.unauthentic += 1;
        return Admission { application: Err(AdmissionRefusal::Unauthentic), key, authentic };
    }
    Admission { application: entry.admit(now, endpoint, context), key, authentic }
}

impl ApplicationEntry {
    fn admit(
        &mut self,
        now: Instant,
        sender: Option<Endpoint>,
        context: &Context<'_>,
    ) -> Result<InstalledApplication, AdmissionRefusal> {
        let base = &context.base;
        let current = self.application.epoch == base.epoch || mutant::on(Mutant::ElementEpoch);
        let Some(sender) = sender.filter(|_| current) else {
            self.counters.not_admitted += 1;
            return Err(AdmissionRefusal::NotAdmitted);
        };
        let from_server = base.flags & Flags::FROM_SERVER != 0;
        if from_server != (base.src == self.application.owner) {
            return Err(AdmissionRefusal::Forged);
        }
        let crosses = base.flags & Flags::CROSS != 0;
        let slots = sender.slot_base..sender.slot_base + sender.slots;
        let numbered = matches!(context.frame.kind(), FrameKind::MapData | FrameKind::MapPairs);
        if numbered && !from_server && !crosses && !slots.contains(&base.slot) {
            self.counters.not_admitted += 1;
            return Err(AdmissionRefusal::NotAdmitted);
        }
        self.last_seen = Some(now);
        self.counters.admitted += 1;
        self.counters.ecn_marked += u64::from(context.congested);
        Ok(self.application)
    }
}
