//! Hosts in a ring: parts go from one to the next.
//!
//! ```text
//! part p of n hosts begins at host p mod n:  ADD ─▶ its own is added ─ ADD ─▶ … ─▶ the last has the sum
//!                                            PASS ─▶ … ─▶ all have it
//! ```
//!
//! A leader has one context, which sends to the next host and works on what comes from the one before: the processor or
//! the device does so, as the sender's selector says. Each part goes on by itself as soon as it has come, so that parts are
//! on all links and in all hosts at the same time. A part that comes twice changes nothing.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant as Clock};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use pathcall_place::context::comm::{Fault, Head};
use pathcall_place::context::remote::Remote;
use pathcall_place::context::telemetry::Telemetry;
use pathcall_place::context::{Around, Builder, Context, Event, Incoming, Message};
use pathcall_place::device::discover::{Choice, open};
use pathcall_place::device::{AppError, Device};
use pathcall_place::{Application, Hardware, KindId, Role, Strategy};
use pathcall_wire::Instant;

use crate::{APPLICATION, add};

/// Values of a part: 64 KiB.
const PART: usize = 16 << 10;
/// Parts that are sent and not yet answered.
const WINDOW: usize = 16;
/// Bytes before a part's values: round 8, values in all 8, part 4, 0 4.
const HEAD: usize = 24;
/// A round in which nothing comes for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a leader that leaves answers what comes again.
const LINGER: Duration = Duration::from_millis(100);
/// Places of the types of requests in the application's file.
const ADD: u16 = 0;

/// What a leader is set up with.
#[derive(Debug)]
pub struct Config {
    /// Which host this is, from 0 on.
    pub host: usize,
    /// How many there are.
    pub hosts: usize,
    /// Hardware of each host.
    pub hardware: Hardware,
    /// The processor.
    pub cpu: Arc<dyn Device>,
    /// The accelerator, if there is one. All hosts have one, or none has.
    pub acc: Option<Arc<dyn Device>>,
    /// How paths are chosen.
    pub strategy: Strategy,
}

impl Config {
    /// With one thread as the processor, and such a device.
    ///
    /// # Errors
    /// There is no such device.
    pub fn new(
        host: usize,
        hosts: usize,
        hardware: Hardware,
        acc: Option<&Choice>,
        strategy: Strategy,
    ) -> Result<Self> {
        let cpu = open(&Choice::cpu(1))?;
        let acc = acc.map(open).transpose()?;
        Ok(Self { host, hosts, hardware, cpu, acc, strategy })
    }
}

/// A leader's place in the ring.
#[derive(Debug)]
pub struct Ring {
    context: Context,
    add: KindId,
    pass: KindId,
    state: Arc<State>,
    /// Of rounds that this leader has not begun.
    early: VecDeque<Incoming>,
}

/// What is under way.
#[derive(Debug)]
struct State {
    host: usize,
    hosts: usize,
    round: Mutex<Round>,
}

#[derive(Debug, Default)]
struct Round {
    number: u64,
    values: Vec<f32>,
    parts: Vec<Part>,
    whole: usize,
    /// To be sent on.
    next: VecDeque<usize>,
    /// The host before this one asks for something else.
    differs: Option<AppError>,
}

/// What a leader has of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Its own.
    Own,
    /// Those of the hosts before it, too.
    Added,
    /// All.
    Whole,
}

impl Ring {
    /// Begins: it listens at one address, and the next host at the other.
    ///
    /// # Errors
    /// A device does not do what it should, or the address is in use.
    pub fn begin(config: Config, listen: SocketAddr, next: SocketAddr) -> Result<Self> {
        let Config { host, hosts, hardware, cpu, acc, strategy } = config;
        ensure!(host < hosts, "host {host} of {hosts}");
        let mut application = Application::parse(APPLICATION.0, APPLICATION.1)?;
        if acc.is_none() {
            // There is one way only, whatever it takes.
            application.unknown().into_iter().for_each(|(task, role)| application.set_compute(task, role, 1));
            for request in &mut application.requests {
                request.dataflows.retain(|flow| flow.trips.iter().all(|trip| trip.responder.role == Role::Cpu));
            }
        }
        let remote = Remote::bind(listen, Some(next)).with_context(|| format!("can't listen at {listen}"))?;
        let state = Arc::new(State { host, hosts, round: Mutex::default() });
        // Two rows of one part.
        let sample: Vec<f32> = (0..2 * PART).map(|i| i as f32 / 7.0).collect();
        let mut rows = 2_u32.to_le_bytes().to_vec();
        add::append(&sample, &mut rows);
        let mut builder = Builder::new(application, hardware.clone(), hardware)
            .strategy(strategy)
            .device(Role::Cpu, cpu)
            .reg_app_func(add::on_processor(), "add", Role::Cpu, 0)
            .sample("add", rows.into())
            .around(Arc::clone(&state) as _)
            .handles_itself(false)
            .reg_comm_func(remote, "ring", Role::Cpu);
        if let Some(acc) = acc {
            builder = builder.device(Role::Acc, acc);
            for code in add::on_accelerators() {
                builder = builder.reg_app_func(code, "add", Role::Acc, 0);
            }
        }
        let context = builder.init()?;
        let kind = |name| context.kind(name).with_context(|| format!("{} has no {name}", APPLICATION.0));
        let (add, pass) = (kind("ADD")?, kind("PASS")?);
        Ok(Self { context, add, pass, state, early: VecDeque::new() })
    }

    /// Each value becomes the sum of all hosts', the same bits at all of them. All hosts call it, in the same order.
    ///
    /// # Errors
    /// A host is lost, does not come in time, or has another number of values.
    pub fn all_reduce(&mut self, values: &mut [f32]) -> Result<()> {
        if self.state.hosts == 1 || values.is_empty() {
            return Ok(());
        }
        let (number, parts) = self.state.begin(values);
        for incoming in std::mem::take(&mut self.early) {
            self.take(number, incoming);
        }
        let (mut sent, mut last) = (0, Clock::now());
        loop {
            while sent < WINDOW
                && let Some((kind, payload)) = self.state.next()
            {
                let kind = if kind == ADD { self.add } else { self.pass };
                self.context.send(Message { kind, address: 0, message: 0, tag: number, payload })?;
                sent += 1;
            }
            if sent == 0 && self.state.lock().whole == parts {
                break;
            }
            match self.context.wait(Duration::from_secs(1)) {
                Some(Event::Answer(answer)) if answer.tag == number => {
                    sent -= 1;
                    // Who has all may have left: then it is the answer that is missing.
                    if self.state.lock().whole < parts {
                        answer.result.context("the next host in the ring")?;
                    }
                }
                Some(Event::Request(incoming)) => self.take(number, incoming),
                // There may be something to send, or nothing more to wait for. Answers are of a call that failed before.
                Some(Event::Answer(_) | Event::Handled | Event::Accessed { .. }) => {}
                None if last.elapsed() < PATIENCE => continue,
                None => {
                    let whole = self.state.lock().whole;
                    bail!("{whole} of {parts} parts are there, then none came for {} s", PATIENCE.as_secs());
                }
            }
            if let Some(differs) = self.state.lock().differs.take() {
                bail!(differs);
            }
            last = Clock::now();
        }
        values.copy_from_slice(&self.state.lock().values);
        Ok(())
    }

    /// Where parts went that this leader has sent, and what its devices did.
    #[must_use]
    pub fn telemetry(&self) -> Telemetry {
        self.context.telemetry()
    }

    fn take(&mut self, number: u64, incoming: Incoming) {
        match round_of(incoming.payload()) {
            Some(round) if round > number => self.early.push_back(incoming),
            // It came again: it was answered before.
            Some(round) if round < number => incoming.answer(Instant(0), Bytes::new()),
            _ => {
                let role = incoming.head().role;
                self.context.handle(incoming, role);
            }
        }
    }
}

impl Drop for Ring {
    /// Not before the answers to the host before this one have had time to get there: what comes again is answered again.
    fn drop(&mut self) {
        let until = Clock::now() + LINGER;
        let number = self.state.lock().number;
        while let Some(left) = until.checked_duration_since(Clock::now()) {
            if let Some(Event::Request(incoming)) = self.context.wait(left) {
                self.take(number, incoming);
            }
        }
    }
}

fn round_of(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().map(|round| u64::from_be_bytes(*round))
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new round: its number, and how many parts it has.
    fn begin(&self, values: &[f32]) -> (u64, usize) {
        let mut round = self.lock();
        round.number += 1;
        round.values.clear();
        round.values.extend_from_slice(values);
        let parts = values.len().div_ceil(PART);
        round.parts.clear();
        round.parts.resize(parts, Part::Own);
        (round.whole, round.differs) = (0, None);
        round.next = (0..parts).filter(|part| part % self.hosts == self.host).collect();
        (round.number, parts)
    }

    /// How many hosts a part has been at before it came here.
    fn place(&self, part: usize) -> usize {
        (self.host + self.hosts - part % self.hosts) % self.hosts
    }

    /// What is to be sent next: a type of request, and its bytes.
    fn next(&self) -> Option<(u16, Bytes)> {
        let mut round = self.lock();
        let part = round.next.pop_front()?;
        let values = &round.values[range(part, round.values.len())];
        let mut bytes = Vec::with_capacity(HEAD + 4 * values.len());
        bytes.extend(round.number.to_be_bytes());
        bytes.extend((round.values.len() as u64).to_be_bytes());
        bytes.extend((part as u32).to_be_bytes());
        bytes.extend([0; 4]);
        add::append(values, &mut bytes);
        let kind = if round.parts[part] == Part::Whole { ADD + 1 } else { ADD };
        Some((kind, bytes.into()))
    }

    /// Which part came, and its values' bytes.
    fn parse<'a>(&self, round: &Round, payload: &'a [u8]) -> Result<(usize, &'a [u8]), AppError> {
        let short = || AppError(format!("no part: {} bytes", payload.len()));
        let (head, values) = payload.split_first_chunk::<HEAD>().ok_or_else(short)?;
        let len = u64::from_be_bytes(head[8..16].try_into().expect("eight bytes"));
        if len != round.values.len() as u64 {
            return Err(AppError(format!(
                "a host asks for the sums of {len} values, and host {} for those of {}",
                self.host,
                round.values.len()
            )));
        }
        let part = u32::from_be_bytes(head[16..20].try_into().expect("four bytes")) as usize;
        if part >= round.parts.len() || values.len() != 4 * range(part, round.values.len()).len() {
            return Err(short());
        }
        Ok((part, values))
    }
}

/// Where a part's values are.
fn range(part: usize, values: usize) -> std::ops::Range<usize> {
    part * PART..values.min((part + 1) * PART)
}

impl Around for State {
    fn before(&self, head: Head, request: &Bytes) -> Result<Bytes, Fault> {
        let mut round = self.lock();
        let (part, values) = self.parse(&round, request).map_err(|differs| {
            round.differs = Some(differs.clone());
            Fault::App(differs)
        })?;
        if head.kind != ADD {
            return Ok(request.clone());
        }
        // What came, then its own: in the order of the ring.
        let mut rows = Vec::with_capacity(4 + 2 * values.len());
        rows.extend(2_u32.to_le_bytes());
        rows.extend_from_slice(values);
        add::append(&round.values[range(part, round.values.len())], &mut rows);
        Ok(rows.into())
    }

    fn after(&self, head: Head, request: &Bytes, made: Result<Bytes, Fault>) -> Result<Bytes, Fault> {
        let made = made?;
        let mut round = self.lock();
        if round_of(request) != Some(round.number) {
            // A second try of a round that is over.
            return Ok(Bytes::new());
        }
        let (part, values) = self.parse(&round, request).map_err(Fault::App)?;
        let (place, range) = (self.place(part), range(part, round.values.len()));
        let last = self.hosts - 1;
        match (head.kind == ADD, round.parts[part]) {
            (true, Part::Own) => {
                if made.len() != values.len() {
                    let (got, expected) = (made.len(), values.len());
                    return Err(Fault::Failed(format!("a sum of {got} bytes, expected {expected}")));
                }
                add::read(&made, &mut round.values[range]);
                let whole = place == last;
                round.parts[part] = if whole { Part::Whole } else { Part::Added };
                round.whole += usize::from(whole);
                round.next.push_back(part);
            }
            (false, Part::Own | Part::Added) => {
                add::read(values, &mut round.values[range]);
                round.parts[part] = Part::Whole;
                round.whole += 1;
                // The one after the next to last has had it from the beginning.
                if place + 1 < last {
                    round.next.push_back(part);
                }
            }
            // It came before.
            (true, Part::Added | Part::Whole) | (false, Part::Whole) => {}
        }
        Ok(Bytes::new())
    }
}
