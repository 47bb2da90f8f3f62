//! Frames of calls to server pools: requests, replies, cancels; and changes of the pools.

use pathcall_program::{Endpoint, InstalledPool};
use pathcall_wire::clone::{caller_id, emit, groups};
use pathcall_wire::{BaseRepr, CloneFlags, CloneFrame, CloneRepr, Flags, FrameKind, MAX_FRAME};

use super::{Generator, SIZE};
use crate::ProgramStep;
use crate::RandomChoice;

/// Number of pools; the pool with index `i` has GAID `i + 5`.
pub(super) const POOLS: usize = 2;
const FIRST_GAID: u32 = 5;
/// Numbers of callers and servers of a pool, later ones included.
const CALLERS: u32 = 3;
const SERVERS: u32 = 6;
/// Largest number of requests that may still be answered.
const ASKED: usize = 24;

/// Planned state of a pool.
#[derive(Debug)]
pub(super) struct PoolPlan {
    pool: InstalledPool,
    incarnation: u32,
    /// Requests as they left the element, to be answered in any order, or twice.
    asked: Vec<Vec<u8>>,
    /// Number of the last report of a load.
    reports: u32,
}

impl PoolPlan {
    pub(super) fn new(index: usize) -> Self {
        let gaid = FIRST_GAID + index as u32;
        let servers = (0..4).map(|n| server_of(gaid, n)).collect();
        Self {
            pool: InstalledPool { gaid, version: 1, servers },
            incarnation: 1,
            asked: Vec::new(),
            reports: u32::MAX - 20,
        }
    }
}

const fn caller_of(gaid: u32, n: u32) -> u32 {
    20 * gaid + n
}

const fn server_of(gaid: u32, n: u32) -> u32 {
    caller_of(gaid, CALLERS + n)
}

impl Generator {
    /// Steps that install the pools.
    pub(super) fn install_pools(&mut self) {
        let last = self.random.pick(&[0, 0, 0, 1 << 40, (1 << 63) - 4]);
        self.waiting.push_back(ProgramStep::NumberAfter(last));
        for p in 0..POOLS {
            self.install_pool(p);
        }
    }

    fn install_pool(&mut self, p: usize) {
        let pool = self.pools[p].pool.clone();
        let gaid = pool.gaid;
        self.waiting.push_back(ProgramStep::InstallPool(pool));
        for n in 0..CALLERS + SERVERS {
            self.waiting.push_back(ProgramStep::SetEndpoint(self.endpoint_of(p, caller_of(gaid, n))));
        }
    }

    fn endpoint_of(&self, p: usize, endpoint: u32) -> Endpoint {
        let PoolPlan { pool, incarnation, .. } = &self.pools[p];
        Endpoint { endpoint, incarnation: *incarnation, gaid: pool.gaid, slot_base: SIZE.slots as u32, slots: 0 }
    }

    /// Frame of a call.
    pub(super) fn call_frame(&mut self) -> Vec<u8> {
        let p = self.random.index(POOLS);
        match self.random.below(20) {
            0 => self.cancel(p),
            1 => self.random_call(p),
            2..10 => self.reply(p),
            _ => self.request(p),
        }
    }

    fn call_head(&mut self, p: usize, kind: FrameKind, src: u32, dst: u32) -> BaseRepr {
        let version = self.pools[p].pool.version;
        let epoch = if self.random.once_in(12) { version.wrapping_sub(1) } else { version };
        let incarnation = self.pools[p].incarnation;
        let cross = if self.random.once_in(40) { Flags::CROSS } else { 0 };
        BaseRepr {
            flags: cross,
            gaid: self.pools[p].pool.gaid,
            epoch,
            src,
            src_incarnation: if self.random.once_in(60) { incarnation + 1 } else { incarnation },
            dst,
            seq: self.random.below(6),
            ..BaseRepr::new(kind)
        }
    }

    fn random_caller(&mut self, p: usize) -> u32 {
        caller_of(self.pools[p].pool.gaid, self.random.below(CALLERS))
    }

    fn random_server(&mut self, p: usize) -> u32 {
        server_of(self.pools[p].pool.gaid, self.random.below(SERVERS))
    }

    /// Fields that the caller of a request chooses.
    fn random_call_fields(&mut self, p: usize) -> CloneRepr {
        let groups = groups(self.pools[p].pool.servers.len()).max(1);
        let group = self.random.below(groups);
        CloneRepr {
            grp: self.random.weighted(&[(30, group), (1, groups), (1, u32::MAX)]),
            idx: self.random.below(5) as u8,
            flags: self.random.weighted(&[(6, 1), (6, 3), (3, 2), (2, 0), (1, 4), (1, 7)]),
            attempt: self.random.below(2) as u8,
            parts: 1,
            ..CloneRepr::default()
        }
    }

    fn request(&mut self, p: usize) -> Vec<u8> {
        let (src, to) = (self.random_caller(p), self.random_server(p));
        let dst = if self.random.once_in(10) { self.random_caller(p) } else { to };
        let mut base = self.call_head(p, FrameKind::CloneRequest, src, dst);
        // A pipeline forwards a request whose hedge an element in user space would hold.
        base.round = if base.seq % 3 == 1 { 1_000 * base.seq } else { 0 };
        let mut head = self.random_call_fields(p);
        if self.random.once_in(3) {
            head.parts = 1 + self.random.below(3) as u16;
            head.part = self.random.below(head.parts.into()) as u16;
            // All parts of a request have the same group and server choice.
            head.grp = base.seq % groups(self.pools[p].pool.servers.len()).max(1);
            let caller_number = if self.random.once_in(12) { src + 1 } else { src };
            head.req_id = caller_id(caller_number, base.seq, head.attempt);
        } else if self.random.once_in(20) {
            head.req_id = self.random.below(9).into();
        }
        match self.random.below(30) {
            // Value that only an element sets.
            0 => head.clo = 1 + self.random.below(2) as u8,
            1 => head.switch_id = 1 + self.random.below(2) as u16,
            2 => head.parts = 2,
            3 => head.sid = 1,
            _ => {}
        }
        let bytes = self.frame_of(&base, &head);
        // Request as it arrives at its servers.
        let mut left = [0; MAX_FRAME];
        let left = &mut left[..bytes.len()];
        left.copy_from_slice(&bytes);
        if let Ok(mut frame) = CloneFrame::new_checked(&mut left[..])
            && frame.head().req_id() == 0
        {
            let number = self.program.tables().clones().numbers.peek(0, 1)[0];
            frame.head_mut().set_req_id(number.wrapping_add(1));
        }
        let asked = &mut self.pools[p].asked;
        if asked.len() == ASKED {
            asked.remove(0);
        }
        asked.push(left.to_vec());
        bytes
    }

    /// Reply or confirmation for a recent request, usually from a server of its group, so that second answers occur as
    /// well.
    fn reply(&mut self, p: usize) -> Vec<u8> {
        let asked = self.pools[p].asked.len();
        let at = asked - (1 + self.random.index(6.min(asked.max(1)))).min(asked);
        let Some(Ok(request)) = self.pools[p].asked.get(at).map(|bytes| CloneFrame::new_checked(&bytes[..])) else {
            return self.random_call(p);
        };
        let (of, caller) = (request.head().repr(), request.base().src());
        let servers = self.pools[p].pool.servers.clone();
        let sid = self.random.index(servers.len().max(1));
        let src = servers.get(sid).copied().unwrap_or(caller);
        let kind = if self.random.once_in(12) { FrameKind::CloneWorking } else { FrameKind::CloneReply };
        let base = self.call_head(p, kind, src, caller);
        let parts = if of.parts > 1 {
            self.random.weighted(&[(2, 1), (3, 2)])
        } else {
            self.random.weighted(&[(9, 1), (1, 2)])
        };
        let head = CloneRepr {
            sid: if self.random.once_in(40) { self.random.below(8) as u16 } else { sid as u16 },
            state: self.random.weighted(&[(12, 0), (3, 1), (2, 2), (1, u16::MAX)]),
            clo: self.random.weighted(&[(2, 0), (6, 1), (4, 2)]),
            switch_id: self.random.weighted(&[(2, 0), (16, 1), (1, 2)]),
            parts,
            part: self.random.below(parts.into()) as u16,
            ..of
        };
        // Reports in turn; some are late, or those of a number that has wrapped around.
        let number = &mut self.pools[p].reports;
        *number = number.wrapping_add(1);
        let late = self.random.weighted(&[(6, 0), (2, 1), (1, 5), (1, 1 << 31), (1, 1 << 30)]);
        let round = self.pools[p].reports.wrapping_sub(late);
        let base = BaseRepr { flags: base.flags | Flags::FROM_SERVER, round, ..base };
        self.frame_of(&base, &head)
    }

    fn cancel(&mut self, p: usize) -> Vec<u8> {
        let (src, dst) = (self.random_caller(p), self.random_server(p));
        let base = self.call_head(p, FrameKind::CloneCancel, src, dst);
        let head = CloneRepr { sid: self.random.below(6) as u16, ..self.random_call_fields(p) };
        self.frame_of(&base, &head)
    }

    /// Random frame of a call from a random sender.
    fn random_call(&mut self, p: usize) -> Vec<u8> {
        let kind = self.random.pick(&[
            FrameKind::CloneRequest,
            FrameKind::CloneReply,
            FrameKind::CloneCancel,
            FrameKind::CloneWorking,
        ]);
        let gaid = self.pools[p].pool.gaid;
        let [src, dst] = [(); 2].map(|()| caller_of(gaid, self.random.below(CALLERS + SERVERS + 2)));
        let base = self.call_head(p, kind, src, dst);
        let flags = if self.random.percent(50) { Flags::FROM_SERVER } else { 0 };
        let head = CloneRepr {
            req_id: self.random.weighted(&[(2, self.random.clone().bits()), (2, caller_id(src, base.seq, 0)), (1, 0)]),
            sid: self.random.below(6) as u16,
            clo: self.random.below(3) as u8,
            ..self.random_call_fields(p)
        };
        debug_assert!(head.flags & !CloneFlags::ALL == 0);
        self.frame_of(&BaseRepr { flags: base.flags | flags, ..base }, &head)
    }

    fn frame_of(&mut self, base: &BaseRepr, head: &CloneRepr) -> Vec<u8> {
        let payload = [0xa5; 40];
        let payload = &payload[..self.random.index(payload.len())];
        let mut bytes = [0; MAX_FRAME];
        let len = emit(base, head, payload, &mut bytes);
        bytes[..len].to_vec()
    }

    /// Change of a pool, usually a valid one.
    pub(super) fn pool_change(&mut self) -> ProgramStep {
        let p = self.random.index(POOLS);
        let gaid = self.pools[p].pool.gaid;
        match self.random.below(12) {
            0 => {
                let again = ProgramStep::InstallPool(self.pools[p].pool.clone());
                self.install_pool(p);
                self.waiting.push_front(again);
                return ProgramStep::Remove(gaid);
            }
            1 => return ProgramStep::RemoveEndpoint(caller_of(gaid, self.random.below(CALLERS + SERVERS))),
            2 => {
                let endpoint = caller_of(gaid, self.random.below(CALLERS + SERVERS));
                let entry = self.endpoint_of(p, endpoint);
                self.waiting.push_back(ProgramStep::SetEndpoint(entry));
                return ProgramStep::SetEndpoint(Endpoint { incarnation: entry.incarnation + 1, ..entry });
            }
            3 => {
                // Complete and correct installation.
                self.install_pool(p);
                return self.waiting.pop_front().unwrap_or(ProgramStep::Remove(gaid));
            }
            4 => {
                // GAID of no pool, sometimes of an application.
                let gaid = if self.random.percent(70) { 9 } else { 1 + self.random.below(4) };
                self.waiting.push_back(ProgramStep::Remove(gaid));
                return ProgramStep::InstallPool(InstalledPool { gaid, version: 1, servers: vec![] });
            }
            5 => {
                let twice = server_of(gaid, 0);
                return ProgramStep::InstallPool(InstalledPool {
                    servers: vec![twice, twice],
                    ..self.pools[p].pool.clone()
                });
            }
            _ => {}
        }
        // Servers are added, removed and reordered; sometimes one or none remains.
        let count = self.random.weighted(&[(1, 0), (2, 1), (4, 2), (4, 3), (4, 5)]);
        let first = self.random.below(SERVERS);
        let pool = &mut self.pools[p].pool;
        pool.servers = (0..count).map(|n| server_of(gaid, (first + n * 5) % SERVERS)).collect();
        pool.version += 1;
        ProgramStep::InstallPool(pool.clone())
    }
}
