//! What is around a handler on its server.

use std::collections::HashMap;
use std::time::Duration;

use pathcall_wire::function::{self, FunctionFlags, FunctionFrame, REQUEST};
use pathcall_wire::{Mutant, mutant};

use super::flows::{Came, Flows, Groups};
use super::made_here::MadeHere;
use super::unlisted::Unlisted;
use super::{Change, Handler, Outcome, Repeats, Touched};
use crate::interp::bits;
use crate::ir::{Entry, Match, RegisterId, SlotId, TableId};
use crate::place::{EntryNumber, Given, Holder, HolderOutput, ServerId};
use crate::scale::Version;
use crate::split::layout::{Field, Layout};
use crate::split::{Split, SteeredKey};

/// What to do with a frame that a server was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is a response now: send it back.
    Send,
    /// It is no request of this function.
    Refused(pathcall_wire::Error),
}

/// What a server counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Requests that were worked on.
    pub requests: u64,
    /// Frames that were no requests of this function.
    pub refused: u64,
    /// Requests that came before: a link repeated them.
    pub repeated: u64,
    /// Packets that the handler ended.
    pub ended: u64,
    /// Packets that were lost in a handler that failed.
    pub trapped: u64,
}

/// A server.
#[derive(Debug)]
pub struct Server<H> {
    handler: H,
    holder: Holder,
    layout: Layout,
    fields: Fields,
    /// For each action of a mirrored table: which argument is the index of registers' cells.
    index_args: HashMap<crate::ir::ActionId, usize>,
    /// Keys of mirrored tables that values of partitions are found by.
    steered: Vec<SteeredKey>,
    /// Numbers of exact tables' entries, first and behind the last: [`Holder::STRANGER`] is said of these only.
    exact: Vec<(EntryNumber, EntryNumber, TableId)>,
    /// Flows of which this server's packets made entries.
    flows: Flows,
    /// Flows that only variables of the handler know; none where it has no variables.
    unlisted: Option<Unlisted>,
    repeats: Repeats,
    groups: Groups,
    request: Vec<u128>,
    /// Which of the request's parameters each of the header's is.
    sent: Vec<usize>,
    /// Those that are worked out here.
    made_here: Option<MadeHere>,
    response: Vec<u128>,
    stats: Stats,
}

/// Where what travels stands in the header.
#[derive(Debug)]
struct Fields {
    number: Field,
    period: Field,
    entry: Field,
    turn: Field,
    version: Field,
    bucket: Field,
    values: Vec<(RegisterId, Field)>,
}

impl<H: Handler> Server<H> {
    /// A server of this number with an instance of the handler.
    ///
    /// # Panics
    /// If the header of `split` lacks what its own generated parts send: [`crate::split::split`] makes no such thing.
    #[must_use]
    pub fn new(id: ServerId, split: &Split, handler: H) -> Self {
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
        let made_here = MadeHere::of(split);
        let exact = balance.tables.iter().filter(|mirrored| handler.lpm(mirrored.table).is_none());
        let exact = exact.map(|of| (of.first_number, of.first_number + of.numbers, of.table)).collect();
        let mut server = Self {
            request: vec![0; params.len()],
            sent: layout.request.iter().map(|field| param(field.slot.expect("a value"))).collect(),
            made_here,
            response: vec![0; layout.response.len()],
            holder: Holder::new(id),
            handler,
            layout,
            fields,
            index_args,
            steered: split.generated.steered.clone(),
            exact,
            flows: Flows::default(),
            unlisted: (!split.handler.state.text.trim().is_empty()).then(Unlisted::default),
            repeats: Repeats::default(),
            groups: Groups::default(),
            stats: Stats::default(),
        };
        // What a handler begins with is an operator's, not a packet's.
        while server.handler.poll_change().is_some() {}
        server
    }

    /// Works on a frame, in place.
    pub fn handle(&mut self, now_us: u64, frame: &mut [u8]) -> Answer {
        match self.request(now_us, frame) {
            Ok(()) => Answer::Send,
            Err(error) => {
                self.stats.refused += 1;
                Answer::Refused(error)
            }
        }
    }

    fn request(&mut self, now_us: u64, frame: &mut [u8]) -> Result<(), pathcall_wire::Error> {
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
        if self.repeats.came(number, period) {
            self.stats.repeated += 1;
            return Err(pathcall_wire::Error::Value { field: "number", value: number.into() });
        }
        self.stats.requests += 1;
        for (at, field) in self.sent.iter().zip(&self.layout.request) {
            self.request[*at] = field.read(header);
        }
        if let Some(made_here) = &mut self.made_here {
            made_here.make(frame.packet(), &mut self.request);
        }
        let entry = (self.fields.entry.read(header) as EntryNumber).checked_sub(1);
        let came = (self.fields.version.read(header) as Version, self.fields.bucket.read(header) as u16);
        self.take_values(entry, header);
        self.response.fill(0);
        let outcome = self.handler.handle(now_us / 1000, &self.request, frame.packet(), &mut self.response);
        let touched = self.handler.touched();
        if let (Some(unlisted), None, false) = (&mut self.unlisted, &touched, mutant::on(Mutant::HeldUnlistedForgotten))
        {
            unlisted.came(now_us, came);
        }
        let changed = self.changes(touched.as_ref(), came);
        let own = touched.as_ref().and_then(|t| self.holder.number(&self.handler, t.table, &t.keys, &t.key));
        let named = [changed, entry, own].into_iter().flatten();
        let turn = named.filter_map(|number| Some((number, self.holder.responded(number)?))).next();
        let values = turn.and_then(|(number, _)| self.cell(number));
        let turn = turn.or_else(|| Some((self.stranger(entry?, touched.as_ref())?, Holder::STRANGER)));
        let header = frame.header_mut();
        let params = function::HEADER..function::HEADER + self.layout.params;
        header[params].fill(0);
        for (value, field) in self.response.iter().zip(&self.layout.response) {
            field.write(header, *value & bits::mask(field.ty.width()));
        }
        self.fields.entry.write(header, turn.map_or(0, |(number, _)| u128::from(number) + 1));
        // Without values of registers there is nothing to take back.
        let carries = u16::from(values.is_some());
        self.fields.turn.write(header, turn.map_or(0, |(_, turn)| u128::from(turn & !1 | carries)));
        if let Some(cell) = values {
            for (register, field) in &self.fields.values {
                field.write(header, self.handler.register(*register, cell));
            }
        }
        let ended = match outcome {
            Outcome::Respond => 0,
            Outcome::Drop(_) => {
                self.stats.ended += 1;
                FunctionFlags::ENDED
            }
            Outcome::Trap => {
                self.stats.trapped += 1;
                FunctionFlags::ENDED
            }
        };
        frame.head_mut().set_flags(ended);
        frame.turn();
        Ok(())
    }

    /// The element's values of the entry's registers, if they are newer than the server's own.
    fn take_values(&mut self, entry: Option<EntryNumber>, header: &[u8]) {
        let turn = self.fields.turn.read(header) as u16;
        let Some(number) = entry.filter(|number| self.holder.requested(*number, turn)) else { return };
        let Some(cell) = self.cell(number) else { return };
        for (register, field) in &self.fields.values {
            self.handler.set_register(*register, cell, field.read(header));
        }
    }

    /// The cell of mirrored registers that the entry of this number names.
    fn cell(&self, number: EntryNumber) -> Option<u32> {
        if self.fields.values.is_empty() {
            return None;
        }
        let (table, keys) = self.holder.held(number)?;
        let entry = self.handler.entry(table, keys)?;
        let index = *entry.args.get(*self.index_args.get(&entry.action)?)?;
        u32::try_from(index).ok().map(|index| index ^ u32::from(mutant::on(Mutant::HeldOtherCell)))
    }

    /// An entry of the element that this server has no part in, though the packet is of a flow that is here: it is left
    /// over from a server that the flow was at before. What an operator put in is the same at all servers.
    fn stranger(&self, number: EntryNumber, touched: Option<&Touched>) -> Option<EntryNumber> {
        let of = |(first, end, _): &&(EntryNumber, EntryNumber, TableId)| (*first..*end).contains(&number);
        let (_, _, table) = self.exact.iter().find(of)?;
        let shared = |touched: &Touched| {
            touched.table == *table && self.flows.last(&(touched.table, touched.keys.clone())).is_none()
        };
        (!touched.is_some_and(shared)).then_some(number)
    }

    /// Takes note of what a packet, about this entry, has done to the tables. The first entry among them that the element
    /// has.
    fn changes(&mut self, touched: Option<&Touched>, came: Came) -> Option<EntryNumber> {
        let about = touched.map(|touched| (touched.table, touched.keys.clone()));
        let mut flow = self.flows.came(about.as_ref(), came);
        self.changed(|flows, entry| flow = Some(flows.made(entry, flow, came)))
    }

    /// Takes note of what happened to the tables; `put`: of each entry that came, or says something else. The first entry
    /// among them that the element has.
    fn changed(&mut self, mut put: impl FnMut(&mut Flows, (TableId, Vec<Match>))) -> Option<EntryNumber> {
        let mut first = None;
        while let Some((table, change)) = self.handler.poll_change() {
            let keys = match &change {
                Change::Put(entry) => &entry.keys,
                Change::Removed(keys) => keys,
            };
            let numbers = self.holder.changed(&self.handler, table, keys);
            first = first.or(numbers.first().copied());
            match change {
                Change::Put(entry) => put(&mut self.flows, (table, entry.keys)),
                Change::Removed(keys) => self.flows.gone(&(table, keys)),
            }
        }
        first
    }

    /// The newest version, and this server's buckets in it; of the one before, if flows need that
    /// ([`crate::scale::Output::Group`]).
    pub fn set_group(&mut self, version: Version, buckets: &[u16], old: Option<(Version, &[u16])>) {
        self.groups = Groups::new(version, buckets, old);
    }

    /// Flows that have entries here; of them, those that the element knows to be this server's only by the group before;
    /// and the newest version, by which that is so.
    #[must_use]
    pub fn flows(&self) -> (u64, u64, Version) {
        let unlisted = self.unlisted.as_ref().map_or(0, |unlisted| unlisted.old(&self.groups));
        (self.flows.len(), self.flows.old(&self.groups) + unlisted, self.groups.newest)
    }

    /// Somebody waits for old flows ([`crate::scale::Output::Drain`]): entries that the element has, of flows that stay with
    /// this server, leave it, so that the next packet is one of the newest group; and what nothing used for `idle` goes.
    pub fn drain(&mut self, now_us: u64, idle: Option<Duration>) {
        let old = self.flows.entries_of_old(&self.groups);
        let old: Vec<_> = old.map(|(entry, bucket)| (entry.clone(), self.groups.has(bucket))).collect();
        for ((table, keys), stays) in old {
            if self.holder.is_leased(table, &keys) {
                if stays {
                    self.holder.recall_entry(table, &keys);
                }
            } else if let Some(idle) = idle {
                self.handler.let_go(now_us / 1000, table, &keys, idle.as_millis() as u64);
            }
        }
        self.changed(|_, _| ());
    }

    /// Whether an entry still has a value of this range of a partition.
    #[must_use]
    pub fn uses(&self, partition: usize, (first, last): (u128, u128)) -> bool {
        let mut used = false;
        for key in self.steered.iter().filter(|key| key.partition == partition) {
            self.handler
                .each_entry(key.table, &mut |entry| used |= (first..=last).contains(&entry.keys[key.key].value));
        }
        used
    }

    /// The controller asks for an entry ([`crate::place::Output::Lease`]).
    pub fn lease(&mut self, now_us: u64, table: TableId, key: &[u128], number: EntryNumber) {
        let entry = self.handler.lookup(table, key).map(|entry| (table, entry.keys));
        let last = entry.and_then(|entry| self.flows.last(&entry));
        if last.is_some_and(|came| self.groups.is_astray(came)) {
            return self.holder.refuse(number);
        }
        self.holder.lease(&self.handler, table, key, number);
        self.mark(now_us, number, true);
    }

    /// An entry that the element no longer uses has these values there ([`crate::place::Output::Give`]).
    pub fn take(&mut self, given: &Given) {
        let newer = self.holder.given(given.number, given.turn);
        if let (true, Some(cell)) = (newer, self.cell(given.number)) {
            for ((register, _), value) in self.fields.values.iter().zip(&given.values) {
                self.handler.set_register(*register, cell, *value);
            }
        }
    }

    /// An entry is this server's again ([`crate::place::Output::Release`]).
    pub fn release(&mut self, now_us: u64, number: EntryNumber) {
        self.mark(now_us, number, false);
        self.holder.released(&self.handler, number);
    }

    fn mark(&mut self, now_us: u64, number: EntryNumber, leased: bool) {
        if let Some((table, keys)) = self.holder.held(number) {
            self.handler.set_leased(now_us / 1000, table, keys, leased);
        }
    }

    /// An operator adds an entry; it comes when what covers it has left the element.
    pub fn add(&mut self, table: TableId, entry: Entry) {
        self.holder.add(&self.handler, table, entry);
    }

    /// An operator takes an entry out; what the element has of it is recalled. False: there was none.
    pub fn remove(&mut self, table: TableId, keys: &[Match]) -> bool {
        self.holder.forget(table, keys);
        let removed = self.handler.remove(table, keys);
        self.changed(|_, _| ());
        removed
    }

    /// Time has passed.
    pub fn expire(&mut self, now_us: u64) {
        self.handler.expire(now_us / 1000);
        self.unlisted.iter_mut().for_each(|unlisted| unlisted.expire(now_us));
        self.changed(|_, _| ());
    }

    /// What the controller is to be told; entries that may be added now are.
    pub fn poll(&mut self) -> Option<HolderOutput> {
        loop {
            match self.holder.poll()? {
                HolderOutput::Add { table, entry } => {
                    self.handler.put(table, &entry);
                    self.changed(|_, _| ());
                }
                said => return Some(said),
            }
        }
    }

    /// The ranges of a partition that are this server's.
    pub fn set_ranges(&mut self, partition: usize, ranges: &[(u128, u128)]) {
        self.handler.set_ranges(partition, ranges);
    }

    /// What was counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The handler.
    #[must_use]
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// Entries that the element has.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.holder.leases()
    }
}
