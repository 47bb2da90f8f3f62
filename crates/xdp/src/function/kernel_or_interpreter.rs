//! Execution of a program in the kernel, or as a whole in user space if the kernel lacks something that it needs.

use pathcall_p4::emit::xdp::{Unsupported, unsupported};
use pathcall_p4::exec::{CounterValue, DropReason, Execution, Output, TableError};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{ActionId, CounterId, Match, Program, RegisterId, TableEntry, TableId};

use super::{Config, Error, XdpFunction};

/// Execution of a program in the kernel or in user space, with the same results.
#[derive(Debug)]
pub enum KernelOrInterpreter {
    /// Execution in the kernel.
    Kernel(Box<XdpFunction>),
    /// Execution in user space, with the constructs that the kernel does not support.
    UserSpace(Box<Interpreter>, Vec<Unsupported>),
}

impl KernelOrInterpreter {
    /// Loads a program into the kernel, or prepares it in user space if it has constructs that XDP does not support.
    /// Single packets are never handed over: they would find other tables and registers, and might be overtaken.
    ///
    /// # Errors
    /// Errors of [`XdpFunction::load`], except [`Error::Unsupported`]; or the program cannot be run at all.
    pub fn load(program: &Program, config: &Config) -> Result<Self, Error> {
        let lacking = unsupported(program);
        if lacking.is_empty() {
            return Ok(Self::Kernel(Box::new(XdpFunction::load(program, config)?)));
        }
        Ok(Self::UserSpace(Box::new(Interpreter::new(program)?), lacking))
    }

    fn execution(&self) -> &dyn Execution {
        match self {
            Self::Kernel(kernel) => &**kernel,
            Self::UserSpace(interpreter, _) => &**interpreter,
        }
    }

    fn execution_mut(&mut self) -> &mut dyn Execution {
        match self {
            Self::Kernel(kernel) => &mut **kernel,
            Self::UserSpace(interpreter, _) => &mut **interpreter,
        }
    }
}

impl Execution for KernelOrInterpreter {
    fn process(&mut self, now_us: u64, port: u16, packet: &[u8], out: &mut dyn FnMut(Output<'_>)) {
        self.execution_mut().process(now_us, port, packet, out);
    }

    fn insert(&mut self, table: TableId, entry: &TableEntry) -> Result<(), TableError> {
        self.execution_mut().insert(table, entry)
    }

    fn modify(&mut self, table: TableId, entry: &TableEntry) -> Result<(), TableError> {
        self.execution_mut().modify(table, entry)
    }

    fn remove(&mut self, table: TableId, keys: &[Match]) -> Result<(), TableError> {
        self.execution_mut().remove(table, keys)
    }

    fn set_default(&mut self, table: TableId, action: ActionId, args: &[u128]) -> Result<(), TableError> {
        self.execution_mut().set_default(table, action, args)
    }

    fn take_used(&mut self, table: TableId, each: &mut dyn FnMut(&TableEntry)) {
        self.execution_mut().take_used(table, each);
    }

    fn entries(&self, table: TableId) -> usize {
        self.execution().entries(table)
    }

    fn register(&self, register: RegisterId, index: u32) -> u128 {
        self.execution().register(register, index)
    }

    fn set_register(&mut self, register: RegisterId, index: u32, value: u128) {
        self.execution_mut().set_register(register, index, value);
    }

    fn counter(&self, counter: CounterId, index: u32) -> CounterValue {
        self.execution().counter(counter, index)
    }

    fn set_group(&mut self, group: u16, ports: &[(u16, u16)]) {
        self.execution_mut().set_group(group, ports);
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.execution().dropped(reason)
    }
}
