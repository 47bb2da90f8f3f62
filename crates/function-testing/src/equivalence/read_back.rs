//! Execution of emitted P4 that was read back by our own front end, addressed by the original program's ids.

use pathcall_p4::emit::p4::{digest_names, emit, identifier};
use pathcall_p4::exec::{CounterValue, DropReason, Execution, Output, TableError};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{ActionId, CounterId, Match, Program, RegisterId, TableEntry, TableId};
use pathcall_p4::{DiagnosticReport, Input, Sources, compile};

/// Execution of the program that was read back, addressed by the ids of the original.
#[derive(Debug)]
pub struct ReadBackProgram {
    inner: Interpreter,
    tables: Vec<u32>,
    actions: Vec<u32>,
    registers: Vec<u32>,
    counters: Vec<u32>,
    /// Names of digests, in the text and in the program.
    digests: Vec<(String, String)>,
}

impl ReadBackProgram {
    /// Emits a program as P4, and compiles the text.
    ///
    /// # Errors
    /// Errors of the compiler, with the text.
    pub fn new(program: &Program) -> Result<Self, String> {
        let text = emit(program).map_err(|refused| refused.to_string())?;
        let mut sources = Sources::default();
        let input = Input::Text { name: "emitted.p4".into(), text: text.clone() };
        let again =
            compile(&mut sources, input).map_err(|wrong| format!("{}\n{text}", DiagnosticReport(&wrong, &sources)))?;
        Ok(Self::of(program, &again))
    }

    fn of(program: &Program, again: &Program) -> Self {
        /// Ids in the read-back program by name; the text's names have the control as a prefix.
        fn numbers<'a>(
            of: impl Iterator<Item = &'a String>,
            again: impl Iterator<Item = &'a String> + Clone,
        ) -> Vec<u32> {
            let at = |name: &String| {
                let own = format!(".{}", identifier(name));
                let found = again.clone().position(|other| format!(".{other}").ends_with(&own));
                // Actions that no table lists are not emitted, and are never used.
                found.map_or(u32::MAX, |at| at as u32)
            };
            of.map(at).collect()
        }
        Self {
            digests: digest_names(program),
            inner: Interpreter::new(again).expect("well-typed"),
            tables: numbers(program.tables.iter().map(|t| &t.name), again.tables.iter().map(|t| &t.name)),
            actions: numbers(program.actions.iter().map(|a| &a.name), again.actions.iter().map(|a| &a.name)),
            registers: numbers(program.registers.iter().map(|r| &r.name), again.registers.iter().map(|r| &r.name)),
            counters: numbers(program.counters.iter().map(|c| &c.name), again.counters.iter().map(|c| &c.name)),
        }
    }

    fn table(&self, table: TableId) -> TableId {
        TableId(self.tables[table.0 as usize])
    }

    fn action(&self, action: ActionId) -> ActionId {
        ActionId(self.actions[action.0 as usize])
    }

    fn entry(&self, entry: &TableEntry) -> TableEntry {
        TableEntry { action: self.action(entry.action), ..entry.clone() }
    }
}

impl Execution for ReadBackProgram {
    fn process(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) {
        let Self { inner, digests, .. } = self;
        inner.process(now_us, port, packet, &mut |output| match output {
            Output::Digest { name, values } => {
                let known = digests.iter().find(|(text, _)| text == name);
                out(Output::Digest { name: known.map_or(name, |(_, name)| name), values });
            }
            output => out(output),
        });
    }
    fn insert(&mut self, table: TableId, entry: &TableEntry) -> Result<(), TableError> {
        self.inner.insert(self.table(table), &self.entry(entry))
    }
    fn modify(&mut self, table: TableId, entry: &TableEntry) -> Result<(), TableError> {
        self.inner.modify(self.table(table), &self.entry(entry))
    }
    fn remove(&mut self, table: TableId, keys: &[Match]) -> Result<(), TableError> {
        self.inner.remove(self.table(table), keys)
    }
    fn set_default(&mut self, table: TableId, action: ActionId, args: &[u128]) -> Result<(), TableError> {
        self.inner.set_default(self.table(table), self.action(action), args)
    }
    fn take_used(&mut self, table: TableId, each: &mut dyn FnMut(&TableEntry)) {
        self.inner.take_used(self.table(table), each);
    }
    fn entries(&self, table: TableId) -> usize {
        self.inner.entries(self.table(table))
    }
    fn register(&self, register: RegisterId, index: u32) -> u128 {
        self.inner.register(RegisterId(self.registers[register.0 as usize]), index)
    }
    fn set_register(&mut self, register: RegisterId, index: u32, value: u128) {
        self.inner.set_register(RegisterId(self.registers[register.0 as usize]), index, value);
    }
    fn counter(&self, counter: CounterId, index: u32) -> CounterValue {
        self.inner.counter(CounterId(self.counters[counter.0 as usize]), index)
    }
    fn set_group(&mut self, group: u16, ports: &[(u16, u16)]) {
        self.inner.set_group(group, ports);
    }
    fn dropped(&self, reason: DropReason) -> u64 {
        self.inner.dropped(reason)
    }
}
