//! Server runtime of one function handler: leases, flows, register values and repeats.

use std::collections::HashMap;
use std::time::Duration;

use pathcall_wire::function::{self, FunctionFlags, FunctionFrame, REQUEST};
use pathcall_wire::{Mutant, mutant};

use super::derived_params::DerivedParams;
use super::flows::{Flows, GroupTag, Groups};
use super::untracked_flows::UntrackedFlows;
use super::{FunctionHandler, HandlerOutcome, RequestRepeatFilter, TableChange, TouchedEntry};
use crate::place::{EntryNumber, EntryValues, LeaseHolder, LeaseOutput, ServerId};
use crate::scale::Version;
use pathcall_p4::interp::bits;
use pathcall_p4::ir::{Match, RegisterId, SlotId, TableEntry, TableId};
use pathcall_p4::split::layout::{HeaderField, HeaderLayout};
use pathcall_p4::split::{SplitFunction, SteeredKey};

/// Result of a frame at a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameAnswer {
    /// The frame is a response now, to be sent back.
    Send,
    /// The frame is not a request of this function.
    Refused(pathcall_wire::Error),
}

/// Counters of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Requests processed.
    pub requests: u64,
    /// Frames that were not requests of this function.
    pub refused: u64,
    /// Repeated requests, duplicated by a link.
    pub repeated: u64,
    /// Packets that the handler dropped.
    pub ended: u64,
    /// Packets lost in a failed handler.
    pub trapped: u64,
}

/// Server of a function.
#[derive(Debug)]
pub struct HandlerServer<H> {
    handler: H,
    holder: LeaseHolder,
    layout: HeaderLayout,
    fields: Fields,
    /// Index argument of the registers' cells, for each action of a mirrored table.
    index_args: HashMap<pathcall_p4::ir::ActionId, usize>,
    /// Keys of mirrored tables whose values belong to partitions.
    steered: Vec<SteeredKey>,
    /// First and end of the entry numbers of exact tables, the only ones that [`LeaseHolder::FOREIGN_ENTRY`] applies
    /// to.
    exact: Vec<(EntryNumber, EntryNumber, TableId)>,
    /// Flows whose packets made entries at this server.
    flows: Flows,
    /// Flows known only to the handler's variables; `None` if the handler has no variables.
    untracked: Option<UntrackedFlows>,
    repeats: RequestRepeatFilter,
    groups: Groups,
    request: Vec<u128>,
    /// Index of each sent parameter in the request.
    sent_params: Vec<usize>,
    /// Parameters computed at this server.
    derived: Option<DerivedParams>,
    response: Vec<u128>,
    stats: Stats,
}

/// Fields of the request header.
#[derive(Debug)]
struct Fields {
    number: HeaderField,
    period: HeaderField,
    entry: HeaderField,
    turn: HeaderField,
    version: HeaderField,
    bucket: HeaderField,
    values: Vec<(RegisterId, HeaderField)>,
}

impl<H: FunctionHandler> HandlerServer<H> {
    /// Server with this id and an instance of the handler.
    ///
    /// # Panics
    /// If the header of `split` lacks a field of the generated code, which [`pathcall_p4::split::split`] never produces.
    #[must_use]
    pub fn new(id: ServerId, split: &SplitFunction, handler: H) -> Self {
        let layout = split.layout.clone();
        let balance = &split.generated.balance;
        let field = |slot| {
            let found = layout.travelling.iter().find(|field| field.slot == Some(slot));
            found.cloned().expect("what travels is laid out")
        };
        let vars = &balance.vars;
        let fields = Fields {
            number: field(vars.number.slot),
            period: field(vars.period.slot),
            entry: field(vars.entry.slot),
            turn: field(vars.turn.slot),
            version: field(vars.version.slot),
            bucket: field(vars.bucket.slot),
            values: vars.values.iter().map(|(register, var)| (*register, field(var.slot))).collect(),
        };
        let acting = balance.tables.iter().flat_map(|table| &table.actions);
        let index_args = acting.filter_map(|acting| Some((acting.of_server, acting.index_arg?))).collect();
        let params = &split.handler.request;
        let param = |slot: SlotId| params.iter().position(|param| *param == slot).expect("a parameter of the request");
        let derived = DerivedParams::of(split);
        let exact = balance.tables.iter().filter(|mirrored| handler.lpm(mirrored.table).is_none());
        let exact = exact.map(|of| (of.first_number, of.first_number + of.numbers, of.table)).collect();
        let mut server = Self {
            request: vec![0; params.len()],
            sent_params: layout.request.iter().map(|field| param(field.slot.expect("a value"))).collect(),
            derived,
            response: vec![0; layout.response.len()],
            holder: LeaseHolder::new(id),
            handler,
            layout,
            fields,
            index_args,
            steered: split.generated.steered.clone(),
            exact,
            flows: Flows::default(),
            untracked: (!split.handler.state.text.trim().is_empty()).then(UntrackedFlows::default),
            repeats: RequestRepeatFilter::default(),
            groups: Groups::default(),
            stats: Stats::default(),
        };
        // Entries that a handler inserts at its start do not belong to a packet's flow.
        while server.handler.poll_change().is_some() {}
        server
    }

    /// Processes a frame in place.
    pub fn handle(&mut self, now_us: u64, frame: &mut [u8]) -> FrameAnswer {
        match self.process_request(now_us, frame) {
            Ok(()) => FrameAnswer::Send,
            Err(error) => {
                self.stats.refused += 1;
                FrameAnswer::Refused(error)
            }
        }
    }

    fn process_request(&mut self, now_us: u64, frame: &mut [u8]) -> Result<(), pathcall_wire::Error> {
        let wrong = |field, value: u16| Err(pathcall_wire::Error::Value { field, value: value.into() });
        let mut frame = FunctionFrame::new_checked(frame, self.layout.length)?;
        if frame.ether_type() != REQUEST {
            return wrong("ether_type", frame.ether_type());
        }
        if frame.head().function() != self.layout.function {
            return wrong("function", frame.head().function());
        }
        let header = frame.header();
        let (number, period) = (self.fields.number.read(header) as u32, self.fields.period.read(header) as u16);
        if self.repeats.is_repeat(number, period) {
            self.stats.repeated += 1;
            return Err(pathcall_wire::Error::Value { field: "number", value: number.into() });
        }
        self.stats.requests += 1;
        for (at, field) in self.sent_params.iter().zip(&self.layout.request) {
            self.request[*at] = field.read(header);
        }
        if let Some(derived) = &mut self.derived {
            derived.compute(frame.packet(), &mut self.request);
        }
        let entry = (self.fields.entry.read(header) as EntryNumber).checked_sub(1);
        let tag = (self.fields.version.read(header) as Version, self.fields.bucket.read(header) as u16);
        self.take_values(entry, header);
        self.response.fill(0);
        let outcome = self.handler.handle(now_us / 1000, &self.request, frame.packet(), &mut self.response);
        let touched = self.handler.touched();
        if let (Some(untracked), None, false) =
            (&mut self.untracked, &touched, mutant::on(Mutant::HeldUnlistedForgotten))
        {
            untracked.record_packet(now_us, tag);
        }
        let changed = self.record_changes(touched.as_ref(), tag);
        let own = touched.as_ref().and_then(|t| self.holder.number(&self.handler, t.table, &t.keys, &t.key));
        let named = [changed, entry, own].into_iter().flatten();
        let turn = named.filter_map(|number| Some((number, self.holder.responded(number)?))).next();
        let values = turn.and_then(|(number, _)| self.cell(number));
        let turn = turn.or_else(|| Some((self.foreign_entry(entry?, touched.as_ref())?, LeaseHolder::FOREIGN_ENTRY)));
        let header = frame.header_mut();
        let params = function::HEADER..function::HEADER + self.layout.params;
        header[params].fill(0);
        for (value, field) in self.response.iter().zip(&self.layout.response) {
            field.write(header, *value & bits::mask(field.ty.width()));
        }
        self.fields.entry.write(header, turn.map_or(0, |(number, _)| u128::from(number) + 1));
        // A request without register values has none to return.
        let carries = u16::from(values.is_some());
        self.fields.turn.write(header, turn.map_or(0, |(_, turn)| u128::from(turn & !1 | carries)));
        if let Some(cell) = values {
            for (register, field) in &self.fields.values {
                field.write(header, self.handler.register(*register, cell));
            }
        }
        let flags = match outcome {
            HandlerOutcome::Respond => 0,
            HandlerOutcome::Drop(_) => {
                self.stats.ended += 1;
                FunctionFlags::ENDED
            }
            HandlerOutcome::Trap => {
                self.stats.trapped += 1;
                FunctionFlags::ENDED
            }
        };
        frame.head_mut().set_flags(flags);
        frame.turn();
        Ok(())
    }

    /// Stores the request's register values of the entry, if they are newer than the server's own.
    fn take_values(&mut self, entry: Option<EntryNumber>, header: &[u8]) {
        let turn = self.fields.turn.read(header) as u16;
        let Some(number) = entry.filter(|number| self.holder.requested(*number, turn)) else { return };
        let Some(cell) = self.cell(number) else { return };
        for (register, field) in &self.fields.values {
            self.handler.set_register(*register, cell, field.read(header));
        }
    }

    /// Cell of the mirrored registers that the entry with this number names.
    fn cell(&self, number: EntryNumber) -> Option<u32> {
        if self.fields.values.is_empty() {
            return None;
        }
        let (table, keys) = self.holder.held(number)?;
        let entry = self.handler.entry(table, keys)?;
        let index = *entry.args.get(*self.index_args.get(&entry.action)?)?;
        u32::try_from(index).ok().map(|index| index ^ u32::from(mutant::on(Mutant::HeldOtherCell)))
    }

    /// Number of an entry in the element that this server does not have, although the packet's flow is here: the entry
    /// remains from an earlier server of the flow. Operators' entries are the same at all servers and do not count.
    fn foreign_entry(&self, number: EntryNumber, touched: Option<&TouchedEntry>) -> Option<EntryNumber> {
        let of = |(first, end, _): &&(EntryNumber, EntryNumber, TableId)| (*first..*end).contains(&number);
        let (_, _, table) = self.exact.iter().find(of)?;
        let shared = |touched: &TouchedEntry| {
            touched.table == *table && self.flows.last(&(touched.table, touched.keys.clone())).is_none()
        };
        (!touched.is_some_and(shared)).then_some(number)
    }

    /// Handles the table changes made by a packet about this entry. Returns the first changed entry that the element
    /// has.
    fn record_changes(&mut self, touched: Option<&TouchedEntry>, tag: GroupTag) -> Option<EntryNumber> {
        let about = touched.map(|touched| (touched.table, touched.keys.clone()));
        let mut flow = self.flows.record_packet(about.as_ref(), tag);
        self.apply_changes(|flows, entry| flow = Some(flows.record_entry(entry, flow, tag)))
    }

    /// Handles the changes of the tables, and calls `put` with each entry that was inserted or changed. Returns the
    /// first changed entry that the element has.
    fn apply_changes(&mut self, mut put: impl FnMut(&mut Flows, (TableId, Vec<Match>))) -> Option<EntryNumber> {
        let mut first = None;
        while let Some((table, change)) = self.handler.poll_change() {
            let keys = match &change {
                TableChange::Put(entry) => &entry.keys,
                TableChange::Removed(keys) => keys,
            };
            let numbers = self.holder.changed(&self.handler, table, keys);
            first = first.or(numbers.first().copied());
            match change {
                TableChange::Put(entry) => put(&mut self.flows, (table, entry.keys)),
                TableChange::Removed(keys) => self.flows.remove_entry(&(table, keys)),
            }
        }
        first
    }

    /// Sets the newest version with this server's buckets, and the previous one while flows need it
    /// ([`crate::scale::Output::Group`]).
    pub fn set_group(&mut self, version: Version, buckets: &[u16], old: Option<(Version, &[u16])>) {
        self.groups = Groups::new(version, buckets, old);
    }

    /// Number of flows with state here, number of those that the element assigns to this server only by the previous
    /// group, and the newest version, on which that is based.
    #[must_use]
    pub fn flows(&self) -> (u64, u64, Version) {
        let untracked = self.untracked.as_ref().map_or(0, |untracked| untracked.old(&self.groups));
        (self.flows.len(), self.flows.old(&self.groups) + untracked, self.groups.newest)
    }

    /// Drains old flows ([`crate::scale::Output::Drain`]): entries of flows that stay at this server are recalled from
    /// the element, so that the next packet belongs to the newest group; entries idle for `idle` expire.
    pub fn drain(&mut self, now_us: u64, idle: Option<Duration>) {
        let old = self.flows.entries_of_old(&self.groups);
        let old: Vec<_> = old.map(|(entry, bucket)| (entry.clone(), self.groups.has(bucket))).collect();
        for ((table, keys), stays) in old {
            if self.holder.is_leased(table, &keys) {
                if stays {
                    self.holder.recall_entry(table, &keys);
                }
            } else if let Some(idle) = idle {
                self.handler.expire_if_idle(now_us / 1000, table, &keys, idle.as_millis() as u64);
            }
        }
        self.apply_changes(|_, _| ());
    }

    /// Whether an entry has a value of this range of a partition.
    #[must_use]
    pub fn uses(&self, partition: usize, (first, last): (u128, u128)) -> bool {
        let mut used = false;
        for key in self.steered.iter().filter(|key| key.partition == partition) {
            self.handler
                .each_entry(key.table, &mut |entry| used |= (first..=last).contains(&entry.keys[key.key].value));
        }
        used
    }

    /// Leases an entry ([`crate::place::Output::Lease`]).
    pub fn lease(&mut self, now_us: u64, table: TableId, key: &[u128], number: EntryNumber) {
        let entry = self.handler.lookup(table, key).map(|entry| (table, entry.keys));
        let last = entry.and_then(|entry| self.flows.last(&entry));
        if last.is_some_and(|tag| self.groups.is_diverted(tag)) {
            return self.holder.refuse(number);
        }
        self.holder.lease(&self.handler, table, key, number);
        self.set_leased(now_us, number, true);
    }

    /// Stores the register values of an entry that left the element ([`crate::place::Output::Give`]).
    pub fn take(&mut self, given: &EntryValues) {
        let newer = self.holder.given(given.number, given.turn);
        if let (true, Some(cell)) = (newer, self.cell(given.number)) {
            for ((register, _), value) in self.fields.values.iter().zip(&given.values) {
                self.handler.set_register(*register, cell, *value);
            }
        }
    }

    /// Ends the lease of an entry ([`crate::place::Output::Release`]).
    pub fn release(&mut self, now_us: u64, number: EntryNumber) {
        self.set_leased(now_us, number, false);
        self.holder.released(&self.handler, number);
    }

    fn set_leased(&mut self, now_us: u64, number: EntryNumber, leased: bool) {
        if let Some((table, keys)) = self.holder.held(number) {
            self.handler.set_leased(now_us / 1000, table, keys, leased);
        }
    }

    /// Adds an operator's entry, after the entries that cover it have left the element.
    pub fn add(&mut self, table: TableId, entry: TableEntry) {
        self.holder.add(&self.handler, table, entry);
    }

    /// Removes an operator's entry and recalls it from the element; false if it does not exist.
    pub fn remove(&mut self, table: TableId, keys: &[Match]) -> bool {
        self.holder.cancel_addition(table, keys);
        let removed = self.handler.remove(table, keys);
        self.apply_changes(|_, _| ());
        removed
    }

    /// Expires idle entries.
    pub fn expire(&mut self, now_us: u64) {
        self.handler.expire(now_us / 1000);
        self.untracked.iter_mut().for_each(|untracked| untracked.expire(now_us));
        self.apply_changes(|_, _| ());
    }

    /// Next output for the controller; also adds the entries that waited for a recall and can be added now.
    pub fn poll(&mut self) -> Option<LeaseOutput> {
        loop {
            match self.holder.poll()? {
                LeaseOutput::Add { table, entry } => {
                    self.handler.put(table, &entry);
                    self.apply_changes(|_, _| ());
                }
                output => return Some(output),
            }
        }
    }

    /// Sets this server's ranges of a partition.
    pub fn set_ranges(&mut self, partition: usize, ranges: &[(u128, u128)]) {
        self.handler.set_ranges(partition, ranges);
    }

    /// Counters of the server.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Handler of the function.
    #[must_use]
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// Number of leased entries.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.holder.leases()
    }
}
