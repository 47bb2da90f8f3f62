//! Admission: only what the controller has installed changes anything (NetRPC §5.2.2, App. C), and
//! of an application whose frames carry tokens, only what its key has signed.

use pathcall_wire::{Flags, Instant, Kind, Mutant, TokenKey, mutant, token};

use crate::tables::Entry;
use crate::{Application, Context, Endpoint, Tables};

/// Why a frame is not worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Unknown application, epoch, endpoint, incarnation or slot.
    NotAdmitted,
    /// Says that it comes from the server, and does not.
    Forged,
    /// Without the application's token, or with one in an application without.
    Unauthentic,
}

/// What admission says of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admission {
    /// Its application, if it is to be worked on.
    pub(crate) application: Result<Application, Refused>,
    /// What signs the application's frames, if it is known here and its frames carry tokens.
    pub(crate) key: Option<TokenKey>,
    /// Whether the frame carries the token that it should.
    pub(crate) authentic: bool,
}

/// Admits a frame, or does not. Nothing but a counter has changed before its token was looked at; the
/// time for the first-level time-out is noted last.
pub(crate) fn admit(tables: &mut Tables, now: Instant, context: &Context<'_>) -> Admission {
    let base = &context.base;
    let lives = |e: &&Endpoint| e.incarnation == base.src_incarnation || mutant::on(Mutant::ElementIncarnation);
    let belongs = |e: &&Endpoint| e.gaid == base.gaid || mutant::on(Mutant::ElementApplication);
    let endpoint = tables.endpoint(base.src).filter(lives).filter(belongs).copied();
    let Some(entry) = tables.entry_mut(base.gaid) else {
        return Admission { application: Err(Refused::NotAdmitted), key: None, authentic: false };
    };
    let key = entry.key;
    let authentic = token::admits(key.as_ref(), context.frame.as_bytes());
    let late = mutant::on(Mutant::ElementTokenLate) || mutant::on(Mutant::ElementToken);
    if !authentic && !late {
        entry.counters.unauthentic += 1;
        return Admission { application: Err(Refused::Unauthentic), key, authentic };
    }
    Admission { application: entry.admit(now, endpoint, context), key, authentic }
}

impl Entry {
    fn admit(&mut self, now: Instant, sender: Option<Endpoint>, context: &Context<'_>) -> Result<Application, Refused> {
        let base = &context.base;
        let current = self.application.epoch == base.epoch || mutant::on(Mutant::ElementEpoch);
        let Some(sender) = sender.filter(|_| current) else {
            self.counters.not_admitted += 1;
            return Err(Refused::NotAdmitted);
        };
        let from_server = base.flags & Flags::FROM_SERVER != 0;
        if from_server != (base.src == self.application.owner) {
            return Err(Refused::Forged);
        }
        let crosses = base.flags & Flags::CROSS != 0;
        let slots = sender.slot_base..sender.slot_base + sender.slots;
        let numbered = matches!(context.frame.kind(), Kind::MapData | Kind::MapPairs);
        if numbered && !from_server && !crosses && !slots.contains(&base.slot) {
            self.counters.not_admitted += 1;
            return Err(Refused::NotAdmitted);
        }
        self.last_seen = Some(now);
        self.counters.admitted += 1;
        self.counters.ecn_marked += u64::from(context.congested);
        Ok(self.application)
    }
}
