//! Execution interface of a loaded function: single packets without a driver (`BPF_PROG_TEST_RUN`), and its memory.

use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use pathcall_p4::exec::{CounterValue, DropReason, Execution, Output, TableError};
use pathcall_p4::ir::{ActionId, CounterId, Match, RegisterId, TableEntry, TableId};

use super::load::{LossReason, PACKET_MAX};
use super::{Error, XdpFunction};
use crate::layout::{self, Words};

/// Most bytes by which a packet may grow.
const GROWTH_MAX: usize = 256;
/// Shortest packet that the kernel accepts: an Ethernet header.
const PACKET_MIN: usize = 14;
/// Entries read by one system call.
const BATCH: u32 = 1024;
/// `XDP_DROP` and `XDP_TX`.
const DROP: u32 = 1;
const OUT: u32 = 3;

/// Offsets of the egress port and of the drop reason in `struct tested` (prelude.h).
const EGRESS_AT: usize = 12;
const LOST_AT: usize = 16;
/// Range of the hit mark in an entry's value.
const MARK: std::ops::Range<usize> = 4..8;

/// Result of repeated runs of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatedRun {
    /// Average time of one run.
    pub each: Duration,
    /// Result of the last run (`enum xdp_action`).
    pub action: u32,
    /// Packet after the last run.
    pub packet: Vec<u8>,
}

impl XdpFunction {
    /// [`Execution::process`] for a function that is loaded for tests.
    ///
    /// # Errors
    /// [`Error::Length`], or errors of the kernel.
    pub fn run(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) -> Result<(), Error> {
        if !(PACKET_MIN..=PACKET_MAX).contains(&packet.len()) {
            return Err(Error::Length(packet.len()));
        }
        let tested: Vec<u8> = now_us
            .to_ne_bytes()
            .into_iter()
            .chain(Words::of(&[port.into(), 0, 0, 0]).bytes().iter().copied())
            .collect();
        self.put(".data.tested", &0_u32.to_ne_bytes(), &tested)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(packet.len() + GROWTH_MAX, 0);
        let input =
            ProgramInput { data_in: Some(packet), data_out: Some(&mut buffer), repeat: 1, ..ProgramInput::default() };
        let ran =
            self.program()?.test_run(input).map_err(crate::Error::kernel("running the function's XDP program"))?;
        let (action, length) = (ran.return_value, ran.data.map_or(0, |data| data.len()));
        let tested = self.get(".data.tested", &0_u32.to_ne_bytes())?.ok_or(crate::Error::Missing("tested"))?;
        self.take_digests(out)?;
        let word = |at: usize| layout::words(&tested[at..at + 4])[0];
        match action {
            OUT => out(Output::Packet { port: word(EGRESS_AT) as u16, bytes: &buffer[..length] }),
            DROP => out(Output::Dropped(reason(word(LOST_AT)))),
            _ => return Err(crate::Error::Missing("output port for a packet").into()),
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Runs a packet repeatedly, each time on the result of the run before, to measure the time of one run. Ports are
    /// interfaces, unless the function is loaded for tests.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn repeat(&self, packet: &[u8], times: u32) -> Result<RepeatedRun, Error> {
        let mut buffer = vec![0; packet.len() + GROWTH_MAX];
        let input = ProgramInput {
            data_in: Some(packet),
            data_out: Some(&mut buffer),
            repeat: times,
            ..ProgramInput::default()
        };
        let ran =
            self.program()?.test_run(input).map_err(crate::Error::kernel("running the function's XDP program"))?;
        let (action, length, each) = (ran.return_value, ran.data.map_or(0, |data| data.len()), ran.duration);
        buffer.truncate(length);
        Ok(RepeatedRun { each, action, packet: buffer })
    }

    /// Passes on the digests of all packets since the last call, also of packets from interfaces.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn take_digests(&mut self, out: &mut dyn FnMut(Output<'_>)) -> Result<(), Error> {
        let Some(ring) = &self.ring else { return Ok(()) };
        ring.consume().map_err(crate::Error::kernel("reading digests"))?;
        let records = std::mem::take(&mut *self.records.borrow_mut());
        for record in &records {
            let kind = record.get(..4).map(|kind| layout::words(kind)[0] as usize);
            let digest =
                kind.and_then(|kind| self.layout().digests.get(kind)).ok_or(crate::Error::Missing("digest"))?;
            let values = digest.values(record).ok_or(crate::Error::Missing("whole digest"))?;
            out(Output::Digest { name: &digest.name, values: &values });
        }
        Ok(())
    }

    pub(super) fn put_entry(&self, id: TableId, entry: &TableEntry) -> Result<(), Error> {
        let table = &self.layout().tables[id.0 as usize];
        let (Some(key), Some(value)) = (table.key(&entry.keys), table.value(entry.action, &entry.args)) else {
            return Ok(());
        };
        self.put(&table.map, &key, &value)
    }

    /// [`Self::put_entry`] for an existing entry, which keeps its hit mark.
    fn change_entry(&self, id: TableId, entry: &TableEntry) -> Result<(), Error> {
        let table = &self.layout().tables[id.0 as usize];
        let (Some(key), Some(mut value)) = (table.key(&entry.keys), table.value(entry.action, &entry.args)) else {
            return Ok(());
        };
        if let Some(before) = self.get(&table.map, &key)? {
            value[MARK].copy_from_slice(&before[MARK]);
        }
        self.put(&table.map, &key, &value)
    }

    pub(super) fn put_default(&self, id: TableId, action: ActionId, args: &[u128]) -> Result<(), Error> {
        let table = &self.layout().tables[id.0 as usize];
        let value = table.value(action, args).ok_or(crate::Error::Missing("action"))?;
        self.put(&format!("{}_default", table.map), &0_u32.to_ne_bytes(), &value)
    }

    /// Map keys of the entries that were hit; clears their marks.
    fn take_marks(&self, id: TableId) -> Result<std::collections::HashSet<Vec<u8>>, Error> {
        let failed = crate::Error::kernel("reading a function's table");
        let table = &self.layout().tables[id.0 as usize];
        let mut marked = std::collections::HashSet::new();
        if table.key.is_none() {
            return Ok(marked);
        }
        let map = self.map(&table.map)?;
        let batch = map.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(&failed)?;
        for (key, mut value) in batch {
            if value[MARK] == [0; 4] {
                continue;
            }
            value[MARK].fill(0);
            map.update(&key, &value, MapFlags::EXIST).map_err(&failed)?;
            marked.insert(key);
        }
        Ok(marked)
    }
}

fn reason(lost: u32) -> DropReason {
    match lost.checked_sub(1) {
        Some(lost) if lost == LossReason::Dropped as u32 => DropReason::Program,
        Some(lost) if lost == LossReason::Recirculated as u32 => DropReason::Recirculated,
        _ => DropReason::TooLong,
    }
}

/// Error of a valid change that the kernel refused: only a full table can cause it.
fn full(table: &str, size: u32) -> impl FnOnce(Error) -> TableError {
    let table = table.to_owned();
    move |_| TableError::Full { table, size }
}

impl Execution for XdpFunction {
    /// A packet that cannot be run counts as [`DropReason::TooLong`].
    fn process(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) {
        if self.run(now_us, port, packet, out).is_err() {
            out(Output::Dropped(DropReason::TooLong));
        }
    }

    fn insert(&mut self, table: TableId, entry: &TableEntry) -> Result<(), TableError> {
        self.tables[table.0 as usize].insert(entry)?;
        let size = self.tables[table.0 as usize].len() as u32;
        let name = self.layout().tables[table.0 as usize].map.clone();
        let done = self.put_entry(table, entry).map_err(full(&name, size));
        if done.is_err() {
            self.tables[table.0 as usize].remove(&entry.keys)?;
        }
        done
    }

    fn modify(&mut self, table: TableId, entry: &TableEntry) -> Result<(), TableError> {
        self.tables[table.0 as usize].modify(entry)?;
        let size = self.tables[table.0 as usize].len() as u32;
        let name = self.layout().tables[table.0 as usize].map.clone();
        self.change_entry(table, entry).map_err(full(&name, size))
    }

    fn remove(&mut self, table: TableId, keys: &[Match]) -> Result<(), TableError> {
        self.tables[table.0 as usize].remove(keys)?;
        let layout = &self.layout().tables[table.0 as usize];
        let missing = || TableError::Missing { table: layout.map.clone() };
        let key = layout.key(keys).ok_or_else(missing)?;
        let map = self.map(&layout.map).map_err(|_| missing())?;
        map.delete(&key).map_err(|_| missing())
    }

    fn set_default(&mut self, table: TableId, action: ActionId, args: &[u128]) -> Result<(), TableError> {
        self.tables[table.0 as usize].set_default(action, args)?;
        let name = self.layout().tables[table.0 as usize].map.clone();
        self.put_default(table, action, args).map_err(full(&name, 1))
    }

    fn take_used(&mut self, table: TableId, each: &mut dyn FnMut(&TableEntry)) {
        let Ok(marked) = self.take_marks(table) else { return };
        let layout = &self.layout().tables[table.0 as usize];
        let entries = self.tables[table.0 as usize].entries();
        entries.filter(|entry| layout.key(&entry.keys).is_some_and(|key| marked.contains(&key))).for_each(each);
    }

    fn entries(&self, table: TableId) -> usize {
        self.tables[table.0 as usize].len()
    }

    fn register(&self, register: RegisterId, index: u32) -> u128 {
        let layout = &self.layout().registers[register.0 as usize];
        let cell = self.get(&layout.map, &index.to_ne_bytes()).ok().flatten();
        cell.and_then(|cell| layout.value(&cell)).unwrap_or(0)
    }

    fn set_register(&mut self, register: RegisterId, index: u32, value: u128) {
        let layout = &self.layout().registers[register.0 as usize];
        // Beyond the end nothing happens.
        let _ = self.put(&layout.map, &index.to_ne_bytes(), &layout.cell(value));
    }

    fn counter(&self, counter: CounterId, index: u32) -> CounterValue {
        let map = &self.layout().counters[counter.0 as usize];
        let [packets, bytes] = self.sums(map, index).unwrap_or([0; 2]);
        CounterValue { packets, bytes }
    }

    /// Nothing to do: programs that copy packets are not loaded.
    fn set_group(&mut self, _: u16, _: &[(u16, u16)]) {}

    fn wait_in_flight(&mut self) {
        // Such a wait succeeded when the function was loaded.
        let _ = self.wait();
    }

    fn dropped(&self, reason_wanted: DropReason) -> u64 {
        let of = |lost: &LossReason| reason(*lost as u32 + 1) == reason_wanted && *lost != LossReason::DigestLost;
        LossReason::ALL.iter().filter(|lost| of(lost)).map(|lost| self.lost(*lost).unwrap_or(0)).sum()
    }
}
