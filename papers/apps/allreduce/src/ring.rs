//! Ring of hosts that pass on parts of an all-reduce.
//!
//! ```text
//! part p starts at host p mod n:  ADD ─▶ host adds its values ─ ADD ─▶ … ─▶ last host has the sum
//!                                 PASS ─▶ … ─▶ all hosts have the sum
//! ```
//!
//! A leader has one context, which sends to the next host and serves the host before. The sender's selector chooses
//! processor or device for each addition. Each part moves on as soon as it has arrived, so all links and hosts work at
//! the same time. A repeated part changes nothing.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant as Clock};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use pathcall_place::context::comm::{AnswerError, RequestHead};
use pathcall_place::context::remote::Remote;
use pathcall_place::context::telemetry::Telemetry;
use pathcall_place::context::{Builder, Event, IncomingRequest, PlaceContext, RequestMessage, TaskHooks};
use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_place::device::{AppError, ComputeDevice};
use pathcall_place::{Application, DeviceRole, Hardware, KindId, SelectionStrategy};
use pathcall_wire::Instant;

use crate::{APPLICATION, add};

/// Values of a part: 64 KiB.
const PART: usize = 16 << 10;
/// Maximum number of unanswered parts.
const WINDOW: usize = 16;
/// Bytes before a part's values: round 8, total values 8, part 4, zero 4.
const HEADER_LEN: usize = 24;
/// Timeout of a round without received parts.
const ROUND_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for which a leaving leader answers repeated parts.
const LINGER: Duration = Duration::from_millis(100);
/// Index of request type ADD in the application file.
const ADD: u16 = 0;

/// Configuration of a leader.
#[derive(Debug)]
pub struct Config {
    /// Index of this host.
    pub host: usize,
    /// Number of hosts.
    pub hosts: usize,
    /// Hardware of each host.
    pub hardware: Hardware,
    /// Processor.
    pub cpu: Arc<dyn ComputeDevice>,
    /// Accelerator, if any. Either all hosts have one or none.
    pub acc: Option<Arc<dyn ComputeDevice>>,
    /// Path selection strategy.
    pub strategy: SelectionStrategy,
}

impl Config {
    /// Configuration with a processor of one thread and this accelerator.
    ///
    /// # Errors
    /// Returns an error if the device does not exist.
    pub fn new(
        host: usize,
        hosts: usize,
        hardware: Hardware,
        acc: Option<&DeviceChoice>,
        strategy: SelectionStrategy,
    ) -> Result<Self> {
        let cpu = open(&DeviceChoice::cpu(1))?;
        let acc = acc.map(open).transpose()?;
        Ok(Self { host, hosts, hardware, cpu, acc, strategy })
    }
}

/// Leader in the ring.
#[derive(Debug)]
pub struct Ring {
    context: PlaceContext,
    add: KindId,
    pass: KindId,
    state: Arc<RingState>,
    /// Requests of rounds that this leader has not started.
    early: VecDeque<IncomingRequest>,
}

/// State of the current round.
#[derive(Debug)]
struct RingState {
    host: usize,
    hosts: usize,
    round: Mutex<Round>,
}

#[derive(Debug, Default)]
struct Round {
    number: u64,
    values: Vec<f32>,
    parts: Vec<PartState>,
    complete: usize,
    /// Parts to send next.
    next: VecDeque<usize>,
    /// Error to report if the host before this one sums another number of values.
    mismatch: Option<AppError>,
}

/// Contributions to a part at this leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartState {
    /// Values of this host only.
    Own,
    /// Values of this host and of the hosts before it.
    Added,
    /// Values of all hosts.
    Complete,
}

impl Ring {
    /// Starts a leader that listens at `listen` and sends to the host at `next`.
    ///
    /// # Errors
    /// Returns an error if a device does not support the functions, or if the address is in use.
    pub fn begin(config: Config, listen: SocketAddr, next: SocketAddr) -> Result<Self> {
        let Config { host, hosts, hardware, cpu, acc, strategy } = config;
        ensure!(host < hosts, "host {host} of {hosts}");
        let mut application = Application::parse(APPLICATION.0, APPLICATION.1)?;
        if acc.is_none() {
            // With a single path, the time does not matter.
            application.unknown().into_iter().for_each(|(task, role)| application.set_compute(task, role, 1));
            for request in &mut application.requests {
                request.dataflows.retain(|flow| flow.trips.iter().all(|trip| trip.responder.role == DeviceRole::Cpu));
            }
        }
        let remote = Remote::bind(listen, Some(next)).with_context(|| format!("cannot listen at {listen}"))?;
        let state = Arc::new(RingState { host, hosts, round: Mutex::default() });
        // Two rows of one part.
        let sample: Vec<f32> = (0..2 * PART).map(|i| i as f32 / 7.0).collect();
        let mut rows = 2_u32.to_le_bytes().to_vec();
        add::append(&sample, &mut rows);
        let mut builder = Builder::new(application, hardware.clone(), hardware)
            .strategy(strategy)
            .device(DeviceRole::Cpu, cpu)
            .reg_app_func(add::on_processor(), "add", DeviceRole::Cpu, 0)
            .sample("add", rows.into())
            .task_hooks(Arc::clone(&state) as _)
            .handles_itself(false)
            .reg_comm_func(remote, "ring", DeviceRole::Cpu);
        if let Some(acc) = acc {
            builder = builder.device(DeviceRole::Acc, acc);
            for code in add::on_accelerators() {
                builder = builder.reg_app_func(code, "add", DeviceRole::Acc, 0);
            }
        }
        let context = builder.init()?;
        let kind = |name| context.kind(name).with_context(|| format!("{} has no {name}", APPLICATION.0));
        let (add, pass) = (kind("ADD")?, kind("PASS")?);
        Ok(Self { context, add, pass, state, early: VecDeque::new() })
    }

    /// Replaces each value by its sum over all hosts, with the same bits at all of them. All hosts call this function
    /// in the same order.
    ///
    /// # Errors
    /// Returns an error if a host is lost, exceeds the timeout, or has another number of values.
    pub fn all_reduce(&mut self, values: &mut [f32]) -> Result<()> {
        if self.state.hosts == 1 || values.is_empty() {
            return Ok(());
        }
        let (number, parts) = self.state.begin(values);
        for incoming in std::mem::take(&mut self.early) {
            self.accept_request(number, incoming);
        }
        let (mut sent, mut last) = (0, Clock::now());
        loop {
            while sent < WINDOW
                && let Some((kind, payload)) = self.state.next()
            {
                let kind = if kind == ADD { self.add } else { self.pass };
                self.context.send(RequestMessage { kind, address: 0, message: 0, tag: number, payload })?;
                sent += 1;
            }
            if sent == 0 && self.state.lock().complete == parts {
                break;
            }
            match self.context.wait(Duration::from_secs(1)) {
                Some(Event::Answer(answer)) if answer.tag == number => {
                    sent -= 1;
                    // A host with all parts may have left: then only its answer is missing.
                    if self.state.lock().complete < parts {
                        answer.result.context("the next host in the ring")?;
                    }
                }
                Some(Event::Request(incoming)) => self.accept_request(number, incoming),
                // Perhaps there is a part to send, or the round is complete. Answers belong to an earlier call that
                // failed.
                Some(Event::Answer(_) | Event::Handled | Event::Accessed { .. }) => {}
                None if last.elapsed() < ROUND_TIMEOUT => continue,
                None => {
                    let complete = self.state.lock().complete;
                    bail!("{complete} of {parts} parts received, then none for {} s", ROUND_TIMEOUT.as_secs());
                }
            }
            if let Some(mismatch) = self.state.lock().mismatch.take() {
                bail!(mismatch);
            }
            last = Clock::now();
        }
        values.copy_from_slice(&self.state.lock().values);
        Ok(())
    }

    /// Paths of the parts that this leader sent, and jobs of its devices.
    #[must_use]
    pub fn telemetry(&self) -> Telemetry {
        self.context.telemetry()
    }

    fn accept_request(&mut self, number: u64, incoming: IncomingRequest) {
        match round_of(incoming.payload()) {
            Some(round) if round > number => self.early.push_back(incoming),
            // Repeated request of an earlier round, which was answered.
            Some(round) if round < number => incoming.answer(Instant(0), Bytes::new()),
            _ => {
                let role = incoming.head().role;
                self.context.handle(incoming, role);
            }
        }
    }
}

impl Drop for Ring {
    /// Waits until the host before this one can receive the last answers; repeated requests are answered again.
    fn drop(&mut self) {
        let until = Clock::now() + LINGER;
        let number = self.state.lock().number;
        while let Some(left) = until.checked_duration_since(Clock::now()) {
            if let Some(Event::Request(incoming)) = self.context.wait(left) {
                self.accept_request(number, incoming);
            }
        }
    }
}

fn round_of(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().map(|round| u64::from_be_bytes(*round))
}

impl RingState {
    fn lock(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a round; returns its number and its number of parts.
    fn begin(&self, values: &[f32]) -> (u64, usize) {
        let mut round = self.lock();
        round.number += 1;
        round.values.clear();
        round.values.extend_from_slice(values);
        let parts = values.len().div_ceil(PART);
        round.parts.clear();
        round.parts.resize(parts, PartState::Own);
        (round.complete, round.mismatch) = (0, None);
        round.next = (0..parts).filter(|part| part % self.hosts == self.host).collect();
        (round.number, parts)
    }

    /// Number of hosts that a part passed before this one.
    fn hops_before(&self, part: usize) -> usize {
        (self.host + self.hosts - part % self.hosts) % self.hosts
    }

    /// Next part to send: request type and payload.
    fn next(&self) -> Option<(u16, Bytes)> {
        let mut round = self.lock();
        let part = round.next.pop_front()?;
        let values = &round.values[range(part, round.values.len())];
        let mut bytes = Vec::with_capacity(HEADER_LEN + 4 * values.len());
        bytes.extend(round.number.to_be_bytes());
        bytes.extend((round.values.len() as u64).to_be_bytes());
        bytes.extend((part as u32).to_be_bytes());
        bytes.extend([0; 4]);
        add::append(values, &mut bytes);
        let kind = if round.parts[part] == PartState::Complete { ADD + 1 } else { ADD };
        Some((kind, bytes.into()))
    }

    /// Index of a received part, and the bytes of its values.
    fn parse<'a>(&self, round: &Round, payload: &'a [u8]) -> Result<(usize, &'a [u8]), AppError> {
        let short = || AppError(format!("invalid part of {} bytes", payload.len()));
        let (head, values) = payload.split_first_chunk::<HEADER_LEN>().ok_or_else(short)?;
        let len = u64::from_be_bytes(head[8..16].try_into().expect("eight bytes"));
        if len != round.values.len() as u64 {
            return Err(AppError(format!(
                "the previous host sums {len} values, host {} sums {}",
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

/// Range of a part's values.
fn range(part: usize, values: usize) -> std::ops::Range<usize> {
    part * PART..values.min((part + 1) * PART)
}

impl TaskHooks for RingState {
    fn before(&self, head: RequestHead, request: &Bytes) -> Result<Bytes, AnswerError> {
        let mut round = self.lock();
        let (part, values) = self.parse(&round, request).map_err(|mismatch| {
            round.mismatch = Some(mismatch.clone());
            AnswerError::App(mismatch)
        })?;
        if head.kind != ADD {
            return Ok(request.clone());
        }
        // Received values before own values: the order of the ring.
        let mut rows = Vec::with_capacity(4 + 2 * values.len());
        rows.extend(2_u32.to_le_bytes());
        rows.extend_from_slice(values);
        add::append(&round.values[range(part, round.values.len())], &mut rows);
        Ok(rows.into())
    }

    fn after(
        &self,
        head: RequestHead,
        request: &Bytes,
        made: Result<Bytes, AnswerError>,
    ) -> Result<Bytes, AnswerError> {
        let made = made?;
        let mut round = self.lock();
        if round_of(request) != Some(round.number) {
            // Repeated request of a finished round.
            return Ok(Bytes::new());
        }
        let (part, values) = self.parse(&round, request).map_err(AnswerError::App)?;
        let (hops_before, range) = (self.hops_before(part), range(part, round.values.len()));
        let last = self.hosts - 1;
        match (head.kind == ADD, round.parts[part]) {
            (true, PartState::Own) => {
                if made.len() != values.len() {
                    let (got, expected) = (made.len(), values.len());
                    return Err(AnswerError::Failed(format!("a sum of {got} bytes, expected {expected}")));
                }
                add::read(&made, &mut round.values[range]);
                let complete = hops_before == last;
                round.parts[part] = if complete { PartState::Complete } else { PartState::Added };
                round.complete += usize::from(complete);
                round.next.push_back(part);
            }
            (false, PartState::Own | PartState::Added) => {
                add::read(values, &mut round.values[range]);
                round.parts[part] = PartState::Complete;
                round.complete += 1;
                // The host after the next to last one has the sum from the beginning.
                if hops_before + 1 < last {
                    round.next.push_back(part);
                }
            }
            // Repeated part.
            (true, PartState::Added | PartState::Complete) | (false, PartState::Complete) => {}
        }
        Ok(Bytes::new())
    }
}
