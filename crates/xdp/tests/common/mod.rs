//! Test harness: the kernel's program as an execution that is compared with the reference, and frames for it.

#![allow(dead_code, reason = "each test uses some of it")]

pub mod checksum;
pub mod frames;

use std::net::{Ipv4Addr, SocketAddrV4};

use pathcall_conformance::generate::CLONES;
use pathcall_conformance::{
    ApplicationState, CallState, ExecutionFailure, ExecutionState, PlaceState, PoolRegisters, ProgramExecution,
    ProgramOutcome, RowState,
};
use pathcall_program::clone::registers::{ClonedRequest, Fingerprint};
use pathcall_program::registers::{Ballot, Generation, Lock, RoundState};
use pathcall_program::{Counters, Endpoint, FrameAction, InstalledApplication, InstalledPool, Size, SwitchProgram};
use pathcall_wire::{Base, Instant};
use pathcall_xdp::{
    CloneTableSlot, Config, Error, KernelSwitch, Packet, RowRegisters, RunResult, SLOW_CLONE, SLOW_MULTICAST,
};

pub const ELEMENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7702);
pub const SENDER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 4000);
pub const SLOW_PORT: u16 = 7703;

/// Program in the kernel, run packet by packet, with the user-space parts of an element: admission tables, copies of
/// multicasts, and the processing of frames that the kernel passes on.
#[derive(Debug)]
pub struct Tested {
    kernel: KernelSwitch,
    user_space: SwitchProgram,
    /// Inline mode: whether frames are addressed to endpoints where possible.
    inlined: bool,
    packet: Vec<u8>,
    out: Vec<u8>,
}

/// Result of a load; `None`, with a printed message, if it is not permitted.
pub fn loaded<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Err(Error::Permission) if std::env::var_os("PATHCALL_ROOT_TESTS").is_none() => {
            println!("skipped: {}", Error::Permission);
            None
        }
        result => Some(result.unwrap_or_else(|error| panic!("{error}"))),
    }
}

fn broken(error: Error) -> ExecutionFailure {
    ExecutionFailure::Broken(Box::new(error))
}

/// Settings of the program for tests in memory.
pub fn config(size: Size) -> Config {
    let clones = CLONES;
    Config { size, clones, data_port: ELEMENT.port(), slow_port: SLOW_PORT, routed: false, inlined: false }
}

impl Tested {
    pub fn of(mut kernel: KernelSwitch, size: Size) -> Self {
        kernel.set_element_address(*ELEMENT.ip()).expect("an empty table");
        Self {
            kernel,
            user_space: pathcall_conformance::program(size),
            inlined: false,
            packet: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Harness of a program in inline mode.
    pub fn inlined(kernel: KernelSwitch, size: Size) -> Self {
        Self { inlined: true, ..Self::of(kernel, size) }
    }

    /// Address of a frame: of its endpoint if the frame passes the element on its way, else of the element.
    fn addressee(&self, frame: &[u8]) -> SocketAddrV4 {
        let known = |base: &Base<&[u8]>| {
            self.user_space.tables().endpoint(base.dst()).is_some_and(|dst| dst.gaid == base.gaid())
        };
        match Base::new_checked(frame) {
            Ok(base) if self.inlined && known(&base) => address(base.dst()),
            _ => ELEMENT,
        }
    }
}

/// Address of an endpoint, derived from its number.
pub fn address(endpoint: u32) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(endpoint), SENDER.port())
}

impl ProgramExecution for Tested {
    fn install(&mut self, application: InstalledApplication) -> Result<(), ExecutionFailure> {
        self.user_space.install(application)?;
        self.kernel.install(&application).map_err(broken)
    }

    fn remove(&mut self, gaid: u32) -> Result<(), ExecutionFailure> {
        ProgramExecution::remove(&mut self.user_space, gaid)?;
        self.kernel.remove(gaid).map_err(broken)
    }

    fn reset(&mut self, gaid: u32) -> Result<(), ExecutionFailure> {
        self.user_space.reset(gaid)?;
        self.kernel.reset(gaid).map_err(broken)
    }

    fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), ExecutionFailure> {
        self.user_space.set_endpoint(endpoint)?;
        self.kernel.set_endpoint(&endpoint, address(endpoint.endpoint)).map_err(broken)
    }

    fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), ExecutionFailure> {
        self.user_space.remove_endpoint(endpoint)?;
        self.kernel.remove_endpoint(endpoint).map_err(broken)
    }

    fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), ExecutionFailure> {
        self.user_space.set_group(gaid, endpoints)
    }

    fn install_pool(&mut self, pool: &InstalledPool) -> Result<(), ExecutionFailure> {
        ProgramExecution::install_pool(&mut self.user_space, pool)?;
        self.kernel.install_pool(pool).map_err(broken)
    }

    fn set_last_number(&mut self, last: u64) -> Result<(), ExecutionFailure> {
        ProgramExecution::set_last_number(&mut self.user_space, last)?;
        self.kernel.set_last_number(last).map_err(broken)
    }

    fn process(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<ProgramOutcome, ExecutionFailure> {
        let to = self.addressee(frame);
        Packet { from: SENDER, to, congested }.emit(frame, &mut self.packet);
        // Half of the senders compute UDP checksums.
        if frame.len().is_multiple_of(2) {
            checksum::fill(&mut self.packet);
        }
        let ran = self.kernel.run(&self.packet, &mut self.out).map_err(broken)?;
        if matches!(ran, RunResult::Out(..) | RunResult::Slow(..)) {
            checksum::check(&self.out).map_err(|wrong| ExecutionFailure::Broken(wrong.into()))?;
        }
        Ok(match ran {
            RunResult::Dropped => ProgramOutcome::Drop(None),
            RunResult::Out(Packet { congested: true, .. }, _) => {
                return Err(ExecutionFailure::Broken("output with a congestion mark".into()));
            }
            RunResult::Out(packet, out) => {
                let [was, is] = [frame, &out].map(|frame| Base::new_checked(frame).expect("a frame"));
                let turned = was.src() != is.src() || (was.src() == was.dst() && packet.from == to);
                let from = if to == ELEMENT || turned { to } else { SENDER };
                assert_eq!(packet.from, from, "an answer has the addressee's source, a forwarded packet the sender's");
                ProgramOutcome::Forward(u32::from(*packet.to.ip()), out)
            }
            RunResult::Slow(packet, mut frame) => {
                assert_eq!(packet.to.port(), SLOW_PORT);
                if packet.from.port() == SLOW_CLONE {
                    return Ok(self.twice(frame));
                }
                assert_eq!(packet.from.port(), SLOW_MULTICAST);
                let gaid = Base::new_checked(&frame[..]).expect("a frame").gaid();
                let mut copies = Vec::new();
                let tables = self.user_space.tables();
                tables.copies(gaid, &mut frame, |endpoint, copy| copies.push((endpoint, copy.to_vec())));
                ProgramOutcome::Copies(copies)
            }
            RunResult::Passed => {
                let mut frame = frame.to_vec();
                let verdict = self.user_space.process(now, &mut frame, congested);
                frame.truncate(verdict.len);
                match verdict.action {
                    FrameAction::Forward(endpoint) => ProgramOutcome::Forward(endpoint, frame),
                    FrameAction::Drop(reason) => ProgramOutcome::Drop(Some(reason)),
                    FrameAction::Multicast(_) | FrameAction::Clone(_) => panic!("user space has no application"),
                }
            }
        })
    }

    fn state(&mut self) -> Result<ExecutionState, ExecutionFailure> {
        let mut state = ExecutionState { counters: self.counters()?, ..ExecutionState::default() };
        for (application, _, counters) in self.kernel.applications().map_err(broken)? {
            let rows = application.row_base..application.row_base + application.rows;
            let rows: Vec<RowRegisters> =
                rows.map(|row| self.kernel.read_row(row)).collect::<Result<_, _>>().map_err(broken)?;
            let lanes = self.kernel.read_rows(application.gaid, 0, application.rows).map_err(broken)?;
            let generation = rows.first().map_or_else(Generation::default, |row| {
                let [open, committed, version] = row.generation;
                Generation { open, committed, version }
            });
            let rows = rows.iter().map(row_state).collect();
            state.applications.insert(application.gaid, ApplicationState { generation, rows, lanes, counters });
        }
        let slots = self.user_space.tables().endpoints().flat_map(|e| e.slot_base..e.slot_base + e.slots);
        for slot in slots {
            let places = self.kernel.read_slot(slot).map_err(broken)?;
            let places = places.into_iter().map(|[seq, generation, overflow]| PlaceState { seq, generation, overflow });
            state.slots.insert(slot, places.collect());
        }
        for (gaid, _, counters) in self.kernel.pools().map_err(broken)? {
            let [loads, shadows] = self.kernel.loads(gaid).map_err(broken)?;
            state.pools.insert(gaid, PoolRegisters { loads, shadows, counters });
        }
        state.calls = self.calls().map_err(broken)?;
        Ok(state)
    }
}

impl Tested {
    /// Forwarded request and its clone; user space makes the second pass here.
    fn twice(&mut self, frame: Vec<u8>) -> ProgramOutcome {
        let original = Base::new_checked(&frame[..]).expect("a frame").dst();
        let (mut copies, mut clone) = (vec![(original, frame.clone())], frame);
        if let FrameAction::Forward(endpoint) = self.user_space.recirculate(&mut clone).action {
            copies.push((endpoint, clone));
        }
        ProgramOutcome::Copies(copies)
    }

    /// State of calls in the kernel's registers.
    fn calls(&self) -> Result<CallState, Error> {
        let all = |count: usize, read: &dyn Fn(u32) -> Result<CloneTableSlot, Error>| {
            (0..count as u32).map(read).collect::<Result<Vec<_>, _>>()
        };
        let requests = all(CLONES.requests, &|at| self.kernel.read_request(at))?;
        let filters = all(CLONES.filters * CLONES.slots, &|at| self.kernel.read_fingerprint(at))?;
        let request =
            |&CloneTableSlot { req_id, gaid, what }: &CloneTableSlot| ClonedRequest { req_id, gaid, to: what as u8 };
        let fingerprint =
            |&CloneTableSlot { req_id, gaid, what }: &CloneTableSlot| Fingerprint { req_id, gaid, sid: what as u16 };
        Ok(CallState {
            number: self.kernel.last_number()?,
            requests: CallState::used(&requests.iter().map(request).collect::<Vec<_>>()),
            filters: CallState::used(&filters.iter().map(fingerprint).collect::<Vec<_>>()),
        })
    }

    /// Counters of the kernel, plus those of user space for the frames passed to it.
    fn counters(&self) -> Result<Counters, ExecutionFailure> {
        let (kernel, user) = (self.kernel.counters().map_err(broken)?.counters, self.user_space.counters());
        Ok(Counters {
            frames_in: kernel.frames_in + user.frames_in,
            frames_out: kernel.frames_out + user.frames_out,
            drop_malformed: kernel.drop_malformed + user.drop_malformed,
            drop_forged: kernel.drop_forged + user.drop_forged,
            drop_stale: kernel.drop_stale + user.drop_stale,
            drop_counted: kernel.drop_counted + user.drop_counted,
            drop_not_admitted: kernel.drop_not_admitted + user.drop_not_admitted,
            drop_unknown_endpoint: kernel.drop_unknown_endpoint + user.drop_unknown_endpoint,
            drop_unauthentic: kernel.drop_unauthentic + user.drop_unauthentic,
            drop_filtered: kernel.drop_filtered + user.drop_filtered,
        })
    }
}

fn row_state(row: &RowRegisters) -> RowState {
    let RowRegisters { round, tag, workers, ecn, count, lock: [owner, acquiring], grants, .. } = *row;
    let ballot = Ballot {
        key: row.key,
        len: row.key_len as u8,
        moved: row.moved,
        decided: row.decided,
        count: row.votes,
        round: row.ballot_round,
    };
    let round = RoundState { round, workers, tag, ecn };
    RowState { round, count, ballot, lock: Lock { owner, tag: acquiring }, grants }
}
