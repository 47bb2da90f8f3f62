//! Planned applications and endpoints, and changes of them.

use pathcall_program::{Endpoint, InstalledApplication};
use pathcall_wire::{KEYED_WIDTH, TokenKey};

use super::{Generator, SIZE};
use crate::{ProgramStep, RandomChoice};
use pathcall_wire::SplitMix64;

/// Largest numbers of rows, lanes and slots of a planned application.
const ROWS: u32 = 4;
const LANES: u32 = 512;
const SLOTS: u32 = 4;

/// Planned state of an application.
#[derive(Debug)]
pub(super) struct PlannedApplication {
    index: u32,
    pub(super) application: InstalledApplication,
    /// Owner and three callers.
    pub(super) endpoints: [Endpoint; 4],
    /// True for endpoints that are installed.
    pub(super) present: [bool; 4],
    pub(super) key: Option<TokenKey>,
    installed: bool,
    hardware: bool,
}

/// Change of the tables.
#[derive(Debug, Clone, Copy)]
enum Change {
    Same,
    Epoch,
    Memory,
    Owner,
    Remove,
    Restore,
    Reset,
    Refused,
    Incarnation,
    SameEndpoint,
    Slots,
    Leave,
    Desert,
    Group,
    Strangers,
    Key,
}

const CHANGES: [(u32, Change); 16] = [
    (4, Change::Same),
    (10, Change::Epoch),
    (10, Change::Memory),
    (4, Change::Owner),
    (6, Change::Remove),
    (20, Change::Restore),
    (8, Change::Reset),
    (10, Change::Refused),
    (12, Change::Incarnation),
    (4, Change::SameEndpoint),
    (4, Change::Slots),
    (6, Change::Leave),
    (3, Change::Desert),
    (16, Change::Group),
    (4, Change::Strangers),
    (4, Change::Key),
];

impl PlannedApplication {
    pub(super) fn new(random: &mut SplitMix64, index: usize, hardware: bool) -> Self {
        let index = index as u32;
        let endpoint = |n: u32| Endpoint {
            endpoint: owner_of(index) + n,
            incarnation: 1 + index,
            gaid: index + 1,
            slot_base: index * SLOTS + [0, 0, 1, 3][n as usize],
            slots: [0, 1, 2, 1][n as usize],
        };
        let application = InstalledApplication {
            gaid: index + 1,
            epoch: 1 + random.below(3),
            owner: owner_of(index),
            row_base: 0,
            rows: 0,
            lane_base: 0,
            width: 0,
        };
        let endpoints = std::array::from_fn(|n| endpoint(n as u32));
        let mut plan =
            Self { index, application, endpoints, present: [false; 4], key: None, installed: false, hardware };
        plan.application = plan.with_new_memory(random);
        plan
    }

    pub(super) fn is_keyed(&self) -> bool {
        self.application.width as usize == KEYED_WIDTH
    }

    /// Index of the owner among the endpoints.
    pub(super) fn owner_index(&self) -> usize {
        self.endpoints.iter().position(|endpoint| endpoint.endpoint == self.application.owner).unwrap_or(0)
    }

    /// The application with new random memory.
    fn with_new_memory(&self, random: &mut SplitMix64) -> InstalledApplication {
        let width = match self.index {
            0 if self.hardware => random.pick(&[1, 2, 5, 31, 32]),
            3 if self.hardware => random.pick(&[0, 1, 32, 64, 64]),
            0 => random.pick(&[1, 2, 5, 31, 32, 33, 64, 100, 128, 256]),
            3 => random.pick(&[0, 1, 63, 64, 64, 65, 256]),
            _ => KEYED_WIDTH as u32,
        };
        let most = LANES.checked_div(width).unwrap_or(ROWS).min(ROWS);
        let rows = if self.index == 3 && random.once_in(4) { 0 } else { 1 + random.below(most) };
        InstalledApplication {
            row_base: self.index * ROWS + random.below(ROWS - rows + 1),
            rows,
            lane_base: self.index * LANES + random.below(LANES - rows * width + 1),
            width,
            ..self.application
        }
    }
}

/// Initial owner of the application with this index; its callers follow.
const fn owner_of(index: u32) -> u32 {
    10 * (index + 1)
}

impl Generator {
    /// Steps that install a planned application.
    pub(super) fn install_all(&mut self, a: usize) {
        let plan = &self.plans[a];
        let gaid = plan.application.gaid;
        self.waiting.push_back(ProgramStep::Install(plan.application));
        if self.options.tokens && self.random.percent(50) {
            let key = TokenKey::new([self.random.bits(), self.random.bits()]);
            self.waiting.push_back(ProgramStep::Authenticate(gaid, Some(key)));
        }
        let plan = &self.plans[a];
        self.waiting.extend(plan.endpoints.map(ProgramStep::SetEndpoint));
        self.waiting.push_back(ProgramStep::SetGroup(gaid, plan.endpoints[1..].iter().map(|e| e.endpoint).collect()));
    }

    /// Change of the tables, usually a valid one.
    pub(super) fn table_change(&mut self) -> ProgramStep {
        if self.random.once_in(4) {
            return self.pool_change();
        }
        let a = self.random.index(self.plans.len());
        let n = self.random.index(4);
        let (application, endpoint) = (self.plans[a].application, self.plans[a].endpoints[n]);
        let whole = self.plans[a].installed && self.plans[a].present == [true; 4];
        match self.random.weighted(&CHANGES) {
            Change::Restore if !whole => {
                self.install_all(a);
                self.waiting.pop_front().unwrap_or(ProgramStep::Install(application))
            }
            Change::Same | Change::Restore => ProgramStep::Install(application),
            Change::Epoch => ProgramStep::Install(InstalledApplication { epoch: application.epoch + 1, ..application }),
            Change::Memory => ProgramStep::Install(self.plans[a].with_new_memory(&mut self.random)),
            Change::Owner => {
                let back = self.plans[a].owner_index() > 0 && self.random.percent(80);
                let owner = self.plans[a].endpoints[if back { 0 } else { n }].endpoint;
                ProgramStep::Install(InstalledApplication { owner, ..application })
            }
            Change::Remove => ProgramStep::Remove(application.gaid),
            Change::Reset => ProgramStep::Reset(application.gaid + self.random.below(2)),
            Change::Refused => self.invalid_change(application, endpoint),
            Change::Incarnation => {
                ProgramStep::SetEndpoint(Endpoint { incarnation: endpoint.incarnation.wrapping_add(1), ..endpoint })
            }
            Change::SameEndpoint => ProgramStep::SetEndpoint(endpoint),
            Change::Slots => {
                let slots = if endpoint.slots == 2 { 1 } else { endpoint.slots };
                ProgramStep::SetEndpoint(Endpoint { slots, ..endpoint })
            }
            Change::Leave => {
                let leaver = endpoint.endpoint + u32::from(self.random.once_in(4));
                if self.random.percent(50) {
                    // The endpoint returns, but is no longer a member of its group.
                    self.waiting.push_back(ProgramStep::SetEndpoint(endpoint));
                }
                ProgramStep::RemoveEndpoint(leaver)
            }
            Change::Desert => ProgramStep::SetEndpoint(Endpoint { gaid: 1 + self.random.below(4), ..endpoint }),
            Change::Group => {
                let ids = self.plans[a].endpoints.map(|endpoint| endpoint.endpoint);
                let part = if self.random.once_in(5) { 0 } else { 60 };
                ProgramStep::SetGroup(application.gaid, ids.into_iter().filter(|_| self.random.percent(part)).collect())
            }
            Change::Strangers => {
                ProgramStep::SetGroup(application.gaid, vec![endpoint.endpoint, 10 + self.random.below(40)])
            }
            Change::Key if self.options.tokens => {
                let key = TokenKey::new([self.random.bits(), self.random.bits()]);
                ProgramStep::Authenticate(application.gaid, self.random.percent(50).then_some(key))
            }
            Change::Key => ProgramStep::Reset(application.gaid),
        }
    }

    /// Invalid change: memory that does not fit, or is in use.
    fn invalid_change(&mut self, application: InstalledApplication, endpoint: Endpoint) -> ProgramStep {
        match self.random.below(7) {
            0 => ProgramStep::Install(InstalledApplication {
                row_base: SIZE.rows as u32 - application.rows + 1,
                ..application
            }),
            1 => ProgramStep::Install(InstalledApplication { lane_base: u32::MAX, ..application }),
            2 => ProgramStep::Install(InstalledApplication { gaid: 9, epoch: 1, ..application }),
            3 => ProgramStep::SetEndpoint(Endpoint { slot_base: SIZE.slots as u32, slots: 1, ..endpoint }),
            4 => ProgramStep::SetEndpoint(Endpoint { endpoint: 60, slots: 1, ..endpoint }),
            5 => ProgramStep::Reset(9),
            _ => ProgramStep::Remove(9),
        }
    }

    /// Updates the plan with the result of a step.
    pub(super) fn record_result(&mut self, step: &ProgramStep, taken: bool) {
        if !taken {
            return;
        }
        match step {
            ProgramStep::Install(application) => {
                let Some(plan) = self.plans.iter_mut().find(|plan| plan.application.gaid == application.gaid) else {
                    // An application outside of the plan is removed again.
                    self.waiting.push_front(ProgramStep::Remove(application.gaid));
                    return;
                };
                (plan.application, plan.installed) = (*application, true);
            }
            ProgramStep::Authenticate(gaid, key) => {
                if let Some(plan) = self.plans.iter_mut().find(|plan| plan.application.gaid == *gaid) {
                    plan.key = *key;
                }
            }
            ProgramStep::Remove(gaid) => {
                if let Some(plan) = self.plans.iter_mut().find(|plan| plan.application.gaid == *gaid) {
                    (plan.installed, plan.key) = (false, None);
                }
            }
            ProgramStep::SetEndpoint(endpoint) => {
                let first = endpoint.slot_base as usize;
                for slot in self.seqs.iter_mut().skip(first).take(endpoint.slots as usize) {
                    *slot = self.random.pick(&[0, 0, 0, 1, 250, 5000, u32::MAX - 400]);
                }
                let own = |known: &&mut Endpoint| known.endpoint == endpoint.endpoint && known.gaid == endpoint.gaid;
                if let Some(known) = self.plans.iter_mut().flat_map(|plan| &mut plan.endpoints).find(own) {
                    *known = *endpoint;
                }
            }
            _ => {}
        }
        let tables = self.program.tables();
        for plan in &mut self.plans {
            let there = |endpoint: &Endpoint| tables.endpoint(endpoint.endpoint) == Some(endpoint);
            plan.present = plan.endpoints.each_ref().map(there);
        }
    }
}
