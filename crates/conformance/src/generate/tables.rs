//! The plan of applications and endpoints, and how it changes.

use pathcall_program::{Application, Endpoint};
use pathcall_wire::{KEYED_WIDTH, TokenKey};

use super::{Generator, SIZE};
use crate::{Random, Step};

/// Rows, lanes and slots that an application's plan stays within.
const ROWS: u32 = 4;
const LANES: u32 = 512;
const SLOTS: u32 = 4;

/// An application as it is, or would be if it were installed.
#[derive(Debug)]
pub(super) struct Plan {
    index: u32,
    pub(super) application: Application,
    /// The owner and three callers.
    pub(super) endpoints: [Endpoint; 4],
    /// Which of them are in the table.
    pub(super) present: [bool; 4],
    pub(super) key: Option<TokenKey>,
    installed: bool,
    hardware: bool,
}

/// A change of the tables.
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

impl Plan {
    pub(super) fn new(random: &mut Random, index: usize, hardware: bool) -> Self {
        let index = index as u32;
        let endpoint = |n: u32| Endpoint {
            endpoint: owner_of(index) + n,
            incarnation: 1 + index,
            gaid: index + 1,
            slot_base: index * SLOTS + [0, 0, 1, 3][n as usize],
            slots: [0, 1, 2, 1][n as usize],
        };
        let application = Application {
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
        plan.application = plan.elsewhere(random);
        plan
    }

    pub(super) fn is_of_keys(&self) -> bool {
        self.application.width as usize == KEYED_WIDTH
    }

    /// Which of its endpoints owns it.
    pub(super) fn owner(&self) -> usize {
        self.endpoints.iter().position(|endpoint| endpoint.endpoint == self.application.owner).unwrap_or(0)
    }

    /// The application with memory drawn anew.
    fn elsewhere(&self, random: &mut Random) -> Application {
        let width = match self.index {
            0 if self.hardware => random.pick(&[1, 2, 5, 31, 32]),
            3 if self.hardware => random.pick(&[0, 1, 32, 64, 64]),
            0 => random.pick(&[1, 2, 5, 31, 32, 33, 64, 100, 128, 256]),
            3 => random.pick(&[0, 1, 63, 64, 64, 65, 256]),
            _ => KEYED_WIDTH as u32,
        };
        let most = LANES.checked_div(width).unwrap_or(ROWS).min(ROWS);
        let rows = if self.index == 3 && random.once_in(4) { 0 } else { 1 + random.below(most) };
        Application {
            row_base: self.index * ROWS + random.below(ROWS - rows + 1),
            rows,
            lane_base: self.index * LANES + random.below(LANES - rows * width + 1),
            width,
            ..self.application
        }
    }
}

/// The endpoint that owns the application of this index when its plan begins; its callers follow.
const fn owner_of(index: u32) -> u32 {
    10 * (index + 1)
}

impl Generator {
    /// Steps that bring an application's plan into the tables.
    pub(super) fn install_all(&mut self, a: usize) {
        let plan = &self.plans[a];
        let gaid = plan.application.gaid;
        self.waiting.push_back(Step::Install(plan.application));
        if self.options.tokens && self.random.percent(50) {
            let key = TokenKey::new([self.random.bits(), self.random.bits()]);
            self.waiting.push_back(Step::Authenticate(gaid, Some(key)));
        }
        let plan = &self.plans[a];
        self.waiting.extend(plan.endpoints.map(Step::SetEndpoint));
        self.waiting.push_back(Step::SetGroup(gaid, plan.endpoints[1..].iter().map(|e| e.endpoint).collect()));
    }

    /// A change of the tables, mostly one that they take.
    pub(super) fn change(&mut self) -> Step {
        if self.random.once_in(4) {
            return self.change_of_pools();
        }
        let a = self.random.index(self.plans.len());
        let n = self.random.index(4);
        let (application, endpoint) = (self.plans[a].application, self.plans[a].endpoints[n]);
        let whole = self.plans[a].installed && self.plans[a].present == [true; 4];
        match self.random.weighted(&CHANGES) {
            Change::Restore if !whole => {
                self.install_all(a);
                self.waiting.pop_front().unwrap_or(Step::Install(application))
            }
            Change::Same | Change::Restore => Step::Install(application),
            Change::Epoch => Step::Install(Application { epoch: application.epoch + 1, ..application }),
            Change::Memory => Step::Install(self.plans[a].elsewhere(&mut self.random)),
            Change::Owner => {
                let back = self.plans[a].owner() > 0 && self.random.percent(80);
                let owner = self.plans[a].endpoints[if back { 0 } else { n }].endpoint;
                Step::Install(Application { owner, ..application })
            }
            Change::Remove => Step::Remove(application.gaid),
            Change::Reset => Step::Reset(application.gaid + self.random.below(2)),
            Change::Refused => self.refused(application, endpoint),
            Change::Incarnation => {
                Step::SetEndpoint(Endpoint { incarnation: endpoint.incarnation.wrapping_add(1), ..endpoint })
            }
            Change::SameEndpoint => Step::SetEndpoint(endpoint),
            Change::Slots => {
                let slots = if endpoint.slots == 2 { 1 } else { endpoint.slots };
                Step::SetEndpoint(Endpoint { slots, ..endpoint })
            }
            Change::Leave => {
                let leaver = endpoint.endpoint + u32::from(self.random.once_in(4));
                if self.random.percent(50) {
                    // And comes back, no member of its group any more.
                    self.waiting.push_back(Step::SetEndpoint(endpoint));
                }
                Step::RemoveEndpoint(leaver)
            }
            Change::Desert => Step::SetEndpoint(Endpoint { gaid: 1 + self.random.below(4), ..endpoint }),
            Change::Group => {
                let ids = self.plans[a].endpoints.map(|endpoint| endpoint.endpoint);
                let part = if self.random.once_in(5) { 0 } else { 60 };
                Step::SetGroup(application.gaid, ids.into_iter().filter(|_| self.random.percent(part)).collect())
            }
            Change::Strangers => Step::SetGroup(application.gaid, vec![endpoint.endpoint, 10 + self.random.below(40)]),
            Change::Key if self.options.tokens => {
                let key = TokenKey::new([self.random.bits(), self.random.bits()]);
                Step::Authenticate(application.gaid, self.random.percent(50).then_some(key))
            }
            Change::Key => Step::Reset(application.gaid),
        }
    }

    /// A change that does not fit, or takes what is another's, if that is there.
    fn refused(&mut self, application: Application, endpoint: Endpoint) -> Step {
        match self.random.below(7) {
            0 => Step::Install(Application { row_base: SIZE.rows as u32 - application.rows + 1, ..application }),
            1 => Step::Install(Application { lane_base: u32::MAX, ..application }),
            2 => Step::Install(Application { gaid: 9, epoch: 1, ..application }),
            3 => Step::SetEndpoint(Endpoint { slot_base: SIZE.slots as u32, slots: 1, ..endpoint }),
            4 => Step::SetEndpoint(Endpoint { endpoint: 60, slots: 1, ..endpoint }),
            5 => Step::Reset(9),
            _ => Step::Remove(9),
        }
    }

    /// Keeps the plan to what the tables took.
    pub(super) fn note(&mut self, step: &Step, taken: bool) {
        if !taken {
            return;
        }
        match step {
            Step::Install(application) => {
                let Some(plan) = self.plans.iter_mut().find(|plan| plan.application.gaid == application.gaid) else {
                    // Nobody's plan: out with it.
                    self.waiting.push_front(Step::Remove(application.gaid));
                    return;
                };
                (plan.application, plan.installed) = (*application, true);
            }
            Step::Authenticate(gaid, key) => {
                if let Some(plan) = self.plans.iter_mut().find(|plan| plan.application.gaid == *gaid) {
                    plan.key = *key;
                }
            }
            Step::Remove(gaid) => {
                if let Some(plan) = self.plans.iter_mut().find(|plan| plan.application.gaid == *gaid) {
                    (plan.installed, plan.key) = (false, None);
                }
            }
            Step::SetEndpoint(endpoint) => {
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
