//! The P4 program (`p4/`) as an execution: its text, compiled and run packet by packet, with what a controller of a
//! switch does beside it.
//!
//! ```text
//! installs, endpoints, pools ─► books ─┬─► entries: what follows for each table
//!                                      └─► memory: registers that start anew
//! frame ─► packet ─► interpreter ─► packets, counters ─► Outcome
//!                         └─► processor: the record of places
//! ```
//!
//! Whether a change is taken is what the books say: a [`pathcall_program::Program`] that never sees a frame.

mod entries;
mod memory;
mod names;
mod packet;
mod processor;

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use pathcall_function::exec::{Execution as _, Output};
use pathcall_function::interp::Interpreter;
use pathcall_program::{Application, CloneSize, Endpoint, Pool, Program, Reason, Size, TableError};
use pathcall_wire::{Base, Instant, KEYED_LANES, MapFrame};

use crate::state::PoolState;
use crate::{ApplicationState, Execution, Failure, Outcome, State};
use entries::{Indices, Tables, port};
use memory::{Memory, fate};
pub use names::Unnamed;
use packet::{ELEMENT, Left, address};

/// Where packets come in.
const IN_PORT: u16 = 1;
/// Where those leave that are the switch's own processor's (`PC_CPU_PORT`).
const CPU_PORT: u16 = 510;
/// Where everybody who is no endpoint sends from.
const SENDER: u32 = 0x0a01_0002;

/// The P4 program in an interpreter.
#[derive(Debug)]
pub struct Pipeline {
    machine: Interpreter,
    memory: Memory,
    tables: Tables,
    books: Program,
    clones: CloneSize,
    /// Whether frames are addressed to endpoints, where they can be.
    inlined: bool,
    applications: Indices,
    pools: Indices,
    /// What counters stood at when their application or pool was installed, by GAID.
    began: BTreeMap<u32, Vec<u64>>,
    packet: Vec<u8>,
    /// Frames that the processor has answered, and those that it dropped.
    answered: u64,
    malformed: u64,
}

/// What came of a packet.
#[derive(Debug, Default)]
struct Ran {
    /// Frames that left, each with the endpoint that it is addressed to.
    left: Vec<(u32, Vec<u8>)>,
    /// A frame that went to the processor.
    punted: Option<Vec<u8>>,
}

/// Why the program can't be run.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It lacks a table, a register or a counter.
    #[error(transparent)]
    Unnamed(#[from] Unnamed),
    /// The interpreter does not take it.
    #[error(transparent)]
    Program(#[from] pathcall_function::interp::CompileError),
    /// An entry is not taken.
    #[error(transparent)]
    Entry(#[from] pathcall_function::exec::TableError),
}

impl Pipeline {
    /// A pipeline with this program, which is made for so much memory, and empty tables. `inlined`: frames are
    /// addressed to the endpoints that they name, and worked on in passing.
    ///
    /// # Errors
    /// What does not fit.
    pub fn new(
        program: &pathcall_function::ir::Program,
        size: Size,
        clones: CloneSize,
        inlined: bool,
    ) -> Result<Self, Unfit> {
        let mut machine = Interpreter::new(program)?;
        let mut pipeline = Self {
            memory: Memory::new(program)?,
            tables: Tables::new(program, &mut machine, inlined)?,
            machine,
            books: Program::with_clones(size, clones, pathcall_program::Profile::FullSequence),
            clones,
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

    fn sync(&mut self) -> Result<(), pathcall_function::exec::TableError> {
        self.tables.sync(&mut self.machine, self.books.tables(), &self.applications, &self.pools)
    }

    /// What follows from a change of the books.
    fn changed(&mut self) -> Result<(), Failure> {
        self.sync().map_err(|error| Failure::Broken(Box::new(error)))
    }

    /// Where a frame is sent: to the endpoint that it names, if it passes by the element on its way there.
    fn addressee(&self, frame: &[u8]) -> SocketAddrV4 {
        let known =
            |base: &Base<&[u8]>| self.books.tables().endpoint(base.dst()).is_some_and(|dst| dst.gaid == base.gaid());
        match Base::new_checked(frame) {
            Ok(base) if self.inlined && known(&base) => address(base.dst()),
            _ => ELEMENT,
        }
    }

    fn run(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<Ran, String> {
        let (from, to) = (address(SENDER), self.addressee(frame));
        packet::emit(from, to, congested, frame, &mut self.packet);
        // All that may stay behind the frame, when it is answered without it.
        let payload = MapFrame::new_checked(frame).map_or(0, |frame| frame.payload().len());
        let (mut ran, mut wrong) = (Ran::default(), None);
        self.machine.process(now.0, IN_PORT, &self.packet, &mut |output| {
            let Output::Packet { port: at, bytes } = output else { return };
            if at == CPU_PORT {
                ran.punted = Some(packet::frame(bytes).to_vec());
                return;
            }
            match packet::parse(bytes) {
                Ok(Left { from: source, to: addressee, frame, trailer }) => {
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

    /// What the switch's processor does with a frame.
    fn punted(&mut self, mut frame: Vec<u8>) -> Outcome {
        let to = Base::new_checked(&frame[..]).map_or(0, |base| base.src());
        if processor::answer(self.books.tables(), &self.memory, &self.machine, &mut frame) {
            self.answered += 1;
            Outcome::Forward(to, frame)
        } else {
            self.malformed += 1;
            Outcome::Drop(Some(Reason::Malformed))
        }
    }
}

/// The lowest index that nobody has.
fn free(indices: &Indices) -> u32 {
    (0..).find(|index| !indices.values().any(|taken| taken == index)).unwrap_or(u32::MAX)
}

/// The drops that a frame may meet, in the order of their fates.
const DROPS: [Reason; 8] = [
    Reason::Malformed,
    Reason::Forged,
    Reason::Stale,
    Reason::Counted,
    Reason::NotAdmitted,
    Reason::UnknownEndpoint,
    Reason::Unauthentic,
    Reason::Filtered,
];

impl Execution for Pipeline {
    fn install(&mut self, application: Application) -> Result<(), Failure> {
        let Application { gaid, width, .. } = application;
        if !crate::profile::takes(width) {
            let (first, end, size) = (0, width.into(), KEYED_LANES as u64);
            return Err(Failure::Refused(TableError::Range { what: "lanes of a frame", first, end, size }));
        }
        let before = self.books.tables().applications().map(|(a, _, _)| a).find(|a| a.gaid == gaid);
        self.books.install(application)?;
        if before.is_none() {
            let index = free(&self.applications);
            self.applications.insert(gaid, index);
            self.began.insert(gaid, self.memory.application(&self.machine, index));
        }
        if before.is_none_or(|before| before != Application { owner: before.owner, ..application }) {
            self.memory.reset_rows(&mut self.machine, &application, true);
        }
        self.changed()
    }

    fn remove(&mut self, gaid: u32) -> Result<(), Failure> {
        Execution::remove(&mut self.books, gaid)?;
        self.applications.remove(&gaid);
        if self.pools.remove(&gaid).is_some() && self.pools.is_empty() {
            self.memory.reset_calls(&mut self.machine, self.clones);
        }
        self.changed()
    }

    fn reset(&mut self, gaid: u32) -> Result<(), Failure> {
        self.books.reset(gaid)?;
        let found = self.books.tables().applications().map(|(a, _, _)| a).find(|a| a.gaid == gaid);
        if let Some(application) = found {
            self.memory.reset_rows(&mut self.machine, &application, false);
        }
        Ok(())
    }

    fn set_endpoint(&mut self, endpoint: Endpoint) -> Result<(), Failure> {
        let before = self.books.tables().endpoint(endpoint.endpoint).copied();
        self.books.set_endpoint(endpoint)?;
        if before != Some(endpoint) {
            self.memory.reset_slots(&mut self.machine, endpoint.slot_base, endpoint.slots);
            let pool = self.books.tables().pools().map(|(pool, _, _)| pool).find(|pool| pool.gaid == endpoint.gaid);
            let sid = pool.and_then(|pool| pool.servers.iter().position(|server| *server == endpoint.endpoint));
            if let (Some(&index), Some(sid), Some(pool)) = (self.pools.get(&endpoint.gaid), sid, pool) {
                // A server has started anew: nothing waits there.
                let mut loads = self.memory.loads(&self.machine, index, pool.servers.len());
                loads.iter_mut().for_each(|loads| loads[sid] = 0);
                self.memory.set_loads(&mut self.machine, index, &loads);
            }
        }
        self.changed()
    }

    fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), Failure> {
        self.books.remove_endpoint(endpoint)?;
        self.changed()
    }

    fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), Failure> {
        self.books.set_group(gaid, endpoints)?;
        self.changed()
    }

    fn install_pool(&mut self, pool: &Pool) -> Result<(), Failure> {
        let find = |books: &Program| {
            books.tables().pools().map(|(pool, _, _)| pool).find(|known| known.gaid == pool.gaid).cloned()
        };
        let before = find(&self.books);
        Execution::install_pool(&mut self.books, pool)?;
        let index = match self.pools.get(&pool.gaid) {
            Some(index) => *index,
            None => {
                let index = free(&self.pools);
                self.pools.insert(pool.gaid, index);
                self.began.insert(pool.gaid, self.memory.pool(&self.machine, index));
                index
            }
        };
        // A server's load goes with it to its new place.
        let servers = before.map_or_else(Vec::new, |before| before.servers);
        let known = self.memory.loads(&self.machine, index, servers.len());
        let place = |server: &u32| servers.iter().position(|other| other == server);
        let rearranged =
            known.map(|known| pool.servers.iter().map(|server| place(server).map_or(0, |sid| known[sid])).collect());
        self.memory.set_loads(&mut self.machine, index, &rearranged);
        self.changed()
    }

    fn number_after(&mut self, last: u64) -> Result<(), Failure> {
        self.memory.number_after(&mut self.machine, last);
        Ok(())
    }

    fn process(&mut self, now: Instant, frame: &[u8], congested: bool) -> Result<Outcome, Failure> {
        let broken = |what: String| Failure::Broken(what.into());
        let before = self.memory.fates(&self.machine);
        let Ran { mut left, punted } = self.run(now, frame, congested).map_err(broken)?;
        if let Some(frame) = punted {
            return Ok(self.punted(frame));
        }
        let after = self.memory.fates(&self.machine);
        let met = |fate: u32| after[fate as usize] > before[fate as usize];
        if met(fate::MULTICAST) || met(fate::TWICE) {
            return Ok(Outcome::Copies(left));
        }
        let reason = DROPS.into_iter().zip(fate::MALFORMED..=fate::FILTERED).find(|(_, fate)| met(*fate));
        match (left.len(), reason) {
            (1, None) => {
                let (endpoint, frame) = left.swap_remove(0);
                Ok(Outcome::Forward(endpoint, frame))
            }
            (0, Some((reason, _))) => Ok(Outcome::Drop(Some(reason))),
            (count, reason) => Err(broken(format!("{count} packets leave, and are counted as {reason:?}"))),
        }
    }

    fn state(&mut self) -> Result<State, Failure> {
        let (machine, memory) = (&self.machine, &self.memory);
        let mut state = State { counters: memory.counters(machine), ..State::default() };
        state.counters.frames_out += self.answered;
        state.counters.drop_malformed += self.malformed;
        let since = |gaid: u32, now: Vec<u64>| -> Vec<u64> {
            let began = self.began.get(&gaid).map_or(&[][..], |began| began);
            now.iter().zip(began).map(|(now, then)| now - then).collect()
        };
        for (application, _, _) in self.books.tables().applications() {
            let gaid = application.gaid;
            let Some(&index) = self.applications.get(&gaid) else { continue };
            let counters = memory::of_application(&since(gaid, memory.application(machine, index)));
            let registers = memory.registers(machine, &application);
            state.applications.insert(gaid, ApplicationState { counters, ..registers });
        }
        for slot in self.books.tables().endpoints().flat_map(|e| e.slot_base..e.slot_base + e.slots) {
            state.slots.insert(slot, memory.slot(machine, slot));
        }
        for (pool, _, _) in self.books.tables().pools() {
            let Some(&index) = self.pools.get(&pool.gaid) else { continue };
            let [loads, shadows] = memory.loads(machine, index, pool.servers.len());
            let counters = memory::of_pool(&since(pool.gaid, memory.pool(machine, index)));
            state.pools.insert(pool.gaid, PoolState { loads, shadows, counters });
        }
        state.calls = memory.calls(machine, self.clones);
        Ok(state)
    }
}
