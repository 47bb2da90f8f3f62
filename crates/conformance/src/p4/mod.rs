//! P4 program (`p4/`) as an execution: compiled, interpreted packet by packet, and controlled as a switch would be.
//!
//! ```text
//! applications, endpoints, pools ─► installed ─┬─► entries of each table
//!                                              └─► memory: registers to reset
//! frame ─► packet ─► interpreter ─► packets, counters ─► ProgramOutcome
//!                         └─► processor: record of a slot's places
//! ```
//!
//! Changes of the tables are validated by a [`pathcall_program::SwitchProgram`] that never processes a frame.

mod entries;
mod memory;
mod names;
mod packet;
mod processor;

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use pathcall_p4::exec::{Execution as _, Output};
use pathcall_p4::interp::Interpreter;
use pathcall_program::pipeline::PipelineProfile;
use pathcall_program::{
    CloneSize, Endpoint, FrameDropReason, InstalledApplication, InstalledPool, Size, SwitchProgram,
};
use pathcall_wire::clone::ServerReport;
use pathcall_wire::{Base, Instant, MapFrame};

use crate::state::PoolRegisters;
use crate::{ApplicationState, ExecutionFailure, ExecutionState, ProgramExecution, ProgramOutcome};
use entries::{Indices, PipelineTables, port};
use memory::{ProgramRegisters, outcome};
pub use names::NameError;
use packet::{ELEMENT, ParsedPacket, address};

/// Ingress port of all packets.
const IN_PORT: u16 = 1;
/// Port of the switch's own processor (`PC_CPU_PORT`).
const CPU_PORT: u16 = 510;
/// Address of senders that are not endpoints.
const SENDER: u32 = 0x0a01_0002;

/// P4 program in the interpreter.
#[derive(Debug)]
pub struct Pipeline {
    machine: Interpreter,
    memory: ProgramRegisters,
    tables: PipelineTables,
    installed: SwitchProgram,
    clones: CloneSize,
    profile: PipelineProfile,
    /// True for inline mode: frames are addressed to endpoints where possible.
    inlined: bool,
    applications: Indices,
    pools: Indices,
    /// Values of the counters when their application or pool was installed, by GAID.
    began: BTreeMap<u32, Vec<u64>>,
    packet: Vec<u8>,
    /// Numbers of frames that the processor answered and dropped.
    answered: u64,
    malformed: u64,
}

/// Result of a packet.
#[derive(Debug, Default)]
struct PacketResult {
    /// Frames that left, each with its destination endpoint.
    left: Vec<(u32, Vec<u8>)>,
    /// Frame that went to the processor.
    punted: Option<Vec<u8>>,
}

/// Reason why the program cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// Missing table, register or counter.
    #[error(transparent)]
    Unnamed(#[from] NameError),
    /// Error of the interpreter's compiler.
    #[error(transparent)]
    Compile(#[from] pathcall_p4::interp::CompileError),
    /// Refused entry.
    #[error(transparent)]
    Entry(#[from] pathcall_p4::exec::TableError),
}

impl Pipeline {
    /// Pipeline with this program, which is built for this profile and these sizes, and empty tables. `inlined` selects
    /// inline mode: frames are addressed to the endpoints that they name, and processed on the path.
    ///
    /// # Errors
    /// If the program does not fit.
    pub fn new(
        program: &pathcall_p4::ir::Program,
        profile: PipelineProfile,
        size: Size,
        clones: CloneSize,
        inlined: bool,
    ) -> Result<Self, PipelineError> {
        let mut machine = Interpreter::new(program)?;
        let mut pipeline = Self {
            memory: ProgramRegisters::new(program, profile)?,
            tables: PipelineTables::new(program, &mut machine, inlined, profile)?,
            machine,
            installed: SwitchProgram::with_clones(size, clones, pathcall_program::RepeatFilterProfile::FullSequence),
            clones,
            profile,
            inlined,
            applications: Indices::new(),
            pools: Indices::new(),
            began: BTreeMap::new(),
            packet: Vec::new(),
            answered: 0,
            malformed: 0,
        };
        pipeline.sync()?;
        Ok(pipeline)
    }

    fn sync(&mut self) -> Result<(), pathcall_p4::exec::TableError> {
        self.tables.sync(&mut self.machine, self.installed.tables(), &self.applications, &self.pools)
    }

    /// Updates the pipeline after a change of the tables.
    fn changed(&mut self) -> Result<(), ExecutionFailure> {
        self.sync().map_err(|error| ExecutionFailure::Broken(Box::new(error)))
    }

    /// Destination of a frame: the endpoint that it names in inline mode, else the element.
    fn addressee(&self, frame: &[u8]) -> SocketAddrV4 {
        let known = |base: &Base<&[u8]>| {
            self.installed.tables().endpoint(base.dst()).is_some_and(|dst| dst.gaid == base.gaid())
        };
        match Base::new_checked(frame) {
            Ok(base) if self.inlined && known(&base) => address(base.dst()),
            _ => ELEMENT,
        }
    }

    fn run(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<PacketResult, String> {
        let (from, to) = (address(SENDER), self.addressee(frame));
        packet::emit(from, to, congested, frame, &mut self.packet);
        // Bytes that may remain behind the frame when its answer has no payload.
        let payload = MapFrame::new_checked(frame).map_or(0, |frame| frame.payload().len());
        let (mut ran, mut wrong) = (PacketResult::default(), None);
        self.machine.process(now.0, IN_PORT, &self.packet, &mut |output| {
            let Output::Packet { port: at, bytes } = output else { return };
            if at == CPU_PORT {
                ran.punted = Some(packet::frame(bytes).to_vec());
                return;
            }
            match packet::parse(bytes) {
                Ok(ParsedPacket { from: source, to: addressee, frame, trailer }) => {
                    let endpoint = u32::from(*addressee.ip());
                    let goes_on = source == from && to != ELEMENT;
                    if at != port(endpoint) || addressee != address(endpoint) || !(source == to || goes_on) {
                        wrong = Some(format!("it leaves by port {at} from {source} for {addressee}"));
                    }
                    if trailer > payload {
                        wrong = Some(format!("{trailer} bytes follow its frame, of a payload of {payload}"));
                    }
                    ran.left.push((endpoint, frame.to_vec()));
                }
                Err(what) => wrong = Some(what),
            }
        });
        wrong.map_or(Ok(ran), Err)
    }

    /// Processing of a frame by the switch's processor.
    fn punted(&mut self, mut frame: Vec<u8>) -> ProgramOutcome {
        let to = Base::new_checked(&frame[..]).map_or(0, |base| base.src());
        if processor::answer(self.installed.tables(), &self.memory, &self.machine, &mut frame) {
            self.answered += 1;
            ProgramOutcome::Forward(to, frame)
        } else {
            self.malformed += 1;
            ProgramOutcome::Drop(Some(FrameDropReason::Malformed))
        }
    }
}

/// Lowest unused index.
fn free(indices: &Indices) -> u32 {
    (0..).find(|index| !indices.values().any(|taken| taken == index)).unwrap_or(u32::MAX)
}

/// Drop reasons of frames, in the order of their outcome numbers.
const DROPS: [FrameDropReason; 8] = [
    FrameDropReason::Malformed,
    FrameDropReason::Forged,
    FrameDropReason::Stale,
    FrameDropReason::Counted,
    FrameDropReason::NotAdmitted,
    FrameDropReason::UnknownEndpoint,
    FrameDropReason::Unauthentic,
    FrameDropReason::Filtered,
];

impl ProgramExecution for Pipeline {
    fn install(&mut self, application: InstalledApplication) -> Result<(), ExecutionFailure> {
        let InstalledApplication { gaid, width, .. } = application;
        crate::profile::check_application(self.profile, width)?;
        let before = self.installed.tables().applications().map(|(a, _, _)| a).find(|a| a.gaid == gaid);
        self.installed.install(application)?;
        if before.is_none() {
            let index = free(&self.applications);
            self.applications.insert(gaid, index);
            self.began.insert(gaid, self.memory.application(&self.machine, index));
        }
        if before.is_none_or(|before| before != InstalledApplication { owner: before.owner, ..application }) {
            self.memory.reset_rows(&mut self.machine, &application, true);
        }
        self.changed()
    }

    fn remove(&mut self, gaid: u32) -> Result<(), ExecutionFailure> {
        ProgramExecution::remove(&mut self.installed, gaid)?;
        self.applications.remove(&gaid);
        if self.pools.remove(&gaid).is_some() && self.pools.is_empty() {
            self.memory.reset_calls(&mut self.machine, self.clones);
        }
        self.changed()
    }

    fn reset(&mut self, gaid: u32) -> Result<(), ExecutionFailure> {
        self.installed.reset(gaid)?;
        let found = self.installed.tables().applications().map(|(a, _, _)| a).find(|a| a.gaid == gaid);
        if let Some(application) = found {
            self.memory.reset_rows(&mut self.machine, &application, false);
        }
        Ok(())
    }

    fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), ExecutionFailure> {
        let before = self.installed.tables().endpoint(endpoint.endpoint).copied();
        self.installed.set_endpoint(endpoint)?;
        if before != Some(endpoint) {
            self.memory.reset_slots(&mut self.machine, endpoint.slot_base, endpoint.slots);
            let pool = self.installed.tables().pools().map(|(pool, _, _)| pool).find(|pool| pool.gaid == endpoint.gaid);
            let sid = pool.and_then(|pool| pool.servers.iter().position(|server| *server == endpoint.endpoint));
            if let (Some(&index), Some(sid), Some(pool)) = (self.pools.get(&endpoint.gaid), sid, pool) {
                // A restarted server has an empty queue.
                let mut loads = self.memory.loads(&self.machine, index, pool.servers.len());
                loads.iter_mut().for_each(|loads| loads[sid] = ServerReport::default());
                self.memory.set_loads(&mut self.machine, index, &loads);
            }
        }
        self.changed()
    }

    fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), ExecutionFailure> {
        self.installed.remove_endpoint(endpoint)?;
        self.changed()
    }

    fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), ExecutionFailure> {
        self.installed.set_group(gaid, endpoints)?;
        self.changed()
    }

    fn install_pool(&mut self, pool: &InstalledPool) -> Result<(), ExecutionFailure> {
        crate::profile::check_pool(self.profile)?;
        let find = |installed: &SwitchProgram| {
            installed.tables().pools().map(|(pool, _, _)| pool).find(|known| known.gaid == pool.gaid).cloned()
        };
        let before = find(&self.installed);
        ProgramExecution::install_pool(&mut self.installed, pool)?;
        let index = match self.pools.get(&pool.gaid) {
            Some(index) => *index,
            None => {
                let index = free(&self.pools);
                self.pools.insert(pool.gaid, index);
                self.began.insert(pool.gaid, self.memory.pool(&self.machine, index));
                index
            }
        };
        // A server that moves to another SID keeps its queue length.
        let servers = before.map_or_else(Vec::new, |before| before.servers);
        let known = self.memory.loads(&self.machine, index, servers.len());
        let place = |server: &u32| servers.iter().position(|other| other == server);
        let rearranged = known.map(|known| {
            pool.servers.iter().map(|server| place(server).map_or(ServerReport::default(), |sid| known[sid])).collect()
        });
        self.memory.set_loads(&mut self.machine, index, &rearranged);
        self.changed()
    }

    fn set_last_number(&mut self, last: u64) -> Result<(), ExecutionFailure> {
        self.memory.set_last_number(&mut self.machine, last);
        Ok(())
    }

    fn process(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<ProgramOutcome, ExecutionFailure> {
        let broken = |what: String| ExecutionFailure::Broken(what.into());
        let before = self.memory.outcomes(&self.machine);
        let PacketResult { mut left, punted } = self.run(now, frame, congested).map_err(broken)?;
        if let Some(frame) = punted {
            return Ok(self.punted(frame));
        }
        let after = self.memory.outcomes(&self.machine);
        let met = |outcome: u32| after[outcome as usize] > before[outcome as usize];
        if met(outcome::MULTICAST) || met(outcome::TWICE) {
            return Ok(ProgramOutcome::Copies(left));
        }
        let reason = DROPS.into_iter().zip(outcome::MALFORMED..=outcome::FILTERED).find(|(_, outcome)| met(*outcome));
        match (left.len(), reason) {
            (1, None) => {
                let (endpoint, frame) = left.swap_remove(0);
                Ok(ProgramOutcome::Forward(endpoint, frame))
            }
            (0, Some((reason, _))) => Ok(ProgramOutcome::Drop(Some(reason))),
            (count, reason) => Err(broken(format!("{count} packets leave, and are counted as {reason:?}"))),
        }
    }

    fn state(&mut self) -> Result<ExecutionState, ExecutionFailure> {
        let (machine, memory) = (&self.machine, &self.memory);
        let mut state = ExecutionState { counters: memory.counters(machine), ..ExecutionState::default() };
        state.counters.frames_out += self.answered;
        state.counters.drop_malformed += self.malformed;
        let since = |gaid: u32, now: Vec<u64>| -> Vec<u64> {
            let began = self.began.get(&gaid).map_or(&[][..], |began| began);
            now.iter().zip(began).map(|(now, then)| now - then).collect()
        };
        for (application, _, _) in self.installed.tables().applications() {
            let gaid = application.gaid;
            let Some(&index) = self.applications.get(&gaid) else { continue };
            let counters = memory::of_application(&since(gaid, memory.application(machine, index)));
            let registers = memory.registers(machine, &application);
            state.applications.insert(gaid, ApplicationState { counters, ..registers });
        }
        for slot in self.installed.tables().endpoints().flat_map(|e| e.slot_base..e.slot_base + e.slots) {
            state.slots.insert(slot, memory.slot(machine, slot));
        }
        for (pool, _, _) in self.installed.tables().pools() {
            let Some(&index) = self.pools.get(&pool.gaid) else { continue };
            let [loads, shadows] = memory.loads(machine, index, pool.servers.len());
            let counters = memory::of_pool(&since(pool.gaid, memory.pool(machine, index)));
            state.pools.insert(pool.gaid, PoolRegisters { loads, shadows, counters });
        }
        state.calls = memory.calls(machine, self.clones);
        Ok(state)
    }
}
